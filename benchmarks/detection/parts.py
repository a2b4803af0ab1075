"""What is measured of the comparison itself. Each part takes less than ten minutes of one core."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from benchmarks.detection.data import BASES, SOURCES, Data
from benchmarks.detection.faults import FAULTS, Fault, longer
from benchmarks.detection.judging import BUDGET, LEVELS, judged_line, watched
from benchmarks.detection.judging import share as counted
from benchmarks.detection.limits import limits
from benchmarks.detection.mmd import exact_p_value
from benchmarks.detection.pairs import Make, Pair, bursty, independent, mixed_in, new_topic
from benchmarks.detection.peers import our_costs, ours
from benchmarks.detection.vectors import stored

WINDOW = 1_000
LONG_WINDOW, LONG_REFERENCE = 5_000, 10_000
HEALTHY, BURSTS, FOUND, LONG = 350, 150, 40, 30
"""Pairs of a line: healthy and independent, healthy and bursty, with something to find, with long windows."""
STREAMS, LOOK_ROWS = 12, 250
"""Streams that are watched beside a reference, and rows of each of their windows."""
STAY, SLOW_STAY = 0.9, 0.98
SHARES = (0.02, 0.05, 0.1)
BURSTY_SHARES = (0.05, 0.1)
NEW = 0.05
Line = dict[str, Any]
Part = Callable[[Data, float], Iterator[Line]]


def alarms(data: Data, times: float) -> Iterator[Line]:
    """Yield healthy pairs of independent rows."""
    for model, base in data.spaces():
        make = partial(independent, data.rows(model, base), size=WINDOW)
        seeds = range(_count(HEALTHY, times))
        yield judged_line(make, seeds, levels=LEVELS, model=model, base=base, window=WINDOW)


def bursts(data: Data, times: float) -> Iterator[Line]:
    """Yield healthy pairs of streams that keep to a topic."""
    for model, base in data.spaces():
        stream = partial(bursty, data.rows(model, base), data.topics(model, base))
        facts: Line = {"model": model, "base": base, "topics": _kind(data, base)}
        for stay, usual in ((STAY, BURSTS), (SLOW_STAY, FOUND)):
            make = partial(stream, size=WINDOW, stay=stay)
            seeds = range(_count(usual, times))
            yield judged_line(make, seeds, levels=LEVELS, **facts, stay=stay, window=WINDOW)
        if base == "brown":
            make = partial(stream, size=LONG_WINDOW, stay=SLOW_STAY, reference=LONG_REFERENCE)
            sizes = {"window": LONG_WINDOW, "reference": LONG_REFERENCE}
            yield judged_line(make, range(_count(LONG, times)), levels=LEVELS, **facts, stay=SLOW_STAY, **sizes)


def sources(data: Data, times: float) -> Iterator[Line]:
    """Yield windows with rows of another source among independent ones."""
    for model, base, other in _others(data, SOURCES):
        healthy = partial(independent, data.rows(model, base), size=WINDOW)
        facts: Line = {"model": model, "base": base, "foreign": other, "window": WINDOW}
        for share in SHARES:
            make = mixed_in(healthy, data.rows(model, other), share)
            yield judged_line(make, range(_count(FOUND, times)), **facts, share=share)


def bursty_sources(data: Data, times: float) -> Iterator[Line]:
    """Yield windows with rows of another source, anywhere in a stream that keeps to a topic."""
    for model, base, other in _others(data, BASES):
        healthy = partial(bursty, data.rows(model, base), data.topics(model, base), size=WINDOW, stay=STAY)
        facts: Line = {"model": model, "base": base, "foreign": other, "topics": _kind(data, base), "stay": STAY}
        for share in BURSTY_SHARES:
            make = mixed_in(healthy, data.rows(model, other), share)
            yield judged_line(make, range(_count(FOUND, times)), **facts, share=share, window=WINDOW)


def topics(data: Data, times: float) -> Iterator[Line]:
    """Yield windows with rows of a topic that the reference does not have."""
    for model, base in data.spaces():
        facts: Line = {"model": model, "base": base, "topics": "k-means", "window": WINDOW}
        for share in (NEW, 2 * NEW):
            make = partial(new_topic, data.rows(model, base), data.clusters(model, base), size=WINDOW, share=share)
            yield judged_line(make, range(_count(FOUND, times)), **facts, share=share)


def faults(data: Data, times: float) -> Iterator[Line]:
    """Yield windows that were changed as a whole, and windows of the first model that were made in another way."""
    seeds = range(_count(FOUND, times))
    for model, base in data.spaces():
        for name, fault in FAULTS.items():
            rows = data.own_lengths(model, base) if fault is longer else data.rows(model, base)
            make = partial(_damaged, rows, fault)
            yield judged_line(make, seeds, model=model, base=base, fault=name, window=WINDOW)
    facts: Line = {"base": "stdlib", "window": WINDOW}
    for model in data.models[:1]:
        rows = data.rows(model, "stdlib")
        kind: Line = {"harmless": "both stored in bfloat16"}
        yield judged_line(partial(_in_bfloat16, rows), seeds, model=model, **facts, **kind)
        for variant, kind in VARIANTS.items():
            make = partial(_made_otherwise, rows, data.rows(model, "stdlib", variant))
            yield judged_line(make, seeds, model=model, **facts, **kind)


VARIANTS: dict[str, Line] = {
    "again": {"harmless": "encoded again in other batches"},
    "bf16": {"harmless": "model computed in bfloat16"},
    "int8": {"fault": "model with weights in int8"},
}


def kernels(data: Data, times: float) -> Iterator[Line]:
    """Yield the exact permutation test, on the windows of `sources` and `topics` and on healthy ones of `alarms`."""
    seeds = range(_count(FOUND, times))
    for model, base in data.spaces():
        rows = data.rows(model, base)
        healthy = partial(independent, rows, size=WINDOW)
        kinds: dict[str, Make] = {"healthy": healthy}
        for other in SOURCES:
            if other != base:
                kinds[other] = mixed_in(healthy, data.rows(model, other), NEW)
        kinds["new topic"] = partial(new_topic, rows, data.clusters(model, base), size=WINDOW, share=NEW)
        for name, make in kinds.items():
            exact = sum(exact_p_value(*make(seed), seed=seed) <= LEVELS[0] for seed in seeds)
            facts: Line = {"model": model, "base": base, "foreign": name, "share": NEW, "window": WINDOW}
            yield {**facts, "at_0.01": counted(exact, len(seeds))}


def looks(data: Data, times: float) -> Iterator[Line]:
    """Yield healthy streams that are judged window by window beside one reference, for one false alarm in 30 days."""
    for model, base in data.spaces():
        rows = data.rows(model, base)
        streams = [watched(rows, seed, LOOK_ROWS) for seed in range(_count(STREAMS, times))]
        told, single = (sum(each[place] for each in streams) for place in (0, 1))
        count = sum(each[2] for each in streams)
        facts: Line = {"model": model, "base": base, "window": LOOK_ROWS, "streams": len(streams), "budget": BUDGET}
        yield {**facts, "accumulated": counted(told, count), "single_at_0.01": counted(single, count)}


PARTS: dict[str, Part] = {
    "alarms": alarms,
    "bursts": bursts,
    "sources": sources,
    "bursty_sources": bursty_sources,
    "topics": topics,
    "limits": limits,
    "faults": faults,
    "looks": looks,
    "kernels": kernels,
    "ours": ours,
    "our_costs": our_costs,
}


def _damaged(rows: Tensor, fault: Fault, seed: int) -> Pair:
    """Return a pair whose window was changed as a whole, and stored again unless its lengths are the change."""
    pair = independent(rows, seed, WINDOW)
    window = fault(pair.window, seed)
    return Pair(pair.reference, window if fault is longer else stored(window))


def _in_bfloat16(rows: Tensor, seed: int) -> Pair:
    return Pair(*(stored(part, torch.bfloat16) for part in independent(rows, seed, WINDOW)))


def _made_otherwise(rows: Tensor, others: Tensor, seed: int) -> Pair:
    """Return a pair whose window has the same sentences as that of `independent`, made in another way."""
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    reference = independent(rows, seed, WINDOW).reference
    return Pair(reference, others[order[len(reference) : len(reference) + WINDOW]])


def _others(data: Data, sources: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    for model, base, other in product(data.models, sources, SOURCES):
        if base != other:
            yield model, base, other


def _kind(data: Data, base: str) -> str:
    return "genres" if data.corpus(base).topics else "k-means"


def _count(usual: int, times: float) -> int:
    return max(2, round(usual * times))
