"""Spectrum of the second moments: how many directions the space uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.spectrum import (
    ROUNDING,
    condition_number,
    effective_rank,
    eigenvalues,
    isoscore_star,
    null_share,
    participation_ratio,
    spectra,
)
from embedwatch.sketches import FrequentDirections, Moments, SketchStatistic, example_batches

EXACT_UP_TO = 1536
"""Up to this dimension the second moments are kept whole."""
SKETCH_SIZE = 128
"""Rows ℓ of the sketch above it."""

RANK = Metric(
    "effective_rank",
    "Effective rank of the covariance: exponential entropy of its singular values.",
    "dimensions",
    headline=False,
)
RANK_RATIO = Metric(
    "effective_rank_ratio",
    "Effective rank of the covariance over what n rows can fill, min(n - 1, D).",
    healthy="> 0.1",
)
RANKME = Metric("rankme", "Effective rank of the rows as they are, not centred (RankMe).", "dimensions")
RANKME_RATIO = Metric("rankme_ratio", "RankMe over what n rows can fill, min(n, D).", healthy="> 0.1", headline=False)
PARTICIPATION = Metric(
    "participation_ratio", "Number of directions that share the variance, (tr C)² / tr C².", "dimensions"
)
ISOSCORE = Metric("isoscore", "IsoScore*: 0 one direction holds all variance, 1 all hold the same.")
CONDITION = Metric(
    "condition_number",
    "Square root of largest over smallest variance among the directions that carry any.",
    headline=False,
)
NULL = Metric(
    "null_directions_ratio", "Share of the directions that n rows can fill which carry no variance.", healthy="< 0.1"
)
CORRELATION = Metric(
    "correlation_rank_ratio",
    "Effective rank of the correlation matrix, where all dimensions count alike, over min(n - 1, D).",
    healthy="> 0.35, also inside models",
)

UNSKETCHED = (CONDITION.name, NULL.name, CORRELATION.name)
"""What a sketch does not know."""


class Spectrum(SketchStatistic):
    """Effective rank, RankMe, participation ratio, IsoScore* and condition from the second moments of the rows.

    Inside language models a few dimensions and rows of huge scale hold nearly all variance, and the effective rank of
    the covariance is that of these. The correlation matrix gives each dimension the same variance: its effective rank
    tells a low-rank space from a healthy one there too.

    Shape: batches (N, D); rows with NaN or Inf are left out.
    State: D² + D + 1 numbers and exact to D = 1,536; above, a Frequent Directions sketch of 257 D numbers, which never
    overstates a direction and understates none by more than `‖S - S_k‖_* / (128 - k)`; the smallest directions and
    single dimensions, hence condition, empty directions and the correlation matrix, are not known from it.
    Empty: `None` for fewer than two rows. Numbers of n < 2 D rows are biased low; checks judge them from n = 2 D on.

    References:
        Roy & Vetterli 2007, "The effective rank"; Garrido et al. 2023 (arXiv 2210.02885) for RankMe; Gao et al. 2017
        for the participation ratio; Rudman et al. 2022 (arXiv 2108.07344) for IsoScore.

    Example:
        >>> statistic = Spectrum()
        >>> statistic.update(VectorBatch(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])))
        >>> {m.name: m.value for m in statistic.compute()}["participation_ratio"]
        2.0
    """

    name = "spectrum"
    title = "covariance spectrum"
    metrics = (RANK, RANK_RATIO, RANKME, RANKME_RATIO, PARTICIPATION, ISOSCORE, CONDITION, NULL, CORRELATION)

    def __init__(self, *, exact_up_to: int = EXACT_UP_TO, sketch_size: int = SKETCH_SIZE) -> None:
        super().__init__(exact_up_to=exact_up_to, sketch_size=sketch_size)
        self._exact_up_to = exact_up_to
        self._moments = self.keep("moments", Moments(scatter="matrix"))
        self._sketch = self.keep("sketch", FrequentDirections(sketch_size))

    def add(self, batch: VectorBatch) -> None:
        """Add a batch whose dimension fits."""
        if batch.dimension <= self._exact_up_to:
            self._moments.combine(*batch.moments)
        else:
            self._sketch.add(batch.clean.rows)

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        if self._is_sketched():
            return self._sketched()
        covariance, second = self._moments.covariance(), self._moments.second_moment()
        if covariance is None or second is None:
            return [metric.measure(None) for metric in self.metrics]
        centred = spectra(covariance, floor=ROUNDING * second.diagonal())
        return _measure(self._moments.count, centred.values, eigenvalues(second), centred.standardised)

    def _sketched(self) -> list[Measurement]:
        """Return estimates with the largest error that the sketch leaves possible."""
        count = self._sketch.count
        centred, plain = self._sketch.eigenvalues(centred=True), self._sketch.eigenvalues(centred=False)
        if centred is None or plain is None:
            return [metric.measure(None) for metric in self.metrics]
        estimate, flattest, steepest = (_measure(count, a, b) for a, b in zip(centred, plain, strict=True))
        return [_with_range(*numbers) for numbers in zip(estimate, flattest, steepest, strict=True)]

    def _is_sketched(self) -> bool:
        return self.dimension is not None and self.dimension > self._exact_up_to

    def _variances(self) -> Tensor | None:
        if self._is_sketched():
            sketched = self._sketch.eigenvalues(centred=True)
            return None if sketched is None else sketched.estimate
        covariance = self._moments.covariance()
        return None if covariance is None else eigenvalues(covariance)

    def exhibits(self) -> list[Exhibit]:
        """Return the eigenvalues of the covariance."""
        centred = self._variances()
        points = [] if centred is None else list(enumerate(centred.tolist(), start=1))
        return [
            Exhibit.build(
                "spectrum", "curve", "Variance by direction, largest first.", ("direction", "variance"), points
            )
        ]

    def memory(self, dimension: int) -> int:
        """Return an upper bound of the state's size in bytes."""
        return (self._moments if dimension <= self._exact_up_to else self._sketch).memory(dimension)

    def tolerance(self, metric: str) -> float:
        """Return the error bound against the oracle: rounding when exact, else the range of the sketch."""
        if self._is_sketched():
            found = {m.name: m for m in self.compute()}[metric]
            return 1e-3 + (found.error or 0.0) / max(1.0, found.number or 0.0) * 2
        return 5e-3 if metric == CONDITION.name else 1e-3

    def merge_tolerance(self, metric: str) -> float:
        """Return the error within which any split and merge gives the same: the sketch depends on the order of rows."""
        return self.tolerance(metric)

    def oracle(self, batch: VectorBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula: singular values of the whole matrix of rows."""
        rows = batch.rows.double()
        rows = rows[rows.isfinite().all(1)]
        count, dimension = len(rows), rows.shape[1]
        if count < 2:
            return {metric.name: None for metric in self.metrics}
        centred, plain = torch.zeros(dimension, dtype=torch.float64), torch.zeros(dimension, dtype=torch.float64)
        middle = rows.mean(0)
        variance = (rows - middle).square().mean(0)
        moving = variance > ROUNDING * rows.square().mean(0)
        alike = ((rows - middle) / variance.sqrt())[:, moving]
        standardised = torch.linalg.svdvals(alike).square() if bool(moving.any()) else centred
        centred[: min(count, dimension)] = torch.linalg.svdvals(rows - middle).square() / (count - 1)
        plain[: min(count, dimension)] = torch.linalg.svdvals(rows).square() / count
        floor = torch.finfo(torch.float32).eps ** 2
        centred, plain = (torch.where(v > floor * v[0], v, 0.0) for v in (centred, plain))
        known = {m.name: m.number for m in _measure(count, centred, plain, standardised)}
        return {**known, **dict.fromkeys(UNSKETCHED)} if self._is_sketched() else known

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[SketchStatistic, Sequence[VectorBatch]]]:
        """Yield the exact state, and the sketched one on rows of more dimensions than it keeps."""
        yield cls(), example_batches(seed)
        yield cls(exact_up_to=8, sketch_size=8), example_batches(seed, dimension=24, sizes=(70, 1, 30, 40))


def _with_range(estimate: Measurement, flattest: Measurement, steepest: Measurement) -> Measurement:
    """Return the estimate with its distance from the farther end of the range.

    What the smallest directions and single dimensions say is not known: it has no value.
    """
    numbers = [measurement.number for measurement in (estimate, flattest, steepest)]
    value, *ends = numbers
    if estimate.name in UNSKETCHED or value is None or None in ends:
        return estimate.metric.measure(None)
    return estimate.metric.measure(value, error=max(abs(value - end) for end in ends if end is not None))


def _measure(count: int, centred: Tensor, plain: Tensor, standardised: Tensor | None = None) -> list[Measurement]:
    dimension = len(centred)
    fillable = min(count - 1, dimension)
    rank, rankme = effective_rank(centred), effective_rank(plain)
    alike = None if standardised is None else effective_rank(standardised)
    return [
        RANK.measure(rank),
        RANK_RATIO.measure(None if rank is None else rank / fillable),
        RANKME.measure(rankme),
        RANKME_RATIO.measure(None if rankme is None else rankme / min(count, dimension)),
        PARTICIPATION.measure(participation_ratio(centred)),
        ISOSCORE.measure(isoscore_star(centred)),
        CONDITION.measure(condition_number(centred)),
        NULL.measure(null_share(centred[:fillable])),
        CORRELATION.measure(None if alike is None else alike / fillable),
    ]
