"""DriftFitter: fits the whitening and the cells of a DriftMap on rows read once."""

from __future__ import annotations

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.geometry.comparison import UNIT
from embedwatch.geometry.samples import Sample
from embedwatch.sketches.drift_map import DriftMap
from embedwatch.sketches.row_runs import RUN, RowRuns
from embedwatch.sketches.smallest import SmallestKeys
from embedwatch.sketches.whitening_sums import WhiteningSums

__all__ = ["MOST_BLOCKS", "DriftFitter"]

MOST_BLOCKS = 256
"""Blocks that are kept of a window: beyond, they are joined in pairs."""
CELLS = 32
ROWS_PER_CELL = 16
"""Fewer cells are made where the rows do not fill them."""
CELL_SAMPLE = 8192
KNOWN_ROWS = 1 << 16
"""Contents of fitted rows that are remembered; a map fitted on more than that fits none of them closely."""


class DriftFitter:
    """Gathers moments, a sample for the cells, and what the rows were.

    Args:
        cells: regions of the space that are counted, at most.
        unit: row numbers of a block where rows are independent.
        most: blocks that are kept.
        seed: of the regions.

    Example:
        >>> fitter = DriftFitter(cells=2)
        >>> fitter.update(VectorBatch(torch.randn(500, 3, generator=torch.Generator().manual_seed(0))))
        >>> fitter.frozen()["centres"].shape
        torch.Size([2, 3])
    """

    def __init__(self, *, cells: int = CELLS, unit: int = UNIT, most: int = MOST_BLOCKS, seed: int = 0) -> None:
        self._cells, self._unit, self._most, self._seed = cells, unit, most, seed
        self._sums, self._known = WhiteningSums(), SmallestKeys(KNOWN_ROWS, {})
        self._sample = SmallestKeys(CELL_SAMPLE, {"rows": (("D",), torch.float32, "first")})
        self._runs, self._rows = RowRuns(), RowRuns(torch.float32)

    def update(self, batch: VectorBatch) -> None:
        """Add rows; those that are not finite are left out."""
        clean = batch.clean
        self._sums.add(clean)
        if len(clean):
            self._sample.add(clean.keys, rows=clean.rows)
            self._known.add(clean.content)
            if batch.ids is not None:
                keys = RowRuns.keys_of(clean.numbers)
                self._runs.add(keys, number=clean.numbers, content=clean.content)
                self._rows.add(keys, rows=clean.rows)

    def frozen(self) -> dict[str, Tensor]:
        """Return the arrays of the map.

        Raises:
            UsageError: if the rows do not vary.
        """
        from embedwatch.ann import cluster_centres

        whitening = self._sums.whitening()
        cells = max(1, min(self._cells, self._sums.rows // ROWS_PER_CELL))
        centres = cluster_centres(self._sample.values("rows"), cells, seed=self._seed, least=2)
        numbers, content, rows = self._runs.values("number"), self._runs.values("content"), self._rows.values("rows")
        return DriftMap.arrays(
            whitening,
            norm=self._sums.mean_norm,
            centres=centres,
            known=self._known.keys,
            unit=self._unit,
            most=self._most,
            sample=Sample(numbers, content, rows, None if len(numbers) == self._sums.rows else RUN),
        )
