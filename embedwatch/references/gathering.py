"""Gathering: makes a reference of the rows that a live model shows."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import torch

from embedwatch.batch import VectorBatch
from embedwatch.core.snapshot import Space
from embedwatch.references.fitting import Fitting
from embedwatch.references.folder import save_reference
from embedwatch.references.origin import Part

__all__ = ["Gathering", "place_folder"]

log = logging.getLogger(__name__)


class Gathering:
    """Fits on the first half of so many rows, calibrates on the others, then writes the reference.

    Args:
        space: what the rows are of.
        role: what sort of place it is.
        folder: below which it is written, in a folder of the place's name; a reference that is there is replaced.
        rows: how many make it.
        model: fingerprint of the model.
    """

    def __init__(self, space: Space, role: str, folder: Path, rows: int, *, model: str = "") -> None:
        self.space, self.role, self.model = space, role, model
        self.target = folder / place_folder(space.place)
        self.missing = rows
        """Rows that are still to come."""
        self.is_over = False
        self._rows, self._fitting = rows, Fitting(rows=rows)

    def update(self, batch: VectorBatch) -> None:
        """Add rows in the order in which they come; write the reference once there are enough."""
        taken = batch.take(slice(0, self.missing))
        start = self._rows - self.missing
        numbers = torch.arange(len(taken)) + start
        self.is_over = True  # until it has succeeded: what failed is not tried with a hole in it
        self._fitting.update(replace(taken, ids=numbers, order=None))
        self.missing -= len(taken)
        if self.missing:
            self.is_over = False
            return
        part = Part(str(self.space), self._rows, self.model)
        notes = ["gathered from a live model, rows sampled as its Monitor does"]
        made = self._fitting.reference(self.space, [part], role=self.role, model=self.model, notes=notes)
        save_reference(made, self.target, replace=True)
        log.info("embedwatch: %s: reference of %d rows written to %s", self.space, self._rows, self.target)


def place_folder(place: str) -> str:
    """Return the name of a folder for a place, whatever characters it has.

    Example:
        >>> place_folder("layers.0#1/de")
        'layers.0%231%2Fde'
    """
    return quote(place, safe=".-_ ")
