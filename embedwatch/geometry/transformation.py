"""How the directions of rows differ from what they were: numbers that tell one kind of change from another."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Changes", "Directions", "Spectrum", "Sums", "changes", "spectrum_of"]

EMPTY_VARIANCE = 1e-5
"""A direction with less than this share of the mean variance is empty: a trained model leaves some of its output so."""
ROWS_PER_DIRECTION = 1.25
"""Rows for each direction before one without variance is empty, and not only unseen so far."""
ROUNDING = 1e-7
"""Share of the total variance that rounding may leave in empty directions."""
UNUSED = 1e-12
"""Mean share of a row's square in a coordinate that is nothing but zeros."""
NO_SPREAD = 1e-10
"""Variance of rows of length 1 that is nothing but rounding."""
LEADING = 16
SORTED = 12
LEAD_PART, TAIL_PART = 10, 4
"""The first tenth of the directions leads, the last quarter is the tail."""
LEAST_IN_CELL = 5
MOST_BIAS = 0.5
"""Share by which an eigenvalue is corrected at most: the formula fails where two nearly meet."""
NEAR = 1e-3
"""Eigenvalues that are as near as this share of the larger one are not told apart."""
LOST, GONE, LEAST_LOST = 0.3, 0.15, 10
"""A cell is lost, or gone, where less than this share of its rows is left, if it had at least so many."""


class Sums(NamedTuple):
    """Sums over unit rows in K main directions, the map's mean taken off.

    Args:
        rows: N.
        mean: (K,).
        scatter: `Σ (y - mean)(y - mean)ᵀ`, (K, K).
        outside: sum of squares outside of the main directions.
        energy: sum of squares by coordinate, (D,).
        cells: rows of each cell, (C,) int64.
        cell_sums: sums of y by cell, (C, K).
        cell_squares: sums of `‖y‖²` by cell, (C,).
    """

    rows: int
    mean: Tensor
    scatter: Tensor
    outside: float
    energy: Tensor
    cells: Tensor
    cell_sums: Tensor
    cell_squares: Tensor


class Spectrum(NamedTuple):
    """Eigenvalues of a scatter matrix, descending, (K,), and its eigenvectors as columns, (K, K)."""

    values: Tensor
    vectors: Tensor


class Directions(NamedTuple):
    """The map: mean (D,), main directions (D, K) and their variances (K,) on the rows that fitted it, and how many."""

    mean: Tensor
    basis: Tensor
    variances: Tensor
    fitted: int


class Changes(NamedTuple):
    """What differs from before to now; `None` where too little is known.

    Args:
        offset: distance of the means in standard deviations, sampling noise taken off.
        aside: the part of it that is not along the mean.
        common: share of the shift within cells that all cells have in common.
        concentration: `‖mean‖² / variance` over what it was.
        overlap: overlap of the leading directions with those of the map, over that of calibrating rows.
        spectrum: root mean square of the log ratios of leading eigenvalues, sampling error taken off.
        lead: share of the variance in the reference's first tenth of directions, over what it was.
        tail: the same of its last quarter, and of what lies outside of all.
        filled: variance in directions that were empty, over what it was; `None` where none was.
        empty_before, empty_now: empty directions of each side by itself.
        trailing: last coordinates that are all zero now and were not.
        moved: share of rows that went to other cells, sampling noise taken off.
        lost: share that the cells had in which few rows are left.
        gone: share that the cells had in which next to no row is left.
        within: variance within cells over what it was.
    """

    offset: float | None = None
    aside: float | None = None
    common: float | None = None
    concentration: float | None = None
    overlap: float | None = None
    spectrum: float | None = None
    lead: float | None = None
    tail: float | None = None
    filled: float | None = None
    empty_before: int | None = None
    empty_now: int | None = None
    trailing: int | None = None
    moved: float | None = None
    lost: float | None = None
    gone: float | None = None
    within: float | None = None


def spectrum_of(side: Sums) -> Spectrum:
    """Return the eigenvalues and eigenvectors of the scatter of one side."""
    values, vectors = torch.linalg.eigh(side.scatter)
    return Spectrum(values.flip(0).clamp(min=0), vectors.flip(1))


def changes(before: Sums, now: Sums, by: Directions, *, known: Spectrum | None = None) -> Changes:
    """Return what tells the change from before to now.

    Args:
        before: the calibrating rows of the reference.
        now: the rows that are compared.
        by: the map.
        known: the spectrum of the first, where it was computed already.

    Eigenvalues are corrected for what sampling adds to the large and takes from the small, by the factor
    `1 - Σ_j λ_j / (λ - λ_j) / n` (Lawley 1956, "Tests of significance for the latent roots of covariance and
    correlation matrices").
    """
    if before.rows < 2 or now.rows < 2:
        return Changes()
    trailing = _trailing(now) - _trailing(before)
    totals = [float(side.scatter.trace() + side.outside) / (side.rows - 1) for side in (before, now)]
    spreads = [float(side.scatter.trace()) / (side.rows - 1) for side in (before, now)]
    if min(spreads) <= NO_SPREAD:  # directions of nothing are any
        return Changes(trailing=max(0, trailing))
    offset, aside, concentration = _means(before, now, by, totals)
    spectra = [known or spectrum_of(before), spectrum_of(now)]
    leading = [_leading(one.values, side.rows) for one, side in zip(spectra, (before, now), strict=True)]
    bands = [_bands(side, by) for side in (before, now)]
    lead, tail, filled = (_over(after, earlier) for earlier, after in zip(*bands, strict=True))
    common, within = _shifts(before, now)
    moved, lost, gone = _shares(before, now)
    overlaps = [_overlap(one.vectors) for one in spectra]
    empty = [_empty(one.values, side.rows) for one, side in zip(spectra, (before, now), strict=True)]
    return Changes(
        offset=offset,
        aside=aside,
        common=common,
        concentration=concentration,
        overlap=_over(overlaps[1], overlaps[0]),
        spectrum=_distance(leading[0], leading[1], before.rows, now.rows),
        lead=lead,
        tail=tail,
        filled=filled,
        empty_before=empty[0],
        empty_now=empty[1],
        trailing=max(0, trailing),
        moved=moved,
        lost=lost,
        gone=gone,
        within=within,
    )


def _empty(values: Tensor, count: int) -> int | None:
    """Return in how many main directions of their own rows do not vary; `None` where they are too few to say."""
    if count < ROWS_PER_DIRECTION * len(values):
        return None
    return int((values < EMPTY_VARIANCE * float(values.mean())).sum())


def _trailing(side: Sums) -> int:
    """Return how many of the last coordinates hold nothing but zeros."""
    used = (side.energy > UNUSED * side.rows).nonzero()
    return len(side.energy) - (int(used[-1]) + 1 if len(used) else 0)


def _means(before: Sums, now: Sums, by: Directions, totals: list[float]) -> tuple[float, float, float | None]:
    """Return offset, the part of it aside of the mean, and the change of the concentration."""
    origin = by.basis.T @ by.mean
    means = [origin + side.mean for side in (before, now)]
    squares = [
        max(0.0, float(mean @ mean) - total / side.rows)
        for mean, side, total in zip(means, (before, now), totals, strict=True)
    ]
    shift = now.mean - before.mean
    noise = totals[0] / before.rows + totals[1] / now.rows
    offset = max(0.0, float(shift @ shift) - noise)
    along = 0.0
    if squares[0] > 0:
        axis = means[0] / means[0].norm()
        spread = sum(float(axis @ side.scatter @ axis) / side.rows**2 for side in (before, now))
        along = max(0.0, float(shift @ axis) ** 2 - spread)
    concentration = _over(squares[1] / totals[1], squares[0] / totals[0])
    return (offset / totals[0]) ** 0.5, (max(0.0, offset - along) / totals[0]) ** 0.5, concentration


def _leading(values: Tensor, count: int) -> Tensor:
    """Return the leading eigenvalues, corrected for sampling, as shares of the total."""
    lead = values[:SORTED, None]
    gaps = lead - values
    apart = torch.where(gaps.abs() > NEAR * lead, gaps, torch.inf)
    factor = (1 - (values / apart).sum(1) / count).clamp(1 - MOST_BIAS, 1 + MOST_BIAS)
    shares: Tensor = values[:SORTED] * factor / values.sum()
    return shares


def _distance(before: Tensor, now: Tensor, rows_before: int, rows_now: int) -> float | None:
    known = (before > 0) & (now > 0)
    if not bool(known.any()):
        return None
    square = float((now[known] / before[known]).log().square().mean()) - 2 / rows_before - 2 / rows_now
    return math.sqrt(max(0.0, square))


def _overlap(vectors: Tensor) -> float:
    """Return the overlap of leading directions with those of the map: 1 if they span the same."""
    leading = min(LEADING, max(1, len(vectors) // LEAD_PART))
    return float(vectors[:leading, :leading].square().sum()) / leading


def _bands(side: Sums, by: Directions) -> tuple[float, float, float | None]:
    """Return the shares of the variance in the map's leading directions, in its tail, and in its empty directions."""
    width = len(by.variances)
    settled = by.fitted >= ROWS_PER_DIRECTION * width
    alive = int((by.variances >= EMPTY_VARIANCE * by.variances.mean()).sum()) if settled else width
    variances = side.scatter.diagonal()
    total = float(variances.sum()) + side.outside
    lead = float(variances[: max(1, alive // LEAD_PART)].sum()) / total
    tail = (float(variances[alive - max(1, alive // TAIL_PART) : alive].sum()) + side.outside) / total
    return lead, tail, None if alive == width else float(variances[alive:].sum()) / total + ROUNDING


def _shifts(before: Sums, now: Sums) -> tuple[float | None, float | None]:
    """Return the share of the shifts of cells that is common to all, and the variance within cells over what it was."""
    held = (before.cells >= LEAST_IN_CELL) & (now.cells >= LEAST_IN_CELL)
    if not bool(held.any()):
        return None, None
    counts = [side.cells[held].double() for side in (before, now)]
    means = [side.cell_sums[held] / count[:, None] for side, count in zip((before, now), counts, strict=True)]
    spreads = [
        (side.cell_squares[held] - count * mean.square().sum(1)).clamp(min=0) / (count - 1)
        for side, count, mean in zip((before, now), counts, means, strict=True)
    ]
    weight = counts[1] / counts[1].sum()
    noise = spreads[0] / counts[0] + spreads[1] / counts[1]
    shifts = means[1] - means[0]  # (C, K)
    every = float((weight * (shifts.square().sum(1) - noise)).sum())
    together = weight @ shifts
    common = float(together @ together - (weight.square() * noise).sum())
    within = _over(float((weight * spreads[1]).sum()), float((weight * spreads[0]).sum()))
    return (min(1.0, max(0.0, common) / every) if every > 0 else None), within


def _shares(before: Sums, now: Sums) -> tuple[float, float, float]:
    """Return the share of rows that moved between cells, and the shares of lost cells and of those that are gone."""
    counts = [side.cells.double() for side in (before, now)]
    totals = [float(count.sum()) for count in counts]
    pooled = (counts[0] + counts[1]) / sum(totals)
    noise = float((pooled * (1 - pooled)).sum()) * (1 / totals[0] + 1 / totals[1])
    apart = counts[1] / totals[1] - counts[0] / totals[0]
    square = float(apart.square().sum())
    part = max(0.0, 1 - noise / square) if square > 0 else 0.0
    shares = counts[0] / totals[0]
    lost, gone = (
        float(shares[(counts[1] < least * shares * totals[1]) & (counts[0] >= LEAST_LOST)].sum())
        for least in (LOST, GONE)
    )
    return part**0.5 * float(apart.abs().sum()) / 2, lost, gone


def _over(now: float | None, before: float | None) -> float | None:
    return now / before if now is not None and before is not None and before > 0 else None
