"""A reference and a window: of independent rows or of streams that keep to a topic, with others in it or without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.ann import cluster_centres

REFERENCE = 2_000
TOPICS = 20


class Pair(NamedTuple):
    """What is compared: a reference and a window, (N, D) and (M, D)."""

    reference: Tensor
    window: Tensor


Make = Callable[[int], Pair]
"""Makes a pair from a seed."""


def topics_of(rows: Tensor, count: int = TOPICS) -> list[str]:
    """Return the topic of each row where its source names none: the nearest of some centres of k-means."""
    centres = cluster_centres(rows, count, seed=0)
    return [str(place) for place in torch.cdist(rows, centres).argmin(1).tolist()]


def independent(base: Tensor, seed: int, size: int, *, reference: int = REFERENCE) -> Pair:
    """Return two samples of rows that share none."""
    order = torch.randperm(len(base), generator=torch.Generator().manual_seed(seed))
    return Pair(base[order[:reference]], base[order[reference : reference + size]])


def bursty(
    base: Tensor, topics: Sequence[str], seed: int, size: int, *, stay: float, reference: int = REFERENCE
) -> Pair:
    """Return two streams that stay in a topic from row to row with some probability, else draw one anew.

    A topic is drawn by its share of the rows. Each side takes its rows from its own part of each topic, and comes back
    to the first of them where a topic has no more.
    """
    generator = torch.Generator().manual_seed(seed)
    parts: tuple[list[Tensor], list[Tensor]] = ([], [])
    for name in sorted(set(topics)):
        rows = torch.tensor([place for place, topic in enumerate(topics) if topic == name])
        rows = rows[torch.randperm(len(rows), generator=generator)]
        cut = max(1, min(len(rows) - 1, len(rows) * reference // (reference + size)))
        parts[0].append(rows[:cut])
        parts[1].append(rows[cut:])
    shares = torch.tensor([float(len(first) + len(second)) for first, second in zip(*parts, strict=True)])
    streams = [
        _stream(part, shares, count, stay, generator) for part, count in zip(parts, (reference, size), strict=True)
    ]
    return Pair(base[streams[0]], base[streams[1]])


def _stream(parts: list[Tensor], shares: Tensor, count: int, stay: float, generator: torch.Generator) -> Tensor:
    stays = (torch.rand(count, generator=generator) < stay).tolist()
    drawn = torch.multinomial(shares, count, replacement=True, generator=generator).tolist()
    used, chosen, topic = [0] * len(parts), [], drawn[0]
    for stayed, other in zip(stays, drawn, strict=True):
        topic = topic if stayed else other
        chosen.append(int(parts[topic][used[topic] % len(parts[topic])]))
        used[topic] += 1
    return torch.tensor(chosen)


def mixed(pair: Pair, others: Tensor, seed: int, share: float) -> Pair:
    """Return a pair in whose window a share of the rows, anywhere, is replaced by others."""
    generator = torch.Generator().manual_seed(seed)
    window = pair.window.clone()
    places = _places(len(window), share, generator)
    window[places] = others[torch.randperm(len(others), generator=generator)[: len(places)]]
    return Pair(pair.reference, window)


def replaced(size: int, seed: int, share: float) -> Tensor:
    """Return which rows of a window `mixed` replaces. (n,) int64."""
    return _places(size, share, torch.Generator().manual_seed(seed))


def _places(size: int, share: float, generator: torch.Generator) -> Tensor:
    return torch.randperm(size, generator=generator)[: round(share * size)]


def mixed_in(make: Make, others: Tensor, share: float) -> Make:
    """Return what makes pairs in whose window a share of the rows is replaced by others."""
    return lambda seed: mixed(make(seed), others, seed, share)


def new_topic(base: Tensor, topics: Sequence[str], seed: int, size: int, share: float) -> Pair:
    """Return a pair in whose window a share of the rows is of one topic that is nowhere else.

    The topic is one of those that have rows enough, in turn.
    """
    chosen = is_new(topics, seed, round(share * size))
    return mixed(independent(base[~chosen], seed, size), base[chosen], seed, share)


def is_new(topics: Sequence[str], seed: int, needed: int) -> Tensor:
    """Return which rows are of the topic that is new to a reference, in turn one of those that have so many. (N,)."""
    large = [name for name in sorted(set(topics)) if topics.count(name) >= needed]
    if not large:
        raise ValueError(f"`topics` must hold one with at least {needed} rows, got none; lower `share`")
    return torch.tensor([topic == large[seed % len(large)] for topic in topics])
