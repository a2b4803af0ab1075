"""npz: the archive's sizes, checksums and names are not trusted."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from embedwatch.core.errors import UsageError
from embedwatch.sources import npz
from embedwatch.sources.npz import NpzSource
from tests.sources.makers import matrix, rewrite_member
from tests.sources.refusals import message_of, refusal


def npy_bytes(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def patch(path: Path, find: bytes, offset: int, value: bytes, *, last: bool = False) -> None:
    """Change bytes at an offset from a signature."""
    data = bytearray(path.read_bytes())
    at = (data.rindex(find) if last else data.index(find)) + offset
    data[at : at + len(value)] = value
    path.write_bytes(bytes(data))


DIRECTORY = b"PK\x01\x02"


def test_the_only_matrix_is_taken(tmp_path: Path) -> None:
    path, x = tmp_path / "one.npz", matrix()
    np.savez(path, words=np.array(["a", "b"]), vectors=x, weights=np.zeros(23), counts=np.zeros((3, 3), int))
    assert torch.equal(next(NpzSource.open(path).batches(100)).rows, torch.from_numpy(x))


def test_several_need_a_choice(tmp_path: Path) -> None:
    path, x = tmp_path / "several.npz", matrix()
    np.savez(path, queries=x, answers=x + 1)
    message = message_of(lambda: NpzSource.open(path), path, UsageError)
    assert "queries, answers" in message
    assert "--select" in message
    assert torch.equal(next(NpzSource.open(path, select="answers").batches(100)).rows, torch.from_numpy(x + 1))
    assert NpzSource.open(path, select="answers").fingerprint() != NpzSource.open(path, select="queries").fingerprint()
    assert 'did you mean "answers"' in message_of(lambda: NpzSource.open(path, select="answer"), path, UsageError)


def test_a_choice_that_is_no_matrix(tmp_path: Path) -> None:
    path = tmp_path / "other.npz"
    np.savez(path, words=np.array(["a"]), flat=np.zeros(3), objects=np.array([None]), x=matrix())
    assert "text" in refusal(NpzSource, path, select="words")
    assert "1-D" in refusal(NpzSource, path, select="flat")
    assert "never unpickles" in refusal(NpzSource, path, select="objects")


def test_no_matrix(tmp_path: Path) -> None:
    path = tmp_path / "none.npz"
    np.savez(path, words=np.array(["a"]), flat=np.zeros(3))
    message = refusal(NpzSource, path)
    assert "no 2-D array of floats" in message
    assert "flat 3 float64" in message
    np.savez(path, flat=np.zeros(3))
    assert "1-D" in refusal(NpzSource, path)
    np.savez(path)
    assert "no .npy arrays" in refusal(NpzSource, path)


def test_a_wrong_checksum_is_found(tmp_path: Path) -> None:
    path = tmp_path / "crc.npz"
    np.savez(path, x=matrix())
    data = bytearray(path.read_bytes())
    data[400] ^= 1
    path.write_bytes(bytes(data))
    assert "Bad CRC-32" in refusal(NpzSource, path)


def test_encrypted(tmp_path: Path) -> None:
    path = tmp_path / "secret.npz"
    np.savez(path, x=matrix())
    for signature, offset in ((b"PK\x03\x04", 6), (DIRECTORY, 8)):
        patch(path, signature, offset, struct.pack("<H", 1))
    assert "encrypted" in refusal(NpzSource, path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_packing(method: int, tmp_path: Path) -> None:
    path = tmp_path / "method.npz"
    rewrite_member(path, "x.npy", npy_bytes(matrix()), method)
    assert "savez_compressed" in refusal(NpzSource, path)


def test_a_directory_that_lies(tmp_path: Path) -> None:
    path = tmp_path / "lies.npz"
    np.savez_compressed(path, x=matrix())
    patch(path, DIRECTORY, 24, struct.pack("<I", 0x7FFFFFFF))
    assert "claims 2,147,483,647 bytes" in refusal(NpzSource, path)
    np.savez(path, x=matrix())
    patch(path, DIRECTORY, 20, struct.pack("<I", 0x7FFFFFFF))
    assert "ends after" in refusal(NpzSource, path)
    np.savez_compressed(path, x=np.zeros((1000, 10)))
    patch(path, DIRECTORY, 24, struct.pack("<I", 90_000))
    assert "has 90,000 bytes, its header promises 80,128" in refusal(NpzSource, path)


def test_a_header_that_lies(tmp_path: Path) -> None:
    path = tmp_path / "header.npz"
    for shape in ((1 << 40, 8), (24, 5), (22, 5), (10**6, 10**6)):
        data = npy_bytes(matrix())
        changed = data.replace(b"(23, 5), }", f"{shape}, }}".encode().ljust(10))
        rewrite_member(path, "x.npy", changed[:8] + struct.pack("<H", changed.index(b"\n") - 9) + changed[10:])
        assert "its header promises" in refusal(NpzSource, path)


@pytest.mark.parametrize("column_major", [False, True])
def test_a_bomb_takes_bounded_memory(column_major: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npz, "COLUMN_BLOCK_BYTES", 1 << 20)
    path, rows = tmp_path / "bomb.npz", 250_000
    header = npy_bytes(np.zeros((rows, 0), np.float32, order="F" if column_major else "C")).replace(b", 0)", b", 64)")
    if column_major:
        header = header.replace(b"'fortran_order': False", b"'fortran_order': True")
    header = header[:8] + struct.pack("<H", header.index(b"\n") - 9) + header[10:]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as member:
        member.write(header)
        for _ in range(64):
            member.write(bytes(rows * 4))
    assert path.stat().st_size < 100_000
    source = NpzSource.open(path)
    tracemalloc.start()
    try:
        batches = source.batches(1000)
        assert all(len(next(batches)) for _ in range(10))
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_column_major_in_several_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npz, "COLUMN_BLOCK_BYTES", 200)
    path, x = tmp_path / "passes.npz", matrix(57, 6)
    np.savez_compressed(path, x=np.asfortranarray(x))
    assert torch.equal(torch.cat([b.rows for b in NpzSource.open(path).batches(4)]), torch.from_numpy(x))


def test_pytorch_archives_are_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({"x": torch.zeros(3)}, path)
    assert not NpzSource.accepts(path)


def test_a_pickled_array_beside_the_matrix_is_left_out(tmp_path: Path) -> None:
    """Its pickle is shorter than eight bytes an entry, which says nothing about the archive."""
    path = tmp_path / "x.npz"
    names = np.array([f"a{index}" for index in range(500)], dtype=object)
    np.savez(path, emb=np.ones((500, 4), np.float32), ids=names)
    assert NpzSource.open(path).rows == 500
