"""Other detectors on pairs of files, run by the Python of an environment that has them.

    PEERS/bin/python benchmarks/detection/peer_process.py FOLDER DETECTOR...

FOLDER holds `0.reference.npy`, `0.window.npy`, `1.reference.npy` and so on. A line of JSON for each pair and detector
says whether it called them different as it is set by default, its p-value where it has one, and CPU seconds. Nothing of
embedwatch is imported.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import resource
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy and torch are loaded
warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402

PERMUTATIONS = 100
"""What alibi-detect takes by default; frouros has no default."""
LEVEL = 0.05
"""alibi-detect's default; KSDrift divides it among the dimensions."""
WARM = 50
"""Rows of a first call, which nobody times."""
PACKAGES = ("alibi-detect", "evidently", "frouros", "numpy", "pandas", "torch")
Answer = dict[str, Any]


def alibi_mmd(reference: Any, window: Any) -> Answer:
    """MMDDrift: all pairs, 100 permutations of single rows."""
    import torch
    from alibi_detect.cd import MMDDrift

    torch.set_num_threads(1)
    torch.manual_seed(0)
    detector = MMDDrift(reference, backend="pytorch", p_val=LEVEL, n_permutations=PERMUTATIONS, device="cpu")
    found = detector.predict(window)["data"]
    return {"alarm": bool(found["is_drift"]), "p": float(found["p_val"])}


def alibi_ks(reference: Any, window: Any) -> Answer:
    """KSDrift: a Kolmogorov-Smirnov test of each dimension, Bonferroni."""
    from alibi_detect.cd import KSDrift

    found = KSDrift(reference, p_val=LEVEL).predict(window)["data"]
    smallest = float(np.min(found["p_val"]))
    return {"alarm": bool(found["is_drift"]), "p": min(1.0, smallest * reference.shape[1])}


def evidently(method: str, **options: Any) -> Callable[[Any, Any], Answer]:
    """Return one of Evidently's methods for embeddings, with its default threshold."""

    def call(reference: Any, window: Any) -> Answer:
        import pandas as pd
        from evidently.legacy.metrics.data_drift import embedding_drift_methods as methods

        names = [str(place) for place in range(reference.shape[1])]
        frames = [pd.DataFrame(rows, columns=names) for rows in (window, reference)]
        score, alarm, _ = getattr(methods, method)(**options)(*frames)
        return {"alarm": bool(alarm), "score": float(score)}

    return call


def frouros_mmd(reference: Any, window: Any) -> Answer:
    """MMD with a kernel as wide as 1, and 100 permutations."""
    from frouros.callbacks import PermutationTestDistanceBased
    from frouros.detectors.data_drift import MMD

    test = PermutationTestDistanceBased(
        num_permutations=PERMUTATIONS, num_jobs=1, method="conservative", random_state=0, name="test"
    )
    detector = MMD(callbacks=test)
    detector.fit(X=reference)
    _, logs = detector.compare(X=window)
    p_value = float(logs["test"]["p_value"])
    return {"alarm": p_value <= LEVEL, "p": p_value}


DETECTORS: dict[str, Callable[[Any, Any], Answer]] = {
    "alibi-detect MMDDrift": alibi_mmd,
    "alibi-detect KSDrift": alibi_ks,
    "Evidently model": evidently("model"),
    "Evidently distance": evidently("distance"),
    "Evidently mmd": evidently("mmd"),
    "Evidently mmd, bootstrap": evidently("mmd", bootstrap=True),
    "Evidently ratio": evidently("ratio"),
    "frouros MMD": frouros_mmd,
}


def seconds() -> float:
    """Return CPU seconds of this process and of those that it started and waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main() -> None:
    """Print what each detector says of each pair."""
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    print(json.dumps({"versions": versions}), flush=True)
    for path in sorted(folder.glob("*.reference.npy"), key=lambda each: int(each.name.split(".")[0])):
        number = path.name.split(".")[0]
        reference = np.load(path, allow_pickle=False)
        window = np.load(folder / f"{number}.window.npy", allow_pickle=False)
        for name in names:
            if number == "0":
                DETECTORS[name](reference[:WARM].copy(), window[:WARM].copy())  # loads its libraries
            started = seconds()
            answer = DETECTORS[name](reference.copy(), window.copy())
            used = seconds() - started
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            facts = {"pair": int(number), "detector": name, "cpu_seconds": round(used, 4), "peak_bytes": peak}
            print(json.dumps({**facts, **answer}), flush=True)


if __name__ == "__main__":
    main()
