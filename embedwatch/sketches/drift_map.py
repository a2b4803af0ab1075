"""DriftMap: what was fitted on the first half of a reference, and what it makes of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import UsageError
from embedwatch.geometry.blocks import Columns, block_features
from embedwatch.geometry.whitening import Whitening
from embedwatch.sketches.frozen import Frozen

__all__ = ["DriftMap", "Mapped"]

CHUNK = 1024
"""Rows whose columns are held at a time."""
NAMES = ("basis", "centres", "dead", "known", "mean", "most", "norm", "unit", "variances")


class Mapped(NamedTuple):
    """Some rows under the map.

    Args:
        ids: their numbers, (N,).
        features: their columns, (N, W) float64.
        cells: the nearest centre of each, (N,).
        apart: how far it is from that, (N,).
    """

    ids: Tensor
    features: Tensor
    cells: Tensor
    apart: Tensor


class DriftMap:
    """A whitening, the centres of cells, and the contents of the rows on which both were fitted.

    Args:
        frozen: the arrays, as `arrays` makes them.

    Raises:
        UsageError: if arrays are missing.
    """

    def __init__(self, frozen: Frozen) -> None:
        missing = [name for name in NAMES if name not in frozen]
        if missing:
            raise UsageError(f"`frozen` must hold {', '.join(NAMES)}, got no {missing[0]}; give what `fit` returned")
        self.whitening = Whitening(frozen["mean"], frozen["basis"], frozen["variances"], int(frozen["dead"]))
        self.columns = Columns(self.whitening.alive)
        self.centres = frozen["centres"]
        self.known = frozen["known"]
        self.dimension = len(frozen["mean"])
        self.unit, self.most = int(frozen["unit"]), int(frozen["most"])
        self._norm = float(frozen["norm"])

    @staticmethod
    def arrays(
        by: Whitening, *, norm: float, centres: Tensor, known: Tensor, unit: int, most: int
    ) -> dict[str, Tensor]:
        """Return the arrays of a map: a whitening, the usual norm, centres (K, D), content hashes, sizes of blocks."""
        return {
            "mean": by.mean,
            "basis": by.basis,
            "variances": by.variances,
            "dead": torch.tensor(by.dead),
            "norm": torch.tensor(norm, dtype=torch.float64),
            "centres": centres,
            "known": known,
            "unit": torch.tensor(unit),
            "most": torch.tensor(most),
        }

    def is_known(self, rows: VectorBatch) -> Tensor:
        """Return which rows equal one that was fitted: they fit better than any other would. Shape: (N,) bool."""
        return torch.isin(rows.content, self.known.to(rows.content.device))

    def mapped(self, rows: VectorBatch) -> Iterator[Mapped]:
        """Yield finite, numbered rows under the map, a chunk at a time."""
        centres = self.centres.to(rows.rows)
        for start in range(0, len(rows), CHUNK):
            part = rows.take(slice(start, start + CHUNK))
            features = block_features(part.rows, part.norms, self.whitening, self._norm)
            apart, cells = torch.cdist(part.rows, centres).min(1)
            yield Mapped(part.numbers, features, cells, apart)
