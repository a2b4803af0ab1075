"""Fréchet distance from a reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.distributions import chance
from embedwatch.geometry.frechet import Gaussian, frechet_bias, frechet_distance
from embedwatch.sketches import (
    ComparedStatistic,
    LeadingMap,
    Moments,
    SampleFitter,
    SketchStatistic,
    example_batches,
    leading_fitter,
)
from embedwatch.sketches.compared import REFERENCE

LEAST = 50
"""Rows that each side must have."""
CHUNK = 1_024
BIAS_ERROR = 0.03
"""Share of the bias within which it is known, measured on real embeddings; the means' own chance comes on top."""
HALVES = ("even", "odd")
"""Two halves of the rows by the hash of their identity: how far those of a reference are apart is chance."""

RATIO = Metric(
    "frechet_excess_ratio",
    "Fréchet distance from the reference less what healthy rows have by chance, over the reference's variance, "
    "± how well that chance is known.",
    healthy="near 0",
)
DISTANCE = Metric(
    "frechet_distance",
    "Fréchet distance from the reference in squared units of the rows, as published; healthy rows have about what "
    "follows ± by chance.",
    headline=False,
)


class Frechet(ComparedStatistic):
    """Fréchet distance between Gaussians with the means and covariances of the rows and of the reference.

    `d² = ‖μ - ν‖² + tr(A + B - 2 (A^(1/2) B A^(1/2))^(1/2))`, as FID has it. It is biased upwards, by an amount that
    depends on both numbers of rows and on the space: what two halves of the reference have, brought to these numbers by
    Wishart draws, is taken off. A number for people, never judged.

    Shape: batches (N, D); rows with NaN or Inf are left out. Rows more than 64 usual distances away count as if they
    were there.
    State: 2 K² + 2 K + 2 numbers with K = D up to 1,024, above it the 256 leading directions of the reference, in which
    the distance is a lower bound; merge exact to rounding.
    Error: of the bias, measured in 384 dimensions: see docs/distances.md; streams that keep to a topic have more than
    independent rows.
    Empty: `None` below 50 rows on either side.

    References:
        Dowson & Landau 1982; Heusel et al. 2017 (arXiv 1706.08500); Chong & Forsyth 2019 (arXiv 1911.07023).

    Example:
        >>> rows = torch.randn(2_000, 4, generator=torch.Generator().manual_seed(0))
        >>> statistic = Frechet(frozen=Frechet.fit([VectorBatch(rows, torch.arange(2_000))], rows=2_000))
        >>> statistic.update(VectorBatch(rows + 2))
        >>> 3.8 < statistic.compute()[0].number < 4.2
        True
    """

    name = "frechet"
    title = "Fréchet distance from a reference"
    metrics = (RATIO, DISTANCE)

    def __init__(self, *, frozen: Mapping[str, Tensor]) -> None:
        super().__init__(frozen=frozen)
        self._map = LeadingMap(self.frozen)
        self._halves = tuple(
            self.keep(name, Moments(scatter="matrix", columns=self._map.directions)) for name in HALVES
        )

    @classmethod
    def fitter(cls, **options: Any) -> SampleFitter:
        """Return what fits units and directions; options are those of `leading_fitter`."""
        return leading_fitter(**options)

    @property
    def space_dimension(self) -> int:
        """D of the rows that fitted the map."""
        return self._map.dimension

    def calibrated(self, start: int) -> dict[str, Tensor]:
        """Return the moments of the two halves of the rows seen."""
        del start
        return {
            f"{name}.{key}": value
            for name, half in zip(HALVES, self._halves, strict=True)
            for key, value in half.state().items()
        }

    def add(self, batch: VectorBatch) -> None:
        """Add a batch whose dimension fits."""
        for part in batch.clean.chunks(CHUNK):
            here, odd = self._map.coordinates(part.rows), (part.keys & 1).bool()
            for half, rows in zip(self._halves, (here[~odd], here[odd]), strict=True):
                _add(half, rows)

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        return self._measured(_joined([half.state() for half in self._halves]))

    def _measured(self, now: Gaussian | None) -> list[Measurement]:
        parts = [self.frozen.under(f"{REFERENCE}{name}.") for name in HALVES]
        first, second, then = *map(_gaussian, parts), _joined(parts)
        if first is None or second is None or then is None or now is None or min(now.rows, then.rows) < LEAST:
            return [RATIO.measure(None), DISTANCE.measure(None)]
        found, bias = frechet_distance(then, now), frechet_bias((first, second), then, now.rows)
        variance, unit = float(then.covariance.trace()), float(self._map.units.size) ** 2
        if not variance > 0:
            return [RATIO.measure(None), DISTANCE.measure(found * unit)]
        spread = 2 * float(then.covariance.square().sum()) ** 0.5 * chance(then.rows, now.rows)
        known = (BIAS_ERROR * bias + spread) / variance
        return [
            RATIO.measure((found - bias) / variance, error=known),
            DISTANCE.measure(found * unit, error=bias * unit),
        ]

    def tolerance(self, metric: str) -> float:
        """Return the error bound of one metric against the oracle: roots of small eigenvalues magnify rounding."""
        del metric
        return 1e-3

    def merge_tolerance(self, metric: str) -> float:
        """Return the error within which any split and merge gives the same."""
        return self.tolerance(metric)

    def oracle(self, batch: VectorBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on all rows at once."""
        rows = batch.rows.double()
        here = self._map.turn(self._map.units.apply(rows[rows.isfinite().all(1)]))
        now = Gaussian(len(here), here.mean(0), torch.cov(here.T).reshape(here.shape[1], -1)) if len(here) > 1 else None
        return {m.key: m.number for m in self._measured(now)}

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[SketchStatistic, Sequence[VectorBatch]]]:
        """Yield all directions, and the leading ones alone."""
        for widest in (7, 3):
            reference = example_batches(seed + 1, sizes=(200, 60))
            frozen = cls.fit(reference, rows=260, exact_up_to=widest, directions=3)
            yield cls(frozen=frozen), example_batches(seed, sizes=(60, 1, 70, 30))


def _add(half: Moments, rows: Tensor) -> None:
    """Add rows in usual units, (N, K) float32."""
    if not len(rows):
        return
    mean = rows.double().mean(0)
    centred = rows - mean.to(rows)
    rest = centred.double().mean(0)
    scatter = (centred.T @ centred).double() - len(rows) * torch.outer(rest, rest)
    half.combine(len(rows), mean.cpu(), scatter.cpu())


def _joined(parts: Sequence[Mapping[str, Tensor]]) -> Gaussian | None:
    whole = Moments(scatter="matrix")
    for part in parts:
        if part:
            whole.combine(int(part["count"]), part["mean"].cpu(), part["scatter"].cpu())
    return _gaussian(whole.state())


def _gaussian(moments: Mapping[str, Tensor]) -> Gaussian | None:
    """Return number, mean and unbiased covariance; `None` below two rows."""
    if not moments or int(moments["count"]) < 2:
        return None
    return Gaussian(int(moments["count"]), moments["mean"], moments["scatter"] / (int(moments["count"]) - 1))
