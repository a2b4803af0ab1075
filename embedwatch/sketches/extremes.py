"""Extremes: the rows with the largest values, by row number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from embedwatch.core.errors import MergeError
from embedwatch.sketches.base import Sketch, check_tensor

__all__ = ["Extremes"]


class Extremes(Sketch):
    """Keeps the `capacity` largest (value, row number); of equal values the smallest row numbers. Merge is exact.

    Args:
        capacity: how many are kept.
        notes: names of whole numbers that are kept with each.

    Example:
        >>> worst = Extremes(2)
        >>> worst.add(torch.tensor([1.0, 5.0, 3.0]), torch.tensor([10, 11, 12]))
        >>> worst.entries()
        [(11, 5.0), (12, 3.0)]
    """

    def __init__(self, capacity: int, *, notes: Sequence[str] = ()) -> None:
        self.capacity = capacity
        self._values = torch.zeros(0, dtype=torch.float64)
        self._ids = torch.zeros(0, dtype=torch.int64)
        self._notes = {name: torch.zeros(0, dtype=torch.int64) for name in notes}

    def add(self, values: Tensor, ids: Tensor, **notes: Tensor) -> None:
        """Offer values (N,), the row numbers (N,) they belong to, and each note (N,) int64."""
        if len(values) > self.capacity:  # cheap pre-selection, keeping ties
            border = torch.topk(values, self.capacity).values[-1]
            near = values >= border
            values, ids, notes = values[near], ids[near], {name: note[near] for name, note in notes.items()}
        values = torch.cat([self._values.to(values.device), values.double()])
        ids = torch.cat([self._ids.to(ids.device), ids])
        by_id = torch.argsort(ids, stable=True)
        order = by_id[torch.argsort(values[by_id], descending=True, stable=True)][: self.capacity]
        self._values, self._ids = values[order], ids[order]
        self._notes = {name: torch.cat([held.to(ids.device), notes[name]])[order] for name, held in self._notes.items()}

    @property
    def values(self) -> Tensor:
        """The kept values, descending. Shape: (k,) float64."""
        return self._values

    def entries(self) -> list[tuple[int, float]]:
        """Return (row number, value), largest value first."""
        return list(zip(self._ids.tolist(), self._values.tolist(), strict=True))

    def note(self, name: str) -> list[int]:
        """Return one note in the order of the entries."""
        return self._notes[name].tolist()

    def merge(self, other: Extremes) -> None:
        """Add what the other kept."""
        self.add(other._values, other._ids, **other._notes)

    def state(self) -> dict[str, Tensor]:
        """Return its tensors."""
        return {"values": self._values, "ids": self._ids, **self._notes} if len(self._ids) else {}

    def load(self, state: Mapping[str, Tensor], dimension: int) -> None:
        """Take over what `state` gave."""
        del dimension
        if not state:
            return
        values = check_tensor("values", state["values"], (None,), torch.float64)
        ids = check_tensor("ids", state["ids"], (len(values),), torch.int64)
        if len(values) > self.capacity:
            raise MergeError(f"`values` must be at most {self.capacity}, got {len(values)}; the state is damaged")
        self.add(values, ids, **{name: check_tensor(name, state[name], ids.shape, torch.int64) for name in self._notes})

    def memory(self, dimension: int) -> int:
        """Return its size in bytes."""
        del dimension
        return (16 + 8 * len(self._notes)) * self.capacity
