"""What maps between two real models find, beside plain numpy and scikit-learn; and what one pass over pairs costs.

Run from the root of the repository:

    python -m benchmarks.alignment [--only models pass scale] [--wordnet FOLDER] [--rows 1000000] [--write FILE]

`models`: sentences of the standard library's docstrings and glosses of WordNet, encoded once by multilingual-e5-small
and all-MiniLM-L6-v2 as `python -m benchmarks.detection` does, and kept where it keeps them. Anchors are drawn several
times; 2,000 further pairs search one another. `pass`: CPU time of a pass over pairs of 384 dimensions as a ratio
to the matrix products in it, in one run, block by block in turn, and its memory. `scale`: memory and CPU time of the
same pass over ten thousand and over ten million pairs, each in a process of its own. `ladder` and `names` are made by
`python -m benchmarks.alignment_ladder` and `python -m benchmarks.alignment_names`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from benchmarks.detection.data import WORDNET, Data
from embedwatch import fit_aligner
from embedwatch.align.candidates import METHODS, Training, fit_map
from embedwatch.align.kept_pairs import Pairs
from embedwatch.align.moments import AnchorPass
from embedwatch.batch import PairBatch
from embedwatch.geometry.retrieval import directions, find, mean_average_precision, nearest, overlap, recall_at
from embedwatch.whole_files import write_whole

Floats = npt.NDArray[np.float64]
SOURCES = ("stdlib", "glosses")
GALLERY = 2_000
ANCHORS = (100, 300, 1_000, 5_000)
DRAWS = 3
BLOCK = 8_192
SCALES = (10_000, 10_000_000)
"""Pairs of the two passes that are set beside one another."""
DIMENSION = 384
WARM_ROWS = 200_000
"""After so many rows memory has its size: what it holds more at the end would grow with the rows."""
TARGETS = {"default_recall_1_e5_minilm_5000": 0.97, "pass_ratio": 2.0}


def svd_uncentred(left: Floats, right: Floats, rows: Floats) -> Floats:
    """What one finds in many places: `svd(AᵀB)` as it is."""
    u, _, v = np.linalg.svd(left.T @ right, full_matrices=False)
    found: Floats = rows @ (u @ v)
    return found


def svd_centred(left: Floats, right: Floats, rows: Floats) -> Floats:
    """Orthogonal Procrustes of centred rows, the target's mean added."""
    means = left.mean(0), right.mean(0)
    u, _, v = np.linalg.svd((left - means[0]).T @ (right - means[1]), full_matrices=False)
    found: Floats = (rows - means[0]) @ (u @ v) + means[1]
    return found


def sklearn_ridge(left: Floats, right: Floats, rows: Floats) -> Floats:
    """Ridge regression with an intercept, at its default strength."""
    from sklearn.linear_model import Ridge

    found: Floats = Ridge(alpha=1.0).fit(left, right).predict(rows)
    return found


BASELINES: dict[str, Callable[[Floats, Floats, Floats], Floats]] = {
    "numpy_svd_uncentred": svd_uncentred,
    "numpy_svd_centred": svd_centred,
    "sklearn_ridge": sklearn_ridge,
}


def scores(mapped: Tensor, gallery: Tensor) -> dict[str, float]:
    """Return what mapped rows find of their own among the gallery."""
    found = find(mapped, gallery, torch.arange(len(gallery)))
    native = nearest(gallery, gallery, 10)
    return {
        "recall_1": recall_at(found.ranks, 1),
        "recall_10": recall_at(found.ranks, 10),
        "average_precision": mean_average_precision(found.ranks),
        "overlap_10": float(overlap(found.nearest, native).mean()),
    }


def tried(left: Tensor, right: Tensor, anchors: int, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every way with what it finds, and with CPU seconds of fitting."""
    order = torch.randperm(len(left), generator=torch.Generator().manual_seed(seed))
    fit, judge = order[:anchors], order[-GALLERY:]
    pairs = Pairs(left[fit], right[fit], fit)
    for name in METHODS:
        started = time.process_time()
        fitted = fit_map(name, Training(pairs.moments(), pairs, "query"))
        spent = time.process_time() - started
        yield name, {**scores(fitted.apply(left[judge]), right[judge]), "fit_cpu_seconds": spent}
    started = time.process_time()
    aligner = fit_aligner(left[fit], right[fit])
    spent = time.process_time() - started
    flagged = any("uncentred" in warning for warning in aligner.report["warnings"])
    yield (
        "default",
        {
            **scores(aligner.transform(left[judge]), right[judge]),
            "fit_cpu_seconds": spent,
            "chosen": aligner.method,
            "told_recall_1": aligner.report["chosen"]["recall_1"][0],
            "uncentred_flagged": flagged,
        },
    )
    wide = [each.double().numpy() for each in (pairs.left, pairs.right, left[judge])]
    for name, baseline in BASELINES.items():
        started = time.process_time()
        mapped = torch.from_numpy(baseline(wide[0], wide[1], wide[2])).float()
        yield name, {**scores(mapped, right[judge]), "fit_cpu_seconds": time.process_time() - started}


def models(wordnet: Path) -> dict[str, Any]:
    """Return what each way finds from each model to the other, by number of anchors."""
    data = Data(Path(), wordnet)
    rows = {
        model: directions(torch.cat([data.rows(model, source) for source in SOURCES])) for model in ("e5", "minilm")
    }
    lines: list[dict[str, Any]] = []
    for source, target in (("e5", "minilm"), ("minilm", "e5")):
        for anchors in ANCHORS:
            held: dict[str, list[dict[str, Any]]] = {}
            for seed in range(DRAWS):
                for name, found in tried(rows[source], rows[target], anchors, seed):
                    held.setdefault(name, []).append(found)
            for name, draws in held.items():
                lines.append({"from": source, "to": target, "anchors": anchors, "way": name, **joined(draws)})
                print(json.dumps(lines[-1]), flush=True)
    means = {model: float(each.mean(0).norm()) for model, each in rows.items()}
    return {"pairs": len(rows["e5"]), "gallery": GALLERY, "draws": DRAWS, "mean_norms": means, "lines": lines}


def joined(draws: list[dict[str, Any]]) -> dict[str, Any]:
    """Return means over draws, the spread of recall@1, and what is no number as a list."""
    found: dict[str, Any] = {}
    for name in draws[0]:
        values = [draw[name] for draw in draws]
        plain = isinstance(values[0], float)
        found[name] = round(statistics.fmean(values), 4) if plain else values
    found["recall_1_sd"] = round(statistics.pstdev(draw["recall_1"] for draw in draws), 4)
    return found


def products(left: Tensor, right: Tensor) -> None:
    """The matrix products that moments of pairs are made of."""
    torch.mm(left.T, left)
    torch.mm(left.T, right)
    torch.mm(right.T, right)


def anonymous_memory() -> int:
    """Return the anonymous resident memory of this process in bytes (Linux)."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def one_pass(rows: int) -> dict[str, Any]:
    """Return CPU seconds of the pass and of its products, block by block in turn, and memory."""
    draw = torch.Generator().manual_seed(0)
    reading = AnchorPass(DIMENSION, DIMENSION, expected=rows)
    spent, product, ratios, peaks = 0.0, 0.0, [], [0, 0]
    before = anonymous_memory()
    for at in range(0, rows, BLOCK):
        count = min(BLOCK, rows - at)
        left = torch.randn(count, DIMENSION, generator=draw)
        right = left.roll(1, 1) + torch.randn(count, DIMENSION, generator=draw)
        batch = PairBatch(left, right, torch.arange(at, at + count))
        start = time.process_time()
        reading.add(batch)
        middle = time.process_time()
        products(left, right)
        end = time.process_time()
        spent, product = spent + middle - start, product + end - middle
        ratios.append((middle - start) / (end - middle))
        late = at >= WARM_ROWS
        peaks[late] = max(peaks[late], anonymous_memory() - before)
    start = time.process_time()
    found = reading.anchors()
    return {
        "rows": rows,
        "fitted": found.moments.number,
        "judging": len(found.held),
        "pass_cpu_seconds": round(spent, 2),
        "products_cpu_seconds": round(product, 2),
        "ratio": round(spent / product, 3),
        "median_block_ratio": round(statistics.median(ratios), 3),
        "finish_cpu_seconds": round(time.process_time() - start, 2),
        "megabytes_up_to_200000_rows": round(peaks[0] / 2**20, 1),
        "megabytes_after": round(peaks[1] / 2**20, 1),
    }


def scaled(rows: int) -> dict[str, Any]:
    """Return memory and CPU seconds of a pass over so many pairs, made block by block, and of a map fitted on them."""
    torch.set_num_threads(1)
    draw = torch.Generator().manual_seed(0)
    noise = torch.randn(BLOCK, DIMENSION, generator=draw)
    reading = AnchorPass(DIMENSION, DIMENSION, expected=rows)
    before, spent = anonymous_memory(), 0.0
    for at in range(0, rows, BLOCK):
        left = torch.randn(min(BLOCK, rows - at), DIMENSION, generator=draw)
        right = left.roll(1, 1) + noise[: len(left)]
        batch = PairBatch(left, right, torch.arange(at, at + len(left)))
        start = time.process_time()
        reading.add(batch)
        spent += time.process_time() - start
    found = reading.anchors()
    start = time.process_time()
    fitted = fit_map("procrustes", Training(found.all, found.kept, "query"))
    mapped = fitted.apply(found.held.left)
    recall = recall_at(find(mapped, found.held.right, torch.arange(len(found.held))).ranks, 1)
    return {
        "rows": rows,
        "fitted": found.all.number,
        "judging": len(found.held),
        "recall_1": round(recall, 4),
        "pass_cpu_seconds": round(spent, 2),
        "fit_cpu_seconds": round(time.process_time() - start, 2),
        "megabytes_before": round(before / 2**20, 1),
        "megabytes_at_most": round(peak_memory() / 2**20, 1),
    }


def peak_memory() -> int:
    """Return the most resident memory that this process ever had, in bytes (Linux)."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def scale() -> dict[str, Any]:
    """Return what passes over few and many pairs take, each in a fresh process."""
    lines = []
    for rows in SCALES:
        with get_context("spawn").Pool(1) as pool:
            lines.append(pool.apply(scaled, (rows,)))
        print(json.dumps(lines[-1]), flush=True)
    return {"dimension": DIMENSION, "lines": lines}


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--only", nargs="+", choices=["models", "pass", "scale"], default=["models", "pass"])
    parser.add_argument("--wordnet", type=Path, default=WORDNET, help="folder of WordNet, with data.noun")
    parser.add_argument("--rows", type=int, default=1_000_000, help="pairs of the pass")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the parts into this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.only:
        started = time.process_time()
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "models": lambda: models(arguments.wordnet),
            "pass": lambda: one_pass(arguments.rows),
            "scale": scale,
        }
        found = parts[name]()
        part = {
            "date": datetime.now(timezone.utc).date().isoformat(),
            "machine": f"{os.cpu_count()} cores, {platform.machine()}",
            "torch": torch.__version__.split("+")[0],
            "cpu_seconds": round(time.process_time() - started),
            **found,
        }
        print(json.dumps({"cpu_seconds": part["cpu_seconds"]} if name == "models" else part, indent=1))
        if arguments.write:
            path: Path = arguments.write
            held: dict[str, Any] = {"targets": TARGETS, "parts": {}}
            if path.is_file():
                held = json.loads(path.read_text(encoding="utf-8"))
            held["parts"][name] = part
            write_whole(path, (json.dumps(held, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
