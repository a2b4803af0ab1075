"""Norms of the rows."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import MergeError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Histogram, Measurement, Metric
from embedwatch.sketches import Extremes, LogHistogram, Moments, SketchStatistic

TOP_SHARE = 0.01
"""The largest norms whose share of the dot-product mass is measured: one row in a hundred."""
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
NAMED_ROWS = 20
BOUNDS = tuple(2.0 ** (power + 0.5) for power in range(-10, 17))
"""Bounds of the exported histogram: the same for every model, so that windows and workers add up; and off the norm 1 of
normalised rows, so that rounding does not scatter them over two buckets."""

MEAN = Metric("norm_mean", "Mean Euclidean norm of the rows.")
STD = Metric("norm_std", "Standard deviation of the norms (n - 1 in the denominator).")
MIN = Metric("norm_min", "Smallest norm.", headline=False)
MAX = Metric("norm_max", "Largest norm.", headline=False)
QUANTILE = Metric("norm_quantile", "Quantile of the norms, within 0.55 %.", labels=("q",), headline=False)
EXTREME = Metric(
    "norm_extreme_ratio", "Largest norm over the median norm.", healthy="< 10; trained tables and encoders stay below 5"
)
TOP = Metric(
    "norm_top_share_ratio", "Share of the sum of norms that the largest 1 % of rows hold.", healthy="near 0.01"
)
DISTRIBUTION = Metric("norm", "Distribution of the norms.", kind="histogram")


class Norms(SketchStatistic):
    """Norm mean, spread, quantiles and extremes, and the share of the dot-product mass that the largest norms hold.

    The dot product of a row with a query in a random direction is proportional to the row's norm, so the share of
    `Σ ‖x‖` that the largest 1 % of rows hold is their share of what a dot-product search or attention sees.
    One hundredth of the rows, rounded up, are the largest 1 %.

    Shape: batches (N, D); rows with NaN or Inf are left out, zero rows count with norm 0.
    State: moments, 16,384 logarithmic bins (see `LogHistogram`), the 20 largest and the smallest; merge exact.
    Error: quantiles, and what is derived from them, within 0.55 %; the rest exact.

    Example:
        >>> statistic = Norms()
        >>> statistic.update(VectorBatch(torch.tensor([[3.0, 4.0], [6.0, 8.0]])))
        >>> {m.name: m.value for m in statistic.compute()}["norm_mean"]
        7.5
    """

    name = "norms"
    title = "norms"
    metrics = (MEAN, STD, MIN, MAX, QUANTILE, EXTREME, TOP, DISTRIBUTION)

    def __init__(self) -> None:
        super().__init__()
        self._moments = self.keep("moments", Moments(scatter="diagonal"))
        self._bins = self.keep("bins", LogHistogram())
        self._largest = self.keep("largest", Extremes(NAMED_ROWS))
        self._smallest = self.keep("smallest", Extremes(1))

    def add(self, batch: VectorBatch) -> None:
        """Add a batch whose dimension fits."""
        clean = batch.clean
        if not len(clean):
            return
        norms = clean.norms
        mean = norms.mean()
        self._moments.combine(len(norms), mean[None], (norms - mean).square().sum()[None])
        self._bins.add(norms)
        self._largest.add(norms, clean.numbers)
        self._smallest.add(-norms, clean.numbers)

    def check_state(self) -> None:
        """Refuse a state whose parts did not see the same rows."""
        seen = {self._moments.count, int(self._bins.counts.sum())}
        if len(seen) > 1 or (self._moments.count > 0) != (len(self._largest.values) > 0 < len(self._smallest.values)):
            raise MergeError(f"state of {self.name} must come from the same rows in all parts, got {sorted(seen)} rows")

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        count = self._moments.count
        if self._moments.mean is None:
            return [metric.measure(None) for metric in (MEAN, STD, MIN, MAX, EXTREME, TOP)]
        low, high = -float(self._smallest.values[0]), float(self._largest.values[0])
        quantiles = {q: min(high, max(low, self._bins.quantile(q))) for q in QUANTILES}
        variance = self._moments.covariance()
        total = count * float(self._moments.mean)
        return [
            MEAN.measure(float(self._moments.mean)),
            STD.measure(None if variance is None else float(variance.sqrt())),
            MIN.measure(low),
            MAX.measure(high),
            EXTREME.measure(high / quantiles[0.5] if quantiles[0.5] > 0 else None),
            TOP.measure(self._bins.top_sum(top_count(count)) / total if total > 0 else None),
            *(QUANTILE.measure(value, q=f"{q:g}") for q, value in quantiles.items()),
            DISTRIBUTION.measure(self._histogram(total)),
        ]

    def _histogram(self, total: float) -> Histogram:
        edges = self._bins.edges()[1:]
        place = torch.searchsorted(torch.tensor(BOUNDS, dtype=torch.float64), edges * (1 - 1e-9))
        counts = torch.zeros(len(BOUNDS) + 1, dtype=torch.int64).index_add_(0, place, self._bins.counts)
        return Histogram(BOUNDS, tuple(counts.tolist()), total, int(counts.sum()))

    def exhibits(self) -> list[Exhibit]:
        """Return the rows with the largest norms, and the distribution in fine bins."""
        counts = self._bins.counts
        filled = counts.nonzero()[:, 0]
        edges = self._bins.edges()
        curve = zip(edges[filled].tolist(), edges[filled + 1].tolist(), counts[filled].tolist(), strict=True)
        return [
            Exhibit.build(
                "largest_norms", "table", "Rows with the largest norms.", ("row", "norm"), self._largest.entries()
            ),
            Exhibit.build("norm_distribution", "curve", "Number of rows by norm.", ("from", "to", "rows"), curve),
        ]

    def tolerance(self, metric: str) -> float:
        """Return the error bound of one metric against the oracle."""
        derived = metric.split("{")[0] in (QUANTILE.name, EXTREME.name, TOP.name)
        return 1.05 * LogHistogram.ERROR + 1e-5 if derived else 1e-5

    def oracle(self, batch: VectorBatch) -> Mapping[str, float | Histogram | None]:
        """Return its measurements by the plain formula on all rows at once."""
        rows = batch.rows.double()
        norms = rows[rows.isfinite().all(1)].norm(dim=1).sort().values
        count = len(norms)
        if not count:
            return {metric.name: None for metric in (MEAN, STD, MIN, MAX, EXTREME, TOP)}
        quantile = {q: float(torch.quantile(norms, q, interpolation="lower")) for q in QUANTILES}
        top = norms[count - top_count(count) :].sum()
        return {
            MEAN.name: float(norms.mean()),
            STD.name: float(norms.std()) if count > 1 else None,
            MIN.name: float(norms[0]),
            MAX.name: float(norms[-1]),
            EXTREME.name: float(norms[-1] / quantile[0.5]) if quantile[0.5] > 0 else None,
            TOP.name: float(top / norms.sum()) if norms.sum() > 0 else None,
            **{f"{QUANTILE.name}{{q={q:g}}}": value for q, value in quantile.items()},
            DISTRIBUTION.name: _count(norms),
        }


def _count(norms: Tensor) -> Histogram:
    place = torch.searchsorted(torch.tensor(BOUNDS, dtype=torch.float64), norms)  # bounds[i - 1] < norm <= bounds[i]
    counts = torch.bincount(place, minlength=len(BOUNDS) + 1)
    return Histogram(BOUNDS, tuple(counts.tolist()), float(norms.sum()), len(norms))


def top_count(rows: int) -> int:
    """Return how many rows are the largest 1 %, rounded up."""
    return -(-rows // round(1 / TOP_SHARE))
