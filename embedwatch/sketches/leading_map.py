"""LeadingMap: rows in usual units, in all dimensions or, where there are too many, in the leading directions."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from embedwatch.geometry.units import Units
from embedwatch.sketches.frozen import Frozen
from embedwatch.sketches.sample_fitter import SampleFitter

__all__ = ["EXACT_UP_TO", "LEADING_DIRECTIONS", "LeadingMap", "leading_fitter"]

EXACT_UP_TO = 1_024
"""Dimensions up to which all are looked at."""
LEADING_DIRECTIONS = 256
SAMPLE = 1_024
"""Rows that find the directions."""


class LeadingMap:
    """Units and, for wide rows, the leading directions of a sample.

    Args:
        frozen: the arrays, as `leading_fitter` makes them.
    """

    def __init__(self, frozen: Frozen) -> None:
        self.units = Units(frozen["centre"], frozen["size"])
        self._basis = frozen.get("basis")

    @property
    def dimension(self) -> int:
        """D."""
        return len(self.units.centre)

    @property
    def directions(self) -> int:
        """K: D, or the number of leading directions."""
        return self.dimension if self._basis is None else self._basis.shape[1]

    def turn(self, rows: Tensor) -> Tensor:
        """Return rows in the directions that are looked at. Shape: (N, D) -> (N, K)."""
        return rows if self._basis is None else rows @ self._basis.to(rows)

    def coordinates(self, rows: Tensor) -> Tensor:
        """Return rows in usual units, in these directions. Shape: (N, D) -> (N, K) float32."""
        return self.turn(self.units.apply(rows).float())


def leading_fitter(*, exact_up_to: int = EXACT_UP_TO, directions: int = LEADING_DIRECTIONS) -> SampleFitter:
    """Return what fits the map.

    Args:
        exact_up_to: dimensions up to which all are looked at.
        directions: those that are looked at of wider rows.

    Example:
        >>> fitter = leading_fitter(exact_up_to=2, directions=1)
        >>> from embedwatch.batch import VectorBatch
        >>> fitter.update(VectorBatch(torch.eye(3)))
        >>> fitter.frozen()["basis"].shape
        torch.Size([3, 1])
    """
    return SampleFitter(SAMPLE, partial(_map, exact_up_to=exact_up_to, directions=directions))


def _map(rows: Tensor, numbers: Tensor, *, exact_up_to: int, directions: int) -> dict[str, Tensor]:
    del numbers
    units = Units.of(rows)
    found = {"centre": units.centre, "size": units.size}
    if rows.shape[1] <= exact_up_to:
        return found
    here = units.apply(rows)
    values, vectors = torch.linalg.eigh(here @ here.T)  # of rows with rows: fewer than dimensions
    kept = min(directions, int((values > float(values[-1]) * 1e-12).sum()))
    basis = here.T @ vectors.flip(1)[:, : max(1, kept)]
    return {**found, "basis": basis / basis.norm(dim=0).clamp(min=1e-300)}
