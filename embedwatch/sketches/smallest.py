"""SmallestKeys: the k smallest distinct keys with their payload, the base of every sample that merges exactly."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Literal

import torch
from torch import Tensor

from embedwatch.core.errors import MergeError
from embedwatch.sketches.additive import Axis
from embedwatch.sketches.base import Sketch

__all__ = ["SmallestKeys"]

Reduce = Literal["first", "sum", "amin", "amax"]


class SmallestKeys(Sketch):
    """Keeps the `capacity` smallest distinct int64 keys; payloads of equal keys are reduced.

    Which keys are kept depends on the set of keys alone, so any order, split and merge gives the same state: a key once
    pushed out can never return, since the largest kept key only falls. With keys that are uniform hashes the kept
    set is a uniform sample of the distinct keys (bottom-k; Cohen & Kaplan 2007) and estimates their number
    (Bar-Yossef et al. 2002).

    Args:
        capacity: k.
        payload: name to (shape of one entry, dtype, how entries of equal keys are reduced).
    """

    def __init__(self, capacity: int, payload: Mapping[str, tuple[tuple[Axis, ...], torch.dtype, Reduce]]) -> None:
        self.capacity = capacity
        self._payload = dict(payload)
        self._keys: Tensor | None = None
        self._values: dict[str, Tensor] = {}
        self._pending: list[tuple[Tensor, dict[str, Tensor]]] = []
        self._pending_rows = 0
        self._bound: Tensor | None = None

    def add(self, keys: Tensor, **payload: Tensor) -> None:
        """Offer entries: keys (N,) int64 and each payload (N, ...)."""
        if self._bound is not None:
            near = keys <= self._bound.to(keys.device)
            index = near.nonzero()[:, 0]
            if index.numel() == 0:
                return
            keys, payload = keys[index], {name: value[index] for name, value in payload.items()}
        else:
            keys, payload = keys.clone(), {name: value.clone() for name, value in payload.items()}
        typed = {name: payload[name].to(dtype) for name, (_, dtype, _) in self._payload.items()}
        self._pending.append((keys, typed))
        self._pending_rows += len(keys)
        if self._pending_rows > self.capacity:
            self._compact()

    def _compact(self) -> None:
        if not self._pending:
            return
        parts = self._pending if self._keys is None else [(self._keys, self._values), *self._pending]
        device = parts[0][0].device
        keys = torch.cat([part.to(device) for part, _ in parts])
        order = torch.argsort(keys, stable=True)
        distinct, place = torch.unique_consecutive(keys[order], return_inverse=True)
        kept = min(self.capacity, len(distinct))
        order, place = order[place < kept], place[place < kept]
        self._keys = distinct[:kept].clone()
        self._values = {
            name: _reduce(torch.cat([part[name].to(device) for _, part in parts])[order], place, kept, how)
            for name, (_, _, how) in self._payload.items()
        }
        self._pending, self._pending_rows = [], 0
        if kept == self.capacity:
            self._bound = self._keys[-1]

    @property
    def keys(self) -> Tensor:
        """The kept keys, ascending. Shape: (k,)."""
        self._compact()
        return torch.zeros(0, dtype=torch.int64) if self._keys is None else self._keys

    def values(self, name: str) -> Tensor:
        """Return one payload in the order of the keys. Shape: (k, ...)."""
        self._compact()
        if self._keys is None:
            shape, dtype, _ = self._payload[name]
            return torch.zeros((0, *(0 if axis == "D" else axis for axis in shape)), dtype=dtype)
        return self._values[name]

    @property
    def full(self) -> bool:
        """Whether keys may have been pushed out."""
        return len(self.keys) == self.capacity

    def merge(self, other: SmallestKeys) -> None:
        """Add what the other kept."""
        other._compact()
        if other._keys is not None:
            self.add(other._keys, **other._values)

    def state(self) -> dict[str, Tensor]:
        """Return keys and payloads."""
        self._compact()
        return {} if self._keys is None else {"keys": self._keys, **self._values}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `state` gave."""
        self._keys, self._values, self._bound = None, {}, None
        self._pending, self._pending_rows = [], 0
        if state:
            keys = state["keys"]
            values = {name: state[name] for name in self._payload}
            if any(len(value) != len(keys) for value in values.values()) or len(keys) > self.capacity:
                raise MergeError(
                    f"the sample must have one payload for each of at most {self.capacity} keys; it is damaged"
                )
            self.add(keys, **values)
            self._compact()

    def memory(self, dimension: int) -> int:
        """Return its size in bytes: the kept entries, and as many again that wait to be compacted."""
        entry = 8
        for shape, dtype, _ in self._payload.values():
            entry += dtype.itemsize * prod(dimension if axis == "D" else axis for axis in shape)
        return 2 * self.capacity * entry


def _reduce(values: Tensor, place: Tensor, kept: int, how: Reduce) -> Tensor:
    """Reduce the entries that share a place. `values` (M, ...), `place` (M,) ascending -> (kept, ...)."""
    if how == "first":
        first = torch.ones_like(place, dtype=torch.bool)
        first[1:] = place[1:] != place[:-1]
        return values[first]
    if how == "sum":
        return torch.zeros((kept, *values.shape[1:]), dtype=values.dtype, device=values.device).index_add_(
            0, place, values
        )
    initial = values.new_zeros((kept, *values.shape[1:]))
    return initial.scatter_reduce_(0, place, values, reduce=how, include_self=False)
