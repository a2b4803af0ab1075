"""Sliced Wasserstein distance from a reference: along which directions rows moved."""

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
from embedwatch.geometry.distributions import wasserstein, wasserstein_noise
from embedwatch.geometry.units import Units
from embedwatch.sketches import Additive, ComparedStatistic, SampleFitter, SketchStatistic, example_batches

PROJECTIONS = 64
BINS = 128
"""Bins of each projection, each with the same share of the fitted rows."""
SAMPLE = 2_048
LEAST = 50
"""Rows that each side must have."""
CHUNK = 1_024
NAMED = 5
"""Directions that are told."""

MEAN = Metric(
    "sliced_wasserstein_ratio",
    "Mean distance that the mass moved along 64 directions, in standard deviations of the reference along each, "
    "± what healthy rows have by chance.",
    healthy="about the number after ±",
)
LARGEST = Metric(
    "sliced_wasserstein_largest_ratio",
    "The same along the direction that moved most, ± what healthy rows have there by chance.",
    headline=False,
)


class SlicedWasserstein(ComparedStatistic):
    """Wasserstein distance along frozen random directions, over the spread of the reference along each.

    `W₁ = ∫ |F - G|` from counts between 127 frozen quantiles of each of 64 projections. The exhibit names the
    directions that moved most, each with the fitted row that lies farthest the way they moved.

    Shape: batches (N, D); rows with NaN or Inf are left out. Rows more than 64 usual distances away count as if they
    were there.
    State: 64 × 130 numbers, whatever D; merge exact.
    Error: F - G is taken to be straight between quantiles, and beyond the outer ones its sign to be one.
    Empty: `None` below 50 rows on either side.

    References:
        Vallender 1974; Bonneel et al. 2015, "Sliced and Radon Wasserstein barycenters of measures".

    Example:
        >>> rows = torch.randn(2_000, 4, generator=torch.Generator().manual_seed(0))
        >>> frozen = SlicedWasserstein.fit([VectorBatch(rows, torch.arange(2_000))], rows=2_000)
        >>> statistic = SlicedWasserstein(frozen=frozen)
        >>> statistic.update(VectorBatch(rows + 1))
        >>> 0.7 < statistic.compute()[0].number < 0.9
        True
    """

    name = "sliced_wasserstein"
    title = "sliced Wasserstein distance from a reference"
    metrics = (MEAN, LARGEST)

    def __init__(self, *, frozen: Mapping[str, Tensor]) -> None:
        super().__init__(frozen=frozen)
        self._units = Units(self.frozen["centre"], self.frozen["size"])
        self._directions, self._edges = self.frozen["directions"], self.frozen["edges"]
        count, inner = self._edges.shape
        self._totals = self.keep(
            "totals",
            Additive(sums={"below": (count,), "above": (count,)}, counts={"bins": (count * (inner + 1),), "rows": ()}),
        )

    @classmethod
    def fitter(cls, **options: Any) -> SampleFitter:
        """Return what fits the quantiles.

        Args:
            options: `projections`, the `bins` of each, and `seed` of the directions.
        """
        return SampleFitter(SAMPLE, partial(_map, **options))

    @property
    def space_dimension(self) -> int:
        """D of the rows that fitted the map."""
        return len(self._units.centre)

    def calibrated(self, start: int) -> dict[str, Tensor]:
        """Return the counts of the rows seen."""
        del start
        return self._totals.state()

    def add(self, batch: VectorBatch) -> None:
        """Add a batch whose dimension fits."""
        for part in batch.clean.chunks(CHUNK):
            heights = self._heights(part.rows)
            count, inner = self._edges.shape
            places = torch.searchsorted(self._edges.to(heights.device), heights)  # (P, n)
            flat = (places + torch.arange(count, device=places.device)[:, None] * (inner + 1)).flatten()
            self._totals.add("bins", torch.bincount(flat, minlength=count * (inner + 1)))
            self._totals.add("rows", heights.shape[1])
            for name, excess in self._excesses(heights).items():
                self._totals.add(name, excess)

    def _heights(self, rows: Tensor) -> Tensor:
        """Return rows along the directions, in standard deviations. Shape: (N, D) -> (P, N) float64."""
        return (self._units.apply(rows) @ self._directions.to(rows.device)).T.contiguous()

    def _excesses(self, heights: Tensor) -> dict[str, Tensor]:
        """Return how far rows lie beyond the outer edges, summed. Shape: (P, N) -> (P,) each."""
        edges = self._edges.to(heights.device)
        below, above = edges[:, :1] - heights, heights - edges[:, -1:]
        return {"below": below.clamp(min=0).sum(1), "above": above.clamp(min=0).sum(1)}

    def check_state(self) -> None:
        """Refuse a state whose parts did not see the same rows."""
        binned = int(self._totals["bins"].sum())
        if not self._totals.whole or binned != int(self._totals["rows"]) * len(self._edges):
            raise MergeError(f"state of {self.name} must come from the same rows in all parts; it is damaged")

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        return self._measured(self._totals.state())

    def _measured(self, now: Mapping[str, Tensor]) -> list[Measurement]:
        found = self._moved(now)
        if found is None:
            return [MEAN.measure(None), LARGEST.measure(None)]
        moved, noise = found
        most = int(moved.argmax())
        return [
            MEAN.measure(float(moved.mean()), error=float(noise.mean())),
            LARGEST.measure(float(moved[most]), error=float(noise[most])),
        ]

    def _moved(self, now: Mapping[str, Tensor]) -> tuple[Tensor, Tensor] | None:
        """Return the distance along each direction, and what chance makes of it: (P,) twice."""
        then = self.reference or {}
        sizes = int(now.get("rows", 0)), int(then.get("rows", 0))
        if min(sizes) < LEAST:
            return None
        counts = [side["bins"].cpu().view(len(self._edges), -1) for side in (then, now)]
        tails = [now[name].cpu() / sizes[0] - then[name] / sizes[1] for name in ("below", "above")]
        moved = wasserstein(self._edges, counts[0], counts[1], tails[0], tails[1])
        return moved, wasserstein_noise(self._edges, counts[0], *sizes)

    def exhibits(self) -> list[Exhibit]:
        """Return the directions that moved most, with the fitted row that lies farthest that way."""
        now, then = self._totals.state(), self.reference or {}
        found = self._moved(now)
        rows: list[tuple[int, float, int]] = []
        if found is not None:
            counts = [side["bins"].cpu().view(len(self._edges), -1).double() for side in (then, now)]
            below = [(side / side.sum(1, keepdim=True)).cumsum(1).sum(1) for side in counts]
            up = below[1] < below[0]  # fewer rows below any height: they moved up
            ends = torch.where(up, self.frozen["highest"], self.frozen["lowest"])
            order = found[0].argsort(descending=True)[:NAMED].tolist()
            rows = [(place, float(found[0][place]), int(ends[place])) for place in order]
        caption = "Directions along which rows moved most, each with the fitted row that lies farthest that way."
        return [Exhibit.build("moved_directions", "table", caption, ("direction", "distance", "reference_row"), rows)]

    def tolerance(self, metric: str) -> float:
        """Return the error bound of one metric against the oracle: rounding of sums."""
        del metric
        return 1e-6

    def oracle(self, batch: VectorBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on all rows at once."""
        rows = batch.rows.double()
        heights = self._heights(rows[rows.isfinite().all(1)])
        if not heights.shape[1]:
            return {m.key: None for m in self._measured({})}
        count = heights.shape[1]
        under = (heights[:, None, :] <= self._edges[:, :, None]).sum(2)  # (P, E)
        ends = [torch.zeros(len(under), 1, dtype=torch.int64), torch.full((len(under), 1), count)]
        bins = torch.cat([ends[0], under, ends[1]], 1).diff(dim=1)
        seen = {"rows": torch.tensor(count), "bins": bins.flatten(), **self._excesses(heights)}
        return {m.key: m.number for m in self._measured(seen)}

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[SketchStatistic, Sequence[VectorBatch]]]:
        """Yield few and many bins."""
        for projections, bins in ((4, 8), (8, BINS)):
            reference = example_batches(seed + 1, sizes=(200, 60))
            frozen = cls.fit(reference, rows=260, projections=projections, bins=bins)
            yield cls(frozen=frozen), example_batches(seed, sizes=(60, 1, 70, 30))


def _map(
    rows: Tensor, numbers: Tensor, *, projections: int = PROJECTIONS, bins: int = BINS, seed: int = 0
) -> dict[str, Tensor]:
    """Return units, directions over the spread along each, quantiles, and the numbers of the rows at both ends."""
    units = Units.of(rows)
    here = units.apply(rows)
    generator = torch.Generator().manual_seed(seed)
    random = torch.randn(rows.shape[1], projections, generator=generator, dtype=torch.float64)
    random /= random.norm(dim=0)
    spread = (here @ random).std(0, unbiased=False)
    directions = random / torch.where(spread > 0, spread, 1.0)  # heights are in standard deviations
    heights = (here @ directions).T.contiguous()  # (P, m)
    places = torch.arange(1, bins, dtype=torch.float64) / bins
    return {
        "centre": units.centre,
        "size": units.size,
        "directions": directions,
        "edges": torch.quantile(heights, places, dim=1).T.contiguous(),
        "highest": numbers[heights.argmax(1)],
        "lowest": numbers[heights.argmin(1)],
    }
