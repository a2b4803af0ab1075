"""The audit of a file larger than memory would like needs no more memory than that of a small one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROWS, DIMENSION, BLOCK = 1_000_000, 384, 50_000
LIMIT = 2**30

AUDIT = """
import sys, threading, time
from pathlib import Path
import torch
def anonymous():
    (line,) = (l for l in Path("/proc/self/status").read_text().splitlines() if l.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024
before = anonymous()
peak = [0]
def watch():
    while True:
        peak[0] = max(peak[0], anonymous())
        time.sleep(0.02)
threading.Thread(target=watch, daemon=True).start()
from embedwatch import audit
result = audit(sys.argv[1])
print(result.spaces[0].snapshot.provenance.rows, result.status, peak[0] - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="anonymous memory is read from /proc, which Linux has"
)
def test_a_million_rows_in_less_than_a_gigabyte(tmp_path: Path) -> None:
    path = tmp_path / "vectors.npy"
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(ROWS, DIMENSION))
    generator = np.random.default_rng(0)
    for start in range(0, ROWS, BLOCK):
        array[start : start + BLOCK] = generator.standard_normal((BLOCK, DIMENSION), dtype=np.float32)
    array.flush()
    del array
    done = subprocess.run(
        [sys.executable, "-c", AUDIT, str(path)], capture_output=True, text=True, timeout=600, check=True
    )
    rows, status, growth = done.stdout.split()
    assert (int(rows), status) == (ROWS, "ok")
    assert int(growth) < LIMIT
