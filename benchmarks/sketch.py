"""Time of the whole vector sketch as a ratio to the matrix products in it, and its memory.

Run: python benchmarks/sketch.py [--rows 1000000] [--dimension 384]

One run reads the same memory-mapped file twice in turn, in blocks: once through every Statistic, once through the
two matrix products that the sketch cannot do without (second moments `XᵀX` and random features `XΩ`). Process CPU
time, so that a busy machine does not decide; the ratio is what counts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import torch

from embedwatch.batch import VectorBatch
from embedwatch.core import Statistic
from embedwatch.core.registry import registered
from embedwatch.sources import open_source
from embedwatch.stats.uniformity import FEATURES
from embedwatch.window import Window

BATCH_ROWS = 8192
TARGET = 2.0


def write_vectors(path: Path, rows: int, dimension: int) -> None:
    """Write rows of a power-law spectrum off the origin, block by block."""
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, dimension))
    generator = np.random.default_rng(0)
    scale = np.arange(1, dimension + 1) ** -0.25
    for start in range(0, rows, BATCH_ROWS):
        stop = min(start + BATCH_ROWS, rows)
        array[start:stop] = generator.standard_normal((stop - start, dimension), dtype=np.float32) * scale + 0.1
    array.flush()


def products(rows: torch.Tensor, frequencies: torch.Tensor) -> None:
    """The matrix products that the sketch contains."""
    torch.mm(rows.T, rows)
    torch.mm(rows, frequencies)


def anonymous_memory() -> int:
    """Return the anonymous resident memory of this process in bytes (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def measure(path: Path) -> dict[str, float]:
    """Read the file once; time the sketch and the products on each block, in turn."""
    source = open_source(path)
    window = Window(
        [
            cls()
            for cls in registered(Statistic).values()
            if cls.consumes == "vectors" and not (cls.needs_labels or cls.needs_reference)
        ]
    )
    frequencies = torch.randn(source.dimension, FEATURES)
    sketch, product, ratios, peak = 0.0, 0.0, [], 0
    before = anonymous_memory()
    for batch in source.batches(BATCH_ROWS):
        start = time.process_time()
        window.update(VectorBatch(batch.rows, batch.ids, source=batch.source))
        middle = time.process_time()
        products(batch.rows, frequencies)
        end = time.process_time()
        sketch, product = sketch + middle - start, product + end - middle
        ratios.append((middle - start) / (end - middle))
        peak = max(peak, anonymous_memory() - before)
    start = time.process_time()
    window.measurements()
    finish = time.process_time() - start
    return {
        "rows": window.rows,
        "sketch_cpu_seconds": sketch,
        "products_cpu_seconds": product,
        "ratio": sketch / product,
        "median_block_ratio": statistics.median(ratios),
        "finish_cpu_seconds": finish,
        "ratio_with_finish": (sketch + finish) / product,
        "anonymous_megabytes_above_start": peak / 2**20,
    }


def main() -> None:
    """Run and print a JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "vectors.npy")
        write_vectors(path, arguments.rows, arguments.dimension)
        result = measure(path)
    facts = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
    }
    settings = {
        "dimension": arguments.dimension,
        "threads": arguments.threads,
        "torch": torch.__version__.split("+")[0],
    }
    print(json.dumps({**facts, **settings, **result, "target": TARGET}, indent=2))


if __name__ == "__main__":
    main()
