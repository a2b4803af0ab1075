"""Rows go through a map into files that our own Sources read, whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
import torch

from embedwatch import Aligner, fit_aligner, open_source
from embedwatch.align.applying import apply_aligner
from embedwatch.batch import VectorBatch
from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.source import Source
from embedwatch.sources.row_files import write_rows
from embedwatch.testing.spaces import two_spaces

LEFT, RIGHT = two_spaces(700, left=96, right=64)


@pytest.fixture(scope="module")
def aligner() -> Aligner:
    return fit_aligner(LEFT, RIGHT, try_methods=("procrustes",), names=("new", "old"))


@pytest.fixture
def source(tmp_path: Path) -> Source:
    np.save(tmp_path / "in.npy", LEFT)
    found = open_source(tmp_path / "in.npy")
    found.batch_rows = 128  # several parts
    return found


def read(path: Path) -> np.ndarray:
    return np.concatenate([batch.rows.numpy() for batch in open_source(path).batches(100)])


@pytest.mark.parametrize("ending", [".npy", ".parquet", ".safetensors"])
def test_what_is_written_is_read_again(aligner: Aligner, source: Source, tmp_path: Path, ending: str) -> None:
    found = apply_aligner(aligner, source, tmp_path / f"out{ending}")
    assert np.array_equal(read(tmp_path / f"out{ending}"), aligner.transform(LEFT))
    assert (found.rows, found.dimension, found.unmapped) == (700, 64, 0)
    assert found.kinship is not None
    assert found.kinship > 0.8
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.npy", f"out{ending}"]


def test_other_libraries_read_it_too(aligner: Aligner, source: Source, tmp_path: Path) -> None:
    for ending in ("npy", "parquet", "safetensors"):
        apply_aligner(aligner, source, tmp_path / f"out.{ending}")
    wanted = aligner.transform(LEFT)
    assert np.array_equal(np.load(tmp_path / "out.npy", allow_pickle=False), wanted)
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column("id").to_pylist() == list(range(700))
    assert np.array_equal(np.stack(table.column("vector").to_numpy()), wanted)
    assert np.array_equal(safetensors.numpy.load_file(tmp_path / "out.safetensors")["vectors"], wanted)


def test_names_go_with_the_rows(aligner: Aligner, tmp_path: Path) -> None:
    names = [f"doc-{number:03d}" for number in range(700)]
    table = pa.table({"id": names, "embedding": list(LEFT)})
    pq.write_table(table, tmp_path / "in.parquet")
    found = apply_aligner(aligner, open_source(tmp_path / "in.parquet"), tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").column("id").to_pylist() == names
    assert not any("keeps no names" in note for note in found.notes)
    told = apply_aligner(aligner, open_source(tmp_path / "in.parquet"), tmp_path / "out.npy")
    assert any("keeps no names" in note for note in told.notes)


class Numbered(Source, register=False):
    """Rows of an index that has ids of its own, and that may break off."""

    name = "faiss"
    batch_rows = 256

    def __init__(self, breaks: bool = False) -> None:
        self.label, self.rows, self.dimension, self._breaks = "index", 700, 96, breaks

    @classmethod
    def accepts(cls, path: Path) -> bool:
        return False

    @classmethod
    def open(cls, path: Path, *, select: str | None = None, labels: str | None = None) -> Numbered:
        return cls()

    def batches(self, size: int) -> Iterator[VectorBatch]:
        for at in range(0, 700, size):
            if self._breaks and at >= 512:
                raise InputError("index ends early; copy it again")
            yield VectorBatch(torch.from_numpy(LEFT[at : at + size]), torch.arange(at, min(700, at + size)))

    def fingerprint(self) -> str:
        return "0"

    def names(self, rows: object) -> list[str]:
        return [str(10**12 + 3 * row) for row in rows]  # type: ignore[attr-defined]


def test_ids_of_an_index_are_kept(aligner: Aligner, tmp_path: Path) -> None:
    wanted = [10**12 + 3 * row for row in range(700)]
    apply_aligner(aligner, Numbered(), tmp_path / "out.safetensors")
    apply_aligner(aligner, Numbered(), tmp_path / "out.parquet")
    assert safetensors.numpy.load_file(tmp_path / "out.safetensors")["ids"].tolist() == wanted
    assert pq.read_table(tmp_path / "out.parquet").column("id").to_pylist() == wanted
    with pytest.raises(UsageError, match=r"write \.parquet or \.safetensors"):
        apply_aligner(aligner, Numbered(), tmp_path / "out.npy")
    assert not (tmp_path / "out.npy").exists()


def test_nothing_is_left_of_what_breaks_off(aligner: Aligner, tmp_path: Path) -> None:
    (tmp_path / "out.npy").write_bytes(b"before")
    with pytest.raises(InputError, match="ends early"):
        apply_aligner(aligner, Numbered(breaks=True), tmp_path / "out.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["out.npy"]


def test_rows_that_cannot_be_mapped_keep_their_place(aligner: Aligner, tmp_path: Path) -> None:
    rows = LEFT.copy()
    rows[7], rows[300, 2] = 0, np.nan
    np.save(tmp_path / "in.npy", rows)
    found = apply_aligner(aligner, open_source(tmp_path / "in.npy"), tmp_path / "out.npy")
    written = np.load(tmp_path / "out.npy", allow_pickle=False)
    assert np.flatnonzero(np.isnan(written).any(1)).tolist() == [7, 300]
    assert found.unmapped == 2
    assert any("2 rows hold NaN" in note for note in found.notes)


class TestRefusals:
    def test_another_dimension(self, aligner: Aligner, tmp_path: Path) -> None:
        np.save(tmp_path / "in.npy", RIGHT)
        with pytest.raises(InputError, match="must have 96 dimensions"):
            apply_aligner(aligner, open_source(tmp_path / "in.npy"), tmp_path / "out.npy")

    def test_another_model_of_the_same_dimension(self, aligner: Aligner, tmp_path: Path) -> None:
        np.save(tmp_path / "in.npy", LEFT[:, ::-1])
        with pytest.raises(InputError, match="kinship"):
            apply_aligner(aligner, open_source(tmp_path / "in.npy"), tmp_path / "out.npy")
        assert not (tmp_path / "out.npy").exists()

    def test_another_name(self, aligner: Aligner, source: Source, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="the model new of new, got newer"):
            apply_aligner(aligner, source, tmp_path / "out.npy", name="newer")
        assert apply_aligner(aligner, source, tmp_path / "out.npy", name="new").rows == 700

    def test_an_ending_that_is_no_format(self, aligner: Aligner, source: Source, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"must end in \.npy, \.parquet or \.safetensors, got out\.csv"):
            apply_aligner(aligner, source, tmp_path / "out.csv")

    def test_a_file_that_is_there(self, aligner: Aligner, source: Source, tmp_path: Path) -> None:
        (tmp_path / "out.npy").write_bytes(b"before")
        with pytest.raises(InputError, match="--replace"):
            apply_aligner(aligner, source, tmp_path / "out.npy")
        assert (tmp_path / "out.npy").read_bytes() == b"before"
        assert apply_aligner(aligner, source, tmp_path / "out.npy", replace=True).rows == 700

    def test_a_folder_that_is_not_there(self, aligner: Aligner, source: Source, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="cannot be written"):
            apply_aligner(aligner, source, tmp_path / "none" / "out.npy")


def test_names_for_some_rows_only_are_refused(tmp_path: Path) -> None:
    with write_rows(tmp_path / "x.parquet", 2) as file:
        file.add(torch.zeros(1, 2), torch.arange(1), ["a"])
        with pytest.raises(UsageError, match="for all rows or for none"):
            file.add(torch.zeros(1, 2), torch.arange(1), None)
    assert open_source(tmp_path / "x.parquet").rows == 1


@pytest.mark.parametrize("ending", [".npy", ".parquet", ".safetensors"])
def test_a_file_of_no_rows_is_whole(tmp_path: Path, ending: str) -> None:
    with write_rows(tmp_path / f"x{ending}", 3):
        pass
    assert open_source(tmp_path / f"x{ending}").rows == 0
