"""The same items in two spaces: what both have in common, and whether vectors of the one find those of the other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.batch import PairBatch
from embedwatch.core.errors import MergeError, UsageError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.grids import GRIDS, on_grid
from embedwatch.geometry.pairs import (
    centred_cosine,
    cosine_distances,
    debiased_cka,
    leading,
    offset_share,
    unit,
    used_width,
)
from embedwatch.geometry.similarity import NOTHING, cka_of_moments, cross_overlap, missed_share, mutual_knn, own_places
from embedwatch.geometry.unit_length import have_unit_length
from embedwatch.sketches import Additive
from embedwatch.sketches.base import BatchStatistic
from embedwatch.sketches.cross_sums import CrossSums
from embedwatch.sketches.example_pairs import example_pairs
from embedwatch.sketches.pair_sample import PairSample, pair_keys

NEIGHBOURS = 10
MOST_PAIRS = 4_000
"""Pairs that are kept for what is quadratic in them."""
RANKS = (1, 10)
SIDES = ("left", "right")
SAME = 1e-6
"""Cosine distance up to which a pair is one vector, rounding aside."""
SERVED_WORST = 50
DISTANCES = {"0.1": 0.1, "0.5": 0.5, "0.9": 0.9}


def _metric(name: str, text: str, unit: str = "", *, labels: tuple[str, ...] = (), headline: bool = False) -> Metric:
    return Metric(f"pair_{name}", text, unit, labels=labels, digits=9 if unit else 3, headline=headline)


ROWS = _metric("rows", "Items that have a vector on both sides.", "rows")
SAMPLE = _metric("sample_rows", "Pairs that are searched.", "rows")
NONFINITE = _metric("nonfinite_rows", "Pairs of which a side holds NaN or Inf.", "rows")
ZERO = _metric("zero_rows", "Pairs of which a side is zero.", "rows")
REPEATED = _metric("repeated_ratio", "Share of sampled rows that are there twice or more.", labels=("side",))
DIMENSION = _metric("dimension", "Dimensions up to the last that is not zero.", "dimensions", labels=("side",))
CKA = _metric("cka", "Debiased linear CKA: 1 for one space in other coordinates.", headline=True)
MUTUAL = _metric("mutual_ratio", "Share of each item's 10 nearest that are the same on both sides.", headline=True)
NULL = _metric("mutual_null_ratio", "That share where items are paired at random.")
LIMIT = _metric("mutual_limit_ratio", "Its 95 % quantile where items are paired at random.")
P_VALUE = _metric("mutual_p_value", "Share of random pairings that agree as much.")
CALIBRATED = _metric("mutual_calibrated_ratio", "The share above chance: 0 at the 95 % quantile, 1 for all.")
MEAN = _metric("mean_length", "Length of the mean unit row: anisotropy.", labels=("side",))
UNIT = _metric("unit_ratio", "Share of rows of length 1.", labels=("side",))
GRID = _metric("grid_ratio", "Share of rows whose values all lie on the grid of a type.", labels=("side", "grid"))
NORM = _metric("norm_ratio", "Median length of a right row over that of its left one.")
NORM_SPREAD = _metric("norm_spread_ratio", "Share by which the middle 80 % of these quotients differ.")
COSINE = _metric("cosine", "Mean cosine of an item's two vectors, and of two items' (other).", labels=("pairs",))
SPREAD = _metric("cosine_spread", "Standard deviation of these cosines.", labels=("pairs",))
DISTANCE = _metric("distance", "Quantiles of 1 - cosine of an item's two vectors.", labels=("q",))
KEPT = _metric("same_ratio", "Share of items whose two vectors have one direction.")
CENTRED = _metric("centred_cosine", "Cosine of both sides less their means, taken as one vector.")
RESIDUAL = _metric("residual_ratio", "Squared distance of both sides less their means, over the left one's variance.")
OFFSET = _metric("offset_ratio", "Share of all differences that one shift, common to all items, explains.")
RECALL = _metric("recall_ratio", "Share of items that find themselves in the other space as it stands.", labels=("k",))
OVERLAP = _metric("overlap_ratio", "Share of the 10 nearest that the other side's vectors find as they stand.")
LEADING = _metric("leading_distance", "Largest 1 - cosine on the dimensions that both have; none where widths agree.")
Numbers = dict[str, float | int | None]


class _Pairs(NamedTuple):
    """Sampled pairs that have a direction on both sides, in float64, with their row numbers."""

    numbers: Tensor
    left: Tensor
    right: Tensor

    @property
    def comparable(self) -> bool:
        """Whether both sides have as many dimensions, or use as many."""
        return self.left.shape[1] == self.right.shape[1] or used_width(self.left) == used_width(self.right)

    def aligned(self) -> tuple[Tensor, Tensor]:
        """Return both sides as unit rows, without what is zero throughout on one side alone."""
        width = min(self.left.shape[1], self.right.shape[1])
        return unit(self.left[:, :width]), unit(self.right[:, :width])


class PairSimilarity(BatchStatistic[PairBatch]):
    """What two spaces of the same items have in common, and whether vectors of the one find those of the other.

    Similar is not compatible: CKA and mutual neighbours are 1 for a rotated copy, in which nothing is found. What says
    whether vectors may meet is the search as they stand: recall (an item finds itself in the other space) and overlap
    (it finds there the items that are nearest there), of both directions the lower one. The residual is what the right
    side misses of the left one, `Σ ‖(x - x̄) - (y - ȳ)‖² / Σ ‖x - x̄‖²`: of mapped vectors what the map misses.

    Shape: pairs (N, D1), (N, D2).
    State: (D1 + D2)² moments of all pairs; 4,000 pairs in float32, those with the smallest hash of their number; merge
    exact to rounding.
    NaN, Inf, empty: pairs with them are counted and left out of all else, as are zero rows. Sides of other dimensions
    have no cosine, recall and overlap.

    Args:
        most: pairs kept.

    References:
        Kornblith et al. 2019, arXiv 1905.00414; Song et al. 2012, JMLR 13, eq. 5; Huh et al. 2024, arXiv 2405.07987.

    Example:
        >>> items = torch.randn(100, 8, generator=torch.Generator().manual_seed(0))
        >>> statistic = PairSimilarity()
        >>> statistic.update(PairBatch(items, items.flip(1), torch.arange(100)))
        >>> found = {m.key: m.number for m in statistic.compute()}
        >>> round(found["pair_cka"], 6), found["pair_mutual_ratio"], found["pair_recall_ratio{k=1}"] < 0.1
        (1.0, 1.0, True)
    """

    name = "pair_similarity"
    title = "the same items in two spaces"
    consumes = "pairs"
    counts_defects = True
    metrics = (
        ROWS, SAMPLE, NONFINITE, ZERO, REPEATED, DIMENSION, CKA, MUTUAL, NULL, LIMIT, P_VALUE, CALIBRATED, MEAN, UNIT,
        GRID, NORM, NORM_SPREAD, COSINE, SPREAD, DISTANCE, KEPT, CENTRED, RESIDUAL, OFFSET, RECALL, OVERLAP,
        LEADING,
    )  # fmt: skip

    def __init__(self, *, most: int = MOST_PAIRS) -> None:
        if most < 1:
            raise UsageError(f"`most` must be at least 1, got {most!r}; {MOST_PAIRS} is usual")
        super().__init__(most=most)
        self._sample = self.keep("pairs", PairSample(most))
        self._sums = self.keep("sums", CrossSums())
        self._counts = self.keep("counts", Additive(counts={"nonfinite": (), "rows": (), "zero": ()}))

    def add(self, batch: PairBatch) -> None:
        """Add a batch whose dimensions fit."""
        left, right = batch.left.float(), batch.right.float()
        finite, directed = _sound(left, right)
        self._sample.offer(batch)
        self._sums.add(unit(left[directed]), unit(right[directed]))
        self._counts.add("rows", len(batch))
        self._counts.add("nonfinite", int((~finite).sum()))
        self._counts.add("zero", int((finite & ~directed).sum()))

    def check_state(self) -> None:
        """Refuse a state whose parts did not see the same pairs."""
        counts, moments = self._counts, self._sums.moments
        sound = int(counts["rows"]) - int(counts["nonfinite"]) - int(counts["zero"])
        held = 0 if moments is None else moments.number
        if not counts.whole or held != sound or len(self._sample.keys) > int(counts["rows"]):
            raise MergeError(f"state of {self.name} must come from the same pairs in all parts; it is damaged")

    def pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sampled pairs that are sound, and their row numbers: (N, D1), (N, D2) float64 and (N,)."""
        found = self._pairs()
        return found.left, found.right, found.numbers

    def _pairs(self) -> _Pairs:
        left, right = self._sample.sides
        _, directed = _sound(left, right)
        return _Pairs(self._sample.numbers[directed], left[directed].double(), right[directed].double())

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        pairs, moments = self._pairs(), self._sums.moments
        counts = {name: int(self._counts[name]) for name in ("rows", "nonfinite", "zero")}
        numbers = _numbers(pairs) | _counted(counts, len(pairs.numbers))
        numbers[CKA.name] = None if moments is None else cka_of_moments(moments)
        if moments is not None:
            numbers |= {_key(MEAN, "left"): float(moments.left_mean.norm())}
            numbers |= {_key(MEAN, "right"): float(moments.right_mean.norm())}
            if pairs.comparable:
                numbers[RESIDUAL.name] = missed_share(moments)
        return self._measured(numbers)

    def _measured(self, numbers: Numbers) -> list[Measurement]:
        every = [(metric, labels) for metric in self.metrics for labels in _labels(metric)]
        return [
            Measurement(metric, _known(numbers.get(_key(metric, *labels.values()))), labels) for metric, labels in every
        ]

    def exhibits(self) -> list[Exhibit]:
        """Return the items that are found worst in the other space, where its vectors can be searched."""
        pairs = self._pairs()
        if not len(pairs.numbers) or not pairs.comparable:
            return []
        left, right = pairs.aligned()
        places, apart = own_places(right, left), cosine_distances(left, right)
        order = places.argsort(descending=True, stable=True)[:SERVED_WORST]
        rows = [(int(pairs.numbers[i]), float(places[i]) + 1, float(apart[i])) for i in order if places[i] >= 1]
        caption = "Items that the right side's vectors find latest among the left side's, as they stand."
        return [Exhibit.build("pair_served_worst", "table", caption, ("row", "found_at", "distance"), rows)]

    def tolerance(self, metric: str) -> float:
        """Return the error bound of one metric against the oracle; CKA is a quotient of differences."""
        return 1e-4 if metric == CKA.name else 1e-5

    def merge_tolerance(self, metric: str) -> float:
        """Return the error within which any split and merge gives the same."""
        return self.tolerance(metric)

    def oracle(self, batch: PairBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on all rows at once."""
        order = pair_keys(batch)[0].argsort()
        left, right = batch.left[order].float(), batch.right[order].float()
        sound = [bool(x.isfinite().all() and y.isfinite().all()) for x, y in zip(left, right, strict=True)]
        good = [ok and bool(x.any() and y.any()) for ok, x, y in zip(sound, left, right, strict=True)]
        numbers = _plain(left[good].double(), right[good].double()) if any(good) else {}
        counts = {"rows": len(batch), "nonfinite": sound.count(False), "zero": sound.count(True) - good.count(True)}
        return {m.key: m.number for m in self._measured(numbers | _counted(counts, good.count(True)))}

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[PairSimilarity, Sequence[PairBatch]]]:
        """Yield another space, fewer dimensions, zeros behind, and a rotation."""
        for change in ("other", "narrow", "padded", "rotated"):
            yield cls(), example_pairs(seed, change)


def _sound(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return which pairs are finite, and which of these have a direction on both sides. (N,), (N,) bool."""
    finite = left.isfinite().all(1) & right.isfinite().all(1)
    return finite, finite & (left != 0).any(1) & (right != 0).any(1)


def _numbers(pairs: _Pairs) -> Numbers:
    """Return all that the sample tells."""
    if not len(pairs.numbers):
        return {}
    u, v = unit(pairs.left), unit(pairs.right)
    numbers = _by_side(pairs) | _common(u, v)
    if used_width(u) != used_width(v):
        numbers[LEADING.name] = leading(u, v)
    return numbers | (_as_they_stand(*pairs.aligned()) if pairs.comparable else {})


def _counted(counts: Mapping[str, int], sampled: int) -> Numbers:
    sound = counts["rows"] - counts["nonfinite"] - counts["zero"]
    return {
        ROWS.name: sound,
        SAMPLE.name: sampled,
        NONFINITE.name: counts["nonfinite"],
        ZERO.name: counts["zero"],
    }


def _by_side(pairs: _Pairs) -> Numbers:
    """Return what each side is like by itself."""
    numbers: Numbers = {}
    norms = pairs.left.norm(dim=1), pairs.right.norm(dim=1)
    for side, rows, lengths in zip(SIDES, (pairs.left, pairs.right), norms, strict=True):
        _, counts = torch.unique(rows, dim=0, return_counts=True)
        numbers[_key(REPEATED, side)] = 1 - len(counts) / len(rows)
        numbers[_key(DIMENSION, side)] = used_width(rows)
        numbers[_key(UNIT, side)] = float(have_unit_length(lengths).double().mean())
        for grid in GRIDS:
            numbers[_key(GRID, side, grid)] = float(on_grid(rows.float(), grid).double().mean())
    ratios = norms[1] / norms[0]
    middle, low, high = (float(ratios.quantile(q)) for q in (0.5, 0.1, 0.9))
    return numbers | {NORM.name: middle, NORM_SPREAD.name: (high - low) / middle}


def _common(u: Tensor, v: Tensor) -> Numbers:
    """Return what both have in common, whatever their coordinates."""
    mutual = mutual_knn(u, v, NEIGHBOURS)
    if mutual is None:
        return {}
    return {
        MUTUAL.name: mutual.share,
        NULL.name: mutual.null,
        LIMIT.name: mutual.limit,
        P_VALUE.name: mutual.p_value,
        CALIBRATED.name: mutual.calibrated,
    }


def _as_they_stand(u: Tensor, v: Tensor) -> Numbers:
    """Return how vectors of the one compare with those of the other as they stand."""
    apart, count = cosine_distances(u, v), len(u)
    own = (u * v).sum(1)
    numbers: Numbers = {
        _key(COSINE, "own"): float(own.mean()),
        _key(SPREAD, "own"): float(own.std(unbiased=False)),
        KEPT.name: float((apart <= SAME).double().mean()),
        CENTRED.name: centred_cosine(u, v),
        OFFSET.name: offset_share(u, v),
        **{_key(DISTANCE, name): float(apart.quantile(q)) for name, q in DISTANCES.items()},
    }
    if count > 1:
        every = count * (count - 1)
        mean = float(u.sum(0) @ v.sum(0) - own.sum()) / every
        square = (float(((u.T @ u) * (v.T @ v)).sum()) - float(own.square().sum())) / every
        numbers |= {_key(COSINE, "other"): mean, _key(SPREAD, "other"): math.sqrt(max(0.0, square - mean**2))}
    places = own_places(u, v), own_places(v, u)
    for k in RANKS:
        if count > k:
            numbers[_key(RECALL, str(k))] = min(float((found < k).double().mean()) for found in places)
    if count > 2 * NEIGHBOURS:
        both = cross_overlap(u, v, NEIGHBOURS), cross_overlap(v, u, NEIGHBOURS)
        numbers[OVERLAP.name] = min(float(found.mean()) for found in both)
    return numbers


def _plain(left: Tensor, right: Tensor) -> Numbers:
    """Return the numbers of pairs from their definitions: cosines of all with all, row by row."""
    pairs = _Pairs(torch.arange(len(left)), left, right)
    u, v = unit(left), unit(right)
    numbers = _numbers(pairs)
    numbers[CKA.name] = debiased_cka(u, v)
    numbers[_key(MEAN, "left")], numbers[_key(MEAN, "right")] = float(u.mean(0).norm()), float(v.mean(0).norm())
    if not pairs.comparable:
        return numbers
    u, v = pairs.aligned()
    x, y = u - u.mean(0), v - v.mean(0)
    variance = float(x.square().sum())
    numbers[RESIDUAL.name] = float((x - y).square().sum()) / variance if variance > NOTHING * len(u) else None
    cosines = u @ v.T  # (N, N)
    own = cosines.diagonal()
    others = cosines[~torch.eye(len(u), dtype=torch.bool)]
    numbers[_key(COSINE, "own")], numbers[_key(SPREAD, "own")] = float(own.mean()), float(own.std(unbiased=False))
    if len(others):
        numbers[_key(COSINE, "other")] = float(others.mean())
        numbers[_key(SPREAD, "other")] = float(others.std(unbiased=False))
    for k in RANKS:
        if len(u) > k:
            numbers[_key(RECALL, str(k))] = min(_recall(cosines, k), _recall(cosines.T, k))
    return numbers


def _recall(cosines: Tensor, k: int) -> float:
    """Return recall@k row by row; half of what is as near as the pair itself stands before it."""
    found = 0
    for row, line in enumerate(cosines):
        own = float(line[row])
        nearer, alike = int((line > own + 1e-12).sum()), int(((line - own).abs() <= 1e-12).sum()) - 1
        found += nearer + max(0, alike) / 2 < k
    return found / len(cosines)


def _labels(metric: Metric) -> list[dict[str, str]]:
    """Return the labels under which a metric is delivered."""
    if metric is GRID:
        return [{"side": side, "grid": grid} for side in SIDES for grid in GRIDS]
    choices = {"side": SIDES, "pairs": ("own", "other"), "q": tuple(DISTANCES), "k": tuple(map(str, RANKS))}
    return [{name: value} for name in metric.labels for value in choices[name]] or [{}]


def _known(number: float | int | None) -> float | int | None:
    """Return a finite number, or `None`."""
    return None if number is None or not math.isfinite(number) else number


def _key(metric: Metric, *values: str) -> str:
    labels = ",".join(f"{name}={value}" for name, value in zip(metric.labels, values, strict=True))
    return f"{metric.name}{{{labels}}}" if labels else metric.name
