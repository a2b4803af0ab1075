"""Put a new embedding model in front of an old FAISS index: a map is the bridge while you embed everything again.

python examples/upgrade_model.py                            made-up spaces of two models; yours are two files of rows
embedwatch align check old.npy new.npy                      the same on the command line, step by step
embedwatch align fit new.npy old.npy -o bridge
embedwatch align index bridge old.faiss -o bridged.faiss
"""

from __future__ import annotations

import argparse
from pathlib import Path

import faiss
import numpy as np

import embedwatch
from embedwatch.align.indexing import align_index
from embedwatch.testing.spaces import two_spaces

ANCHORS = 3_000
"""Documents that were embedded with both models, to fit the map on."""


def recall(index: faiss.Index, queries: np.ndarray, truth: np.ndarray) -> float:
    """Return the share of the 10 nearest that should be found, and are."""
    found = index.search(queries, 10)[1]
    return float(np.mean([len(set(ours) & set(best)) / 10 for ours, best in zip(found, truth, strict=True)]))


def main() -> None:
    """Check, fit, bake the map into a copy of the index, and measure what that is worth."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, default=Path("upgrade"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    new, old = two_spaces(ANCHORS + 1_000)  # (N, 96) of the new model, (N, 64) of the old one, row by row the same
    np.save(out / "new.npy", new[:ANCHORS])
    np.save(out / "old.npy", old[:ANCHORS])
    index = faiss.IndexFlatIP(old.shape[1])
    index.add(old[ANCHORS:])
    faiss.write_index(index, str(out / "old.faiss"))

    # 1. May vectors of both models meet? Almost never; what counts is whether a map would do.
    found = embedwatch.check_pair(out / "new.npy", out / "old.npy")
    print("together:", found.verdict, "|", found.finding.remedy)

    # 2. Fit a map from the new model into the old space; a fifth of the pairs judges it and is never fitted on.
    bridge = embedwatch.fit_aligner(out / "new.npy", out / "old.npy", side="query")
    bridge.save(out / "bridge")

    # 3. Bake it into a copy of the index, which then takes queries of the new model. The old index stays.
    copy = align_index(bridge, out / "old.faiss", out / "bridged.faiss")
    print(f"map: {bridge.method}; {copy.mode}, {copy.dimension_before} to {copy.dimension_after} dimensions")

    # 4. What is it worth? Beside the old model's own queries: a bridge costs something, so embed again when you can.
    queries, asked = np.arange(100), old[ANCHORS:]
    truth = faiss.knn(new[ANCHORS:][queries], new[ANCHORS:], 10, metric=faiss.METRIC_INNER_PRODUCT)[1]
    bridged = faiss.read_index(str(out / "bridged.faiss"))
    print(f"recall@10 of what the new model finds: old model {recall(index, asked[queries], truth):.2f}, ", end="")
    print(f"bridge {recall(bridged, new[ANCHORS:][queries], truth):.2f}, everything embedded again 1.00")


if __name__ == "__main__":
    main()
