"""How far rows are from the nearest rows of a reference."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import MergeError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.distributions import chance
from embedwatch.geometry.units import FARTHEST, Units
from embedwatch.sketches import (
    ROW_ARRAYS,
    Additive,
    ComparedStatistic,
    Extremes,
    SampleFitter,
    SketchStatistic,
    example_batches,
)

NEIGHBOUR = 5
"""Which nearest row counts: one nearest would be moved by a single twin."""
SAMPLE = 2_048
"""Fitted rows among which neighbours are looked for."""
LEAST = 50
"""Rows that each side must have."""
CHUNK = 1_024
NAMED_ROWS = 20
LOWEST = -6
BINS_PER_OCTAVE = 64
BINS = (int(math.log2(2 * FARTHEST)) + 1 - LOWEST) * BINS_PER_OCTAVE
"""Bins of 1.1 % each, from 1/64 of a usual distance from the mean on."""
QUANTILES = (0.95, 0.99)

RATIO = Metric(
    "nearest_reference_ratio",
    "Mean distance to the 5th nearest of the reference's rows over that of healthy rows, ± what they have by chance.",
    healthy="near 1",
)
BEYOND = Metric(
    "nearest_reference_beyond_ratio",
    "Share of rows whose distance to the 5th nearest exceeds this quantile of healthy rows, which 1 - q of those do.",
    labels=("q",),
    headline=False,
)


class NearestReference(ComparedStatistic):
    """How far rows are from the 5th nearest row of a frozen sample of the reference, beside what healthy rows are.

    A mean moves by little where a few rows come from elsewhere; each of these rows is far from all of the reference's.

    Shape: batches (N, D); rows with NaN or Inf are left out.
    State: 896 counts and two sums; merge exact. The map holds up to 2,048 rows in half precision: it is absent where no
    rows may be kept.
    Error: distances to 0.1 % of a usual one; quantiles are edges of bins of 1.1 %, and the share of healthy rows beyond
    them at most 1 - q.
    Empty: `None` below 50 rows on either side.

    References:
        Loftsgaarden & Quesenberry 1965 for densities by the k-th neighbour; Sun et al. 2022 (arXiv 2204.06507) for
        rows of elsewhere found by it.

    Example:
        >>> rows = torch.randn(2_000, 4, generator=torch.Generator().manual_seed(0))
        >>> frozen = NearestReference.fit([VectorBatch(rows, torch.arange(2_000))], rows=2_000)
        >>> statistic = NearestReference(frozen=frozen)
        >>> statistic.update(VectorBatch(rows * 3))
        >>> statistic.compute()[0].number > 2
        True
    """

    name = "nearest_reference"
    title = "nearest rows of a reference"
    metrics = (RATIO, BEYOND)
    maps_rows = True
    row_metrics = (RATIO.name, BEYOND.name)

    def __init__(self, *, frozen: Mapping[str, Tensor]) -> None:
        super().__init__(frozen=frozen)
        self._units = Units(self.frozen["centre"], self.frozen["size"])
        self._rows = self.frozen[f"{ROW_ARRAYS}row"].float()
        self._totals = self.keep(
            "totals", Additive(sums={"distance": (), "square": ()}, counts={"bins": (BINS,), "rows": ()})
        )
        self._farthest = self.keep("farthest", Extremes(NAMED_ROWS))

    @classmethod
    def fitter(cls, **options: Any) -> SampleFitter:
        """Return what keeps a sample of rows.

        Args:
            options: `sample`, how many at most.
        """
        return _sampler(**options)

    @property
    def space_dimension(self) -> int:
        """D of the rows that fitted the map."""
        return len(self._units.centre)

    def calibrated(self, start: int) -> dict[str, Tensor]:
        """Return the distances of the rows seen."""
        del start
        return self._totals.state()

    def add(self, batch: VectorBatch) -> None:
        """Add a batch whose dimension fits."""
        for part in batch.clean.chunks(CHUNK):
            distance = self._distance(part.rows)
            self._totals.add("rows", len(distance))
            self._totals.add("distance", distance.sum())
            self._totals.add("square", distance.square().sum())
            self._totals.add_at("bins", _bin(distance), torch.ones(len(distance), dtype=torch.int64))
            self._farthest.add(distance, part.numbers)

    def _distance(self, rows: Tensor) -> Tensor:
        """Return the distance of each row to its 5th nearest, in units. Shape: (N, D) -> (N,) float64."""
        here = self._units.apply(rows).float()
        apart = torch.cdist(here, self._rows.to(here))  # (N, m)
        nearest = min(NEIGHBOUR, apart.shape[1])
        return apart.kthvalue(nearest, dim=1).values.double()

    def check_state(self) -> None:
        """Refuse a state whose parts did not see the same rows."""
        rows, binned = int(self._totals["rows"]), int(self._totals["bins"].sum())
        named = min(rows, NAMED_ROWS) == len(self._farthest.values)
        if not self._totals.whole or rows != binned or not named or float(self._totals["distance"]) < 0:
            raise MergeError(f"state of {self.name} must come from the same rows in all parts; it is damaged")

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        return self._measured(self._totals.state())

    def _measured(self, now: Mapping[str, Tensor]) -> list[Measurement]:
        then = self.reference or {}
        sizes = int(now.get("rows", 0)), int(then.get("rows", 0))
        usual = float(then.get("distance", 0.0)) / max(1, sizes[1])
        if min(sizes) < LEAST or not usual > 0:
            return [RATIO.measure(None), *(BEYOND.measure(None, q=str(q)) for q in QUANTILES)]
        spread = max(0.0, float(then["square"]) / sizes[1] - usual**2)
        noise = math.sqrt(spread * chance(*sizes)) / usual
        above = [
            1 - side["bins"].cpu().cumsum(0).double() / size for side, size in zip((now, then), sizes, strict=True)
        ]
        places = [int((above[1] > 1 - q + 1e-9).sum()) for q in QUANTILES]  # of the first edge that leaves so few
        return [
            RATIO.measure(float(now["distance"]) / sizes[0] / usual, error=noise),
            *(
                BEYOND.measure(float(above[0][k].clamp(min=0)), q=str(q))
                for k, q in zip(places, QUANTILES, strict=True)
            ),
        ]

    def exhibits(self) -> list[Exhibit]:
        """Return the rows that are farthest from all of the reference."""
        rows, held = self._farthest.entries(), self.reference or {}
        usual = float(held.get("distance", 0.0)) / max(1, int(held.get("rows", 0)))
        return [
            Exhibit.build(
                "rows_far_from_reference",
                "table",
                "Rows farthest from their 5th nearest row of the reference, over the mean of healthy rows.",
                ("row", "distance"),
                [(row, distance / usual) for row, distance in rows] if usual > 0 else [],
            )
        ]

    def tolerance(self, metric: str) -> float:
        """Return the error bound of one metric against the oracle: rows at the edge of a bin may be counted apart."""
        return 1e-3 if metric == RATIO.name else 0.02

    def merge_tolerance(self, metric: str) -> float:
        """Return the error within which any split and merge gives the same: products depend on who is beside whom."""
        return self.tolerance(metric)

    def oracle(self, batch: VectorBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on all rows at once."""
        rows = batch.rows.double()
        here = self._units.apply(rows[rows.isfinite().all(1)])
        apart = (here[:, None] - self._rows.double()).norm(dim=2).sort(1).values  # (N, m)
        if not len(apart):
            return {m.key: None for m in self._measured({})}
        distance = apart[:, min(NEIGHBOUR, apart.shape[1]) - 1]
        seen = {
            "rows": torch.tensor(len(distance)),
            "distance": distance.sum(),
            "square": distance.square().sum(),
            "bins": torch.bincount(_bin(distance), minlength=BINS),
        }
        return {m.key: m.number for m in self._measured(seen)}

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[SketchStatistic, Sequence[VectorBatch]]]:
        """Yield a sample of all fitted rows, and a small one."""
        for sample in (SAMPLE, 20):
            frozen = cls.fit(example_batches(seed + 1, sizes=(200, 60)), rows=260, sample=sample)
            yield cls(frozen=frozen), example_batches(seed, sizes=(60, 1, 70, 30))


def _sampler(*, sample: int = SAMPLE) -> SampleFitter:
    return SampleFitter(sample, _map)


def _map(rows: Tensor, numbers: Tensor) -> dict[str, Tensor]:
    """Return the units of some rows, and the rows in them."""
    del numbers
    units = Units.of(rows)
    return {"centre": units.centre, "size": units.size, f"{ROW_ARRAYS}row": units.apply(rows).half()}


def _bin(distance: Tensor) -> Tensor:
    octave = torch.log2(distance.clamp(min=2.0**LOWEST))
    return ((octave - LOWEST) * BINS_PER_OCTAVE).floor().long().clamp(0, BINS - 1).cpu()
