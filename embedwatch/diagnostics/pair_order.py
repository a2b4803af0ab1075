"""Whether row i of two spaces is the same item: rows in the order in which they lie."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.pairs import displaced, unit
from embedwatch.geometry.similarity import kept_neighbours, nearest

__all__ = ["PairOrder"]

NEIGHBOURS = 10
MOST_ROWS = 2_000
MOST_SHIFT = 5
SAME = 1e-6
SEEN = 32
"""Cosines to the nearest others, by which a row is recognised in other coordinates."""
SURE = 0.5
"""A match stands where the next best is twice as far."""


DISPLACED = Metric("pair_displaced_ratio", "Share of items that have the vector of another one.", headline=False)
MATCHED = Metric(
    "pair_matched_ratio",
    "Share of items that are surely recognised in another row of the other side, from the geometry alone.",
    headline=False,
)
SHIFT = Metric("pair_shift_rows", "Rows by which the right side would have to be moved.", "rows", headline=False)
SHIFTED = Metric(
    "pair_shifted_mutual_ratio", "Share of the 10 nearest that are the same after that move.", headline=False
)
REVERSED = Metric(
    "pair_reversed_mutual_ratio",
    "Share of the 10 nearest that are the same with one side back to front.",
    headline=False,
)


class PairOrder(Diagnostic):
    """Says whether rows of two spaces stand beside the wrong partner: swapped, shifted, back to front, or shuffled.

    Where the coordinates are the same, a row is recognised by its vector; in a rotated copy by its cosines to its
    nearest others, which a rotation keeps; after a shift, or back to front, by its neighbours. Two models whose rows
    were shuffled look unrelated.

    Example:
        >>> items = torch.randn(300, 8, generator=torch.Generator().manual_seed(0))
        >>> found, _ = PairOrder().examine((items, items.roll(2, 0)))
        >>> {m.key: m.number for m in found if m.name == "pair_shift_rows"}
        {'pair_shift_rows': -2.0}
    """

    name = "pair_order"
    title = "whether pairs are pairs"
    examines = "ordered pairs"
    metrics = (DISPLACED, MATCHED, SHIFT, SHIFTED, REVERSED)

    def examine(self, subject: Sequence[Tensor]) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return in how far each row stands beside another's partner."""
        u, v = (unit(rows[:MOST_ROWS]) for rows in subject)
        found = [MATCHED.measure(_matched(u, v))]
        if u.shape[1] == v.shape[1]:
            found.append(DISPLACED.measure(float(displaced(u, v, SAME).double().mean())))
        if len(u) > 2 * NEIGHBOURS + MOST_SHIFT:
            first, second = (nearest(rows, rows, NEIGHBOURS) for rows in (u, v))
            shares = {shift: _shifted(first, second, shift) for shift in range(-MOST_SHIFT, MOST_SHIFT + 1)}
            best = max(shares, key=lambda shift: (shares[shift], -abs(shift)))
            back = kept_neighbours(first, len(v) - 1 - second.flip(0))
            found += [
                SHIFT.measure(best),
                SHIFTED.measure(shares[best]),
                REVERSED.measure(float(back.mean())),
            ]
        return found, []

    @classmethod
    def examples(cls) -> Iterable[Sequence[Tensor]]:
        """Yield a few swapped rows."""
        rows = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
        return [(rows, torch.cat([rows[:6].flip(0), rows[6:]]))]


def _shifted(first: Tensor, second: Tensor, shift: int) -> float:
    """Return the mutual k-NN with row i beside row i - shift; rows at the ends are left out."""
    count, edge = len(first), abs(shift)
    moved = (second + shift).roll(shift, 0)
    return float(kept_neighbours(first, moved)[edge : count - edge].mean())


def _matched(u: Tensor, v: Tensor) -> float:
    """Return the share of left rows that are surely one right row, and not that beside which they stand."""
    shares = []
    if u.shape[1] == v.shape[1]:
        shares.append(_sure(_distances(u, v)))
    if len(u) > SEEN:
        shares.append(_sure(torch.cdist(_profile(u), _profile(v))))
    return max(shares, default=0.0)


def _distances(u: Tensor, v: Tensor) -> Tensor:
    return (2 - 2 * u @ v.T).clamp(min=0).sqrt()


def _profile(rows: Tensor) -> Tensor:
    """Return the largest cosines of each row to others, descending. (N, D) -> (N, 32)."""
    cosines = rows @ rows.T
    cosines.fill_diagonal_(-torch.inf)
    return cosines.topk(SEEN, dim=1).values


def _sure(distances: Tensor) -> float:
    """Return the share of rows whose nearest is half as far as the next, and not their own. (N, N) -> number."""
    near = distances.topk(2, dim=1, largest=False)
    sure = near.values[:, 0] < SURE * near.values[:, 1]
    elsewhere = near.indices[:, 0] != torch.arange(len(distances))
    return float((sure & elsewhere).double().mean())
