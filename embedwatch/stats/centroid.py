"""The centre of the space."""

from __future__ import annotations

from collections.abc import Mapping

from embedwatch.batch import VectorBatch
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.sketches import Moments, SketchStatistic

NORM = Metric("centroid_norm", "Norm of the mean of all rows.", headline=False)
OFFSET = Metric(
    "centroid_offset_ratio",
    "Norm of the mean of all rows over their root mean square norm: 0 centred, 1 all rows equal.",
)


class Centroid(SketchStatistic):
    """Mean of the rows, its norm, and how far off the origin it sits compared with the rows' own length.

    `‖μ‖` and `‖μ‖ / √(mean ‖x‖²)`.

    Shape: batches (N, D); rows with NaN or Inf are left out.
    State: 2 D + 1 numbers; merge exact.

    Example:
        >>> import torch
        >>> statistic = Centroid()
        >>> statistic.update(VectorBatch(torch.tensor([[3.0, 4.0], [3.0, 4.0]])))
        >>> [m.value for m in statistic.compute()]
        [5.0, 1.0]
    """

    name = "centroid"
    title = "centroid"
    metrics = (NORM, OFFSET)

    def __init__(self) -> None:
        super().__init__()
        self._moments = self.keep("moments", Moments(scatter="diagonal"))

    def add(self, batch: VectorBatch) -> None:
        """Add a batch whose dimension fits."""
        self._moments.combine(*batch.variances)

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        mean, square = self._moments.mean, self._moments.second_moment()
        if mean is None or square is None:
            return [NORM.measure(None), OFFSET.measure(None)]
        norm, length = float(mean.norm()), float(square.sum().sqrt())
        return [NORM.measure(norm), OFFSET.measure(min(1.0, norm / length) if length > 0 else None)]

    def exhibits(self) -> list[Exhibit]:
        """Return the mean of each dimension."""
        mean = self._moments.mean
        points = [] if mean is None else list(enumerate(mean.tolist()))
        return [Exhibit.build("centroid", "curve", "Mean of each dimension.", ("dimension", "mean"), points)]

    def oracle(self, batch: VectorBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on all rows at once."""
        rows = batch.rows.double()
        rows = rows[rows.isfinite().all(1)]
        if not len(rows):
            return {NORM.name: None, OFFSET.name: None}
        norm, length = float(rows.mean(0).norm()), float(rows.square().sum(1).mean().sqrt())
        return {NORM.name: norm, OFFSET.name: norm / length if length > 0 else None}
