"""Fixed texts as they were embedded once and as they are embedded now: what became of the space."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from embedwatch.batch import PairBatch
from embedwatch.core.errors import UsageError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.grids import GRIDS, on_grid
from embedwatch.geometry.pairs import (
    centred_cosine,
    cosine_distances,
    debiased_cka,
    displaced,
    leading,
    neighbour_overlap,
    offset_share,
    similarity_kept,
    unit,
    used_width,
)
from embedwatch.geometry.procrustes import held_out
from embedwatch.geometry.unit_length import UNIT_LENGTH, have_unit_length
from embedwatch.sketches.base import BatchStatistic
from embedwatch.sketches.example_pairs import example_pairs, paired_by_loops
from embedwatch.sketches.pair_sample import PairSample, pair_keys

LEAST_FLOOR = 1e-9
"""Cosine distance that rounding in float32 and another order of sums stay below by far, and half precision does not."""
MOST_TEXTS = 1024
NEIGHBOURS = 5
NAMED_TEXTS = 50
QUANTILES = {"0.5": 0.5, "0.9": 0.9, "1": 1.0}
NORM_QUANTILES = {"0": 0.0, "0.5": 0.5, "1": 1.0}
SIDES = ("then", "now")

TEXTS = Metric("canary_texts", "Texts that were embedded then and now.", "texts", digits=9, headline=False)
NONFINITE = Metric(
    "canary_nonfinite_texts", "Texts whose vector holds NaN or Inf.", "texts", healthy="0", digits=9, headline=False
)
ZERO = Metric(
    "canary_zero_texts", "Texts whose vector is zero now and was not.", "texts", healthy="0", digits=9, headline=False
)
DIMENSION = Metric(
    "canary_dimension",
    "Dimensions up to the last that is not zero in every text.",
    "dimensions",
    labels=("side",),
    digits=9,
    headline=False,
)
FLOOR = Metric("canary_floor", "Cosine distance of a text to itself that is taken for noise.", headline=False)
LENGTH_FLOOR = Metric(
    "canary_length_floor_ratio", "Relative difference of a text's length that is taken for noise.", headline=False
)
LENGTHS = Metric(
    "canary_lengths", "1 where vectors are compared with their lengths, 0 where by their cosine alone.", headline=False
)
DISTANCE = Metric(
    "canary_distance", "Quantiles of 1 - cosine of each text, then and now.", healthy="the noise floor", labels=("q",)
)
DIFFERENCE = Metric("canary_difference", "Largest difference between two entries, then and now.", headline=False)
MOVED = Metric(
    "canary_moved_ratio", "Share of texts that moved by more than the noise floor.", healthy="0", headline=False
)
DISPLACED = Metric(
    "canary_displaced_ratio", "Share of texts that have the vector that another text had.", healthy="0", headline=False
)
NORM = Metric(
    "canary_norm_ratio", "Quantiles of the length of a text's vector over what it was.", labels=("q",), headline=False
)
UNIT = Metric("canary_unit_ratio", "Share of texts whose vector has length 1.", labels=("side",), headline=False)
OVERLAP = Metric(
    "canary_overlap_ratio", "Share of each text's 5 nearest texts that are the same then and now.", healthy="1"
)
CHANCE = Metric(
    "canary_overlap_chance_ratio", "That share where texts are paired at random, over all permutations.", headline=False
)
CKA = Metric("canary_cka", "Debiased linear CKA: 1 for one space in other coordinates, 0 for unrelated ones.")
KEPT = Metric(
    "canary_similarity_ratio",
    "Share of the variance of all cosines between texts that is kept; 1 after a rotation.",
    headline=False,
)
OFFSET = Metric(
    "canary_offset_ratio", "Share of all movement that one shift, common to all texts, explains.", headline=False
)
CENTRED = Metric(
    "canary_centred_cosine",
    "Cosine of all texts then and now, less their means, taken as one: near 0 in other coordinates.",
    headline=False,
)
ROTATION = Metric(
    "canary_rotation_ratio",
    "Share of the variance of other texts that a rotation explains, fitted on half of them.",
    headline=False,
)
SCALED = Metric("canary_scaled_rotation_ratio", "The same for a rotation and a change of scale.", headline=False)
LEADING = Metric(
    "canary_leading_distance",
    "Largest 1 - cosine on the dimensions that both have; none where both have as many.",
    headline=False,
)
GRID = Metric(
    "canary_grid_ratio",
    "Share of texts whose values all lie on the grid of a type.",
    labels=("side", "grid"),
    headline=False,
)
Numbers = dict[str, float | int | None]


class _Compared(NamedTuple):
    """Pairs that have a direction on both sides, in float64, and how many have not."""

    numbers: Tensor
    then: Tensor
    now: Tensor
    nonfinite: Tensor
    zero: int
    seen: int

    @property
    def widths_agree(self) -> bool:
        """Whether both sides have as many dimensions, or use as many."""
        return self.then.shape[1] == self.now.shape[1] or used_width(self.then) == used_width(self.now)

    def aligned(self) -> _Compared:
        """Return it without what only one side has: dimensions that are zero throughout."""
        width = min(self.then.shape[1], self.now.shape[1])
        return self._replace(then=self.then[:, :width], now=self.now[:, :width])


class Canary(BatchStatistic[PairBatch]):
    """What became of a space, seen on fixed texts: left as they were embedded then, right as they are now.

    `distance = 1 - cos(u, v)`, computed as `½ ‖û - v̂‖²`. A text moved where that exceeds the floor, the noise that was
    measured when the texts were embedded several times. Neighbours, cosines between texts and CKA see whether it is the
    same space in other coordinates; a rotation is fitted on half of the texts and judged on the others, and is unknown
    for fewer texts than twice the directions that they fill, where cosines and CKA still tell.

    Shape: pairs (N, D1), (N, D2).
    State: 1,024 pairs in float32, those with the smallest hash of their number; merge exact.
    NaN, Inf, empty: pairs with them are counted and left out of all else, as are zero rows; no pairs give no values.

    Args:
        floor: cosine distance up to which a text has not moved.
        length_floor: relative difference up to which a text's length has not changed.
        lengths: whether vectors are compared with their lengths (dot product, Euclidean distance).
        most: pairs kept.

    References: Kornblith et al. 2019, arXiv 1905.00414; Schönemann 1966, Psychometrika 31.

    Example:
        >>> import torch
        >>> texts = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
        >>> statistic = Canary()
        >>> statistic.update(PairBatch(texts, 2 * texts.flip(1), torch.arange(16)))
        >>> found = {m.key: m.value for m in statistic.compute()}
        >>> found["canary_moved_ratio"], round(found["canary_similarity_ratio"], 6), found["canary_norm_ratio{q=1}"]
        (1.0, 1.0, 2.0)
    """

    name = "canary"
    title = "fixed texts, then and now"
    consumes = "pairs"
    counts_defects = True
    metrics = (
        TEXTS, NONFINITE, ZERO, DIMENSION, FLOOR, LENGTH_FLOOR, LENGTHS, DISTANCE, DIFFERENCE, MOVED, DISPLACED, NORM,
        UNIT, OVERLAP, CHANCE, CKA, KEPT, OFFSET, CENTRED, ROTATION, SCALED, LEADING, GRID,
    )  # fmt: skip

    def __init__(
        self,
        *,
        floor: float = LEAST_FLOOR,
        length_floor: float = 0.0,
        lengths: bool = False,
        most: int = MOST_TEXTS,
    ) -> None:
        if not 0 < floor <= 2:
            raise UsageError(f"`floor` must be above 0 and at most 2, got {floor!r}; {LEAST_FLOOR:g} is exact")
        if not 0 <= length_floor < math.inf:
            raise UsageError(f"`length_floor` must be a number of at least 0, got {length_floor!r}; 0 is exact")
        if most < 1:
            raise UsageError(f"`most` must be at least 1, got {most!r}; {MOST_TEXTS} is usual")
        super().__init__(floor=floor, length_floor=length_floor, lengths=lengths, most=most)
        self._asked: Numbers = {FLOOR.name: floor, LENGTH_FLOOR.name: length_floor, LENGTHS.name: int(lengths)}
        self._floor = floor
        self._sample = self.keep("pairs", PairSample(most))

    def add(self, batch: PairBatch) -> None:
        """Add a batch whose dimensions fit."""
        self._sample.offer(batch)

    def _compared(self) -> _Compared:
        then, now = (side.cpu() for side in self._sample.sides)
        numbers = self._sample.numbers.cpu()
        finite = then.isfinite().all(1) & now.isfinite().all(1)
        there, here = (then != 0).any(1), (now != 0).any(1)
        good = finite & there & here
        zero = int((finite & there & ~here).sum())
        return _Compared(numbers[good], then[good].double(), now[good].double(), numbers[~finite], zero, len(numbers))

    def compute(self) -> list[Measurement]:
        """Return the measurements of all pairs seen so far."""
        found = self._compared()
        numbers: Numbers = {TEXTS.name: found.seen, NONFINITE.name: len(found.nonfinite), ZERO.name: found.zero}
        if found.seen:
            numbers |= self._asked
        if len(found.then):
            numbers |= _space(found) | _values(found)
            if found.widths_agree:
                numbers |= self._moves(found.aligned())
        return self._measured(numbers)

    def _moves(self, found: _Compared) -> Numbers:
        """Return what can be said where both sides have as many dimensions."""
        then, now = unit(found.then), unit(found.now)
        apart = cosine_distances(then, now)
        return {
            **{f"{DISTANCE.name}{{q={name}}}": float(apart.quantile(q)) for name, q in QUANTILES.items()},
            DIFFERENCE.name: float((found.now - found.then).abs().max()),
            MOVED.name: float((apart > self._floor).double().mean()),
            DISPLACED.name: float(displaced(then, now, self._floor).double().mean()),
            OFFSET.name: offset_share(then, now),
            CENTRED.name: centred_cosine(then, now),
        }

    def _measured(self, numbers: Numbers) -> list[Measurement]:
        every = [(metric, labels) for metric in self.metrics for labels in _labels(metric)]
        return [Measurement(metric, _known(numbers.get(_key(metric, labels))), labels) for metric, labels in every]

    def exhibits(self) -> list[Exhibit]:
        """Return the texts that moved, the farthest first, those without a number before all."""
        found = self._compared()
        found = found.aligned() if found.widths_agree else found
        rows: list[tuple[int | float | None, ...]] = [(int(number), None, None) for number in found.nonfinite]
        if found.widths_agree and len(found.then):
            apart = cosine_distances(unit(found.then), unit(found.now))
            ratios = found.now.norm(dim=1) / found.then.norm(dim=1)
            order = apart.argsort(descending=True, stable=True).tolist()
            moved = [place for place in order if apart[place] > self._floor]
            rows += [(int(found.numbers[place]), float(apart[place]), float(ratios[place])) for place in moved]
        caption = "Texts that moved beyond the noise floor, the farthest first."
        columns = ("row", "distance", "norm_ratio")
        return [Exhibit.build("canary_moved", "table", caption, columns, rows[:NAMED_TEXTS])]

    def oracle(self, batch: PairBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on all rows at once."""
        order = pair_keys(batch)[0].argsort()
        numbers = paired_by_loops(batch.take(order), self._floor, NEIGHBOURS, UNIT_LENGTH)
        if len(batch):
            numbers |= self._asked
        return {m.key: m.number for m in self._measured(numbers)}

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[Canary, Sequence[PairBatch]]]:
        """Yield another space, fewer dimensions, zeros behind, a rotation, a few that moved, and the same."""
        for change in ("other", "narrow", "padded", "rotated", "cut", "same"):
            yield cls(floor=1e-6, lengths=change == "same"), example_pairs(seed, change)


def _labels(metric: Metric) -> list[dict[str, str]]:
    """Return the labels under which a metric is delivered."""
    if metric is GRID:
        return [{"side": side, "grid": grid} for side in SIDES for grid in GRIDS]
    if metric in (DIMENSION, UNIT):
        return [{"side": side} for side in SIDES]
    if metric is DISTANCE:
        return [{"q": name} for name in QUANTILES]
    return [{"q": name} for name in NORM_QUANTILES] if metric is NORM else [{}]


def _known(number: float | int | None) -> float | int | None:
    """Return a finite number, or `None`."""
    return None if number is None or not math.isfinite(number) else number


def _key(metric: Metric, labels: Mapping[str, str]) -> str:
    return Measurement(metric, None, labels).key


def _space(found: _Compared) -> Numbers:
    """Return what the two spaces have in common, whatever their coordinates."""
    then, now = unit(found.then), unit(found.now)
    overlap, explained = neighbour_overlap(then, now, NEIGHBOURS), held_out(then, now)
    narrower = used_width(then) != used_width(now)
    return {
        OVERLAP.name: None if overlap is None else overlap.share,
        CHANCE.name: None if overlap is None else overlap.chance,
        CKA.name: debiased_cka(then, now),
        KEPT.name: similarity_kept(then, now),
        ROTATION.name: None if explained is None else explained.rotation,
        SCALED.name: None if explained is None else explained.scaled,
        LEADING.name: leading(then, now) if narrower else None,
    }


def _values(found: _Compared) -> Numbers:
    """Return lengths, dimensions and precision."""
    norms = {"then": found.then.norm(dim=1), "now": found.now.norm(dim=1)}
    rows = {"then": found.then.float(), "now": found.now.float()}
    ratios = norms["now"] / norms["then"]
    return {
        **{f"{NORM.name}{{q={name}}}": float(ratios.quantile(q)) for name, q in NORM_QUANTILES.items()},
        **{f"{UNIT.name}{{side={s}}}": float(have_unit_length(norms[s]).double().mean()) for s in SIDES},
        **{f"{DIMENSION.name}{{side={side}}}": used_width(rows[side]) for side in SIDES},
        **{
            f"{GRID.name}{{side={side},grid={grid}}}": float(on_grid(rows[side], grid).double().mean())
            for side in SIDES
            for grid in GRIDS
        },
    }
