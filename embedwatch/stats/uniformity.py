"""Uniformity on the sphere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import MergeError
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.isotropy import uniformity
from embedwatch.geometry.kernels import gaussian_frequencies, random_features
from embedwatch.sketches import Additive, SketchStatistic

TEMPERATURE = 2.0
"""t of Wang & Isola."""
FEATURES = 256

UNIFORMITY = Metric(
    "uniformity", "Log of the mean Gaussian kernel over all pairs of unit rows, t = 2: lower is more even."
)


@lru_cache(maxsize=8)
def _frequencies(dimension: int, features: int, seed: int, device: torch.device) -> Tensor:
    return gaussian_frequencies(dimension, features, precision=TEMPERATURE, seed=seed).to(device)


class Uniformity(SketchStatistic):
    """Uniformity of the unit rows on the sphere, through random features instead of pairs.

    `log mean_{i≠j} exp(-2 ‖u_i - u_j‖²)` (Wang & Isola 2020, arXiv 2005.10242). Each of 256 frequencies ω gives the
    unbiased pair mean of `cos(ω·(u_i - u_j))` from `Σ cos ω·u` and `Σ sin ω·u`; their average is the mean kernel
    (Rahimi & Recht 2007).

    Shape: batches (N, D); rows with NaN or Inf and zero rows have no direction and are left out.
    Range: -8 to 0; about -4 for an even spread in many dimensions.
    State: 513 numbers, whatever D; merge exact.
    Error: the standard error over frequencies is given with the value; `None` where the mean is not clear of it.

    Example:
        >>> statistic = Uniformity()
        >>> statistic.update(VectorBatch(torch.ones(4, 3)))
        >>> abs(round(statistic.compute()[0].value, 3))
        0.0
    """

    name = "uniformity"
    title = "uniformity"
    metrics = (UNIFORMITY,)

    def __init__(self, *, features: int = FEATURES, seed: int = 0) -> None:
        super().__init__(features=features, seed=seed)
        self._features, self._seed = features, seed
        self._sums = self.keep("sums", Additive(sums={"cos": (features,), "sin": (features,)}, counts={"rows": ()}))

    def add(self, batch: VectorBatch) -> None:
        """Add a batch whose dimension fits."""
        unit = batch.unit
        frequencies = _frequencies(batch.dimension, self._features, self._seed, unit.device)
        cos, sin = random_features(unit, frequencies)
        self._sums.add("rows", len(unit))
        self._sums.add("cos", cos.sum(0))
        self._sums.add("sin", sin.sum(0))

    def check_state(self) -> None:
        """Refuse a state that counts rows and has no sums of them."""
        if not self._sums.whole:
            raise MergeError(f"state of {self.name} must hold rows, cos and sin together; it is damaged")

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        rows = int(self._sums["rows"])
        if rows < 2:
            return [UNIFORMITY.measure(None)]
        # cos² + sin² = 1 for each row, so the pairs of a row with itself add up to n
        squares = self._sums["cos"].square() + self._sums["sin"].square()  # (F,)
        kernel = (squares - rows) / (rows * (rows - 1))
        mean = float(kernel.mean())
        error = float(kernel.std()) / math.sqrt(self._features)
        if mean <= 2 * error:
            return [UNIFORMITY.measure(None)]
        return [UNIFORMITY.measure(min(0.0, math.log(mean)), error=error / mean)]

    def tolerance(self, metric: str) -> float:
        """Return the error bound of the metric against the oracle: four standard errors."""
        del metric
        error = self.compute()[0].error
        return 0.05 if error is None else 4 * error + 1e-3

    def oracle(self, batch: VectorBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on all pairs."""
        rows = batch.rows.double()
        rows = rows[rows.isfinite().all(1) & (rows != 0).any(1)]
        return {UNIFORMITY.name: uniformity(rows / rows.norm(dim=1, keepdim=True))}
