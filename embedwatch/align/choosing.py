"""Judging maps on pairs that they were not fitted on, and choosing one: by retrieval, never by cosine or error."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from embedwatch.align.aligner import Side
from embedwatch.align.candidates import METHODS, RESIDUAL, ROTATION, FittedMap
from embedwatch.align.kept_pairs import Pairs
from embedwatch.geometry.retrieval import find, hubness, nearest, overlap

__all__ = ["Interval", "Judged", "Trial", "choose"]

LEAST_GALLERY = 200
"""Rows that are searched are those that judge; where these are fewer, anchors fill them up. Anchors draw mapped rows to
them, the more the fewer they are: with 80 of them among 100 rows, recall@1 was 0.16 where 2,000 others gave 0.43."""
LEAST_FOR_NETS = 200
"""A net is not considered where fewer judge: by chance it wins too often."""
K = 10
BACKGROUND = 2_000
"""Queries that say which documents are hubs."""
RESAMPLES = 1_000
CONFIDENCE = 0.95
ROUNDING = 1e-9
WINS = 2.0
"""Standard errors by which a net must beat affine maps."""


class Interval(NamedTuple):
    """A mean over queries, and between what it lies with 95 % confidence, by the bootstrap over queries."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Tensor, *, seed: int = 0) -> Interval:
        """Return the mean of one number for each query, with percentiles of resampled means. Shape: (Q,), Q ≥ 1."""
        wide = values.double()
        draw = torch.Generator().manual_seed(seed)
        chosen = torch.randint(len(wide), (RESAMPLES, len(wide)), generator=draw)
        means = wide[chosen].mean(1)
        tails = torch.tensor([(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], dtype=torch.float64)
        low, high = means.quantile(tails).tolist()
        return cls(float(wide.mean()), low, high)


@dataclass(frozen=True)
class Judged:
    """What a map finds of pairs that it was not fitted on.

    Args:
        method: name of the way.
        average_precision: mean of 1 / rank of the target: what decides.
        standard_error: of that mean.
        recall_1, recall_10: share of queries whose target is first, or among the first ten.
        overlap_10: share of the ten nearest of the native query that the mapped one finds.
        csls_recall_1, csls_recall_10: after re-ranking by CSLS; `None` without a background.
        cosine: mean cosine of mapped rows to their targets. It decides nothing: shrunken maps have high ones.
        gallery: rows that were searched.
        queries: how many searched.
    """

    method: str
    average_precision: Interval
    standard_error: float
    recall_1: Interval
    recall_10: Interval
    overlap_10: Interval
    csls_recall_1: float | None
    csls_recall_10: float | None
    cosine: float
    gallery: int
    queries: int

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON: an interval as value, low, high."""
        data = asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in data.items()}


@dataclass(frozen=True)
class Trial:
    """Queries, a gallery, and what each query should find: everything in the two spaces, nothing mapped yet.

    Args:
        queries: pairs that search; the mapped side of them with `side` query, the target side with `corpus`.
        gallery: pairs that are searched, on the other side.
        targets: position in the gallery of what each query should find, (Q,).
        background: pairs that fitted, for CSLS.
        side: which side is mapped.
    """

    queries: Pairs
    gallery: Pairs
    targets: Tensor
    background: Pairs
    side: Side

    @classmethod
    def of_items(cls, held: Pairs, kept: Pairs, side: Side, *, gallery: int | None = None) -> Trial:
        """Return a trial in which each pair that judges must find itself, among as many rows where anchors fill up."""
        more = kept.take(slice(0, max(0, (LEAST_GALLERY if gallery is None else gallery) - len(held))))
        every = Pairs.joined((held, more))
        rest = kept.take(slice(len(more), None)) if len(kept) - len(more) >= BACKGROUND else kept
        return cls(held, every, torch.arange(len(held)), rest.take(slice(0, BACKGROUND)), side)

    @classmethod
    def of_queries(cls, held: Pairs, kept: Pairs, items: Trial) -> Trial:
        """Return a trial in which each query must find the item that the target's own model puts first."""
        wanted = nearest(held.right, items.gallery.right, 1)[:, 0] if len(held) else torch.zeros(0, dtype=torch.int64)
        return cls(held, items.gallery, wanted, kept.take(slice(0, BACKGROUND)), items.side)

    def judge(self, name: str, fitted: FittedMap) -> Judged:
        """Return what a map finds."""
        if self.side == "query":
            asked, rows = fitted.apply(self.queries.left), self.gallery.right
            others = fitted.apply(self.background.left)
        else:
            asked, rows = self.queries.right, fitted.apply(self.gallery.left)
            others = self.background.right
        native = nearest(self.queries.right, self.gallery.right, K)
        found = find(asked, rows, self.targets, K)
        precision = 1 / found.ranks.double()
        count = len(precision)
        csls: tuple[float | None, float | None] = (None, None)
        if len(others) >= K:
            ranks = find(asked, rows, self.targets, K, less=hubness(rows, others, K)).ranks
            csls = (float((ranks < 2).double().mean()), float((ranks <= K).double().mean()))
        return Judged(
            name,
            Interval.of(precision),
            float(precision.std()) / math.sqrt(count) if count > 1 else math.inf,
            Interval.of((found.ranks < 2).double()),
            Interval.of((found.ranks <= K).double()),
            Interval.of(overlap(found.nearest, native)),
            *csls,
            float((asked * rows[self.targets]).sum(1).double().mean()),
            len(rows),
            count,
        )


def choose(judged: Sequence[Judged]) -> Judged:
    """Return the simplest map whose average precision is within one standard error of the best.

    Breiman et al. 1984, "Classification and Regression Trees", 3.4.3. `rotation` is chosen only where no other is
    better at all: it is exact where a space was turned, and fails where a mean was forgotten. A net, which no index can
    hold, is chosen only where it beats every affine map by two standard errors.

    Raises:
        ValueError: if there is none.
    """
    affine = [each for each in judged if each.method != RESIDUAL]
    nets = [each for each in judged if each.method == RESIDUAL]
    if not affine:
        return nets[0]
    best = max(affine, key=lambda each: each.average_precision.value)
    top = best.average_precision.value
    if (
        nets
        and nets[0].queries >= LEAST_FOR_NETS
        and nets[0].average_precision.value > top + WINS * best.standard_error
    ):
        return nets[0]
    judged = affine
    near = [each for each in judged if each.average_precision.value >= top - best.standard_error]
    simple = [each for each in near if each.method != ROTATION or each.average_precision.value >= top - ROUNDING]
    return min(simple or [best], key=lambda each: METHODS.index(each.method))


def curve_sizes(count: int) -> Iterable[int]:
    """Return numbers of anchors for a learning curve, up to all of them, each about three times the last.

    Example:
        >>> list(curve_sizes(4000))
        [50, 100, 300, 1000, 3000, 4000]
    """
    sizes = [size for power in (10, 100, 1_000, 10_000, 100_000) for size in (power, 3 * power)]
    return [*(size for size in (50, *sizes[2:]) if size < count), count]
