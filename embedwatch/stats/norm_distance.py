"""Distance of the distribution of norms from that of a reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import MergeError
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.distributions import (
    kolmogorov_smirnov,
    kolmogorov_smirnov_noise,
    stability_index,
    stability_index_noise,
)
from embedwatch.sketches import Additive, ComparedStatistic, SampleFitter, SketchStatistic, example_batches

QUANTILES = 255
"""Inner edges of the bins: a bin holds 0.4 % of the reference."""
GROUPS = 10
"""Bins of the stability index, each a tenth of the reference."""
GRID = 1e-3
"""Edges lie half way between multiples of this ratio of the median: norms of unit rows differ by rounding alone."""
LEAST = 50
"""Rows that each side must have."""
SAMPLE = 2_048

DISTANCE = Metric(
    "norm_distance",
    "Largest difference between the share of norms below any value and that of the reference (Kolmogorov-Smirnov), "
    "± what healthy rows have by chance.",
    healthy="about the number after ±",
)
STABILITY = Metric(
    "norm_stability_index",
    "Population stability index of norms in ten bins of the reference, ± what healthy rows have by chance.",
    headline=False,
)


class NormDistance(ComparedStatistic):
    """How far the distribution of norms is from that of the reference.

    `D = max |F - G|` over 510 frozen edges and `PSI = Σ (q - p) ln(q / p)` over tenths of the reference.

    Shape: batches (N, D); rows with NaN or Inf are left out.
    Range: D 0 to 1; the index from 0 on, 0.25 is a common limit.
    State: 511 counts; merge exact.
    Error: D understates the distance of the samples by at most the smaller mass in any bin, 0.4 % of the rows where
    norms do not repeat; norms that differ by less than 0.1 % are alike.
    Empty: `None` below 50 rows on either side.

    References:
        Kolmogorov 1933; Yurdakul 2018, "Statistical properties of the population stability index".

    Example:
        >>> rows = torch.randn(1_000, 4, generator=torch.Generator().manual_seed(0))
        >>> statistic = NormDistance(frozen=NormDistance.fit([VectorBatch(rows, torch.arange(1_000))], rows=1_000))
        >>> statistic.update(VectorBatch(rows * 100))
        >>> statistic.compute()[0].number
        1.0
    """

    name = "norm_distance"
    title = "norms beside a reference"
    metrics = (DISTANCE, STABILITY)

    def __init__(self, *, frozen: Mapping[str, Tensor]) -> None:
        super().__init__(frozen=frozen)
        self._edges = self.frozen["edges"]
        self._bins = self.keep("bins", Additive(counts={"counts": (len(self._edges) + 1,)}))

    @classmethod
    def fitter(cls, **options: Any) -> SampleFitter:
        """Return what fits the edges; there are no options."""
        return SampleFitter(SAMPLE, _edges, **options)

    @property
    def space_dimension(self) -> int:
        """D of the rows that fitted the map."""
        return int(self.frozen["dimension"])

    def calibrated(self, start: int) -> dict[str, Tensor]:
        """Return the counts of the rows seen."""
        del start
        return self._bins.state()

    def add(self, batch: VectorBatch) -> None:
        """Add a batch whose dimension fits."""
        norms = batch.clean.norms
        self._bins.add("counts", _counts(norms, self._edges))

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        return self._measured(self._bins.state().get("counts"))

    def _measured(self, now: Tensor | None) -> list[Measurement]:
        then = (self.reference or {}).get("counts")
        if now is None or then is None or min(int(now.sum()), int(then.sum())) < LEAST:
            return [metric.measure(None) for metric in self.metrics]
        now, sizes = now.cpu(), (int(now.sum()), int(then.sum()))
        shares = then.double() / sizes[1]
        group = ((shares.cumsum(0) - shares / 2) * GROUPS).long().clamp(max=GROUPS - 1)
        tenths = [torch.zeros(GROUPS, dtype=torch.int64).index_add_(0, group, side) for side in (then, now)]
        held = [side[(tenths[0] + tenths[1]) > 0] for side in tenths]
        return [
            DISTANCE.measure(kolmogorov_smirnov(then, now).value, error=kolmogorov_smirnov_noise(*sizes)),
            STABILITY.measure(stability_index(*held), error=stability_index_noise(len(held[0]), *sizes)),
        ]

    def oracle(self, batch: VectorBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on all rows at once."""
        rows = batch.rows.double()
        norms = rows[rows.isfinite().all(1)].norm(dim=1)
        edges = [-torch.inf, *self._edges.tolist(), torch.inf]
        inside = [((norms > low) & (norms <= high)).sum() for low, high in pairwise(edges)]
        return {m.key: m.number for m in self._measured(torch.stack(inside) if len(norms) else None)}

    def check_state(self) -> None:
        """Refuse a state that saw rows and counts none."""
        if self._bins.state() and int(self._bins["counts"].sum()) > MOST_ROWS:
            raise MergeError(f"state of {self.name} must count rows, got more than there are; it is damaged")

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[SketchStatistic, Sequence[VectorBatch]]]:
        """Yield a stream of uneven norms, and one of unit rows."""
        reference, sizes = example_batches(seed + 1, sizes=(200, 60)), (60, 1, 70, 30)
        yield cls(frozen=cls.fit(reference, rows=260)), example_batches(seed, sizes=sizes)
        unit = [VectorBatch(each.unit, each.ids, source=each.source) for each in reference]
        yield cls(frozen=cls.fit(unit, rows=260)), example_batches(seed, sizes=sizes)


MOST_ROWS = 1 << 53
"""Beyond, counts are no longer exact in float64."""


def _edges(rows: Tensor, numbers: Tensor) -> dict[str, Tensor]:
    """Return the edges of the bins for norms like those of some rows."""
    del numbers
    norms = rows.norm(dim=1)
    middle = norms.median()
    places = torch.arange(1, QUANTILES + 1, dtype=torch.float64) / (QUANTILES + 1)
    quantiles = torch.quantile(norms, places)
    if float(middle) > 0:
        steps = ((quantiles / middle).clamp(min=1e-300).log() / GRID).round()
        ends = torch.unique(torch.cat([steps - 0.5, steps + 0.5]))
        edges = torch.unique(middle * (ends * GRID).exp())
    else:
        edges = torch.unique(quantiles)
    return {"edges": edges, "dimension": torch.tensor(rows.shape[1])}


def _counts(norms: Tensor, edges: Tensor) -> Tensor:
    """Return how many norms lie in each bin `low < norm <= high`."""
    places = torch.bucketize(norms, edges.to(norms.device))
    return torch.bincount(places, minlength=len(edges) + 1)
