"""npy: the header is believed only as far as the file goes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from embedwatch.core.errors import InputError, UsageError
from embedwatch.sources.npy import NpySource
from tests.sources.makers import matrix
from tests.sources.refusals import message_of, read_all, refusal


def header(shape: object, descr: object = "<f4", order: object = False) -> bytes:
    text = repr({"descr": descr, "fortran_order": order, "shape": shape}).encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def test_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "vectors.npy"
    np.save(path, np.zeros((4000, 384), np.float32))
    with path.open("r+b") as file:
        file.truncate(9000)
    assert refusal(NpySource, path) == (
        "vectors.npy ends after 9,000 bytes, its header promises 6,144,128 (4000 × 384 float32); copy it again"
    )


@pytest.mark.parametrize("shape", [(1 << 40, 384), (1 << 62, 1 << 20), (1, 1 << 20)])
@pytest.mark.parametrize("column_major", [False, True])
def test_a_header_that_promises_terabytes_allocates_nothing(
    shape: tuple[int, int], column_major: bool, tmp_path: Path
) -> None:
    path = tmp_path / "lies.npy"
    path.write_bytes(header(shape, order=column_major) + bytes(64))
    assert "its header promises" in refusal(NpySource, path)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.arange(6).reshape(2, 3), ("int64", "astype(numpy.float32)")),
        (np.zeros((2, 3), np.int8), ("int8", "quantised")),
        (np.zeros((2, 3), bool), ("bool", "astype(numpy.float32)")),
        (np.zeros((2, 3), np.complex64), ("complex64", "real and imaginary")),
        (np.array([["a", "b"]]), ("text", "astype(numpy.float32)")),
        (np.array([[b"a", b"b"]]), ("bytes", "astype(numpy.float32)")),
        (np.zeros((2, 3), np.longdouble), ("float128", "astype(numpy.float64)")),
        (np.zeros((2, 3), "V2"), ("raw 2-byte values", "bfloat16")),
        (np.zeros(3, [("x", "f4"), ("y", "f4")]), ("records of 2 fields", "structured_to_unstructured")),
        (np.zeros((2, 3), "M8[s]"), ("datetime64", "astype(numpy.float32)")),
    ],
)
def test_wrong_types(array: Any, words: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "types.npy"
    np.save(path, array)
    message = refusal(NpySource, path)
    assert all(word in message for word in words), message


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "objects.npy"
    np.save(path, np.array([[1.0], [1.0, 2.0]], dtype=object), allow_pickle=True)
    assert "never unpickles" in refusal(NpySource, path)


@pytest.mark.parametrize(
    ("shape", "word"),
    [
        ((5,), "reshape"),
        ((2, 3, 4), "flatten"),
        ((), "0-D"),
        ((3, 0), "at least one dimension"),
        ((0, 1 << 21), "dimensions"),
    ],
)
def test_wrong_shapes(shape: tuple[int, ...], word: str, tmp_path: Path) -> None:
    path = tmp_path / "shapes.npy"
    np.save(path, np.zeros(shape, np.float32))
    assert word in refusal(NpySource, path)


def test_no_rows_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "none.npy"
    np.save(path, np.zeros((0, 7), np.float32))
    source = NpySource.open(path)
    assert (source.rows, source.dimension, list(source.batches(3))) == (0, 7, [])


@pytest.mark.parametrize(
    "data",
    [
        header((2, 3), descr="no such type"),
        header((2, 3), descr=[["x"]]),
        header((2.5, 3)),
        header((-1, 3)),
        header([2, 3]),
        header(5),
        header((2, True)),
        header((2, 3), order=1),
        header((10**4000, 10**4000)),
        header((1,) * 200),
        b"\x93NUMPY\x01\x00\x04\x00{}  ",
        b"\x93NUMPY\x01\x00\x04\x00((((",
        b"\x93NUMPY\x01\x00\xe8\x03" + b"(" * 1000,
        b"\x93NUMPY\x01\x00\x08\x00'\\z' + 1",
        b"\x93NUMPY\x01\x00\x04\x00\xff\xfe\xfd\xfc",
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
        b"\x93NUMPY\x09\x00\x04\x00abcd",
        b"\x93NUMPY\x01",
        b"\x93NUMPY\x01\x00\x04",
        b"PK\x03\x04 something else",
    ],
)
def test_broken_headers(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "header.npy"
    path.write_bytes(data)
    refusal(NpySource, path)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_all_versions(version: tuple[int, int], tmp_path: Path) -> None:
    x, file = matrix(), io.BytesIO()
    np.lib.format.write_array(file, x, version=version)
    path = tmp_path / "version.npy"
    path.write_bytes(file.getvalue())
    assert torch.equal(next(NpySource.open(path).batches(100)).rows, torch.from_numpy(x))


def test_two_arrays_in_one_file_are_not_read_as_one(tmp_path: Path) -> None:
    path = tmp_path / "two.npy"
    with path.open("wb") as file:
        np.save(file, matrix())
        np.save(file, matrix())
    assert "a file of its own" in refusal(NpySource, path)


@pytest.mark.parametrize("column_major", [False, True])
def test_a_file_that_shrinks_while_it_is_read(column_major: bool, tmp_path: Path) -> None:
    path = tmp_path / "shrinks.npy"
    x = np.zeros((4000, 600), np.float32)
    np.save(path, np.asfortranarray(x) if column_major else x)
    batches = NpySource.open(path).batches(10)
    next(batches)
    with path.open("r+b") as file:
        file.truncate(5000)
    assert "ends after 5,000 bytes" in message_of(lambda: list(batches), path)


def test_a_file_that_goes_away(tmp_path: Path) -> None:
    path = tmp_path / "gone.npy"
    np.save(path, matrix())
    source = NpySource.open(path)
    path.unlink()
    assert "does not exist" in message_of(lambda: read_all(source), path)
    assert "does not exist" in message_of(source.fingerprint, path)


def test_options_it_has_no_use_for(tmp_path: Path) -> None:
    path = tmp_path / "plain.npy"
    np.save(path, matrix())
    for option in ("select", "labels"):
        with pytest.raises(UsageError, match=f"`{option}` must be left out for npy"):
            NpySource.open(path, **{option: "x"})


def test_a_batch_is_never_larger_than_its_budget(tmp_path: Path) -> None:
    path = tmp_path / "sparse.npy"
    rows, dimension = 1 << 12, 1 << 15  # 512 MiB that take no room on the disk
    with path.open("wb") as file:
        file.write(header((rows, dimension)))
        file.truncate(len(header((rows, dimension))) + rows * dimension * 4)
    first = next(NpySource.open(path).batches(10**9))
    assert first.rows.nbytes <= 256 << 20
    assert len(first) > 1


def test_a_name_that_would_break_the_line(tmp_path: Path) -> None:
    path = tmp_path / "two\nlines\x1b[31m.npy"
    path.write_bytes(b"x")
    with pytest.raises(InputError) as caught:
        NpySource.open(path)
    assert str(caught.value).isprintable()
    other = Path(str(tmp_path).encode().decode() + "/\udcff\udcfe.npy")
    np.save(other, matrix())
    source = NpySource.open(other)
    assert source.label.encode()
    assert all(batch.source == source.label for batch in source.batches(9))
