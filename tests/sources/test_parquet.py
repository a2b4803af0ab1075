"""Parquet: vectors as lists or as columns, missing ones, ragged ones, folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from embedwatch.core.errors import UsageError
from embedwatch.sources.parquet import ParquetSource
from embedwatch.testing.source_contract import source_contract
from tests.sources.makers import matrix, parquet_folder
from tests.sources.refusals import message_of, refusal

LISTS = [pa.list_(pa.float32()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 2)]


def write(path: Path, columns: Any, **options: Any) -> Path:
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), path, **options)
    return path


def rows_of(path: Path, size: int = 2, **options: str) -> torch.Tensor:
    return torch.cat([batch.rows for batch in ParquetSource.open(path, **options).batches(size)])


@pytest.mark.parametrize("kind", LISTS, ids=str)
def test_missing_vectors_are_rows_of_nan(kind: Any, tmp_path: Path) -> None:
    vectors = pa.array([None, [1.0, 2.0], None, [3.0, None], [5.0, 6.0]], kind)
    path = write(tmp_path / "x.parquet", {"v": vectors}, row_group_size=2)
    source = ParquetSource.open(path)
    assert (source.rows, source.dimension) == (5, 2)
    assert any("missing vectors" in note and "NaN" in note for note in source.notes)
    rows = rows_of(path)
    assert rows.isnan().tolist() == [[True, True], [False, False], [True, True], [False, True], [False, False]]
    assert rows[4].tolist() == [5.0, 6.0]
    source_contract(ParquetSource, path)


def test_missing_values_in_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", {"x": pa.array([1.0, None], pa.float16()), "y": pa.array([3.0, 4.0])})
    rows = rows_of(path)
    assert rows.dtype == torch.float64
    assert rows.isnan().tolist() == [[False, False], [True, False]]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_types_and_compression(dtype: str, compression: str, tmp_path: Path) -> None:
    x = matrix(300, 4, dtype)
    table = {"v": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 4)}
    path = write(tmp_path / "x.parquet", table, compression=compression, row_group_size=70)
    assert torch.equal(rows_of(path, 64), torch.from_numpy(x))


def test_fixed_shape_tensors(tmp_path: Path) -> None:
    x = matrix(9, 4)
    path = write(tmp_path / "x.parquet", {"v": pa.FixedShapeTensorArray.from_numpy_ndarray(x)})
    assert torch.equal(rows_of(path), torch.from_numpy(x))


def test_ragged_lists_name_the_row(tmp_path: Path) -> None:
    vectors = [[1.0, 2.0]] * 90 + [[1.0]] + [[1.0, 2.0]] * 9
    path = write(tmp_path / "x.parquet", {"v": vectors}, row_group_size=40)
    assert "row 90 has 1 value in column 'v', the first has 2" in refusal(ParquetSource, path)
    path = write(tmp_path / "y.parquet", {"v": [[], [1.0, 2.0]]})
    assert "row 0 has 0 values in column 'v', the first has 2" in refusal(ParquetSource, path)


def test_lists_far_longer_than_the_first_are_refused_unread(tmp_path: Path) -> None:
    vectors = pa.array([np.zeros(2, np.float32)] * 9 + [np.zeros(1 << 21, np.float32)])
    assert "2,097,170 values in 10 rows of 2" in refusal(ParquetSource, write(tmp_path / "x.parquet", {"v": vectors}))
    path = write(tmp_path / "y.parquet", {"v": vectors[9:]})
    assert "2,097,152" in refusal(ParquetSource, path)


def test_nothing_but_missing_vectors(tmp_path: Path) -> None:
    nothing: Any
    for nothing in ([None, None], [[], None]):
        path = write(tmp_path / "x.parquet", {"v": pa.array(nothing, pa.list_(pa.float32()))})
        assert "dimension is unknown" in refusal(ParquetSource, path)


def test_no_rows(tmp_path: Path) -> None:
    for kind, dimension in zip(LISTS, (None, None, 2), strict=True):
        source = ParquetSource.open(write(tmp_path / "x.parquet", {"v": pa.array([], kind)}))
        assert (source.rows, source.dimension, list(source.batches(3)), source.names([])) == (0, dimension, [], [])


def test_several_columns_of_vectors_need_a_choice(tmp_path: Path) -> None:
    columns = {"title": [[1.0, 2.0]], "body": [[3.0, 4.0]], "score": [0.5], "tags": [["a"]], "codes": [[1, 2]]}
    path = write(tmp_path / "x.parquet", columns)
    message = message_of(lambda: ParquetSource.open(path), path, UsageError)
    assert "2 columns that could be the vectors (title, body)" in message
    assert "--select" in message
    assert rows_of(path, select="body").tolist() == [[3.0, 4.0]]
    assert 'did you mean "title"' in message_of(lambda: ParquetSource.open(path, select="titel"), path, UsageError)
    assert "list<element: string>" in refusal(ParquetSource, path, select="tags")
    assert "list<element: int64>" in refusal(ParquetSource, path, select="codes")
    assert "double" in refusal(ParquetSource, path, select="score")


def test_whole_numbers_are_no_dimensions(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", {"id": [7, 8], "x": [0.5, 1.5], "year": [1999, 2001], "y": [2.5, 3.5]})
    source = ParquetSource.open(path)
    assert rows_of(path).tolist() == [[0.5, 2.5], [1.5, 3.5]]
    assert source.names([1, 0]) == ["8", "7"]
    assert "columns year are no dimensions" in source.notes


@pytest.mark.parametrize(
    ("columns", "word"),
    [
        ({"id": [1, 2], "word": ["a", "b"]}, "id int64, word string"),
        ({"v": pa.array([[1, 2]], pa.list_(pa.int8()))}, "list<element: int8>"),
        ({"v": [["a"]]}, "list<element: string>"),
        ({"v": [[[1.0]]]}, "list<element: list"),
        ({"v": [{"x": 1.0}]}, "struct"),
        ({"v": [True]}, "bool"),
    ],
)
def test_no_vectors(columns: dict[str, Any], word: str, tmp_path: Path) -> None:
    message = refusal(ParquetSource, write(tmp_path / "x.parquet", columns))
    assert "no column of floats" in message
    assert word in message


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    table = pa.table([pa.array([1.0]), pa.array([2.0])], names=["x", "x"])
    assert "several columns called 'x'" in refusal(ParquetSource, write(tmp_path / "x.parquet", table))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (pa.array(["a", None, "猫"]), ["a", "1", "猫"]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        (pa.array(["a", "b", "c"], pa.large_string()), ["a", "b", "c"]),
        (pa.array([10**18, -5, 0]), [str(10**18), "-5", "0"]),
        (pa.array([b"a", b"caf\xe9", b""]).view(pa.string()), ["a", "caf\ufffd", ""]),
    ],
    ids=["text", "dictionary", "large", "whole", "not UTF-8"],
)
def test_names(names: Any, expected: list[str], tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", {"word": names, "v": [[1.0], [2.0], [3.0]]}, row_group_size=2)
    source = ParquetSource.open(path)
    assert source.names([0, 1, 2]) == expected
    assert source.names([2, 0, 2]) == [expected[2], expected[0], expected[2]]
    for row in (3, -1):
        message_of(lambda row=row: source.names([row]), path, UsageError)  # type: ignore[misc]


def test_labels_of_any_simple_type(tmp_path: Path) -> None:
    columns = {
        "v": [[1.0], [2.0], [3.0]],
        "lang": pa.array(["de", None, "de"]).dictionary_encode(),
        "year": [1999, 2001, None],
        "good": [True, False, True],
        "list": [["a"], [], []],
    }
    path = write(tmp_path / "x.parquet", columns)

    def groups(labels: str) -> tuple[list[int], list[str]]:
        batch = next(ParquetSource.open(path, labels=labels).batches(9))
        assert batch.labels is not None
        return batch.labels.tolist(), list(batch.groups)

    assert groups("lang") == ([0, -1, 0], ["de"])
    assert groups("year") == ([0, 1, -1], ["1999", "2001"])
    assert groups("good") == ([0, 1, 0], ["True", "False"])
    assert "labels" in message_of(lambda: ParquetSource.open(path, labels="list"), path, UsageError)
    assert 'did you mean "lang"' in message_of(lambda: ParquetSource.open(path, labels="lan"), path, UsageError)


def test_labels_are_no_dimension(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", {"x": [0.5, 1.5], "y": [0.5, 1.5], "cluster": [1.0, 2.0]})
    assert ParquetSource.open(path).dimension == 3
    source = ParquetSource.open(path, labels="cluster")
    assert source.dimension == 2
    assert next(source.batches(2)).groups == ["1.0", "2.0"]


def test_folders_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    for name, value in (("b/2.parquet", 3.0), ("a.parquet", 1.0), ("b/1.PARQUET", 2.0), ("_temporary/x.parquet", 9.0)):
        folder.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        write(folder / name, {"word": [f"w{value}"], "v": [[value, value]]})
    folder.joinpath("_SUCCESS").touch()
    folder.joinpath("notes.txt").write_text("not ours")
    source = ParquetSource.open(folder)
    assert ParquetSource.accepts(folder)
    assert (source.rows, source.label) == (3, "parts")
    assert rows_of(folder)[:, 0].tolist() == [1.0, 2.0, 3.0]
    assert source.names([2, 0]) == ["w3.0", "w1.0"]
    assert "3 files are read as one" in source.notes
    source_contract(ParquetSource, folder)


@pytest.mark.parametrize(
    ("columns", "word"),
    [
        ({"w": [[1.0]]}, "no column 'vector'"),
        ({"vector": pa.array([[1.0]], pa.list_(pa.float16()))}, "other columns or types"),
        ({"vector": [[1]]}, "lists of floats"),
        ({"vector": [[1.0, 2.0]], "word": ["a"], "id": [1], "lang": ["de"]}, "other columns or types"),
    ],
)
def test_folders_of_different_files(columns: dict[str, Any], word: str, tmp_path: Path) -> None:
    folder = parquet_folder(tmp_path, matrix())
    write(folder / "z.parquet", columns)
    with pytest.raises(ValueError, match=word) as caught:
        list(ParquetSource.open(folder).batches(4))
    assert "z.parquet" in str(caught.value)


def test_folders_of_different_dimensions(tmp_path: Path) -> None:
    folder = parquet_folder(tmp_path, matrix())
    columns = {"id": [1], "word": ["a"], "lang": ["de"], "vector": pa.array([[1.0, 2.0]], pa.list_(pa.float32()))}
    write(folder / "z.parquet", columns)
    with pytest.raises(ValueError, match=r"z\.parquet row 0 has 2 values in column 'vector', the first has 5"):
        list(ParquetSource.open(folder).batches(4))


def test_a_folder_without_parquet(tmp_path: Path) -> None:
    assert not ParquetSource.accepts(tmp_path)
    assert "without Parquet files" in refusal(ParquetSource, tmp_path)


def test_accepting_looks_at_a_folder_only_shortly(tmp_path: Path) -> None:
    for number in range(1200):
        tmp_path.joinpath(f"{number}").symlink_to("nowhere")
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    write(deep / "x.parquet", {"v": [[1.0]]})
    assert not ParquetSource.accepts(tmp_path)
    assert ParquetSource.accepts(deep)


def test_encrypted_footer(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", {"v": [[1.0]]})
    data = path.read_bytes()
    path.write_bytes(b"PARE" + data[4:-4] + b"PARE")
    refusal(ParquetSource, path)
