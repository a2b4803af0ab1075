"""WhiteningSums: what a whitening is fitted from, gathered in one pass."""

from __future__ import annotations

import torch

from embedwatch.batch import VectorBatch
from embedwatch.geometry.whitening import Whitening, centred_fourth, whitening
from embedwatch.sketches.moments import Moments

__all__ = ["WhiteningSums"]


class WhiteningSums:
    """Moments of rows, with the fourth one that the shrinkage needs, and their mean norm.

    It is no Sketch: a map is fitted once, by one reader, and frozen.

    Example:
        >>> sums = WhiteningSums()
        >>> sums.add(VectorBatch(torch.randn(500, 3, generator=torch.Generator().manual_seed(0))))
        >>> sums.whitening().alive
        3
    """

    def __init__(self) -> None:
        self._moments = Moments(scatter="matrix")
        self._rough = torch.zeros(0, dtype=torch.float64)
        self._squares = torch.zeros(2, dtype=torch.float64)
        self._cubes = torch.zeros(0, dtype=torch.float64)
        self._norms = 0.0

    @property
    def rows(self) -> int:
        """Number of finite rows that were added."""
        return self._moments.count

    @property
    def mean_norm(self) -> float:
        """Mean norm of these rows."""
        return self._norms / max(1, self.rows)

    def add(self, batch: VectorBatch) -> None:
        """Add the finite rows of a batch."""
        clean = batch.clean
        if not len(clean):
            return
        if not self.rows:
            self._rough = clean.rows.mean(0).double().cpu()
            self._cubes = torch.zeros_like(self._rough)
        self._moments.combine(*batch.moments)
        centred = clean.rows - self._rough.to(clean.rows)  # (N, D)
        squares = centred.double().square().sum(1)
        self._squares += torch.stack([squares.sum(), squares.square().sum()]).cpu()
        self._cubes += (centred.T @ squares.to(centred)).double().cpu()
        self._norms += float(clean.norms.sum())

    def whitening(self) -> Whitening:
        """Return the map.

        Raises:
            UsageError: if the rows do not vary.
        """
        mean, covariance = self._moments.mean, self._moments.covariance()
        if mean is None or covariance is None:
            nothing = torch.zeros(1, dtype=torch.float64)
            return whitening(nothing, nothing[:, None], count=0, fourth=0.0)
        plain = covariance.cpu() * ((self.rows - 1) / self.rows)
        mean = mean.cpu()
        fourth = centred_fourth(self.rows, mean - self._rough, plain * self.rows, self._squares, self._cubes)
        return whitening(mean, plain, count=self.rows, fourth=fourth)
