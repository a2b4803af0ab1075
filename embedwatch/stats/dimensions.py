"""Single dimensions: dead, outlying, dominating."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import MergeError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.isotropy import cosine_shares, median_spread
from embedwatch.geometry.spectrum import ROUNDING
from embedwatch.sketches import Additive, Moments, SketchStatistic, example_batches

DEAD_VARIANCE = 1e-10
"""A dimension whose variance is at most this share of the median one among those that move is dead; so is one that is
constant but for rounding."""
OUTLIER_SCALE = 6.0
"""A dimension whose root mean square is at least this many times the median is an outlier."""
ROGUES = (1, 2, 3)

DEAD = Metric("dead_dimensions_ratio", "Share of dimensions that are constant over all rows.", healthy="0")
OUTLIERS = Metric(
    "outlier_dimensions",
    "Dimensions whose root mean square is at least 6 times the median.",
    "dimensions",
    healthy="0 to 3",
    headline=False,
)
SCALE = Metric(
    "dimension_scale_ratio",
    "Root mean square of the largest dimension over the median.",
    healthy="< 10 in most encoders",
)
SHARE = Metric(
    "rogue_cosine_ratio",
    "Share of the mean cosine that the leading one, two or three dimensions make.",
    labels=("top",),
)
SPREAD = Metric(
    "dimension_spread_ratio",
    "Median over dimensions of the share of the mean square that rows of norm 1 do not have in common.",
    healthy="> 0.25, also inside models",
)


class Dimensions(SketchStatistic):
    """Dead and outlying dimensions, and the share of the mean cosine that one to three rogue dimensions make.

    A few dimensions of large scale can make all cosines alike and hide what the others say (Timkey & van Schijndel
    2021, arXiv 2109.04404; Kovaleva et al. 2021, arXiv 2105.06990). Dimension j contributes the mean over pairs of
    `u_ij u_kj`. What rows do not share is measured dimension by dimension, `1 - c_j / mean u_ij²`, and its median
    falls to zero when rows become the same, whatever a few huge dimensions or rows do.

    Shape: batches (N, D); rows with NaN or Inf are left out, and zero rows of the cosine shares and the spread.
    State: 4 D + 2 numbers; merge exact.
    Empty: `None` for fewer than two rows.

    Example:
        >>> statistic = Dimensions()
        >>> statistic.update(VectorBatch(torch.tensor([[1.0, 5.0, 2.0], [2.0, 5.0, 3.0], [0.0, 5.0, 4.0]])))
        >>> round(statistic.compute()[0].value, 3)
        0.333
    """

    name = "dimensions"
    title = "dead and outlying dimensions"
    metrics = (DEAD, OUTLIERS, SCALE, SHARE, SPREAD)

    def __init__(self) -> None:
        super().__init__()
        self._moments = self.keep("moments", Moments(scatter="diagonal"))
        self._units = self.keep("units", Additive(sums={"total": ("D",), "squares": ("D",)}, counts={"rows": ()}))

    def add(self, batch: VectorBatch) -> None:
        """Add a batch whose dimension fits."""
        self._moments.combine(*batch.variances)
        unit = batch.unit
        self._units.add("rows", len(unit))
        self._units.add("total", unit.sum(0))
        self._units.add("squares", unit.square().sum(0))

    def check_state(self) -> None:
        """Refuse a state whose sums of unit rows are not all there; where rows were seen, they were summed."""
        if not self._units.whole or (self._moments.count > 0 and "rows" not in self._units):
            raise MergeError(f"state of {self.name} must hold moments and every sum of unit rows; it is damaged")

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        variance, square = self._moments.covariance(), self._moments.second_moment()
        if variance is None or square is None:
            return [metric.measure(None) for metric in (DEAD, OUTLIERS, SCALE, SPREAD)]
        sums = self._units["total"], self._units["squares"], int(self._units["rows"])
        return [*_scales(variance, square), *_rogues(cosine_shares(*sums)), SPREAD.measure(median_spread(*sums))]

    def exhibits(self) -> list[Exhibit]:
        """Return root mean square and deviation of each dimension, largest first, and the dead ones."""
        variance, square = self._moments.covariance(), self._moments.second_moment()
        if variance is None or square is None:
            return []
        order = torch.argsort(square, descending=True).tolist()
        rms, deviation = square.sqrt().tolist(), variance.sqrt().tolist()
        scales = [(index, rms[index], deviation[index]) for index in order]
        dead = [(index,) for index in is_dead(variance, square).nonzero()[:, 0].tolist()]
        columns = ("dimension", "root_mean_square", "standard_deviation")
        return [
            Exhibit.build("largest_dimensions", "table", "Dimensions by scale, largest first.", columns, scales),
            Exhibit.build("dead_dimensions", "table", "Dimensions that are constant.", ("dimension",), dead),
        ]

    def oracle(self, batch: VectorBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on all rows at once."""
        rows = batch.rows.double()
        rows = rows[rows.isfinite().all(1)]
        if len(rows) < 2:
            return {metric.name: None for metric in (DEAD, OUTLIERS, SCALE, SPREAD)}
        moving = rows[(rows != 0).any(1)]
        unit = moving / moving.norm(dim=1, keepdim=True)
        pairs = unit.T[:, :, None] * unit.T[:, None, :]  # (D, M, M)
        each = pairs.sum((1, 2)) - pairs.diagonal(dim1=1, dim2=2).sum(1)
        shares = torch.sort(each.abs() / each.abs().sum(), descending=True).values if len(unit) > 1 else None
        common, square = each / max(1, len(unit) * (len(unit) - 1)), unit.square().mean(0)
        spread = 1 - (common / square)[square > 0] if len(unit) > 1 else None
        found = [
            *_scales(rows.var(0), rows.square().mean(0)),
            *_rogues(shares),
            SPREAD.measure(None if spread is None else min(1.0, float(spread.median()))),
        ]
        return {m.key: m.number for m in found}

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[SketchStatistic, Sequence[VectorBatch]]]:
        """Yield ordinary rows, and rows with a dead and a dominating dimension."""
        yield cls(), example_batches(seed)
        whole = VectorBatch.concat(example_batches(seed, dimension=5))
        rows = whole.rows.clone()
        rows[:, 1], rows[:, 3] = 0.5, rows[:, 3] * 40
        yield cls(), VectorBatch(rows, whole.ids, source=whole.source).split((50, len(rows) - 50))


def is_dead(variance: Tensor, square: Tensor) -> Tensor:
    """Return which dimensions are constant. Shape: (D,), (D,) -> (D,) bool."""
    moving = variance[variance > 0]
    usual = moving.median() if len(moving) else variance.new_zeros(())
    return (variance <= DEAD_VARIANCE * usual) | (variance <= ROUNDING * square)


def _scales(variance: Tensor, square: Tensor) -> list[Measurement]:
    rms = square.sqrt()
    middle = rms.median()
    ratio = rms / middle if middle > 0 else None
    return [
        DEAD.measure(float(is_dead(variance, square).double().mean())),
        OUTLIERS.measure(None if ratio is None else int((ratio >= OUTLIER_SCALE).sum())),
        SCALE.measure(None if ratio is None else float(ratio.max())),
    ]


def _rogues(shares: Tensor | None) -> list[Measurement]:
    return [SHARE.measure(None if shares is None else float(shares[:top].sum()), top=str(top)) for top in ROGUES]
