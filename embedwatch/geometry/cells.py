"""Cells of a space that gained and lost rows."""

from __future__ import annotations

import torch
from torch import Tensor

from embedwatch.core.exhibit import NO_ID

__all__ = ["Change", "central", "changes"]

Change = tuple[int, float, float, float, int]
"""Cell, change of its share, share now and before, and a row."""


def central(cells: Tensor, apart: Tensor, numbers: Tensor, count: int) -> list[int]:
    """Return for each cell the number of the row that is nearest to its centre; `NO_ID` where it has none.

    Args:
        cells: of some rows, (N,) int64.
        apart: how far each is from the centre of its cell, (N,).
        numbers: of the rows, (N,).
        count: of cells.
    """
    found = [NO_ID] * count
    for place in torch.argsort(apart, descending=True, stable=True).tolist():
        found[int(cells[place])] = int(numbers[place])
    return found


def changes(now: Tensor, before: Tensor, here: list[int], there: list[int]) -> tuple[list[Change], list[Change]]:
    """Return the cells that gained, and those that lost, most first.

    Args:
        now: shares of the cells, (K,).
        before: what they were.
        here: the row that stands for each cell.
        there: the row that stood for it.

    Example:
        >>> changes(torch.tensor([0.75, 0.25]), torch.tensor([0.5, 0.5]), [7, 8], [1, 2])
        ([(0, 0.25, 0.75, 0.5, 7)], [(1, -0.25, 0.25, 0.5, 2)])
    """
    order = torch.argsort(now - before, descending=True, stable=True).tolist()
    every = [(cell, float(now[cell] - before[cell]), float(now[cell]), float(before[cell])) for cell in order]
    gained = [(*change, here[change[0]]) for change in every if change[1] > 0]
    lost = [(*change, there[change[0]]) for change in every[::-1] if change[1] < 0]
    return gained, lost
