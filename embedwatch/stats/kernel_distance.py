"""Kernel distance from a reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.blocks import Blocks, join_blocks
from embedwatch.geometry.kernels import gaussian_frequencies
from embedwatch.geometry.mmd import OCTAVES, discrepancy, discrepancy_noise, doubled_features
from embedwatch.geometry.units import Units
from embedwatch.sketches import BlockSums, ComparedStatistic, SampleFitter, SketchStatistic, example_batches

FREQUENCIES = 128
"""Frequencies of each bandwidth; each is two features, a cosine and a sine."""
UNIT = 10
"""Row numbers of a block where rows are independent."""
MOST = 64
"""Blocks that are kept: beyond, they are joined in pairs."""
SAMPLE = 512
"""Rows whose median distance is the widest bandwidth."""
LEAST = 50
"""Rows that each side must have."""
CHUNK = 1024
BANDWIDTHS = ("1", "0.5", "0.25")

DEVIATIONS = Metric(
    "kernel_distance_deviations",
    "Squared kernel distance (MMD²) from the reference over the standard deviation it has on healthy rows, "
    "three bandwidths together.",
    healthy="-2 to 3",
)
DISTANCE = Metric(
    "kernel_distance",
    "Squared kernel distance (MMD²) from the reference without bias, by bandwidth in median distances of its rows, "
    "± its standard deviation on healthy rows.",
    labels=("bandwidth",),
    headline=False,
)


class KernelDistance(ComparedStatistic):
    """Squared maximum mean discrepancy from the reference under Gaussian kernels, without a pair being formed.

    `MMD² = mean k(x, x') + mean k(y, y') - 2 mean k(x, y)`, `k = exp(-‖x - y‖² / (2 σ²))` with σ = 1, 1/2 and 1/4 of
    the median distance of fitted rows, each from 128 frozen frequencies. Pairs within a block of consecutive rows are
    left out, so that a stream that keeps to its topic for a while is no farther than another; the deviation comes from
    the block means of the reference.

    Shape: batches (N, D); rows with NaN or Inf are left out, and rows without a number. Rows more than 64 usual
    distances away count as if they were there.
    State: 64 blocks of 768 numbers, whatever D; merge exact to rounding.
    Error: that of 128 frequencies, the same for every window.
    Empty: `None` below 50 rows or three blocks on either side.

    References:
        Gretton et al. 2012, "A kernel two-sample test"; Rahimi & Recht 2007, "Random features".

    Example:
        >>> rows = torch.randn(2_000, 4, generator=torch.Generator().manual_seed(0))
        >>> frozen = KernelDistance.fit([VectorBatch(rows, torch.arange(2_000))], rows=2_000)
        >>> statistic = KernelDistance(frozen=frozen)
        >>> statistic.update(VectorBatch(rows + 1, torch.arange(2_000)))
        >>> statistic.compute()[0].number > 100
        True
    """

    name = "kernel_distance"
    title = "kernel distance from a reference"
    metrics = (DEVIATIONS, DISTANCE)

    def __init__(self, *, frozen: Mapping[str, Tensor]) -> None:
        super().__init__(frozen=frozen)
        self._units = Units(self.frozen["centre"], self.frozen["size"])
        self._frequencies = self.frozen["frequencies"]
        width = OCTAVES * 2 * self._frequencies.shape[1]
        self._blocks = self.keep("blocks", BlockSums(width, unit=int(self.frozen["unit"]), most=MOST))

    @classmethod
    def fitter(cls, **options: Any) -> SampleFitter:
        """Return what fits bandwidths and frequencies.

        Args:
            options: `frequencies` of each bandwidth, their `seed`, and `unit`, row numbers of a block.
        """
        return SampleFitter(SAMPLE, partial(_map, **options))

    @property
    def space_dimension(self) -> int:
        """D of the rows that fitted the map."""
        return len(self._units.centre)

    def calibrated(self, start: int) -> dict[str, Tensor]:
        """Return the blocks of the rows seen."""
        del start
        return self._blocks.state()

    def add(self, batch: VectorBatch) -> None:
        """Add a batch whose dimension fits."""
        if batch.ids is None:
            return
        for part in batch.clean.chunks(CHUNK):
            features = doubled_features(self._units.apply(part.rows), self._frequencies)
            self._blocks.add(part.numbers, features.flatten(1))

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        return self._measured(self._blocks.blocks)

    def _measured(self, now: Blocks) -> list[Measurement]:
        values: list[float | None] = [None] * OCTAVES
        spreads: list[float | None] = [None] * (OCTAVES + 1)
        together = None
        held = self.reference
        if held is not None:
            then = Blocks(*(held[name] for name in Blocks._fields))
            sizes = int(then.rows.sum()), int(now.rows.sum())
            noise = discrepancy_noise(then, *sizes) if min(sizes) >= LEAST else None
            found = discrepancy(then, now) if noise is not None else None
            if found is not None and noise is not None:
                values, spreads = found.tolist(), noise.tolist()
                together = float(found.sum() / noise[-1]) if float(noise[-1]) > 0 else None
        return [
            DEVIATIONS.measure(together),
            *(
                DISTANCE.measure(value, error=spread, bandwidth=bandwidth)
                for value, spread, bandwidth in zip(values, spreads, BANDWIDTHS, strict=False)
            ),
        ]

    def tolerance(self, metric: str) -> float:
        """Return the error bound of one metric against the oracle: rounding of float32 beside a small distance."""
        return 1e-4 if metric == DEVIATIONS.name else 1e-6

    def oracle(self, batch: VectorBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on all rows at once."""
        kept = batch.rows.double().isfinite().all(1)
        rows, ids = batch.rows.double()[kept], batch.numbers[kept]
        phase = self._units.apply(rows) @ self._frequencies.double()
        octaves = [torch.cat([(2**k * phase).cos(), (2**k * phase).sin()], 1) for k in range(OCTAVES)]
        size = int(self.frozen["unit"])
        while len({int(number) // size for number in ids}) > MOST:
            size *= 2
        blocks = join_blocks([Blocks(ids // size, torch.ones_like(ids), torch.cat(octaves, 1))])
        return {m.key: m.number for m in self._measured(blocks)}

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[SketchStatistic, Sequence[VectorBatch]]]:
        """Yield few blocks, and so many that they must be joined."""
        for unit in (UNIT, 1):
            reference = example_batches(seed + 1, sizes=(200, 60))
            frozen = cls.fit(reference, rows=260, frequencies=8, unit=unit)
            yield cls(frozen=frozen), example_batches(seed, sizes=(60, 1, 70, 30))


def _map(
    rows: Tensor, numbers: Tensor, *, frequencies: int = FREQUENCIES, unit: int = UNIT, seed: int = 0
) -> dict[str, Tensor]:
    """Return units and frequencies, by the median distance of some rows."""
    del numbers
    units = Units.of(rows)
    distances = torch.pdist(units.apply(rows))
    median = float(distances.median()) if len(distances) else 0.0
    width = median or 1.0
    found = gaussian_frequencies(rows.shape[1], frequencies, precision=1 / (2 * width**2), seed=seed)
    return {
        "centre": units.centre,
        "size": units.size,
        "frequencies": found,
        "unit": torch.tensor(unit),
    }
