"""DriftMap: what was fitted on the first half of a reference, and what it makes of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.geometry.blocks import Columns, block_features
from embedwatch.geometry.samples import Sample
from embedwatch.geometry.whitening import Whitening
from embedwatch.sketches.compared import ROW_ARRAYS
from embedwatch.sketches.frozen import Frozen
from embedwatch.sketches.row_runs import RUN

__all__ = ["DriftMap", "Mapped", "plain"]

CHUNK = 1024
"""Rows whose columns are held at a time."""
LARGEST = torch.finfo(torch.float16).max
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


def plain(rows: Tensor, by: Whitening) -> Tensor:
    """Return rows without the mean, in units of their usual spread, in half precision. Shape: (N, D) -> same."""
    if not len(rows):
        return torch.zeros(0, len(by.mean), dtype=torch.float16)
    units = (rows - by.mean.to(rows)) / by.variances.mean().sqrt().to(rows)
    return units.clamp(-LARGEST, LARGEST).half()


def _sample(arrays: Mapping[str, Tensor]) -> Sample:
    if not arrays:
        none = torch.zeros(0, dtype=torch.int64)
        return Sample(none, none, torch.zeros(0, 0), None)
    return Sample(arrays["number"], arrays["content"], arrays["row"], None if bool(arrays["whole"]) else RUN)


class DriftMap:
    """A whitening, the centres of cells, and the contents of the rows on which both were fitted.

    Args:
        frozen: the arrays, as `arrays` makes them.

    Raises:
        UsageError: if arrays are missing.
    """

    def __init__(self, frozen: Frozen) -> None:
        frozen.check(NAMES)
        self.whitening = Whitening(frozen["mean"], frozen["basis"], frozen["variances"], int(frozen["dead"]))
        self.columns = Columns(self.whitening.alive)
        self.centres = frozen["centres"]
        self.known = frozen["known"]
        self.dimension = len(frozen["mean"])
        self.unit, self.most = int(frozen["unit"]), int(frozen["most"])
        self._norm = float(frozen["norm"])
        self.sample = _sample(frozen.under(ROW_ARRAYS))
        """Rows that were fitted; without the rows themselves where they may not be kept."""

    @staticmethod
    def arrays(
        by: Whitening, *, norm: float, centres: Tensor, known: Tensor, unit: int, most: int, sample: Sample
    ) -> dict[str, Tensor]:
        """Return the arrays of a map: a whitening, the usual norm, centres (K, D), content hashes, sizes, a sample."""
        return {
            f"{ROW_ARRAYS}number": sample.numbers,
            f"{ROW_ARRAYS}content": sample.content,
            f"{ROW_ARRAYS}row": plain(sample.rows, by),
            f"{ROW_ARRAYS}whole": torch.tensor(sample.run is None),
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

    def is_known(self, content: Tensor) -> Tensor:
        """Return which hashes are those of a fitted row: it fits better than any other would. Shape: (N,) bool."""
        return torch.isin(content, self.known.to(content.device))

    def mapped(self, rows: VectorBatch) -> Iterator[Mapped]:
        """Yield finite, numbered rows under the map, a chunk at a time."""
        centres = self.centres.to(rows.rows)
        for part in rows.chunks(CHUNK):
            features = block_features(part.rows, part.norms, self.whitening, self._norm)
            apart, cells = torch.cdist(part.rows, centres).min(1)
            yield Mapped(part.numbers, features, cells, apart)
