"""LogHistogram: counts and sums of positive numbers in bins of equal ratio."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from embedwatch.sketches.additive import Additive
from embedwatch.sketches.base import Sketch

__all__ = ["LogHistogram"]

BINS_PER_OCTAVE = 64
OCTAVES = 256
BINS = OCTAVES * BINS_PER_OCTAVE
LOWEST = -128  # exponent of the lowest edge; float32 ends near 2^±128


class LogHistogram(Sketch):
    """Counts of numbers ≥ 0 in 64 bins an octave between 2^-128 and 2^128: any quantile within 0.55 %.

    A bin holds `a < v <= a·γ`, γ = 2^(1/64), and answers a·√γ, at most √γ - 1 = 0.54 % away (Masson, Rim & Lee 2019,
    "DDSketch"). Merge is exact. Larger values go to the last bin; smaller ones and zeros to the first, which answers 0.
    """

    ERROR = 2 ** (0.5 / BINS_PER_OCTAVE) - 1
    """Relative error bound of a quantile."""

    def __init__(self) -> None:
        self._bins = Additive(counts={"counts": (BINS,)}, sums={"sums": (BINS,)})

    def add(self, values: Tensor) -> None:
        """Add values ≥ 0, (N,) float64."""
        place = ((torch.log2(values) - LOWEST) * BINS_PER_OCTAVE).ceil().sub(1).clamp(0, BINS - 1).long()
        self._bins.add_at("counts", place, torch.ones_like(place))
        self._bins.add_at("sums", place, values)

    @property
    def counts(self) -> Tensor:
        """Count of each bin. Shape: (BINS,) int64."""
        return self._bins["counts"].cpu().expand(BINS)

    @property
    def sums(self) -> Tensor:
        """Sum of the values in each bin. Shape: (BINS,) float64."""
        return self._bins["sums"].cpu().expand(BINS)

    @staticmethod
    def edges() -> Tensor:
        """Return the lower edge of each bin, and the upper edge of the last. Shape: (BINS + 1,) float64."""
        return torch.pow(2.0, LOWEST + torch.arange(BINS + 1, dtype=torch.float64) / BINS_PER_OCTAVE)

    def quantile(self, q: float) -> float:
        """Return the value below which a share `q` of the numbers lies; NaN when empty."""
        counts = self.counts
        total = int(counts.sum())
        if total == 0:
            return math.nan
        rank = q * (total - 1)
        place = int(torch.searchsorted(counts.cumsum(0), torch.tensor(int(rank)), right=True))
        return float(2.0 ** (LOWEST + (place + 0.5) / BINS_PER_OCTAVE)) if place else 0.0

    def top_sum(self, count: int) -> float:
        """Return the sum of the `count` largest numbers; the bin on the border contributes its mean for each."""
        counts, sums = self.counts.flip(0), self.sums.flip(0)
        before = counts.cumsum(0) - counts
        taken = (count - before).clamp(min=0).minimum(counts)
        means = torch.where(counts > 0, sums / counts.clamp(min=1), 0.0)
        return float((taken * means).sum())

    def merge(self, other: LogHistogram) -> None:
        """Add what the other saw."""
        self._bins.merge(other._bins)

    def state(self) -> dict[str, Tensor]:
        """Return its tensors."""
        return self._bins.state()

    def load(self, state: Mapping[str, Tensor], dimension: int) -> None:
        """Take over what `state` gave."""
        self._bins.load(state, dimension)

    def memory(self, dimension: int) -> int:
        """Return its size in bytes."""
        return self._bins.memory(dimension)
