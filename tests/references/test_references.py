"""References: made in one pass, written whole, believed only after a check, merged exactly."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from embedwatch import (
    InputError,
    MergeError,
    Reference,
    compare,
    create_reference,
    load_reference,
    save_reference,
)
from embedwatch.batch import VectorBatch
from embedwatch.core.snapshot import Space
from embedwatch.core.source import Source
from embedwatch.references import Fitting, Part
from embedwatch.stats.drift import Drift
from tests.topics import stream

FILES = ("reference.json", "maps.safetensors", "calibrating.safetensors", "whole.safetensors", "rows.safetensors")


def saved(path: Path, *, seed: int, count: int = 600, dtype: str = "float32") -> Path:
    np.save(path, stream(count, seed=seed).numpy().astype(dtype))
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return create_reference(saved(tmp_path_factory.mktemp("made") / "healthy.npy", seed=0, count=1_200))


@pytest.fixture
def folder(tmp_path: Path, made: Reference) -> Path:
    save_reference(made, tmp_path / "reference")
    return tmp_path / "reference"


class TestCreation:
    def test_it_holds_what_fit_gives(self, made: Reference) -> None:
        rows = stream(1_200, seed=0)
        plain = Drift.fit([VectorBatch(rows, torch.arange(1_200), source="healthy.npy")], rows=1_200)
        assert made.frozen("drift") == plain

    def test_plain_statistics_see_all_rows(self, made: Reference) -> None:
        assert made.snapshot().provenance.rows == 1_200
        norms = stream(1_200, seed=0).norm(dim=1)
        assert made.snapshot().number("norm_mean") == pytest.approx(float(norms.mean()), rel=1e-5)

    def test_several_sources_are_one_stream(self, tmp_path: Path, made: Reference) -> None:
        rows = stream(1_200, seed=0).numpy()
        paths = [tmp_path / "one.npy", tmp_path / "two.npy"]
        for path, part in zip(paths, (rows[:700], rows[700:]), strict=True):
            np.save(path, part)
        whole = create_reference(*paths)
        assert [(part.rows, part.start) for part in whole.origin.parts] == [(700, 0), (500, 700)]
        assert whole.origin.row_label(705) == ("two.npy", 5)
        assert torch.equal(whole.maps["drift"]["mean"], made.maps["drift"]["mean"])
        assert torch.allclose(whole.frozen("drift")["reference.sums"], made.frozen("drift")["reference.sums"])

    def test_the_coarsest_type_is_for_all(self, tmp_path: Path) -> None:
        one, two = saved(tmp_path / "a.npy", seed=0), saved(tmp_path / "b.npy", seed=1, dtype="float16")
        assert create_reference(one, two).origin.dtype == "float16"

    def test_rows_are_sampled_with_their_names(self, tmp_path: Path) -> None:
        lines = [
            f"word{place} {' '.join(f'{value:.5f}' for value in row)}" for place, row in enumerate(stream(300, seed=0))
        ]
        tmp_path.joinpath("words.txt").write_text("\n".join(lines), encoding="utf-8")
        kept = create_reference(tmp_path / "words.txt", kind="glove").kept
        assert kept is not None
        assert len(kept) == 300
        assert kept.names[7] == "word7"

    @pytest.mark.parametrize("count", [1, 199])
    def test_too_few_rows_are_refused(self, tmp_path: Path, count: int) -> None:
        with pytest.raises(InputError, match=f"a reference must have at least 200 rows, got {count} in few.npy"):
            create_reference(saved(tmp_path / "few.npy", seed=0, count=count))

    def test_too_few_finite_rows_are_refused(self, tmp_path: Path) -> None:
        rows = stream(600, seed=0)
        rows[100:] = torch.nan
        np.save(tmp_path / "holes.npy", rows.numpy())
        with pytest.raises(InputError, match=r"at least 200 rows without NaN and Inf, got 100 in holes.npy"):
            create_reference(tmp_path / "holes.npy")

    def test_another_dimension_is_refused(self, tmp_path: Path, made: Reference) -> None:
        np.save(tmp_path / "wide.npy", torch.randn(300, 9).numpy())
        with pytest.raises(InputError, match=r"wide.npy must have 16 dimensions like a.npy, got 9"):
            create_reference(saved(tmp_path / "a.npy", seed=0), tmp_path / "wide.npy")
        with pytest.raises(InputError, match="must have 16 dimensions like the reference, got 9"):
            create_reference(tmp_path / "wide.npy", like=made)

    def test_a_statistic_that_fails_is_counted_and_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*given: Any) -> Any:
            raise ZeroDivisionError(given)

        fitting = Fitting(rows=400)
        monkeypatch.setattr(Drift, "add", broken)
        fitting.update(VectorBatch(stream(400, seed=0), torch.arange(400)))
        assert ("statistic", "drift") in fitting.boundary.errors
        monkeypatch.setattr("embedwatch.references.fitting.compared_statistics", lambda: {"drift": Drift})
        alone = Fitting(rows=400)
        alone.update(VectorBatch(stream(400, seed=0), torch.arange(400)))
        with pytest.raises(InputError, match="must hold rows that calibrate"):
            alone.reference(Space("x", "vectors"), [Part("x", 400, "ab")])


class TestFolder:
    def test_what_was_written_is_read(self, folder: Path, made: Reference) -> None:
        found = load_reference(folder)
        assert found.fingerprint == made.fingerprint
        assert found.origin == made.origin
        assert found.to_json() == made.to_json()
        assert found.snapshot() == made.snapshot()
        assert found.kept is not None
        assert made.kept is not None
        assert torch.equal(found.kept.rows, made.kept.rows)

    def test_without_rows_none_is_in_it(self, tmp_path: Path) -> None:
        source = saved(tmp_path / "healthy.npy", seed=0)
        save_reference(create_reference(source, keep_rows=False), tmp_path / "bare")
        assert sorted(path.name for path in tmp_path.joinpath("bare").iterdir()) == sorted(FILES[:-1])
        data = b"".join(path.read_bytes() for path in tmp_path.joinpath("bare").iterdir())
        rows = np.load(source)
        for kind in ("float32", "float16"):
            assert not any(row.astype(kind).tobytes() in data for row in rows)
        assert "hubness_skewness" in load_reference(tmp_path / "bare").unknown_without_rows()
        assert compare(tmp_path / "bare", saved(tmp_path / "new.npy", seed=1)).status == "ok"

    def test_nothing_is_overwritten_unasked(self, folder: Path, made: Reference, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="must not exist, got a reference; --replace replaces it"):
            save_reference(made, folder)
        save_reference(made, folder, replace=True)
        assert load_reference(folder).fingerprint == made.fingerprint
        tmp_path.joinpath("other").mkdir()
        with pytest.raises(InputError, match="got something else"):
            save_reference(made, tmp_path / "other", replace=True)

    def test_what_cannot_be_written_leaves_nothing(self, tmp_path: Path, made: Reference) -> None:
        tmp_path.joinpath("file").write_text("x")
        with pytest.raises(OSError):  # noqa: PT011 -- whichever the system says
            save_reference(made, tmp_path / "file" / "reference")
        assert [path.name for path in tmp_path.iterdir()] == ["file"]

    @pytest.mark.parametrize("name", FILES)
    def test_truncation_and_tampering_are_told(self, folder: Path, name: str) -> None:
        whole = folder.joinpath(name).read_bytes()
        for damaged in (b"", whole[: len(whole) // 2], whole[:-1], whole + b"x"):
            folder.joinpath(name).write_bytes(damaged)
            with pytest.raises(InputError) as refused:
                load_reference(folder)
            assert "\n" not in str(refused.value)
            assert str(folder) in str(refused.value)
        for place in range(0, len(whole), max(1, len(whole) // 97)):
            flipped = bytearray(whole)
            flipped[place] ^= 1
            folder.joinpath(name).write_bytes(bytes(flipped))
            with pytest.raises(InputError):
                load_reference(folder)
        folder.joinpath(name).unlink()
        with pytest.raises(InputError):
            load_reference(folder)

    @pytest.mark.parametrize("path", ["nothing", "file", "empty"])
    def test_what_is_no_reference_is_refused(self, tmp_path: Path, path: str) -> None:
        tmp_path.joinpath("file").write_text("x")
        tmp_path.joinpath("empty").mkdir()
        with pytest.raises(InputError, match="must be a folder that `embedwatch reference create` wrote"):
            load_reference(tmp_path / path)

    def test_another_schema_is_refused(self, folder: Path) -> None:
        manifest = json.loads(folder.joinpath("reference.json").read_text())
        folder.joinpath("reference.json").write_text(json.dumps({**manifest, "schema": 99}))
        with pytest.raises(InputError, match="the schema must be 1, got 99"):
            load_reference(folder)

    def test_it_may_be_moved(self, folder: Path, tmp_path: Path, made: Reference) -> None:
        shutil.move(folder, tmp_path / "elsewhere")
        assert load_reference(tmp_path / "elsewhere").fingerprint == made.fingerprint


class TestMerging:
    def test_parts_merge_to_one_pass(self, tmp_path: Path, made: Reference) -> None:
        """Numbers of parts lie far apart, so one pass must give each part its own, too."""
        paths = [saved(tmp_path / f"{seed}.npy", seed=seed) for seed in (1, 2, 3)]
        parts = [create_reference(path, like=made) for path in paths]
        one, two, three = parts
        merged = made.merge(one).merge(two).merge(three)
        other = made.merge(three.merge(two)).merge(one)
        together = made.merge(create_reference(*paths, like=made))
        assert merged.origin.rows == together.origin.rows == 3_000
        window = VectorBatch(stream(500, seed=9), torch.arange(500))
        answers = []
        for reference in (merged, other, together):
            (statistic,) = [each for each in reference.statistics() if each.name == "drift"]
            statistic.update(window)
            answers.append({m.key: m.number for m in statistic.compute() if m.number is not None})
        for answer in answers[1:]:
            assert answer == pytest.approx(answers[0], rel=1e-9)
        assert merged.snapshot().number("norm_mean") == pytest.approx(together.snapshot().number("norm_mean"))
        assert merged.kept is not None
        assert together.kept is not None
        assert torch.equal(merged.kept.rows, together.kept.rows)

    def test_a_merged_one_is_written_and_read(self, tmp_path: Path, made: Reference) -> None:
        merged = made.merge(create_reference(saved(tmp_path / "more.npy", seed=1), like=made))
        save_reference(merged, tmp_path / "merged")
        assert load_reference(tmp_path / "merged").fingerprint == merged.fingerprint
        assert load_reference(tmp_path / "merged").names([3, merged.origin.parts[1].start + 4]) == [
            "healthy.npy:3",
            "more.npy:4",
        ]

    def test_two_fits_do_not_merge(self, tmp_path: Path, made: Reference) -> None:
        other = create_reference(saved(tmp_path / "other.npy", seed=5))
        with pytest.raises(MergeError, match="must share their maps to merge, got two fits of "):
            made.merge(other)

    def test_the_same_rows_twice_do_not_merge(self, made: Reference) -> None:
        with pytest.raises(InputError, match=r"must hold different rows, got healthy.npy in both"):
            made.merge(made)

    def test_with_rows_and_without_do_not_merge(self, tmp_path: Path, made: Reference) -> None:
        source = saved(tmp_path / "more.npy", seed=1)
        with pytest.raises(InputError, match="must both keep rows or both not"):
            made.merge(create_reference(source, like=made, keep_rows=False))
        bare = create_reference(saved(tmp_path / "bare.npy", seed=0), keep_rows=False)
        part = create_reference(source, like=bare)
        with pytest.raises(InputError, match="must both keep rows or both not"):
            bare.merge(part)
        assert bare.merge(create_reference(source, like=bare, keep_rows=False)).origin.rows == 1_200

    def test_normalised_and_not_do_not_merge(self, tmp_path: Path, made: Reference) -> None:
        np.save(tmp_path / "unit.npy", torch.nn.functional.normalize(stream(600, seed=1), dim=1).numpy())
        with pytest.raises(InputError, match="rows of length 1 or both not"):
            made.merge(create_reference(tmp_path / "unit.npy", like=made))


class TestComparing:
    def test_a_saved_reference_says_what_its_rows_say(self, tmp_path: Path, folder: Path) -> None:
        healthy = saved(tmp_path / "healthy.npy", seed=0, count=1_200)
        for seed, scale in ((1, 1.0), (2, 1.3)):
            np.save(tmp_path / "new.npy", scale * stream(600, seed=seed).numpy())
            plain, kept = compare(healthy, tmp_path / "new.npy"), compare(folder, tmp_path / "new.npy")
            assert [m.number for m in kept.snapshot] == [m.number for m in plain.snapshot]
            assert [(v.check, v.status) for v in kept.verdicts] == [(v.check, v.status) for v in plain.verdicts]

    def test_another_dimension_is_refused(self, tmp_path: Path, folder: Path) -> None:
        np.save(tmp_path / "wide.npy", torch.randn(300, 9).numpy())
        with pytest.raises(InputError, match=r"wide.npy must have 16 dimensions like the reference, got 9"):
            compare(folder, tmp_path / "wide.npy")

    def test_normalised_against_not_is_named(self, tmp_path: Path, folder: Path) -> None:
        np.save(tmp_path / "unit.npy", torch.nn.functional.normalize(stream(600, seed=1), dim=1).numpy())
        notes = compare(folder, tmp_path / "unit.npy").snapshot.provenance.notes
        assert "rows of unit.npy have length 1 and those of healthy.npy do not: normalise both, or neither" in notes


class Hostile(Source, register=False):
    """A source whose rows carry no numbers."""

    name = "hostile"
    label, rows, dimension = "unnumbered", None, 16

    @classmethod
    def accepts(cls, path: Path) -> bool:
        del path
        return False

    @classmethod
    def open(cls, path: Path, *, select: str | None = None, labels: str | None = None) -> Source:
        del path, select, labels
        return cls()

    def batches(self, size: int) -> Iterator[VectorBatch]:
        for part in stream(600, seed=3).split(min(size, 100)):
            yield VectorBatch(part)

    def fingerprint(self) -> str:
        return "ab"

    def names(self, rows: Sequence[int]) -> list[str]:
        return [f"row {row}" for row in rows]


def test_rows_without_numbers_are_numbered_in_their_order() -> None:
    made = create_reference(Hostile())
    assert made.origin.rows == 600
    assert made.kept is not None
    assert made.kept.names[599] == "row 599"
