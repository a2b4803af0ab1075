"""Rows of a table that look as if they had never been trained: measured against rows that surely were not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.geometry.norms import row_norms

__all__ = [
    "KNOWN_AT_LEAST",
    "QUANTILE",
    "Indicators",
    "Separation",
    "first_direction",
    "measure_indicators",
    "separate",
]

KNOWN_AT_LEAST = 3
"""Fewer rows that are known to be unused say nothing about others."""
SAMPLE = 16_384
"""So many rows, evenly spaced, give the first direction."""
STEPS = 30
QUANTILE = 0.9
"""A row looks unused where its indicator lies below that of nine in ten rows that are."""
NEAR = 0.1
"""A row looks unused as well where its indicator is below this share of the median one: so near to them is nothing
else."""
SEPARATES = 0.2
"""An indicator says something where, on average, less than this share of the other rows lies below an unused one."""
CHANCE = 1e-3
"""Probability that an indicator seems to separate as few unused rows as there are, where all rows are drawn alike."""
LEAST = 1e-9

Chunks = Callable[[], Iterator[Tensor]]
"""Reads a table from its start, by chunks of rows (N, D)."""


class Indicators(NamedTuple):
    """Numbers of each row that are small where it was not trained, and of each known unused row without itself.

    Args:
        rows: name of the indicator to (V,).
        known: name to (K,) of the known rows, each against the mean of the others.
    """

    rows: dict[str, Tensor]
    known: dict[str, Tensor]


class Separation(NamedTuple):
    """How well an indicator tells rows that are known to be unused from the others.

    Args:
        name: of the indicator.
        below: mean share of the other rows that lie below an unused one: 0 where all are told apart, ½ by chance.
        limit: a row at or below it looks unused; `None` where the indicator does not tell them apart.
    """

    name: str
    below: float
    limit: float | None


def first_direction(rows: Tensor) -> Tensor:
    """Return the direction in which rows vary most, by power iteration on the centred rows.

    Shape: (N, D) -> (D,) of length 1, or zeros where rows do not vary.

    Example:
        >>> rows = torch.tensor([[3.0, 0.1], [-3.0, 0.0], [2.0, -0.1], [-2.0, 0.0]])
        >>> round(abs(float(first_direction(rows)[0])), 2)
        1.0
    """
    if not len(rows):
        return torch.zeros(rows.shape[1])
    centred = rows.float() - rows.float().mean(0)
    direction = centred[torch.linalg.vector_norm(centred, dim=1).argmax()]
    for _ in range(STEPS):
        direction = centred.T @ (centred @ direction)
        length = torch.linalg.vector_norm(direction)
        if not bool(length > 0) or not bool(length.isfinite()):
            return torch.zeros(rows.shape[1])
        direction = direction / length
    return direction


def measure_indicators(chunks: Chunks, number: int, known: Tensor) -> Indicators:
    """Measure all rows of a table against rows that are known to be unused.

    `cosine`: 1 - cos(x, u) with u the mean of the unused rows; `distance`: ‖x - u‖; `norm`: ‖x‖; `inner_cosine` and
    `inner_distance`: the first two without the first principal direction, which frequent tokens share in some models,
    while in others it is what tells unused rows. Untrained rows keep the norm that they were drawn with, or shrink by
    decay. As rows of an output they all get the same gradient, away from what is predicted, and so move together.

    Shape: chunks of (N, D), V rows in all; known (K,) int64. Rows that are not finite have no number (NaN).
    References: Land & Bartolo 2024, "Fishing for Magikarp", https://arxiv.org/abs/2405.05417, section 2.2.

    Args:
        chunks: reads the table from its start, several times.
        number: V.
        known: rows that are known to be unused; with fewer than `KNOWN_AT_LEAST` only `norm` is measured.
    """
    unused, sample = _gathered(chunks, number, known)
    if len(unused) < KNOWN_AT_LEAST:
        norms = torch.cat([row_norms(part) for part in chunks()])
        return Indicators({"norm": torch.where(norms.isfinite(), norms, torch.nan)}, {})
    direction = first_direction(sample)
    inner = _without(unused, direction)
    found: dict[str, list[Tensor]] = {}
    for part in chunks():
        rows = part.float()
        told = _against(rows, unused.mean(0), "") | _against(_without(rows, direction), inner.mean(0), "inner_")
        for name, values in (told | {"norm": row_norms(part)}).items():
            found.setdefault(name, []).append(values.double())
    values_of = {name: torch.cat(parts) for name, parts in found.items()}
    values_of = {name: torch.where(values.isfinite(), values, torch.nan) for name, values in values_of.items()}
    of_known = _left_out(unused, "") | _left_out(inner, "inner_") | {"norm": values_of["norm"][known]}
    return Indicators(values_of, of_known)


def _against(rows: Tensor, centre: Tensor, prefix: str) -> dict[str, Tensor]:
    """Return cosine and distance of rows from one centre. Shape: (N, D), (D,) -> (N,)."""
    lengths = torch.linalg.vector_norm(rows, dim=1) * torch.linalg.vector_norm(centre)
    return {
        f"{prefix}cosine": 1 - rows @ centre / lengths.clamp(min=LEAST),
        f"{prefix}distance": torch.linalg.vector_norm(rows - centre, dim=1),
    }


def _gathered(chunks: Chunks, number: int, known: Tensor) -> tuple[Tensor, Tensor]:
    """Return the finite rows that are known to be unused, and an even sample of all finite rows."""
    step = max(1, -(-number // SAMPLE))
    unused, sample, start = [], [], 0
    for part in chunks():
        here = known[(known >= start) & (known < start + len(part))] - start
        unused.append(part[here].float())
        sample.append(part[(-start) % step :: step].float())
        start += len(part)
    finite = [rows[rows.isfinite().all(1)] for rows in (torch.cat(unused), torch.cat(sample))]
    return finite[0], finite[1]


def _without(rows: Tensor, direction: Tensor) -> Tensor:
    return rows - torch.outer(rows @ direction, direction)


def _left_out(unused: Tensor, prefix: str) -> dict[str, Tensor]:
    """Return the indicators of each unused row against the mean of the others. Shape: (K, D) -> (K,)."""
    others = (unused.sum(0) - unused) / max(1, len(unused) - 1)  # (K, D)
    norms, lengths = (torch.linalg.vector_norm(part, dim=1) for part in (unused, others))
    return {
        f"{prefix}cosine": (1 - (unused * others).sum(1) / (norms * lengths).clamp(min=LEAST)).double(),
        f"{prefix}distance": torch.linalg.vector_norm(unused - others, dim=1).double(),
    }


def separate(rows: Tensor, known: Tensor, ordinary: Tensor, *, name: str) -> Separation:
    """Return how well one indicator tells known unused rows from ordinary ones, and where its limit lies.

    Args:
        rows: (V,) the indicator of each row.
        known: (K,) that of the unused rows, each without itself.
        ordinary: (V,) bool, the rows that tokens in use have.
        name: of the indicator.

    Example:
        >>> separate(torch.tensor([1.0, 2.0, 3.0, 0.5]), torch.tensor([0.1, 0.2, 0.1]), torch.ones(4) > 0, name="norm")
        Separation(name='norm', below=0.0, limit=0.2...)
    """
    others = rows[ordinary & rows.isfinite()].sort().values
    sound = known[known.isfinite()]
    if not len(others) or len(sound) < KNOWN_AT_LEAST:
        return Separation(name, 0.5, None)
    below = float(torch.searchsorted(others, sound).double().mean()) / len(others)
    limit = max(float(sound.quantile(QUANTILE, interpolation="higher")), NEAR * float(others.median()))
    return Separation(name, below, limit if below < _separates(len(sound)) else None)


def _separates(known: int) -> float:
    """Return the mean share below which K unused rows are told apart, and not by chance.

    The sum of K even shares is below s with probability `s^K / K!`, for s up to 1 (Irwin-Hall).

    Example:
        >>> [round(_separates(known), 3) for known in (3, 5, 100)]
        [0.061, 0.131, 0.2]
    """
    return min(SEPARATES, math.exp((math.log(CHANCE) + math.lgamma(known + 1)) / known) / known)
