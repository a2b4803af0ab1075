"""`embedwatch.compare(by=...)`: segments by themselves, their mix, and the whole at the shares that it had."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from embedwatch import Comparison, InputError, UsageError, compare, create_reference, open_source, save_reference
from embedwatch.core.errors import InputError as SourceError
from embedwatch.core.verdict import Verdict
from embedwatch.geometry.mixes import g_statistics, mix_p_value, total_variation
from embedwatch.sources.chosen import ChosenRows
from tests.topics import DIMENSION, stream

NAMES = ("de", "en", "fr")


def labels_of(rows: int, shares: Sequence[float], *, seed: int, stay: float = 0.0) -> Tensor:
    """Return segments in order; each row stays in that of the one before with this probability."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.multinomial(torch.tensor(shares, dtype=torch.float64), rows, replacement=True, generator=generator)
    leaves = torch.rand(rows, generator=generator) >= stay
    return drawn[torch.where(leaves, torch.arange(rows), torch.tensor(0)).cummax(0).values]


def table(path: Path, rows: Tensor, labels: Tensor, names: Sequence[str] = NAMES) -> Path:
    """Write vectors whose segments lie apart, and the segment of each row."""
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["segment", *(f"x{number}" for number in range(DIMENSION))])
        for label, row in zip(labels.tolist(), rows.tolist(), strict=True):
            out.writerow([names[label], *(f"{value:.6g}" for value in row)])
    return path


def rows_of(labels: Tensor, *, seed: int) -> Tensor:
    return stream(len(labels), seed=seed) + 3.0 * labels[:, None] * torch.eye(DIMENSION)[0]


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    labels = labels_of(4_000, (1, 1, 1), seed=0)
    return table(tmp_path_factory.mktemp("segments") / "old.csv", rows_of(labels, seed=0), labels)


def verdict(found: Comparison, check: str) -> Verdict:
    (result,) = [each for each in found.verdicts if each.check == check]
    return result


def statuses(found: Comparison) -> dict[str, str]:
    assert found.segmented is not None
    return {name: verdict(part, "drift").status for name, part in found.segmented.segments.items()}


@pytest.mark.slow
def test_nothing_changed(tmp_path: Path, old: Path) -> None:
    labels = labels_of(2_500, (1, 1, 1), seed=1)
    found = compare(old, table(tmp_path / "new.csv", rows_of(labels, seed=1), labels), by="segment")
    assert verdict(found, "segment_mix").status == "ok"
    assert verdict(found, "drift").status == "ok"
    assert statuses(found) == dict.fromkeys(NAMES, "ok")
    assert found.status == "ok"


@pytest.mark.slow
def test_another_mix_is_told_as_mix_and_not_as_drift(tmp_path: Path, old: Path) -> None:
    labels = labels_of(4_000, (6, 2, 2), seed=1)
    new = table(tmp_path / "new.csv", rows_of(labels, seed=1), labels)
    assert compare(old, new).status != "ok", "without segments the mix looks like drift"
    found = compare(old, new, by="segment")
    mix = verdict(found, "segment_mix")
    assert mix.status == "warn", mix.reason
    assert found.snapshot.number("segment_mix_distance_ratio") == pytest.approx(0.6 - 1 / 3, abs=0.03)
    assert verdict(found, "drift").status == "ok", verdict(found, "drift").reason
    assert statuses(found) == dict.fromkeys(NAMES, "ok")
    assert found.status == "warn"
    smallest = int(torch.bincount(labels).min())
    assert found.snapshot.provenance.rows == pytest.approx(3 * smallest, rel=0.05)
    assert any(
        f"of 4,000 rows of new.csv that leaves {found.snapshot.provenance.rows:,}" in note for note in notes(found)
    )


def notes(found: Comparison) -> tuple[str, ...]:
    return found.snapshot.provenance.notes


def test_the_segment_that_drifted_is_named(tmp_path: Path, old: Path) -> None:
    labels = labels_of(4_000, (1, 1, 1), seed=1)
    rows = rows_of(labels, seed=1)
    rows[labels == 1] *= 1.3
    found = compare(old, table(tmp_path / "new.csv", rows, labels), by="segment")
    assert statuses(found) == {"de": "ok", "en": "fail", "fr": "ok"}
    assert verdict(found, "segment_mix").status == "ok"
    assert found.status == "fail"
    assert found.segmented is not None
    assert found.segmented.segments["en"].snapshot.space.segment == "en"
    data = json.loads(json.dumps(found.to_json()))
    assert (data["by"], data["segments"]["en"]["status"], data["left_out"]) == ("segment", "fail", {})


def test_segments_of_one_side_are_named_and_count_in_the_mix(tmp_path: Path, old: Path) -> None:
    labels = labels_of(3_000, (1, 1, 0, 1), seed=1)
    new = table(tmp_path / "new.csv", rows_of(labels, seed=1), labels, ("de", "en", "fr", "it"))
    found = compare(old, new, by="segment")
    assert found.segmented is not None
    assert found.segmented.left_out["fr"].startswith("only in the reference: ")
    assert found.segmented.left_out["it"].startswith("only in what is compared: ")
    assert found.snapshot.number("segment_mix_distance_ratio") == pytest.approx(1 / 3, abs=0.03)
    assert verdict(found, "segment_mix").status == "warn"
    assert verdict(found, "drift").status == "ok", "what both have did not change"


def test_a_segment_with_too_few_rows_is_left_out(tmp_path: Path, old: Path) -> None:
    labels = labels_of(2_000, (10, 10, 0.5), seed=1)
    found = compare(old, table(tmp_path / "new.csv", rows_of(labels, seed=1), labels), by="segment")
    assert found.segmented is not None
    assert "rows are too few: it takes 400 and 200" in found.segmented.left_out["fr"]
    assert set(statuses(found)) == {"de", "en"}


def test_what_does_not_fit_is_refused(tmp_path: Path, old: Path) -> None:
    labels = labels_of(90, (1, 1, 1), seed=1)
    few = table(tmp_path / "few.csv", rows_of(labels, seed=1), labels)
    with pytest.raises(InputError, match=r"`by` must name segments with at least 400 rows in old\.csv and 200 in"):
        compare(old, few, by="segment")
    with pytest.raises(InputError, match=r"`by` must name labels that old\.csv has, got 'segment' and none there"):
        compare(open_source(old), old, by="segment")
    with pytest.raises(UsageError, match="`by` must be left out with `model`"):
        compare(old, old, by="segment", model=tmp_path)
    save_reference(create_reference(old), tmp_path / "saved")
    with pytest.raises(UsageError, match="`by` must be left out with a saved reference"):
        compare(tmp_path / "saved", old, by="segment")


def test_chosen_rows_are_numbered_anew_and_keep_their_names(old: Path) -> None:
    source = open_source(old)
    chosen = torch.zeros(4_000, dtype=torch.bool)
    chosen[[3, 500, 3_999]] = True
    part = ChosenRows(source, chosen)
    whole = torch.cat([batch.rows for batch in source.batches(1_000)])
    for size in (1, 7, 5_000):
        batches = list(part.batches(size))
        assert torch.equal(torch.cat([batch.rows for batch in batches]), whole[chosen])
        assert torch.cat([batch.numbers for batch in batches]).tolist() == [0, 1, 2]
    assert part.names([2]) == source.names([3_999])
    assert part.fingerprint() != ChosenRows(source, ~chosen).fingerprint()
    for other in (chosen[:-1], torch.cat([chosen, chosen[:5]])):
        with pytest.raises(SourceError, match="rows as before"):
            list(ChosenRows(source, other).batches(999))


def test_g_is_that_of_the_formula() -> None:
    counts = torch.tensor([[30, 10], [20, 40]], dtype=torch.float64)
    found = g_statistics(counts, torch.tensor([[0.0, 1.0]], dtype=torch.float64))
    expected = 2 * sum(o * torch.log(torch.tensor(o / e)).item() for o, e in ((30, 20), (10, 20), (20, 30), (40, 30)))
    assert float(found) == pytest.approx(expected, rel=1e-6)
    assert total_variation(counts[0], counts[1]) == pytest.approx(0.75 - 1 / 3)


@pytest.mark.parametrize("stay", [0.0, 0.95])
def test_a_bursty_stream_is_no_change_of_the_mix(stay: float) -> None:
    alarms = 0
    for seed in range(40):
        labels = labels_of(4_000, (3, 2, 1), seed=seed, stay=stay)
        p_value, _ = mix_p_value(labels[:2_000], labels[2_000:], 3, permutations=99, seed=seed)
        assert p_value is not None
        alarms += p_value <= 0.05
    assert alarms <= 7, "5 % are 2; 8 and more come by chance in 0.1 % of such trials"


def test_labels_that_last_too_long_are_unknown() -> None:
    labels = torch.arange(3).repeat_interleave(300)
    assert mix_p_value(labels, labels, 3, permutations=99, seed=0)[0] is None
