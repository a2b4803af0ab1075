"""Two Sources side by side: by number, by name, in another order, of unequal length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from embedwatch.core.errors import InputError, UsageError
from embedwatch.sources import open_source
from embedwatch.sources.paired import PairedSource

ROWS = np.random.default_rng(0).standard_normal((50, 6)).astype("float32")


def _npy(path: Path, rows: np.ndarray) -> Path:
    np.save(path, rows)
    return path


def _parquet(path: Path, ids: list[str], rows: np.ndarray) -> Path:
    width = rows.shape[1]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), width)
    pq.write_table(pa.table({"id": ids, "vector": vectors}), path)
    return path


def _pair(left: Path, right: Path, **options: str) -> PairedSource:
    return PairedSource(open_source(left), open_source(right), **options)  # type: ignore[arg-type]


def _all(pair: PairedSource, size: int) -> tuple[Tensor, Tensor, Tensor]:
    batches = list(pair.batches(size))
    ids = torch.cat([batch.ids for batch in batches if batch.ids is not None])
    return torch.cat([b.left for b in batches]), torch.cat([b.right for b in batches]), ids


@pytest.mark.parametrize("size", [1, 7, 50, 1000])
def test_rows_are_joined_by_number(tmp_path: Path, size: int) -> None:
    pair = _pair(_npy(tmp_path / "a.npy", ROWS), _npy(tmp_path / "b.npy", ROWS[:, :4]))
    left, right, ids = _all(pair, size)
    assert (pair.rows, pair.role, pair.by_name) == (50, "pairs", False)
    assert np.array_equal(left, ROWS)
    assert np.array_equal(right, ROWS[:, :4])
    assert ids.tolist() == list(range(50))
    assert pair.notes == ("joined by row number: row i of the one is taken for row i of the other",)


def test_unequal_numbers_are_refused_before_a_row_is_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"both sides must have a row for each item, got a.npy 50 and b.npy 49; "):
        _pair(_npy(tmp_path / "a.npy", ROWS), _npy(tmp_path / "b.npy", ROWS[:49]))


@pytest.mark.parametrize("size", [3, 64])
def test_rows_of_one_name_meet_in_whatever_order(tmp_path: Path, size: int) -> None:
    order = np.random.default_rng(1).permutation(50)
    left = _parquet(tmp_path / "a.parquet", [f"item {i}" for i in range(50)], ROWS)
    right = _parquet(tmp_path / "b.parquet", [f"item {i}" for i in order], ROWS[order, :4])
    pair = _pair(left, right)
    found = _all(pair, size)
    assert pair.by_name
    assert np.array_equal(found[0], ROWS)
    assert np.array_equal(found[1], ROWS[:, :4])
    assert np.array_equal(pair.partners(torch.tensor([3, 40])), ROWS[[3, 40], :4])
    assert pair.names([3]) == ["item 3"]
    assert pair.notes[0] == "joined by name: 50 pairs"


def test_names_of_one_side_and_names_twice_are_left_out_and_counted(tmp_path: Path) -> None:
    left = _parquet(tmp_path / "a.parquet", ["a", "b", "c", "d", "e"], ROWS[:5])
    right = _parquet(tmp_path / "b.parquet", ["c", "b", "b", "e", "x"], ROWS[:5])
    pair = _pair(left, right)
    found = _all(pair, 2)
    assert found[2].tolist() == [2, 4]
    assert np.array_equal(found[1], ROWS[[0, 3]])
    assert pair.notes[0] == (
        "joined by name: 2 pairs; of a.parquet 3 without a partner left out; of b.parquet 1 without a partner and "
        "2 named twice left out"
    )
    assert pair.rows == 2


def test_by_number_on_request_and_by_name_only_where_there_are_names(tmp_path: Path) -> None:
    left = _parquet(tmp_path / "a.parquet", list("abcde"), ROWS[:5])
    right = _parquet(tmp_path / "b.parquet", list("edcba"), ROWS[:5])
    assert np.array_equal(_all(_pair(left, right, join="number"), 8)[1], ROWS[:5])
    bare = _npy(tmp_path / "a.npy", ROWS[:5])
    assert not _pair(bare, right).by_name
    with pytest.raises(UsageError, match=r"`join` by name needs names on both sides, got none in a.npy; join by n"):
        _pair(bare, right, join="name")
    with pytest.raises(UsageError, match="`join` must be one of auto, number, name, got 'id'; choose one"):
        _pair(left, right, join="id")


def test_no_name_in_common_is_refused(tmp_path: Path) -> None:
    left = _parquet(tmp_path / "a.parquet", list("abc"), ROWS[:3])
    right = _parquet(tmp_path / "b.parquet", list("xyz"), ROWS[:3])
    with pytest.raises(InputError, match="must have rows of the same name, got none; join by number"):
        _pair(left, right)


def test_the_fingerprint_changes_with_either_side(tmp_path: Path) -> None:
    paths = [_npy(tmp_path / f"{i}.npy", ROWS + i) for i in range(3)]
    assert len({_pair(paths[a], paths[b]).fingerprint() for a, b in ((0, 1), (1, 0), (0, 2))}) == 3
