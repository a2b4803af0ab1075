"""Pairs that are none: rows that lie beside another item's row. A map bears many of them, so they hide."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.align.candidates import DEFAULT, Training, fit_map
from embedwatch.align.kept_pairs import Pairs
from embedwatch.geometry.retrieval import directions, find

__all__ = ["Mispairs", "find_mispairs"]

MOST = 4_096
"""Pairs that are looked at."""
LEAST = 100
"""Fewer cannot be told apart."""
FAR = 0.05
"""A suspect has so large a share of all strangers before its partner, seen from either side."""
LIKE_STRANGERS = 1.0
"""And is no nearer to it than strangers are, by so many of their standard deviations."""
FOUND, PAIRED = 0.01, 0.3
"""Unless so many of the pairs have their partner within the first hundredth, nothing is said of any."""


class Mispairs(NamedTuple):
    """What was looked at, and the row numbers of the suspects, the least likely pair first."""

    looked_at: int
    rows: tuple[int, ...]


def find_mispairs(training: Training) -> Mispairs:
    """Return the pairs whose rows are as far apart as strangers, under a map that was fitted on the other half of them.

    A map sees its own anchors too well: with fewer anchors than dimensions it takes any row anywhere.
    """
    kept = training.kept.take(slice(0, MOST))
    if len(kept) < LEAST:
        return Mispairs(0, ())
    halves = [kept.take(slice(first, None, 2)) for first in (0, 1)]
    found: list[tuple[float, int]] = []
    for fitting, judging in (halves, halves[::-1]):
        cosines, strangers, ranks = _near(judging, Training(fitting.moments(), fitting, "query", training.seed))
        count = len(judging)
        if float((ranks.amin(0) <= max(1.0, FOUND * count)).double().mean()) < PAIRED:
            return Mispairs(len(kept), ())
        bound = float(strangers.mean() + LIKE_STRANGERS * strangers.std())
        suspect = (cosines < bound) & (ranks.amin(0) > max(1.0, FAR * count))
        found += [(float(cosines[at]), int(judging.ids[at])) for at in suspect.nonzero()[:, 0].tolist()]
    return Mispairs(len(kept), tuple(row for _, row in sorted(found)))


def _near(judging: Pairs, training: Training) -> tuple[Tensor, Tensor, Tensor]:
    """Return cosines of centred pairs and of strangers, (N,) each, and the partners' ranks from both sides, (2, N)."""
    mapped = fit_map(DEFAULT, training).apply(judging.left)
    right = directions(judging.right - training.moments.right_mean.float())
    own = torch.arange(len(right))
    ranks = torch.stack([find(mapped, right, own, 1).ranks, find(right, mapped, own, 1).ranks])
    return (mapped * right).sum(1), (mapped * right.roll(1, 0)).sum(1), ranks
