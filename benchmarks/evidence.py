"""False alarms and delay of the check `drift` over time, beside references of several lengths.

Run: python benchmarks/evidence.py [--look NAME=REFERENCES ...] [--simulate] [--out FILE]

Rows are sentences that `benchmarks/detection` encodes with all-MiniLM-L6-v2 and keeps outside the checkout: 5,566 from
docstrings, 7,500 of the Brown corpus and 2,000 dictionary glosses, rounded to half precision and normalised. A healthy
stream draws a reference from all of them, and disjoint windows from all other rows. A faulty one draws both from
docstrings, and replaces a share of each window by rows of Brown. What each window measured is kept in the cache too,
reference by reference, so that a run may be stopped and continued: `--look 2000-250=80` measures on until there are 80.
With `--simulate` only simulated streams are made anew. What FILE has of real ones that were measured with another
number of permutations stays.

The check then judges each stream window by window with a History, at one window a minute, for budgets of one false
alarm in so many windows. An alarm is a stretch of `warn` and `fail`. Simulated streams are those of the model in
`embedwatch.calibration`, with a new reference every 500 windows; simulated changes give the smallest p-values that
9,999 permutations know.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embedwatch import History, Judge
from embedwatch.batch import VectorBatch
from embedwatch.calibration import FINEST, MOST_WINDOWS, Budget, Plan, accumulate, e_value, lucky_references, plan
from embedwatch.calibration.detector import MEMORY
from embedwatch.checks.drift import SIZES
from embedwatch.checks.drift import Drift as DriftCheck
from embedwatch.core import Metric, Provenance, Snapshot, Space
from embedwatch.core.verdict import Status
from embedwatch.stats.drift import DEEP, Drift

CACHE = Path(tempfile.gettempdir()) / "embedwatch-detection"
HEALTHY = {"1000-1000": 30}
"""Rows of reference and window, and how many references."""
FAULTS = {"2000-250-0.02": 10, "2000-250-0.05": 5, "1000-1000-0.1": 3}
BUDGETS = (30, 100, 1_000, 43_200)
"""Windows in which one false alarm is accepted."""
TAKEN = {"brown": 7_500, "glosses": 2_000}
"""Rows of a source that are taken at most."""
MINUTE, PER_DAY = 60.0, 1_440.0
FAULTY_WINDOWS = {"2000-250-0.02": 40, "2000-250-0.05": 40, "1000-1000-0.1": 20}
SIMULATED, LIFE = 2_000_000, 500
RATIOS = (2 / 3, 0.5, 1 / 3, 0.2, 0.1, 0.05)
SMALLEST = (4e-4, 2e-4)
"""P-values where no labelling differed as much: of a family with a quarter of the level, and with half of it."""
SECOND = 30 * 86_400
"""Evaluations of 30 days, one a second."""
P_VALUE = Metric("drift_p_value", "A p-value.")
FAMILY = Metric("drift_family_p_value", "Of one family.", labels=("family",))
BLOCKS = Metric("drift_blocks", "Blocks.", labels=("side",))
NUMBERS = (P_VALUE, *(Metric(size.metric, "A size.") for size in SIZES))
SIDES, FAMILIES = ("reference", "window"), ("content", "shift", "geometry")


def rows(name: str) -> Tensor:
    """Return the vectors of one source, an even choice where there are more than are taken."""
    path = next(CACHE.glob(f"minilm-{name}-{'?' * 12}.npy"), None)
    if path is None:
        raise SystemExit(f"{CACHE} has no vectors of {name}; make them: python -m benchmarks.detection --brown FOLDER")
    found = torch.from_numpy(np.load(path, allow_pickle=False))
    most = min(TAKEN.get(name, len(found)), len(found))
    return torch.nn.functional.normalize(found[:: len(found) // most][:most].half().float(), dim=1)


def batch(some: Tensor) -> VectorBatch:
    """Return rows as a numbered batch."""
    return VectorBatch(some, torch.arange(len(some)), source="rows")


def measured(window: Tensor, frozen: Any, seed: int) -> list[float]:
    """Return p-value, sizes, blocks and p-values of families of one window."""
    statistic = Drift(frozen=frozen, seed=seed, local=False)
    statistic.update(batch(window))
    snapshot = Snapshot(Space("m", "p"), tuple(statistic.compute()), Provenance(time=0, rows=len(window)))
    numbers = [
        *(snapshot.number(each.name) for each in NUMBERS),
        *(snapshot.number(BLOCKS.name, side=side) for side in SIDES),
        *(snapshot.number(FAMILY.name, family=family) for family in FAMILIES),
    ]
    return [math.nan if each is None else each for each in numbers]


def stream(
    base: Tensor, reference: int, size: int, seed: int, foreign: Tensor | None, share: float, windows: int
) -> list[list[float]]:
    """Return what each window of one reference measured."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(base), generator=generator)
    frozen = Drift.fit([batch(base[order[:reference]])], rows=reference)
    places = order[reference:]
    found = []
    for number in range(len(places) // size if foreign is None else windows):
        start = number * size % (len(places) - size + 1)
        window = base[places[start : start + size]].clone()
        if foreign is not None:
            count = round(share * size)
            strange = foreign[torch.randperm(len(foreign), generator=generator)[:count]]
            window[torch.randperm(size, generator=generator)[:count]] = strange
        found.append(measured(window, frozen, seed))
    return found


def streams(name: str, count: int) -> np.ndarray[Any, Any]:
    """Return what the windows of so many references measured, from the cache as far as it goes: (R, windows, 11)."""
    reference, size, *share = name.split("-")
    path = CACHE / f"evidence-{DEEP}" / f"{'faulty' if share else 'healthy'}-{name}.npy"
    path.parent.mkdir(parents=True, exist_ok=True)
    found: list[Any] = list(np.load(path, allow_pickle=False)) if path.is_file() else []
    missing = range(len(found), count)
    if missing:
        stdlib, brown = rows("stdlib"), rows("brown")
        base = stdlib if share else torch.cat([stdlib, brown, rows("glosses")])
        foreign = brown if share else None
        for number in missing:
            seed = 77 + number if share else 1_000 * int(size) + int(reference) + number
            part, windows = float(share[0]) if share else 0.0, FAULTY_WINDOWS.get(name, 0)
            found.append(stream(base, int(reference), int(size), seed, foreign, part, windows))
            partial = path.with_suffix(".partial")
            with partial.open("wb") as file:
                np.save(file, np.array(found))
            partial.replace(path)
    return np.array(found[:count])


def snapshot_of(numbers: Sequence[float], minute: int) -> Snapshot:
    """Return the Snapshot of one window."""
    sizes, blocks, families = numbers[: len(NUMBERS)], numbers[len(NUMBERS) : len(NUMBERS) + 2], numbers[-3:]
    found = [metric.measure(_known(number)) for metric, number in zip(NUMBERS, sizes, strict=True)]
    found += [BLOCKS.measure(_known(number), side=side) for side, number in zip(SIDES, blocks, strict=True)]
    found += [FAMILY.measure(_known(number), family=name) for name, number in zip(FAMILIES, families, strict=True)]
    return Snapshot(Space("m", "p"), tuple(found), Provenance(time=MINUTE * minute, rows=1))


def _known(number: float) -> float | None:
    return None if math.isnan(number) else float(number)


def judged(windows: np.ndarray[Any, Any], evaluations: float) -> list[Status]:
    """Return the status that the check gives each window of one stream."""
    check = DriftCheck(budget=Budget(1, evaluations / PER_DAY), evaluations_per_day=PER_DAY)
    judge, history = Judge([check]), History()
    found: list[Status] = []
    for minute, numbers in enumerate(windows):
        snapshot = snapshot_of(numbers, minute)
        found.append(judge.judge(snapshot, history=history)[0].status)
        history.append(snapshot)
    return found


def beginnings(alarmed: np.ndarray[Any, Any]) -> int:
    """Return how many alarms begin in streams of statuses, (R, windows)."""
    before = np.concatenate([np.zeros((len(alarmed), 1), dtype=bool), alarmed[:, :-1]], 1)
    return int((alarmed & ~before).sum())


def sure(p_values: np.ndarray[Any, Any], windows: int, threshold: float) -> np.ndarray[Any, Any]:
    """Return whether the evidence of the newest windows reached its threshold, whatever the size of the change.

    It is `accumulate` on many streams at once. Shape: (R, windows) -> (R, windows).
    """
    p = np.clip(p_values, FINEST, 1 - 1e-6)
    each = (1 - p + p * np.log(p)) / (p * np.log(p) ** 2)
    padded = np.concatenate([np.zeros((len(each), windows - 1)), each], 1)
    total = np.zeros_like(each)
    for place in range(windows):
        alarmed = total >= threshold
        total = np.minimum(MEMORY * threshold, (1 + total) * padded[:, place : place + each.shape[1]])
        total[alarmed & (total < threshold)] = 0
    last = accumulate([float(p_value) for p_value in p_values[0, -windows:]], threshold).evidence
    if not math.isclose(last, total[0, -1], rel_tol=1e-2):
        raise SystemExit(f"two ways to accumulate differ: {last} and {total[0, -1]}")
    return np.asarray(total >= threshold)


def healthy_lines(counts: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Yield false alarms of healthy streams."""
    for name, count in counts.items():
        found = streams(name, count)
        ratio = float(np.nanmax(found[:, :, 7] / (found[:, :, 6] + found[:, :, 7])))
        values = found[:, :, 0]
        growing = np.mean([np.mean([math.log(e_value(each)) for each in one[:, 0]]) > 0 for one in found])
        for evaluations in BUDGETS:
            statuses = [judged(one, evaluations) for one in found]
            by = plan(ratio, evaluations)
            alarmed = np.array([[each in ("warn", "fail") for each in one] for one in statuses])
            yield {
                "kind": "healthy", "permutations": DEEP, "rows": name, "ratio": round(ratio, 3),
                "references": len(found), "evaluations": int(found[:, :, 0].size), "one_in": evaluations,
                "plan": None if by is None else {"windows": by.windows, "threshold": round(by.threshold)},
                "alarms": beginnings(alarmed),
                "alarms_of_any_size": None if by is None else beginnings(sure(values, by.windows, by.threshold)),
                "alarms_without_plan": beginnings(sure(values, MOST_WINDOWS, evaluations)),
                "allowed": round(found[:, :, 0].size / evaluations, 2),
                "p_at_most_0.01": round(float((found[:, :, 0] <= 0.01).mean()), 4),
                "references_with_growing_evidence": round(float(growing), 4),
            }  # fmt: skip


def faulty_lines(counts: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Yield how many windows a fault goes unseen."""
    for name, count in counts.items():
        found = streams(name, count)
        for evaluations in BUDGETS:
            statuses = [judged(one, evaluations) for one in found]
            delays = [
                next((at for at, each in enumerate(one, 1) if each in ("warn", "fail")), None) for one in statuses
            ]
            seen = [delay for delay in delays if delay is not None]
            yield {
                "kind": "foreign rows", "permutations": DEEP, "rows": name, "streams": len(found),
                "windows": found.shape[1], "one_in": evaluations, "found": len(seen),
                "median_delay": median(seen) if seen else None,
                "longest_delay": max(seen, default=None),
                "p_at_most_0.01": round(float((found[:, :, 0] <= 0.01).mean()), 4),
            }  # fmt: skip


def simulated_lines() -> Iterator[dict[str, Any]]:
    """Yield false alarms of the model, and the share of references that are unlucky."""
    tail = np.vectorize(lambda strange: math.erfc(strange / math.sqrt(2)))
    for ratio in RATIOS:
        numbers = np.random.default_rng(0)
        luck = math.sqrt(ratio) * numbers.normal(size=(SIMULATED // LIFE, 1))
        values = tail(np.abs(luck + math.sqrt(1 - ratio) * numbers.normal(size=(SIMULATED // LIFE, LIFE))))
        for evaluations in BUDGETS[1:]:
            by = plan(ratio, evaluations)
            yield {
                "kind": "simulated", "ratio": round(ratio, 3), "evaluations": SIMULATED, "one_in": evaluations,
                "life": LIFE, "allowed": round(SIMULATED / evaluations, 1),
                "plan": None if by is None else {"windows": by.windows, "threshold": round(by.threshold)},
                "alarms": None if by is None else beginnings(sure(values, by.windows, by.threshold)),
                "alarms_without_plan": beginnings(sure(values, MOST_WINDOWS, evaluations)),
                "unlucky_references": float(f"{lucky_references(ratio):.2g}"),
            }  # fmt: skip


def changed_lines() -> Iterator[dict[str, Any]]:
    """Yield after how many windows with the smallest p-values evidence suffices."""
    for ratio in RATIOS:
        for evaluations in (*BUDGETS[1:], SECOND):
            by = plan(ratio, evaluations)
            for p_value in SMALLEST:
                yield {
                    "kind": "simulated change", "ratio": round(ratio, 3), "one_in": evaluations, "p_value": p_value,
                    "delay": None if by is None else _delay(p_value, by),
                }  # fmt: skip


def _delay(p_value: float, by: Plan) -> int | None:
    counts = range(1, by.windows + 1)
    return next(
        (count for count in counts if accumulate([p_value] * count, by.threshold).evidence >= by.threshold), None
    )


def kept_lines(out: Path | None, *, all_real: bool) -> list[dict[str, Any]]:
    """Return the rows of real streams that a file has: all, or those with another number of permutations."""
    if out is None or not out.is_file():
        return []
    rows: list[dict[str, Any]] = json.loads(out.read_text(encoding="utf-8"))["rows"]
    real = [row for row in rows if not row["kind"].startswith("simulated")]
    return [row for row in real if all_real or row["permutations"] != DEEP]


def main() -> None:
    """Run and print a JSON object; write it where that is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument(
        "--look", action="append", default=[], metavar="NAME=REFERENCES", help="only measure on, so far"
    )
    parser.add_argument("--simulate", action="store_true", help="only simulate; rows of real streams in FILE stay")
    parser.add_argument("--out", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.look:
        for each in arguments.look:
            name, count = each.split("=")
            print(name, streams(name, int(count)).shape)
        return
    started = time.process_time()
    real = kept_lines(arguments.out, all_real=arguments.simulate)
    if not arguments.simulate:
        real += [*healthy_lines(HEALTHY), *faulty_lines(FAULTS)]
    found = [*simulated_lines(), *changed_lines(), *real]
    facts = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "machine": platform.machine(),
        "torch": torch.__version__.split("+")[0],
        "windows": "drift without its local scan",
        "cpu_seconds": round(time.process_time() - started),
        "rows": found,
    }
    text = json.dumps(facts, indent=2)
    print(text)
    if arguments.out is not None:
        partial = arguments.out.with_suffix(".partial")
        partial.write_text(text + "\n", encoding="utf-8")
        partial.replace(arguments.out)


if __name__ == "__main__":
    main()
