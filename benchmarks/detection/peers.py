"""Other detectors on the same windows, in a process of their own; and what one comparison costs each."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.detection.data import Data
from benchmarks.detection.judging import batch, judged_line, share
from benchmarks.detection.pairs import REFERENCE, Make, Pair, bursty, independent, mixed_in, new_topic
from embedwatch.comparing import PERMUTATIONS
from embedwatch.stats.drift import Drift

PYTHON = Path(tempfile.gettempdir()) / "embedwatch-peers" / "bin" / "python"
PROCESS = Path(__file__).with_name("peer_process.py")
WINDOW, SHARE, STAY = 1_000, 0.05, 0.9
LEVEL = 0.01
QUICK = (
    "alibi-detect KSDrift",
    "Evidently model",
    "Evidently distance",
    "Evidently mmd",
    "Evidently ratio",
)
SLOW = ("alibi-detect MMDDrift", "Evidently mmd, bootstrap")
SLOWEST = "frouros MMD"
"""Measures all pairs anew for each permutation: asked once, for its cost."""
QUICK_PAIRS, SLOW_PAIRS = 30, 6
"""Pairs of each condition: a hundred permutations of all pairs of rows take seconds."""
LIMIT = 3_000.0
COST_ROWS = 5_000
STATE_ROWS = (10_000, 100_000, 1_000_000)
AT_ONCE = 5_000
REPEATS = 5
Line = dict[str, Any]


class MissingPeersError(Exception):
    """The environment of the other detectors is not there."""


def conditions(data: Data) -> dict[str, Make]:
    """Return the pairs on which all are compared: two healthy sorts, and three with something to find."""
    stdlib, brown = data.rows("minilm", "stdlib"), data.rows("minilm", "brown")
    alone = partial(independent, stdlib, size=WINDOW)
    stream = partial(bursty, brown, data.topics("minilm", "brown"), size=WINDOW, stay=STAY)
    return {
        "healthy, independent": alone,
        "healthy, stays with 0.9": stream,
        "5 % foreign, independent": mixed_in(alone, brown, SHARE),
        "5 % foreign, stays with 0.9": mixed_in(stream, stdlib, SHARE),
        "5 % of a new topic": partial(new_topic, stdlib, data.clusters("minilm", "stdlib"), size=WINDOW, share=SHARE),
    }


def peers(data: Data, times: float, python: Path) -> Iterator[Line]:
    """Yield what each of the other detectors found."""
    for name, make in conditions(data).items():
        for detectors, usual in ((QUICK, QUICK_PAIRS), (SLOW, SLOW_PAIRS)):
            seeds = range(max(2, round(usual * times)))
            with tempfile.TemporaryDirectory() as folder:
                save([make(seed) for seed in seeds], Path(folder))
                answers = list(asked(python, Path(folder), detectors))
            for detector in detectors:
                yield {"condition": name, **summed([each for each in answers if each.get("detector") == detector])}


def ours(data: Data, times: float) -> Iterator[Line]:
    """Yield what the comparison found on the windows that the other detectors had."""
    for name, make in conditions(data).items():
        found = judged_line(make, range(max(2, round(QUICK_PAIRS * times))), condition=name, detector="embedwatch")
        yield {**found, "alarms": found["warned_at_0.01"]}


def summed(answers: Sequence[dict[str, Any]]) -> Line:
    """Return one line of a detector: alarms as it is set by default, and at 1 % where it has a p-value."""
    count = len(answers)
    found = {
        "detector": answers[0]["detector"],
        "trials": count,
        "alarms": share(sum(each["alarm"] for each in answers), count),
        "cpu_seconds_each": round(sum(each["cpu_seconds"] for each in answers) / count, 3),
    }
    if "p" in answers[0]:
        found["at_0.01"] = share(sum(each["p"] <= LEVEL for each in answers), count)
    return found


def save(pairs: Sequence[Pair], folder: Path) -> None:
    """Write pairs as numpy files for `peer_process.py`."""
    for number, pair in enumerate(pairs):
        np.save(folder / f"{number}.reference.npy", pair.reference.numpy())
        np.save(folder / f"{number}.window.npy", pair.window.numpy())


def asked(python: Path, folder: Path, detectors: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield what the other detectors say of the pairs in a folder, first their versions.

    Raises:
        MissingPeersError: if their environment is not there.
    """
    if not python.is_file():
        raise MissingPeersError(
            "`--peers` must be the Python of an environment with the other detectors, got none; "
            "make one as benchmarks/peers-requirements.txt says"
        )
    command = [str(python), str(PROCESS), str(folder), *detectors]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment, check=False)
    if ran.returncode:
        raise RuntimeError(f"other detectors must finish, got exit status {ran.returncode}: {ran.stderr[-500:]}")
    for text in ran.stdout.splitlines():
        if text.startswith("{"):
            yield json.loads(text)


def versions(python: Path) -> dict[str, str]:
    """Return the versions of the other detectors."""
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, str] = next(asked(python, Path(folder), []))["versions"]
    return found


def cost(data: Data, times: float, python: Path) -> Iterator[Line]:
    """Yield CPU seconds of one comparison of 5,000 with 5,000 rows by MMDDrift."""
    del times
    pair = _large(data)
    with tempfile.TemporaryDirectory() as folder:
        save([pair], Path(folder))
        answers = [each for each in asked(python, Path(folder), ("alibi-detect MMDDrift",)) if "detector" in each]
    seconds = answers[0]["cpu_seconds"]
    facts = {"rows": COST_ROWS, "cpu_seconds": seconds, "peak_bytes": answers[0]["peak_bytes"]}
    yield {"what": "alibi-detect MMDDrift", **facts, "kernel_bytes": 4 * (2 * COST_ROWS) ** 2}
    with tempfile.TemporaryDirectory() as folder:
        save([independent(data.rows("minilm", "stdlib"), 0, WINDOW)], Path(folder))
        found = next(each for each in asked(python, Path(folder), (SLOWEST,)) if "detector" in each)
    yield {"what": SLOWEST, "rows": WINDOW, "reference": REFERENCE, "cpu_seconds": found["cpu_seconds"]}


def our_costs(data: Data, times: float) -> Iterator[Line]:
    """Yield our CPU seconds for the same, and the size of the state beside the rows."""
    del times
    pair = _large(data)
    yield our_cost(pair)
    for rows in STATE_ROWS:
        yield our_memory(pair, rows)


def _large(data: Data) -> Pair:
    return independent(data.rows("minilm", "brown"), 0, COST_ROWS, reference=COST_ROWS)


def our_cost(pair: Pair) -> Line:
    """Return CPU seconds of fitting a reference, of mapping the rows of a window, and of the comparison itself."""
    fits, maps, tests, quick = [], [], [], []
    for _ in range(REPEATS):
        started = time.process_time()
        frozen = Drift.fit([batch(pair.reference)], rows=len(pair.reference))
        fitted = time.process_time()
        statistic = Drift(frozen=frozen, permutations=PERMUTATIONS)
        statistic.update(batch(pair.window))
        mapped = time.process_time()
        statistic.compute()
        done = time.process_time()
        without = Drift(frozen=frozen, permutations=PERMUTATIONS, local=False)
        without.update(batch(pair.window))
        ready = time.process_time()
        without.compute()
        quick.append(time.process_time() - ready)
        fits.append(fitted - started)
        maps.append(mapped - fitted)
        tests.append(done - mapped)
    middle = REPEATS // 2
    fit, mapping, test, unscanned = (sorted(each)[middle] for each in (fits, maps, tests, quick))
    return {
        "what": "embedwatch",
        "rows": len(pair.window),
        "dimension": pair.window.shape[1],
        "fit_seconds": round(fit, 4),
        "map_seconds": round(mapping, 4),
        "map_microseconds_each_row": round(1e6 * mapping / len(pair.window), 2),
        "compare_seconds": round(test, 4),
        "compare_without_scan_seconds": round(unscanned, 4),
        "cpu_seconds": round(mapping + test, 4),
    }


def our_memory(pair: Pair, rows: int) -> Line:
    """Return the bytes of the state of a window of so many rows, and its stated bound."""
    statistic = Drift(frozen=Drift.fit([batch(pair.reference)], rows=len(pair.reference)))
    generator = torch.Generator().manual_seed(0)
    for start in range(0, rows, AT_ONCE):
        chosen = torch.randint(len(pair.window), (AT_ONCE,), generator=generator)
        part = batch(pair.window[chosen] + 1e-4 * torch.randn(AT_ONCE, pair.window.shape[1], generator=generator))
        part.ids = torch.arange(start, start + AT_ONCE)
        statistic.update(part)
    state = _size(statistic.state_dict())
    return {"what": "state", "rows": rows, "bytes": state, "bound": statistic.memory(pair.window.shape[1])}


def _size(state: Any) -> int:
    """Return the bytes of all tensors in a state."""
    if isinstance(state, torch.Tensor):
        return state.numel() * state.element_size()
    return sum(map(_size, state.values())) if isinstance(state, Mapping) else 0
