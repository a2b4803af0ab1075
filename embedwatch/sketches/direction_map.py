"""DirectionMap: the directions and regions of unit rows, fitted on the first half of a reference."""

from __future__ import annotations

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import UsageError
from embedwatch.sketches.frozen import Frozen
from embedwatch.sketches.moments import Moments
from embedwatch.sketches.smallest import SmallestKeys

__all__ = ["CELLS", "MOST_DIRECTIONS", "DirectionFitter", "DirectionMap"]

MOST_DIRECTIONS = 1024
"""Directions that are kept of wide rows; what lies outside of them is one number."""
CELLS = 32
ROWS_PER_CELL = 16
"""Fewer cells are made where the rows do not fill them."""
CELL_SAMPLE = 8192
NAMES = ("basis", "centres", "fitted", "mean", "variances")


class DirectionMap:
    """The mean, main directions and cells of unit rows.

    Args:
        frozen: the arrays, as `DirectionFitter` makes them.

    Raises:
        UsageError: if arrays are missing.
    """

    def __init__(self, frozen: Frozen) -> None:
        frozen.check(NAMES)
        self.mean, self.basis = frozen["mean"], frozen["basis"]
        self.variances, self.centres = frozen["variances"], frozen["centres"]
        self.fitted = int(frozen["fitted"])
        """Rows that fitted it."""

    @property
    def dimension(self) -> int:
        """D."""
        return len(self.mean)

    @property
    def directions(self) -> int:
        """K."""
        return self.basis.shape[1]

    def coordinates(self, unit: Tensor) -> Tensor:
        """Return unit rows in the main directions, the mean taken off. Shape: (N, D) -> (N, K) float64."""
        return ((unit - self.mean.to(unit)) @ self.basis.to(unit)).double()

    def cells(self, unit: Tensor) -> Tensor:
        """Return the nearest cell of each unit row. Shape: (N, D) -> (N,) int64."""
        return torch.cdist(unit, self.centres.to(unit)).argmin(1)


class DirectionFitter:
    """Gathers the moments of unit rows and a sample for the cells.

    Args:
        cells: regions that are counted, at most.
        directions: K, at most.
        seed: of the regions.

    Example:
        >>> fitter = DirectionFitter(cells=2)
        >>> fitter.update(VectorBatch(torch.randn(500, 3, generator=torch.Generator().manual_seed(0))))
        >>> fitter.frozen()["basis"].shape
        torch.Size([3, 3])
    """

    def __init__(self, *, cells: int = CELLS, directions: int = MOST_DIRECTIONS, seed: int = 0) -> None:
        self._cells, self._directions, self._seed = cells, directions, seed
        self._moments = Moments(scatter="matrix")
        self._sample = SmallestKeys(CELL_SAMPLE, {"rows": (("D",), torch.float32, "first")})

    def update(self, batch: VectorBatch) -> None:
        """Add rows; those that are not finite or have no direction are left out."""
        directed = batch.clean.directed
        if not len(directed):
            return
        unit = VectorBatch(batch.clean.unit)
        self._moments.combine(unit.moments.number, unit.moments.mean.cpu(), unit.moments.scatter.cpu())
        self._sample.add(directed.keys, rows=unit.rows.float())

    def frozen(self) -> dict[str, Tensor]:
        """Return the arrays of the map.

        Raises:
            UsageError: if the rows do not vary in direction.
        """
        from embedwatch.ann import cluster_centres

        mean, covariance = self._moments.mean, self._moments.covariance()
        if mean is None or covariance is None or not float(covariance.trace()) > 0:
            raise UsageError("`batches` must hold rows of different directions, got none; give rows that differ")
        values, vectors = torch.linalg.eigh(covariance)
        kept = min(len(values), self._directions)
        cells = max(1, min(self._cells, self._moments.count // ROWS_PER_CELL))
        return {
            "mean": mean,
            "basis": vectors.flip(1)[:, :kept].contiguous(),
            "variances": values.flip(0)[:kept].clamp(min=0).contiguous(),
            "centres": cluster_centres(self._sample.values("rows"), cells, seed=self._seed, least=2),
            "fitted": torch.tensor(self._moments.count),
        }
