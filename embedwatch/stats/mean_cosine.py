"""Mean pairwise cosine."""

from __future__ import annotations

from collections.abc import Mapping

from embedwatch.batch import VectorBatch
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.isotropy import mean_cosine
from embedwatch.sketches import Additive, SketchStatistic

MEAN_COSINE = Metric(
    "mean_cosine",
    "Mean cosine of all pairs of rows (anisotropy).",
    healthy="no general limit below 0.98: 0.10 in one healthy model, 0.78 in another",
)


class MeanCosine(SketchStatistic):
    """Mean cosine of all pairs of rows, exact, without a pair ever being formed.

    `(‖Σ u‖² - n) / (n (n - 1))` with unit rows u; the anisotropy of Ethayarajh 2019 (arXiv 1909.00512).

    Shape: batches (N, D); rows with NaN or Inf and zero rows have no direction and are left out.
    Range: -1/(n - 1) to 1.
    State: D + 1 numbers; merge exact.

    Example:
        >>> import torch
        >>> statistic = MeanCosine()
        >>> statistic.update(VectorBatch(torch.tensor([[1.0, 0.0], [0.0, 2.0]])))
        >>> statistic.compute()[0].value
        0.0
    """

    name = "mean_cosine"
    title = "mean cosine"
    metrics = (MEAN_COSINE,)

    def __init__(self) -> None:
        super().__init__()
        self._totals = self.keep("totals", Additive(sums={"unit": ("D",)}, counts={"rows": ()}))

    def add(self, batch: VectorBatch) -> None:
        """Add a batch whose dimension fits."""
        self._totals.add("rows", len(batch.directed))
        self._totals.add("unit", batch.unit.sum(0))

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        return [MEAN_COSINE.measure(mean_cosine(self._totals["unit"], int(self._totals["rows"])))]

    def oracle(self, batch: VectorBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on all pairs."""
        rows = batch.rows.double()
        rows = rows[rows.isfinite().all(1) & (rows != 0).any(1)]
        count = len(rows)
        if count < 2:
            return {MEAN_COSINE.name: None}
        unit = rows / rows.abs().amax(1, keepdim=True)
        unit = unit / unit.norm(dim=1, keepdim=True)
        cosines = unit @ unit.T
        return {MEAN_COSINE.name: float((cosines.sum() - cosines.trace()) / (count * (count - 1)))}
