"""How often `what_changed` gives a change its name, on real embeddings.

Run: python benchmarks/what_changed.py --vectors FOLDER [--trials 20] [--healthy 100] [--first 0] [--out FILE]

The folder holds what `benchmarks/what_changed_vectors.py` encodes: sentences of the Brown corpus by two models of 384
dimensions, pooled in several ways, with several prefixes, and of a middle layer. Each trial draws a reference and a
window of other rows, and changes the window in one way.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from embedwatch.ann import cluster_centres
from embedwatch.batch import VectorBatch
from embedwatch.checks.what_changed import WhatChanged
from embedwatch.core import Measurement, Provenance, Snapshot, Space
from embedwatch.stats.drift import Drift
from embedwatch.stats.transformation import Transformation

REFERENCES, WINDOWS = (2_000, 4_000), (500, 1_000)
VARIED = 3_000
"""The first rows, of which each variant exists."""
LOSSES, MIXED, WEIGHT = (4, 8), 20, 4.0
"""Topics of which one is lost, topics that are mixed, and how much heavier half of them becomes."""
NOISE, GROWTH = 0.1, 1.05
COLLAPSES, RANKS, TURNS, FOREIGN = (0.1, 0.3), (128, 256), (20, None), (0.05, 0.1)
Change = Callable[[Tensor, torch.Generator], Tensor]
Measured = tuple[Measurement, ...]


class Spaces(NamedTuple):
    """A healthy space, and the same texts under each change of the model or its settings.

    Args:
        base: rows of the pool, (N, D).
        variants: name of the change -> rows of the same texts, from the first on.
        foreign: name -> rows of other content.
    """

    base: Tensor
    variants: Mapping[tuple[str, str], Tensor]
    foreign: Mapping[str, Tensor]

    @property
    def is_unit(self) -> bool:
        """Whether rows have length 1."""
        return bool(((self.base.norm(dim=1) - 1).abs() < 1e-3).all())


def unit(rows: Tensor) -> Tensor:
    """Return rows of length 1."""
    found: Tensor = torch.nn.functional.normalize(rows, dim=1)
    return found


def spaces(folder: Path) -> dict[str, Spaces]:
    """Return the healthy spaces."""

    def read(name: str) -> Tensor:
        return torch.from_numpy(np.load(folder / f"{name}.npy", allow_pickle=False))

    minilm, e5, middle = read("minilm_mean"), read("e5_mean"), read("minilm_mid")
    return {
        "MiniLM": Spaces(
            unit(minilm),
            {
                ("another model", "model"): unit(e5),
                ("a middle layer", "model"): unit(middle),
                ("first token", "pooling"): unit(read("minilm_cls")),
                ("maximum", "pooling"): unit(read("minilm_max")),
                ("query: before", "pooling"): unit(read("minilmquery_mean")),
                ("not normalised", "normalisation"): minilm,
            },
            {name: unit(read(f"minilm_{name}")) for name in ("glosses", "stdlib")},
        ),
        "e5": Spaces(
            unit(e5),
            {
                ("another model", "model"): unit(minilm),
                ("a middle layer", "model"): unit(read("e5_mid")),
                ("first token", "pooling"): unit(read("e5_cls")),
                ("passage: before", "pooling"): unit(read("e5passage_mean")),
                ("nothing before", "pooling"): unit(read("e5bare_mean")),
                ("not normalised", "normalisation"): e5,
            },
            {name: unit(read(f"e5_{name}")) for name in ("glosses", "stdlib")},
        ),
        "MiniLM, raw": Spaces(
            minilm,
            {("another model", "model"): e5, ("normalised", "normalisation"): unit(minilm)},
            {},
        ),
        "MiniLM, layer 3": Spaces(
            middle,
            {("another model", "model"): read("e5_mid"), ("normalised", "normalisation"): unit(middle)},
            {},
        ),
        "MiniLM, layer 3, one token": Spaces(read("minilm_midtoken"), {}, {}),
        "MiniLM, 256 main directions": Spaces(_projected(unit(minilm), 256), {}, {}),
    }


def _projected(rows: Tensor, count: int) -> Tensor:
    """Return rows in so few main directions, as stores keep them to save room; none of these is empty."""
    basis = torch.linalg.eigh(torch.cov(rows.double().T))[1].flip(1)[:, :count]
    found: Tensor = rows @ basis.float()
    return unit(found)


def turned(dimension: int, degrees: int | None, generator: torch.Generator) -> Tensor:
    """Return a random rotation; with degrees, one that turns D / 2 random planes by so much."""
    drawn, upper = torch.linalg.qr(torch.randn(dimension, dimension, generator=generator))
    basis: Tensor = drawn * upper.diagonal().sign()
    if degrees is None:
        return basis
    angle = math.radians(degrees)
    turn = torch.eye(dimension)
    for place in range(0, dimension - 1, 2):
        turn[place : place + 2, place : place + 2] = torch.tensor(
            [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
        )
    turned_planes: Tensor = basis @ turn @ basis.T
    return turned_planes


def levels(rows: Tensor) -> Tensor:
    """Return rows that were 8-bit integers times a scale."""
    scale = rows.abs().amax(1, keepdim=True) / 127
    return (rows / scale).round() * scale


def computed(space: Spaces) -> Iterator[tuple[str, str, Change]]:
    """Yield changes of the rows themselves: what was done, its name, the function, to be called before the next."""

    def again(rows: Tensor) -> Tensor:
        return unit(rows) if space.is_unit else rows

    width, mean = space.base.shape[1], space.base.mean(0)
    basis = torch.linalg.eigh(torch.cov(space.base.double().T))[1].flip(1).float()

    def noisy(rows: Tensor, generator: torch.Generator) -> Tensor:
        noise = unit(torch.randn(rows.shape, generator=generator))
        return again(rows + NOISE * rows.norm(dim=1, keepdim=True) * noise)

    def cut(rows: Tensor, generator: torch.Generator) -> Tensor:
        del generator
        kept = rows[:, : width * 2 // 3]
        return torch.nn.functional.pad(again(kept), (0, width - kept.shape[1]))

    yield "nothing", "nothing", lambda rows, generator: rows
    yield "bfloat16", "precision", lambda rows, generator: rows.bfloat16().float()
    yield "float16", "precision", lambda rows, generator: rows.half().float()
    yield "int8", "precision", lambda rows, generator: levels(rows)
    yield "a third cut off", "truncation", cut
    yield "norms +5 %", "norms", lambda rows, generator: GROWTH * rows
    yield "noise 10 %", "noise", noisy
    for share in COLLAPSES:
        yield f"collapse {share:.0%}", "collapse", lambda rows, _: again((1 - share) * rows + share * mean)  # noqa: B023
    for rank in RANKS:
        plane = basis[:, :rank] @ basis[:, :rank].T
        yield f"rank {rank}", "rank", lambda rows, _: again(mean + (rows - mean) @ plane)  # noqa: B023
    for angle in TURNS:
        what = "rotated" if angle is None else f"rotated by {angle}°"
        yield what, "rotation", lambda rows, generator: rows @ turned(width, angle, generator)  # noqa: B023


def topics(rows: Tensor, count: int) -> Tensor:
    """Return the topic of each row: its nearest centre of k-means."""
    return torch.cdist(rows, cluster_centres(rows, count, seed=count)).argmin(1)


class Numbers:
    """What both statistics measure of windows beside one reference."""

    def __init__(self, reference: Tensor) -> None:
        batches = [batch(reference)]
        self._drift = Drift.fit(batches, rows=len(reference))
        self._transformation = Transformation(frozen=Transformation.fit(batches, rows=len(reference)))

    def of(self, window: Tensor, seed: int) -> Measured:
        """Return the measurements."""
        found: list[Measurement] = []
        empty = Transformation(frozen=self._transformation.frozen)
        for statistic in (Drift(frozen=self._drift, seed=seed), empty):
            statistic.update(batch(window))
            found += statistic.compute()
        return tuple(found)


def batch(rows: Tensor) -> VectorBatch:
    """Return rows as a numbered batch."""
    return VectorBatch(rows, torch.arange(len(rows)), source="rows")


def trial(space: Spaces, seed: int, reference: int, window: int) -> Iterator[tuple[str, str, Measured]]:
    """Yield what was done, its name and what is measured, for each change of one window."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(space.base), generator=generator)
    varied = order[order < VARIED][:window]
    others = order[~torch.isin(order, varied)]
    numbers = Numbers(space.base[others[:reference]])
    rest = others[reference:]
    for what, name, change in computed(space):
        yield what, name, numbers.of(change(space.base[varied], generator), seed)
    for (what, name), rows in space.variants.items():
        yield what, name, numbers.of(rows[varied], seed)
    for source, foreign in space.foreign.items():
        taken = foreign[torch.randperm(len(foreign), generator=generator)]
        for share in FOREIGN:
            mixed, count = space.base[varied].clone(), round(share * window)
            mixed[torch.randperm(window, generator=generator)[:count]] = taken[:count]
            yield f"{source} {share:.0%}", "content", numbers.of(mixed, seed)
        yield f"{source} only", "content", numbers.of(taken[:window], seed)
    free = torch.cat([varied, rest])
    for count, labels in _labels(space).items():
        here = labels[free]
        if count in LOSSES:
            lost = int(torch.randint(count, (1,), generator=generator))
            yield f"a topic of {count} gone", "content", numbers.of(space.base[free[here != lost][:window]], seed)
        else:
            heavy = torch.randperm(count, generator=generator) < count // 2
            weights = torch.where(heavy, WEIGHT, 1.0)[here]
            mixed = free[torch.multinomial(weights, window, generator=generator)]
            yield f"half of {count} topics × {WEIGHT:g}", "mix", numbers.of(space.base[mixed], seed)


_KNOWN: dict[int, dict[int, Tensor]] = {}


def _labels(space: Spaces) -> dict[int, Tensor]:
    """Return the topics of all rows, few or many."""
    key = id(space.base)
    if key not in _KNOWN:
        _KNOWN[key] = {count: topics(space.base, count) for count in (*LOSSES, MIXED)}
    return _KNOWN[key]


def healthy(space: Spaces, seed: int, reference: int, window: int) -> Iterator[tuple[str, str, Measured]]:
    """Yield what is measured of unchanged windows."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(space.base), generator=generator)
    numbers = Numbers(space.base[order[:reference]])
    for place, rows in enumerate(order[reference:].split(window)):
        if len(rows) == window:
            yield "nothing", "nothing", numbers.of(space.base[rows], seed + place)


def judged(measured: Measured, rows: int) -> str:
    """Return the name that the check gives."""
    snapshot = Snapshot(Space("m", "p"), measured, Provenance(time=0, rows=rows))
    return WhatChanged().named(snapshot) or "unknown"


def main() -> None:
    """Run and print a JSON object; write it where that is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--vectors", type=Path, required=True, help="what benchmarks/what_changed_vectors.py wrote")
    parser.add_argument("--only", action="append", help="one of the spaces; may be repeated")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--healthy", type=int, default=20, help="references for unchanged windows")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    started, found = time.process_time(), []
    for label, space in spaces(arguments.vectors).items():
        if arguments.only and label not in arguments.only:
            continue
        for reference in REFERENCES:
            for window in WINDOWS:
                found += rows(label, space, reference, window, arguments)
                print(label, reference, window, round(time.process_time() - started), flush=True)
                if arguments.out:
                    arguments.out.with_suffix(".part").write_text(json.dumps(found), encoding="utf-8")
    facts: dict[str, Any] = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "torch": torch.__version__.split("+")[0],
        "cpu_seconds": round(time.process_time() - started),
        "rows": found,
    }
    text = json.dumps(facts, indent=2)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")
    else:
        print(text)


def rows(label: str, space: Spaces, reference: int, window: int, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Return one line of the table for each change."""
    names: dict[tuple[str, str], Counter[str]] = {}
    for number in range(arguments.trials):
        seed = arguments.first + number
        for what, name, measured in trial(space, seed, reference, window):
            names.setdefault((what, name), Counter())[judged(measured, window)] += 1
    for number in range(arguments.healthy):
        for what, name, measured in healthy(space, 10_000 + arguments.first + number, reference, window):
            names.setdefault((what, name), Counter())[judged(measured, window)] += 1
    return [
        {
            "space": label,
            "reference": reference,
            "window": window,
            "change": what,
            "name": name,
            "trials": counter.total(),
            "right": counter[name],
            "named": dict(counter.most_common()),
        }
        for (what, name), counter in names.items()
    ]


if __name__ == "__main__":
    main()
