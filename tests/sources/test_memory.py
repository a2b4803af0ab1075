"""A source holds a batch, not the file: memory stays flat however large the file is."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS, DIMENSION = 180_000, 128
BYTES = ROWS * DIMENSION * 4
LINES = 450_000
ALLOWED = 80 << 20
"""Libraries' buffers and a few batches; each of the files holds more."""

READ_ALL = """
import json, sys
import contextlib
import torch, pyarrow.csv, pyarrow.parquet  # what importing takes is not the files'
with contextlib.suppress(ImportError):
    import pandas  # pyarrow imports it, where it is installed, with the first file
from embedwatch.sources import open_source

def peak():  # not ru_maxrss: a child begins with its parent's
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))

open_source(sys.argv[1])
before, found = peak(), {}
for path in sys.argv[1:]:
    rows = sum(len(batch) for batch in open_source(path).batches(4096))
    found[path.rpartition("/")[2]] = rows, peak() - before
print(json.dumps(found))
"""


def header(*, column_major: bool = False) -> bytes:
    text = repr({"descr": "<f4", "fortran_order": column_major, "shape": (ROWS, DIMENSION)}).encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def sparse(path: Path, start: bytes) -> Path:
    """Write a file of zeros that takes no room on the disk."""
    with path.open("wb") as file:
        file.write(start)
        file.truncate(len(start) + BYTES)
    return path


def packed(path: Path) -> Path:
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w") as member,
    ):
        member.write(header())
        for _ in range(DIMENSION):
            member.write(bytes(ROWS * 4))
    return path


def in_one_row_group(path: Path) -> Path:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(ROWS * DIMENSION, np.float32)), DIMENSION)
    pq.write_table(pa.table({"v": vectors}), path, row_group_size=ROWS, use_dictionary=False, compression="none")
    return path


def lines(path: Path, separator: str) -> Path:
    row = separator.join(["0.12345678"] * 16)
    path.write_text("".join(f"word{i}{separator}{row}\n" for i in range(LINES)))
    return path


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells the peak of one program's memory")
def test_memory_is_flat(tmp_path: Path) -> None:
    entry = {"x": {"dtype": "F32", "shape": [ROWS, DIMENSION], "data_offsets": [0, BYTES]}}
    text = json.dumps(entry).encode()
    paths = [
        sparse(tmp_path / "rows.npy", header()),
        sparse(tmp_path / "columns.npy", header(column_major=True)),
        sparse(tmp_path / "x.safetensors", struct.pack("<Q", len(text)) + text),
        packed(tmp_path / "x.npz"),
        in_one_row_group(tmp_path / "x.parquet"),
        lines(tmp_path / "x.csv", ","),
        lines(tmp_path / "x.txt", " "),
    ]
    command = [sys.executable, "-c", READ_ALL, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    found = json.loads(done.stdout)
    assert len(found) == len(paths)
    for name, (rows, grown) in found.items():
        assert rows == (LINES if name in ("x.csv", "x.txt") else ROWS), name
        assert grown < ALLOWED, f"{name}: {grown >> 20} MiB more"
