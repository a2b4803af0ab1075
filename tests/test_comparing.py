"""`embedwatch.compare`: two sources opened alike, and what must not be taken for drift."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from embedwatch import Comparison, InputError, Snapshot, UsageError, Verdict, compare, open_source
from tests.topics import stream

Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    def write(name: str, rows: torch.Tensor, dtype: str = "float32") -> Path:
        path = tmp_path / name
        np.save(path, rows.numpy().astype(dtype))
        return path

    return write


@pytest.fixture
def old(save: Save) -> Path:
    return save("old.npy", stream(1_200, seed=0))


def drift(found: Comparison) -> Verdict:
    """Return what the check `drift` says."""
    (verdict,) = [verdict for verdict in found.verdicts if verdict.check == "drift"]
    return verdict


def test_rows_of_one_source_do_not_differ(save: Save, old: Path) -> None:
    found = compare(old, save("new.npy", stream(600, seed=1)))
    assert found.status == "ok"
    assert found.snapshot.space.model == "new.npy"
    assert (found.reference.label, found.reference.rows) == ("old.npy", 1_200)
    assert found.snapshot.provenance.coverage == {"rows_expected": 600, "rows_read": 600, "reference_rows": 1_200}
    assert found.errors == ()


def test_a_difference_is_found_and_everything_goes_through_json(save: Save, old: Path) -> None:
    found = compare(old, save("new.npy", stream(600, seed=1) * 1.3))
    assert found.status == "fail"
    assert found.counts()["fail"] >= 1
    assert drift(found).status == "fail"
    data = json.loads(json.dumps(found.to_json()))
    assert (data["schema"], data["status"], data["level"], data["reference"]["rows"]) == (1, "fail", 0.01, 1_200)
    assert Snapshot.from_json(data["snapshot"]) == found.snapshot
    assert {exhibit["name"] for exhibit in data["exhibits"]} >= {"foreign_rows", "cells_gained", "cells_lost"}


def test_sources_may_be_given(save: Save, old: Path) -> None:
    assert compare(open_source(old), open_source(save("new.npy", stream(600, seed=1)))).status == "ok"


def test_the_same_file_is_said_to_be_the_same(old: Path) -> None:
    found = compare(old, old)
    assert found.status == "ok"
    assert "both hold the same rows, bit for bit" in found.snapshot.provenance.notes
    assert found.snapshot.number("drift_known_ratio") == 0.5


def test_trap_4_another_type_of_storage_is_no_drift(save: Save, old: Path) -> None:
    rows = stream(600, seed=1)
    plain, half = compare(old, save("new.npy", rows)), compare(old, save("half.npy", rows, "float16"))
    assert half.snapshot.number("drift_p_value") == pytest.approx(plain.snapshot.number("drift_p_value"), abs=0.05)
    assert "stored as float32 and float16: both are compared as float16" in half.snapshot.provenance.notes
    again = compare(old, save("same.npy", stream(1_200, seed=0), "float16"))
    assert "both hold the same rows, bit for bit" in again.snapshot.provenance.notes


def test_normalised_against_not_is_named(save: Save, old: Path) -> None:
    found = compare(old, save("unit.npy", torch.nn.functional.normalize(stream(600, seed=1), dim=1)))
    assert found.status == "fail"
    assert "rows of unit.npy have length 1 and those of old.npy do not: normalise both, or neither" in (
        found.snapshot.provenance.notes
    )


def test_too_few_rows_to_compare_are_unknown_and_no_rows_too(save: Save, old: Path) -> None:
    for count in (0, 1, 60):
        found = compare(old, save("few.npy", stream(600, seed=1)[:count]))
        assert drift(found).status == "unknown"
        assert f"{count:,} rows" in drift(found).reason
        assert found.errors == ()


@pytest.mark.parametrize("count", [1, 199])
def test_too_few_rows_for_a_reference_are_refused(save: Save, old: Path, count: int) -> None:
    with pytest.raises(InputError, match=f"a reference must have at least 200 rows, got {count} in few.npy"):
        compare(save("few.npy", stream(600, seed=1)[:count]), old)


def test_a_reference_that_repeats_itself_is_too_short(save: Save, old: Path) -> None:
    found = compare(save("tiled.npy", stream(100, seed=0).repeat(10, 1)), old)
    assert drift(found).status == "unknown"
    assert drift(found).reason == "The reference is too short: it needs 200 rows that do not repeat."
    assert found.errors == ()
    same = compare(old, save("fitted.npy", stream(1_200, seed=0)[:600]))
    assert drift(same).reason.startswith("None of 600 rows could be compared")


def test_numbers_that_half_precision_cannot_hold_are_compared_all_the_same(save: Save, old: Path) -> None:
    half = save("half.npy", stream(600, seed=0), "float16")
    assert compare(half, save("huge.npy", 1e5 * stream(600, seed=1))).status == "fail"


def test_rows_that_are_no_numbers_are_left_out(save: Save, old: Path) -> None:
    rows = stream(600, seed=1)
    rows[::50] = torch.nan
    found = compare(old, save("holes.npy", rows))
    assert drift(found).status == "ok"
    assert found.status == "fail"
    assert [each.check for each in found.verdicts if each.status == "fail"] == ["nonfinite_rows"]
    assert found.snapshot.number("drift_rows") == 588
    assert "12 of 600 rows of holes.npy hold NaN or Inf and are left out" in found.snapshot.provenance.notes
    rows[:300] = torch.nan  # the first ones too, from which no length is known
    assert not any("length 1" in note for note in compare(old, save("half.npy", rows)).snapshot.provenance.notes)


def test_another_dimension_is_refused(save: Save, old: Path) -> None:
    with pytest.raises(InputError, match=r"`b` must have 16 dimensions like old.npy, got 9 in other.npy"):
        compare(old, save("other.npy", torch.randn(300, 9)))


def test_dimensions_that_were_cut_off_are_told(save: Save) -> None:
    scale = 0.2 + torch.rand(40, generator=torch.Generator().manual_seed(0))
    rows = stream(900, seed=0, dimension=40) * scale
    whole, cut = save("whole.npy", rows[:600]), save("cut.npy", torch.nn.functional.normalize(rows[600:, :24], dim=1))
    with pytest.raises(InputError, match=r"; cut\.npy looks like the first 24 of 40 dimensions: restore the others"):
        compare(whole, cut)
    with pytest.raises(InputError, match="; vectors of two models do not compare"):
        compare(whole, save("other.npy", torch.randn(300, 24, generator=torch.Generator().manual_seed(0))))


def test_what_changed_is_named(save: Save, old: Path) -> None:
    rows = stream(600, seed=1)
    turn = torch.linalg.qr(torch.randn(16, 16, generator=torch.Generator().manual_seed(2)))[0]
    named = {}
    for name, changed in (("same", rows), ("turned", rows @ turn), ("grown", 1.05 * rows), ("low", rows.bfloat16())):
        found = compare(old, save(f"{name}.npy", changed.float()))
        named[name] = next(each.reason for each in found.verdicts if each.check == "what_changed").split()[0]
    assert named == {"same": "Nothing", "turned": "Rotation:", "grown": "Norms:", "low": "Precision:"}


def test_arguments_that_do_not_fit_are_refused(old: Path) -> None:
    with pytest.raises(UsageError, match=r"`level` must be a number from 0\.0005"):
        compare(old, old, level=1e-9)
    with pytest.raises(UsageError, match="`level` must be a number"):
        compare(old, old, level="x")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="given as a path or a Source, got ndarray"):
        compare(np.zeros((300, 4)), old)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="`pooling` must come with `model`"):
        compare(old, old, pooling="mean")
    with pytest.raises(UsageError, match="`select` must be left out with `model`"):
        compare(old, old, model="anything", select="x")


def test_a_small_level_tries_more_permutations(save: Save, old: Path) -> None:
    found = compare(old, save("new.npy", stream(600, seed=1) * 2), level=0.0005)
    assert found.status == "fail"
    assert found.snapshot.number("drift_p_value") == pytest.approx(2.5e-4)


def test_rows_are_named_by_their_own_source(tmp_path: Path, old: Path) -> None:
    rows = stream(600, seed=1) * 1.3
    for name, values in (("old", stream(1_200, seed=0)), ("new", rows)):
        lines = [
            f"{name}{place} {' '.join(f'{value:.5f}' for value in row)}" for place, row in enumerate(values.tolist())
        ]
        tmp_path.joinpath(f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
    found = compare(tmp_path / "old.txt", tmp_path / "new.txt", kind="glove")
    shown = {exhibit.name: exhibit for exhibit in found.exhibits}
    strange, gained, lost = (shown[name] for name in ("foreign_rows", "cells_gained", "cells_lost"))
    assert strange.columns == ("row", "name", "distance")
    assert all(row[1] == f"new{row[0]}" for row in strange.rows)
    assert all(row[-1] == f"new{row[-2]}" for row in gained.rows)
    assert all(row[-1] == f"old{row[-2]}" for row in lost.rows)
