"""Why some new topics are not found: what is known of their rows beside what one would know who knew the topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import comb
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.detection.data import Data
from benchmarks.detection.judging import LEVELS, judged, share
from benchmarks.detection.pairs import independent, is_new, mixed, replaced

WINDOW, NEW, NEAR = 1_000, 0.05, 30
TOPICS = 20
"""Pairs of a line: each of as many topics once."""
Line = dict[str, Any]


class Limit(NamedTuple):
    """One new topic.

    Args:
        found: whether the comparison found it at 1 %.
        near: rows of the topic among the 30 nearest rows of each, the mean.
        beyond: share of all other rows that are farther toward the topic than half of its own.
        oracle: whether that line, were it known, would tell at 1 %.
    """

    found: bool
    near: float
    beyond: float
    oracle: bool


def limits(data: Data, times: float) -> Iterator[Line]:
    """Yield for topics that are found, and for those that are not, how they lie among other rows."""
    for model, base in data.spaces():
        rows, clusters = data.rows(model, base), data.clusters(model, base)
        every = [limit(rows, clusters, seed) for seed in range(max(2, round(TOPICS * times)))]
        for found in (True, False):
            some = [each for each in every if each.found == found]
            facts: Line = {"model": model, "base": base, "found": found, "trials": len(some), "of": len(every)}
            if some:
                facts["near"] = round(sum(each.near for each in some) / len(some), 2)
                facts["beyond"] = round(sum(each.beyond for each in some) / len(some), 4)
                facts["oracle"] = share(sum(each.oracle for each in some), len(some))
            yield facts


def limit(rows: Tensor, topics: Sequence[str], seed: int) -> Limit:
    """Return what is known of a new topic: the pair is that of `new_topic`."""
    new = is_new(topics, seed, round(NEW * WINDOW))
    pair = mixed(independent(rows[~new], seed, WINDOW), rows[new], seed, NEW)
    every = torch.cat(pair)
    is_topic = torch.zeros(len(every))
    is_topic[len(pair.reference) + replaced(WINDOW, seed, NEW)] = 1
    own = is_topic == 1
    apart = torch.cdist(every[own], every)
    nearest = apart.topk(NEAR + 1, dim=1, largest=False).indices[:, 1:]
    along = every @ (rows[new].mean(0) - rows[~new].mean(0))
    beyond = along > along[own].median()
    hits = [int(beyond[len(pair.reference) :].sum()), int(beyond.sum())]
    p_value = judged(pair, seed).p_values[LEVELS[0]]
    return Limit(
        p_value is not None and p_value <= LEVELS[0],
        float(is_topic[nearest].sum(1).mean()),
        float(beyond[~own].double().mean()),
        tail(*hits, len(pair.window), len(every)) <= LEVELS[0],
    )


def tail(hits: int, marked: int, drawn: int, every: int) -> float:
    """Return how likely so many of the marked rows, or more, are among the drawn ones by chance (Fisher 1922).

    Example:
        >>> round(tail(2, 2, 5, 10), 4)
        0.2222
    """
    ways = sum(comb(marked, each) * comb(every - marked, drawn - each) for each in range(hits, min(marked, drawn) + 1))
    return ways / comb(every, drawn)
