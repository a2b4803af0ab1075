"""Codebook: how rows fill the regions of a reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import MergeError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.distributions import jensen_shannon, jensen_shannon_noise
from embedwatch.geometry.units import Units
from embedwatch.sketches import Additive, ComparedStatistic, SampleFitter, SketchStatistic, example_batches

CELLS = 32
ROWS_PER_CELL = 16
"""Fewer cells are made where the rows do not fill them."""
SAMPLE = 4_096
LEAST = 50
"""Rows that each side must have."""
LEAST_IN_CELL = 10
"""Rows that a cell must have on each side before its numbers are told."""
RADIUS = 0.99
"""Share of the fitted rows of a cell that its radius holds."""
CHUNK = 1_024
CELLS_TOLD = ("worst", "median")

DISTANCE = Metric(
    "codebook_distance",
    "Jensen-Shannon distance (0 to 1) between the shares of rows in each region and those of the reference, "
    "± what healthy rows have by chance.",
    healthy="about the number after ±",
)
NEW = Metric(
    "codebook_new_region_ratio",
    "Share of rows that lie outside of every region of the reference, and the same of its own rows.",
    labels=("side",),
    headline=False,
)
COHESION = Metric(
    "codebook_cohesion_ratio",
    "Mean distance from the centre of a region over that of the reference: where it grew most, and the median.",
    healthy="near 1",
    labels=("cell",),
    headline=False,
)
SEPARATION = Metric(
    "codebook_separation_ratio",
    "Mean gap between nearest and second centre over that of the reference: where it shrank most, and the median.",
    healthy="near 1",
    labels=("cell",),
    headline=False,
)
SIDES = ("reference", "window")


class Codebook(ComparedStatistic):
    """How rows fill the frozen k-means cells of a reference: shares, cohesion, separation, and rows in none of them.

    Shares are compared by the Jensen-Shannon distance. Cohesion is the mean distance from the centre of each cell,
    separation the mean gap `d₂ - d₁` between second and nearest centre, each over the reference's. A row is new where
    it lies beyond the radius of every cell, which holds 99 % of the fitted rows; calibrating rows tell how many
    healthy ones do.

    Shape: batches (N, D); rows with NaN or Inf are left out. Rows more than 64 usual distances away count as if they
    were there.
    State: 3 numbers for each of up to 32 cells, and 2; merge exact.
    Empty: `None` below 50 rows on either side; a cell counts from 10 rows on on both.

    References:
        Lloyd 1982 for the cells; Endres & Schindelin 2003 for the distance; Rousseeuw 1987 for gaps of this kind.

    Example:
        >>> rows = torch.randn(2_000, 4, generator=torch.Generator().manual_seed(0))
        >>> statistic = Codebook(frozen=Codebook.fit([VectorBatch(rows, torch.arange(2_000))], rows=2_000))
        >>> statistic.update(VectorBatch(rows + 20))
        >>> {m.key: m.number for m in statistic.compute()}["codebook_new_region_ratio{side=window}"]
        1.0
    """

    name = "codebook"
    title = "regions of a reference"
    metrics = (DISTANCE, NEW, COHESION, SEPARATION)

    def __init__(self, *, frozen: Mapping[str, Tensor]) -> None:
        super().__init__(frozen=frozen)
        self._units = Units(self.frozen["centre"], self.frozen["size"])
        self._centres, self._radii = self.frozen["centres"], self.frozen["radii"]
        cells = len(self._centres)
        self._totals = self.keep(
            "totals",
            Additive(sums={"apart": (cells,), "gap": (cells,)}, counts={"cells": (cells,), "new": (), "rows": ()}),
        )

    @classmethod
    def fitter(cls, **options: Any) -> SampleFitter:
        """Return what fits the cells.

        Args:
            options: `cells`, how many at most, and `seed` of k-means.
        """
        return SampleFitter(SAMPLE, partial(_map, **options))

    @property
    def space_dimension(self) -> int:
        """D of the rows that fitted the map."""
        return len(self._units.centre)

    def calibrated(self, start: int) -> dict[str, Tensor]:
        """Return the cells of the rows seen."""
        del start
        return self._totals.state()

    def add(self, batch: VectorBatch) -> None:
        """Add a batch whose dimension fits."""
        for part in batch.clean.chunks(CHUNK):
            apart, order = _nearest(self._units.apply(part.rows), self._centres)
            self._take(apart, order)

    def _take(self, apart: Tensor, order: Tensor) -> None:
        """Add rows by their distances (N, C) from the centres and the two nearest (N, 2)."""
        nearest = apart.gather(1, order)  # (N, 2)
        cells, totals = order[:, 0].cpu(), self._totals
        totals.add("rows", len(apart))
        totals.add("new", (apart > self._radii.to(apart.device)).all(1).sum())
        totals.add_at("cells", cells, torch.ones_like(cells))
        totals.add_at("apart", cells, nearest[:, 0].cpu())
        totals.add_at("gap", cells, (nearest[:, -1] - nearest[:, 0]).cpu())

    def check_state(self) -> None:
        """Refuse a state whose parts did not see the same rows."""
        rows = int(self._totals["rows"])
        whole = self._totals.whole and int(self._totals["cells"].sum()) == rows >= int(self._totals["new"])
        if not whole or any(bool((self._totals[name] < 0).any()) for name in ("apart", "gap")):
            raise MergeError(f"state of {self.name} must come from the same rows in all parts; it is damaged")

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        return self._measured(self._totals.state())

    def _measured(self, now: Mapping[str, Tensor]) -> list[Measurement]:
        then = self.reference or {}
        sizes = int(now.get("rows", 0)), int(then.get("rows", 0))
        if min(sizes) < LEAST:
            return [
                DISTANCE.measure(None),
                *(NEW.measure(None, side=side) for side in SIDES),
                *(metric.measure(None, cell=cell) for metric in (COHESION, SEPARATION) for cell in CELLS_TOLD),
            ]
        counts = then["cells"], now["cells"].cpu()
        noise = jensen_shannon_noise(len(self._centres), *sizes)
        grown, shrunk = (self._changes(now, then, name) for name in ("apart", "gap"))
        told = {COHESION: _ends(grown, largest=True), SEPARATION: _ends(shrunk, largest=False)}
        new = [int(side["new"]) / int(side["rows"]) for side in (then, now)]
        return [
            DISTANCE.measure(jensen_shannon(*counts), error=noise),
            *(NEW.measure(share, side=side) for share, side in zip(new, SIDES, strict=True)),
            *(
                metric.measure(value, cell=cell)
                for metric, values in told.items()
                for cell, value in zip(CELLS_TOLD, values, strict=True)
            ),
        ]

    def _changes(self, now: Mapping[str, Tensor], then: Mapping[str, Tensor], name: str) -> Tensor:
        """Return the mean of a sum in each cell over that of the reference, of cells that have enough rows."""
        counts = [side["cells"].cpu().double() for side in (now, then)]
        means = [side[name].cpu() / count.clamp(min=1) for side, count in zip((now, then), counts, strict=True)]
        told = (torch.minimum(counts[0], counts[1]) >= LEAST_IN_CELL) & (means[1] > 0)
        return (means[0] / means[1])[told]

    def exhibits(self) -> list[Exhibit]:
        """Return what became of each cell."""
        now, then = self._totals.state(), self.reference or {}
        rows: list[tuple[int, float, float, float | None]] = []
        if now and int(then.get("rows", 0)):
            shares = [side["cells"].cpu().double() / int(side["rows"]) for side in (now, then)]
            means = [side["apart"].cpu() / side["cells"].cpu().clamp(min=1) for side in (now, then)]
            order = (shares[0] - shares[1]).abs().argsort(descending=True).tolist()
            grown = [float(means[0][k] / means[1][k]) if float(means[1][k]) > 0 else None for k in order]
            rows = [(k, float(shares[0][k]), float(shares[1][k]), g) for k, g in zip(order, grown, strict=True)]
        columns = ("region", "share", "reference_share", "distance_ratio")
        return [Exhibit.build("regions", "table", "Regions by how much their share of rows changed.", columns, rows)]

    def oracle(self, batch: VectorBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on all rows at once."""
        rows = batch.rows.double()
        here = self._units.apply(rows[rows.isfinite().all(1)])
        if not len(here):
            return {m.key: None for m in self._measured({})}
        apart = (here[:, None] - self._centres).norm(dim=2)  # (N, C)
        order = torch.argsort(apart, dim=1, stable=True)[:, :2]
        seen = type(self)(frozen=self.frozen)
        seen._take(apart, order)
        return {m.key: m.number for m in self._measured(seen._totals.state())}

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[SketchStatistic, Sequence[VectorBatch]]]:
        """Yield several cells, and one alone."""
        for cells in (4, 1):
            frozen = cls.fit(example_batches(seed + 1, sizes=(200, 60)), rows=260, cells=cells)
            yield cls(frozen=frozen), example_batches(seed, sizes=(60, 1, 70, 30))


def _nearest(here: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distance from each centre (N, C) and the places of the two nearest (N, 2), float64."""
    apart = torch.cdist(here, centres.to(here), compute_mode="donot_use_mm_for_euclid_dist")
    return apart, apart.topk(min(2, apart.shape[1]), dim=1, largest=False).indices


def _ends(values: Tensor, *, largest: bool) -> tuple[float | None, float | None]:
    """Return the worst of some ratios and their median; `None` where there are none."""
    if not len(values):
        return None, None
    return float(values.max() if largest else values.min()), float(values.quantile(0.5))


def _map(rows: Tensor, numbers: Tensor, *, cells: int = CELLS, seed: int = 0) -> dict[str, Tensor]:
    """Return units, centres and the radius of each cell."""
    from embedwatch.ann import cluster_centres

    del numbers
    units = Units.of(rows)
    here = units.apply(rows)
    centres = cluster_centres(here, max(1, min(cells, len(rows) // ROWS_PER_CELL)), seed=seed).double()
    apart, order = _nearest(here, centres)
    radii = [apart[order[:, 0] == cell, cell] for cell in range(len(centres))]
    found = [each.quantile(RADIUS) if len(each) else torch.tensor(0.0, dtype=torch.float64) for each in radii]
    return {"centre": units.centre, "size": units.size, "centres": centres, "radii": torch.stack(found)}
