"""Anisotropy beside a reference: how directions gather, and how many are used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import MergeError
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.distributions import chance
from embedwatch.geometry.isotropy import mean_cosine
from embedwatch.geometry.spectrum import effective_rank
from embedwatch.geometry.wishart import drawn_covariance
from embedwatch.sketches import (
    Additive,
    ComparedStatistic,
    LeadingMap,
    Moments,
    SampleFitter,
    SketchStatistic,
    example_batches,
    leading_fitter,
)

LEAST = 50
"""Rows that each side must have."""
CHUNK = 1_024

SHIFT = Metric(
    "anisotropy_shift",
    "Mean cosine of all pairs of rows less that of the reference, ± its standard deviation on healthy rows.",
    healthy="near 0",
)
PARTICIPATION = Metric(
    "anisotropy_participation_ratio",
    "Participation ratio of directions over that of the reference, the bias of both sizes taken off.",
    healthy="near 1",
    headline=False,
)
RANK = Metric(
    "anisotropy_rank_ratio",
    "Effective rank of unit rows over what the reference's would be from as many rows.",
    healthy="near 1",
    headline=False,
)


class Anisotropy(ComparedStatistic):
    """How much more directions gather than those of the reference did, and how many of them are used.

    `mean cos(x, x') - mean cos(y, y')`; participation ratio `(tr C)² / tr C²` and effective rank of the covariance C of
    unit rows, over those of the reference. Both grow with the number of rows: `tr C²` is taken without bias, and the
    rank of the reference is brought to the window's number by Wishart draws with its eigenvalues. Lengths play no part,
    which they do in `drift_rank_ratio`.

    Shape: batches (N, D); rows with NaN or Inf and zero rows have no direction and are left out.
    State: K² + K + D + 2 numbers with K = D up to 1,024, above it the 256 leading directions of the reference; merge
    exact to rounding.
    Error: corrections are those of independent Gaussian rows.
    Empty: `None` below 50 rows on either side; ratios below 2 K + 2 rows.

    References:
        Ethayarajh 2019 (arXiv 1909.00512); Gao et al. 2017 for the participation ratio; Roy & Vetterli 2007 for the
        rank; Srivastava 2005 for `tr C²`; Bartlett 1933 for the draws.

    Example:
        >>> rows = torch.randn(2_000, 4, generator=torch.Generator().manual_seed(0))
        >>> statistic = Anisotropy(frozen=Anisotropy.fit([VectorBatch(rows, torch.arange(2_000))], rows=2_000))
        >>> statistic.update(VectorBatch(rows.abs()))
        >>> 0.6 < statistic.compute()[0].number < 0.8
        True
    """

    name = "anisotropy"
    title = "anisotropy beside a reference"
    metrics = (SHIFT, PARTICIPATION, RANK)

    def __init__(self, *, frozen: Mapping[str, Tensor]) -> None:
        super().__init__(frozen=frozen)
        self._map = LeadingMap(self.frozen)
        self._moments = self.keep("moments", Moments(scatter="matrix", columns=self._map.directions))
        self._totals = self.keep("totals", Additive(sums={"unit": ("D",)}, counts={"rows": ()}))

    @classmethod
    def fitter(cls, **options: Any) -> SampleFitter:
        """Return what fits the directions; options are those of `leading_fitter`."""
        return leading_fitter(**options)

    @property
    def space_dimension(self) -> int:
        """D of the rows that fitted the map."""
        return self._map.dimension

    def calibrated(self, start: int) -> dict[str, Tensor]:
        """Return the moments of the rows seen."""
        del start
        moments = self._moments.state()
        return {**moments, **self._totals.state()} if moments else {}

    def add(self, batch: VectorBatch) -> None:
        """Add a batch whose dimension fits."""
        for chunk in batch.clean.directed.chunks(CHUNK):
            part = chunk.unit
            here = self._map.turn(part)
            mean = here.double().mean(0)
            centred = here - mean.to(here)
            self._moments.combine(len(part), mean.cpu(), (centred.T @ centred).double().cpu())
            self._totals.add("unit", part.double().sum(0))
            self._totals.add("rows", len(part))

    def check_state(self) -> None:
        """Refuse a state whose parts did not see the same rows."""
        if not self._totals.whole or int(self._totals["rows"]) != self._moments.count:
            raise MergeError(f"state of {self.name} must come from the same rows in all parts; it is damaged")

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        return self._measured({**self._moments.state(), **self._totals.state()})

    def _measured(self, now: Mapping[str, Tensor]) -> list[Measurement]:
        then = self.reference or {}
        sizes = int(now.get("rows", 0)), int(then.get("rows", 0))
        if min(sizes) < LEAST:
            return [metric.measure(None) for metric in self.metrics]
        cosines = [mean_cosine(side["unit"].cpu(), rows) for side, rows in zip((now, then), sizes, strict=True)]
        spectra = [_values(side) for side in (now, then)]
        shift = None if cosines[0] is None or cosines[1] is None else cosines[0] - cosines[1]
        along = float(then["mean"] @ then["scatter"] @ then["mean"]) / (sizes[1] - 1)
        noise = 2 * math.sqrt(max(0.0, along) * chance(*sizes))
        if min(sizes) < 2 * self._map.directions + 2:
            return [SHIFT.measure(shift, error=noise), PARTICIPATION.measure(None), RANK.measure(None)]
        before, after = (
            _participation(values, rows) for values, rows in zip(reversed(spectra), sizes[::-1], strict=True)
        )
        rank = _rank_at(spectra[1], sizes[1], sizes[0])
        found = effective_rank(spectra[0])
        return [
            SHIFT.measure(shift, error=noise),
            PARTICIPATION.measure(after / before if before and after is not None else None),
            RANK.measure(found / rank if rank and found is not None else None),
        ]

    def tolerance(self, metric: str) -> float:
        """Return the error bound of one metric against the oracle: rounding of float32 in directions that are empty."""
        return 1e-5 if metric == SHIFT.name else 1e-3

    def merge_tolerance(self, metric: str) -> float:
        """Return the error within which any split and merge gives the same."""
        return self.tolerance(metric)

    def oracle(self, batch: VectorBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on all rows at once."""
        rows = batch.rows.double()
        rows = rows[rows.isfinite().all(1) & (rows != 0).any(1)]
        unit = rows / rows.norm(dim=1, keepdim=True)
        if not len(unit):
            return {m.key: None for m in self._measured({})}
        here = self._map.turn(unit)
        centred = here - here.mean(0)
        seen = {
            "rows": torch.tensor(len(unit)),
            "unit": unit.sum(0),
            "mean": here.mean(0),
            "scatter": centred.T @ centred,
        }
        return {m.key: m.number for m in self._measured(seen)}

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[SketchStatistic, Sequence[VectorBatch]]]:
        """Yield all directions, and the leading ones alone."""
        for widest in (7, 3):
            reference = example_batches(seed + 1, sizes=(200, 60))
            frozen = cls.fit(reference, rows=260, exact_up_to=widest, directions=3)
            yield cls(frozen=frozen), example_batches(seed, sizes=(60, 1, 70, 30))


ROUNDING = 1e-10
"""Variance of unit rows that float32 cannot tell from none."""


def _values(side: Mapping[str, Tensor]) -> Tensor:
    """Return the eigenvalues of the covariance, descending, what is rounding set to zero."""
    values = torch.linalg.eigvalsh(side["scatter"].cpu() / (int(side["rows"]) - 1)).flip(0)
    return torch.where(values > ROUNDING, values, 0.0)


def _participation(values: Tensor, rows: int) -> float | None:
    """Return `(tr C)² / tr C²` without the bias that so many rows have in `tr C²`."""
    free, first = rows - 1, float(values.sum())
    second = free**2 / ((free - 1) * (free + 2)) * (float(values.square().sum()) - first**2 / free)
    return first**2 / second if second > 0 else None


def _rank_at(values: Tensor, rows: int, wanted: int) -> float | None:
    """Return the effective rank that rows with these eigenvalues would have, were there another number of them."""
    found = effective_rank(values)
    if found is None or rows == wanted:
        return found
    drawn = [torch.linalg.eigvalsh(drawn_covariance(values, size, seed=0)).flip(0) for size in (wanted, rows)]
    ranks = [effective_rank(each.clamp(min=0)) for each in drawn]
    return None if ranks[0] is None or not ranks[1] else found * ranks[0] / ranks[1]
