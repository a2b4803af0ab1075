"""Additive: sums and counts, merged by addition."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Literal

import torch
from torch import Tensor

from embedwatch.core.errors import MergeError
from embedwatch.sketches.base import Sketch, check_tensor

__all__ = ["Additive", "Axis"]

Axis = int | Literal["D"]


class Additive(Sketch):
    """Named float64 sums and int64 counts. Merge is exact for counts, and exact to rounding for sums.

    Args:
        sums: name to shape, where "D" stands for the dimension of the rows.
        counts: the same, for integers.

    Example:
        >>> totals = Additive(sums={"total": ("D",)}, counts={"rows": ()})
        >>> totals.add("total", torch.tensor([1.0, 2.0]))
        >>> totals.add("rows", 1)
        >>> totals["total"], int(totals["rows"])
        (tensor([1., 2.], dtype=torch.float64), 1)
    """

    def __init__(
        self,
        *,
        sums: Mapping[str, tuple[Axis, ...]] | None = None,
        counts: Mapping[str, tuple[Axis, ...]] | None = None,
    ) -> None:
        self._shapes = {**(sums or {}), **(counts or {})}
        self._integers = frozenset(counts or {})
        self._values: dict[str, Tensor] = {}

    def add(self, name: str, value: Tensor | int | float) -> None:
        """Add to one of them; it is born at the first call, on the value's device."""
        if name not in self._shapes:
            raise KeyError(name)
        wide = torch.as_tensor(value).to(torch.int64 if name in self._integers else torch.float64)
        if name in self._values:
            self._values[name] += wide.to(self._values[name].device)
        else:
            self._values[name] = wide.clone()

    def add_at(self, name: str, index: Tensor, values: Tensor) -> None:
        """Add `values` (N,) at the places `index` (N,) of a one-dimensional entry of fixed length."""
        (length,) = self._shapes[name]
        if name not in self._values:
            dtype = torch.int64 if name in self._integers else torch.float64
            self._values[name] = torch.zeros(int(length), dtype=dtype, device=index.device)
        held = self._values[name]
        held.index_add_(0, index.to(held.device), values.to(held))

    @property
    def whole(self) -> bool:
        """Whether all of its sums and counts were touched, or none: a part that is missing was lost."""
        return len(self._values) in (0, len(self._shapes))

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __getitem__(self, name: str) -> Tensor:
        """Return one of them; a zero of no dimension where nothing was added yet."""
        empty = torch.zeros((), dtype=torch.int64 if name in self._integers else torch.float64)
        return self._values.get(name, empty)

    def merge(self, other: Additive) -> None:
        """Add what the other saw."""
        for name, value in other._values.items():
            self.add(name, value)

    def state(self) -> dict[str, Tensor]:
        """Return the sums and counts that have been touched."""
        return dict(self._values)

    def load(self, state: Mapping[str, Tensor], dimension: int) -> None:
        """Take over what `state` gave."""
        for name, value in state.items():
            shape = tuple(dimension if axis == "D" else axis for axis in self._shapes[name])
            integer = name in self._integers
            check_tensor(name, value, shape, torch.int64 if integer else torch.float64)
            if integer and bool((value < 0).any()):
                raise MergeError(f"`{name}` must not be negative, got {int(value.min())}; the state is damaged")
        self._values = dict(state)

    def memory(self, dimension: int) -> int:
        """Return its size in bytes."""
        return sum(8 * prod(dimension if axis == "D" else axis for axis in shape) for shape in self._shapes.values())
