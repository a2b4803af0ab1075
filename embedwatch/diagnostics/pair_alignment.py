"""What a map between two spaces of the same items would keep, judged on items that it was not fitted on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from embedwatch.ann.clusters import cluster_centres
from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.pairs import similarity_kept, unit
from embedwatch.geometry.procrustes import fit_rotation, held_out
from embedwatch.geometry.recall_curve import CurvePoint, recall_curve, unit_centred_rotation
from embedwatch.geometry.similarity import (
    held_out_cca,
    kept_neighbours,
    nearest,
    own_places,
    rank_agreement,
    towers,
)

__all__ = ["NEIGHBOURS", "PairAlignment", "PairedRows"]

NEIGHBOURS = 10
MOST_FITTED = 2_000
"""Rows of what is decomposed."""
MOST_COMPARED = 1_000
CLUSTERS = 16
SERVED_WORST = 50
TURNED = 0.98
"""Share of the variance that a rotation explains from which on nothing else took part."""
DIRECTIONS = 64


def _metric(name: str, text: str, *, labels: tuple[str, ...] = (), headline: bool = False) -> Metric:
    return Metric(f"pair_{name}", text, labels=labels, headline=headline)


RSA = _metric("rank_agreement", "Rank correlation of all cosines between items on both sides (RSA).")
CCA = _metric("canonical_correlation", "Mean correlation of 64 canonical directions on other items (CCA).")
SIMILAR = _metric("similarity_ratio", "Share of the variance of all cosines that is kept; 1 after a rotation.")
ROTATION = _metric("rotation_ratio", "Share of the variance of other items that a rotation explains.")
SCALED = _metric("scaled_rotation_ratio", "The same for a rotation and a change of scale.")
RECALL = _metric("aligned_recall_ratio", "Share of other items that find themselves when mapped.", labels=("k",))
OVERLAP = _metric("aligned_overlap_ratio", "Share of the 10 nearest that mapped items find.")
GALLERY = _metric("aligned_gallery_rows", "Items among which mapped ones are searched.")
BEST = _metric("best_kept_ratio", "Share that find the natively nearest item in the first 10.", labels=("map", "rows"))
OWN = _metric("own_kept_ratio", "Share that find their own item in the first 10.", labels=("map", "rows"))
ASKED = _metric("asked_queries", "Queries behind each of these shares.", labels=("map", "rows"))
GAP = _metric("modality_gap", "Distance of the means of both sides.")
ALIGNMENT = _metric("alignment", "Mean squared distance of an item's two unit vectors.")
UNIFORMITY = _metric("uniformity", "Log of the mean Gaussian potential within a side.", labels=("side",))


@dataclass(frozen=True, eq=False)
class PairedRows:
    """The same items in two spaces.

    Args:
        left: (N, D1), finite, none of them zero.
        right: (N, D2).
        numbers: (N,) row numbers.
    """

    left: Tensor
    right: Tensor
    numbers: Tensor


class PairAlignment(Diagnostic):
    """Says what a map from one space into another would keep, and how that goes on as the gallery grows.

    A rotation of unit, centred, unit rows is fitted on the items of even place; those of odd place are mapped with it
    and search among themselves, both ways; the lower share counts. Without a map the spaces search one another as they
    stand, where they have as many dimensions. A query keeps the best where it finds among its first 10 the item that is
    nearest to it in the space that is searched: what a user of native search sees first.

    Example:
        >>> items = torch.randn(400, 8, generator=torch.Generator().manual_seed(0))
        >>> turn = torch.linalg.qr(torch.randn(8, 8, generator=torch.Generator().manual_seed(1))).Q
        >>> found, _ = PairAlignment().examine(PairedRows(items, items @ turn, torch.arange(400)))
        >>> {m.key: round(m.number, 3) for m in found if m.number is not None}["pair_aligned_recall_ratio{k=1}"]
        1.0
    """

    name = "pair_alignment"
    title = "what a map between two spaces keeps"
    examines = "pairs"
    metrics = (
        RSA, CCA, SIMILAR, ROTATION, SCALED, RECALL, OVERLAP, GALLERY, BEST, OWN, ASKED, GAP, ALIGNMENT, UNIFORMITY,
    )  # fmt: skip

    def examine(self, subject: PairedRows) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return what is kept, the curves, and what is lost where."""
        u, v = unit(subject.left), unit(subject.right)
        explained = held_out(u[:MOST_FITTED], v[:MOST_FITTED]) if len(u) > 3 else None
        found = [
            RSA.measure(rank_agreement(u, v)),
            CCA.measure(held_out_cca(u[:MOST_FITTED], v[:MOST_FITTED], directions=DIRECTIONS)),
            SIMILAR.measure(similarity_kept(u[:MOST_COMPARED], v[:MOST_COMPARED])),
            ROTATION.measure(None if explained is None else explained.rotation),
            SCALED.measure(None if explained is None else explained.scaled),
        ]
        same_width = u.shape[1] == v.shape[1]
        curves: dict[str, list[CurvePoint]] = {}
        if same_width:
            curves["none"] = _lower(recall_curve(u, v, NEIGHBOURS), recall_curve(v, u, NEIGHBOURS))
            both = towers(u, v)
            found += [GAP.measure(both.gap), ALIGNMENT.measure(both.alignment)]
            found += [UNIFORMITY.measure(both.uniformity_left, side="left")]
            found += [UNIFORMITY.measure(both.uniformity_right, side="right")]
        mapped = _mapped(u, v, subject.numbers, turned=explained is not None and explained.rotation >= TURNED)
        curves["rotation"] = _lower(
            recall_curve(mapped.forth, mapped.right, NEIGHBOURS), recall_curve(mapped.back, mapped.left, NEIGHBOURS)
        )
        places = own_places(mapped.forth, mapped.right), own_places(mapped.back, mapped.left)
        kept = mapped.kept()
        found += [
            *(RECALL.measure(min(float((p < k).double().mean()) for p in places), k=str(k)) for k in (1, NEIGHBOURS)),
            OVERLAP.measure(None if kept is None else min(float(each.mean()) for each in kept)),
            GALLERY.measure(len(mapped.left)),
        ]
        for name, curve in curves.items():
            for point in curve:
                shares = (BEST, point.best), (OWN, point.own), (ASKED, point.queries)
                found += [metric.measure(share, map=name, rows=str(point.gallery)) for metric, share in shares]
        return found, _exhibits(mapped, curves, kept, places)

    @classmethod
    def examples(cls) -> Iterable[PairedRows]:
        """Yield a rotated copy with noise, and a space of other dimensions."""
        generator = torch.Generator().manual_seed(0)
        rows = torch.randn(200, 6, generator=generator)
        turn = torch.linalg.qr(torch.randn(6, 6, generator=generator)).Q
        noise = 0.1 * torch.randn(200, 6, generator=generator)
        return [
            PairedRows(rows, rows @ turn + noise, torch.arange(200)),
            PairedRows(rows, (rows + noise)[:, :4], torch.arange(200)),
        ]


@dataclass(frozen=True, eq=False)
class _Mapped:
    """Items of odd place in both spaces, and each side's in the space of the other. All unit rows."""

    left: Tensor
    right: Tensor
    forth: Tensor
    back: Tensor
    numbers: Tensor

    def kept(self) -> tuple[Tensor, Tensor] | None:
        """Return the share of the 10 nearest that each item finds, both ways; `None` for 20 items or fewer."""
        if len(self.left) <= 2 * NEIGHBOURS:
            return None
        sides = (self.forth, self.right), (self.back, self.left)
        first, second = (
            kept_neighbours(nearest(queries, gallery, NEIGHBOURS), nearest(gallery, gallery, NEIGHBOURS))
            for queries, gallery in sides
        )
        return first, second


def _mapped(u: Tensor, v: Tensor, numbers: Tensor, *, turned: bool) -> _Mapped:
    """Map the items of odd place; where a rotation alone takes one side to the other, with that."""
    left, right = u[1::2], v[1::2]
    move = _rotated if turned else unit_centred_rotation
    return _Mapped(left, right, move(u[::2], v[::2], left), move(v[::2], u[::2], right), numbers[1::2])


def _rotated(left: Tensor, right: Tensor, rows: Tensor) -> Tensor:
    """Return rows of the left space in the right one by a rotation about the means. (M, D1) -> (M, D2) unit rows."""
    found = fit_rotation(left, right)
    return unit((rows - found.mean_from) @ found.matrix + found.mean_to)


def _lower(first: list[CurvePoint], second: list[CurvePoint]) -> list[CurvePoint]:
    """Return the lower share of both directions at each size."""
    return [
        CurvePoint(a.gallery, a.queries, min(a.own, b.own), min(a.best, b.best))
        for a, b in zip(first, second, strict=True)
    ]


def _exhibits(
    mapped: _Mapped,
    curves: dict[str, list[CurvePoint]],
    kept: tuple[Tensor, Tensor] | None,
    places: tuple[Tensor, Tensor],
) -> list[Exhibit]:
    points = [(name, p.gallery, p.own, p.best) for name, curve in curves.items() for p in curve]
    told = "Share of queries that find their own item, and the natively nearest, in the first 10, by gallery size."
    shown = [Exhibit.build("pair_recall_curve", "curve", told, ("map", "gallery_rows", "own", "best"), points)]
    if kept is not None:
        shown.append(_by_cluster(mapped, kept[0]))
    shown.append(_spectrum(mapped))
    late = torch.maximum(*places)
    order = late.argsort(descending=True, stable=True)[:SERVED_WORST]
    rows = [(int(mapped.numbers[i]), float(late[i]) + 1) for i in order if late[i] >= 1]
    caption = "Items, mapped, that find themselves latest in the other space: another item's vector perhaps."
    return [*shown, Exhibit.build("pair_aligned_served_worst", "table", caption, ("row", "found_at"), rows)]


def _by_cluster(mapped: _Mapped, kept: Tensor) -> Exhibit:
    """Return the kept neighbours by region of the right space, the worst first."""
    cells = min(CLUSTERS, max(1, len(kept) // (2 * NEIGHBOURS)))
    rows = mapped.right.float()
    centres = cluster_centres(rows, cells, seed=0)
    nearest_cell = torch.cdist(rows, centres).argmin(1)
    table = []
    for cell in range(len(centres)):
        members = (nearest_cell == cell).nonzero()[:, 0]
        if len(members):
            middle = members[torch.cdist(rows[members], centres[cell : cell + 1])[:, 0].argmin()]
            table.append((int(mapped.numbers[middle]), len(members), float(kept[members].mean())))
    table.sort(key=lambda row: row[2])
    caption = "Share of the 10 nearest that mapped items find, by region of the right space, the worst first."
    return Exhibit.build("pair_overlap_by_cluster", "table", caption, ("row", "items", "overlap"), table)


def _spectrum(mapped: _Mapped) -> Exhibit:
    """Return how the variance that the map misses is spread over the directions of the right space."""
    rows = mapped.right - mapped.right.mean(0)
    basis = torch.linalg.svd(rows[:MOST_FITTED], full_matrices=False).Vh  # (r, D2)
    forth = mapped.forth - mapped.forth.mean(0)
    scale = float((rows * forth).sum() / forth.square().sum())
    inside, missed = (rows @ basis.T).square().sum(0), ((rows - scale * forth) @ basis.T).square().sum(0)
    share = (missed / inside.clamp(min=1e-12)).tolist()
    total = float(inside.sum())
    points = [(place + 1, float(inside[place]) / total, share[place]) for place in range(len(share))]
    caption = "Main directions of the right space: their share of its variance, and what of it the map misses."
    columns = ("direction", "variance", "missed")
    return Exhibit.build("pair_residual_spectrum", "curve", caption, columns, points)
