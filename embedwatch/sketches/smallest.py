"""SmallestKeys: the k smallest distinct keys with their payload, the base of every sample that merges exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from embedwatch.core.errors import MergeError
from embedwatch.sketches.additive import Axis
from embedwatch.sketches.base import Sketch, check_tensor

__all__ = ["SmallestKeys"]

Reduce = Literal["first", "sum", "amin", "amax"]
Entries = tuple[Tensor, Mapping[str, Tensor]]


class _Kept(NamedTuple):
    """What is kept, ascending by key, and what waits to be sorted in. Replaced as one, so that any thread may read."""

    keys: Tensor | None = None
    values: Mapping[str, Tensor] = {}
    pending: tuple[Entries, ...] = ()


class SmallestKeys(Sketch):
    """Keeps the `capacity` smallest distinct int64 keys; payloads of equal keys are reduced.

    Which keys are kept depends on the set of keys alone, so any order, split and merge gives the same state: a key once
    pushed out can never return, since the largest kept key only falls. With keys that are uniform hashes the kept
    set is a uniform sample of the distinct keys (bottom-k; Cohen & Kaplan 2007) and estimates their number
    (Bar-Yossef et al. 2002).

    Args:
        capacity: k.
        payload: name to (shape of one entry, dtype, how entries of equal keys are reduced).
        ties: int64 payloads that say which of several entries of one key is the first; without, the first that came.
    """

    def __init__(
        self,
        capacity: int,
        payload: Mapping[str, tuple[tuple[Axis, ...], torch.dtype, Reduce]],
        *,
        ties: Sequence[str] = (),
    ) -> None:
        self.capacity = capacity
        self._payload = dict(payload)
        self._ties = tuple(ties)
        self._state = _Kept()

    @property
    def holds_rows(self) -> bool:
        """Whether an entry is as long as a row."""
        return any("D" in shape for shape, _, _ in self._payload.values())

    def add(self, keys: Tensor, **payload: Tensor) -> None:
        """Offer entries: keys (N,) int64 and each payload (N, ...)."""
        state = self._state
        if state.keys is not None and len(state.keys) == self.capacity:
            near = (keys <= state.keys[-1].to(keys.device)).nonzero()[:, 0]
            if near.numel() == 0:
                return
            keys, payload = keys[near], {name: value[near] for name, value in payload.items()}
        typed = {name: payload[name].to(dtype, copy=True) for name, (_, dtype, _) in self._payload.items()}
        self._state = state._replace(pending=(*state.pending, (keys.clone(), typed)))
        if sum(len(waiting) for waiting, _ in self._state.pending) > self.capacity:
            self._sorted()

    def _sorted(self) -> _Kept:
        """Return the state with nothing pending."""
        state = self._state
        if not state.pending:
            return state
        parts = list(state.pending)
        if state.keys is not None:
            parts.insert(0, (state.keys, state.values))
        device = parts[0][0].device
        keys = torch.cat([part.to(device) for part, _ in parts])
        values = {name: torch.cat([part[name].to(device) for _, part in parts]) for name in self._payload}
        order = torch.argsort(keys, stable=True)
        distinct, place = torch.unique_consecutive(keys[order], return_inverse=True)
        if self._ties and len(distinct) < len(keys):
            order = _ordered(keys, [values[name] for name in self._ties])
        kept = min(self.capacity, len(distinct))
        order, place = order[place < kept], place[place < kept]
        reduced = {name: _reduce(values[name][order], place, kept, how) for name, (_, _, how) in self._payload.items()}
        self._state = _Kept(distinct[:kept].clone(), reduced)
        return self._state

    @property
    def keys(self) -> Tensor:
        """The kept keys, ascending. Shape: (k,)."""
        keys = self._sorted().keys
        return torch.zeros(0, dtype=torch.int64) if keys is None else keys

    def values(self, name: str) -> Tensor:
        """Return one payload in the order of the keys. Shape: (k, ...)."""
        state = self._sorted()
        if state.keys is None:
            shape, dtype, _ = self._payload[name]
            return torch.zeros((0, *(0 if axis == "D" else axis for axis in shape)), dtype=dtype)
        return state.values[name]

    @property
    def full(self) -> bool:
        """Whether keys may have been pushed out."""
        return len(self.keys) == self.capacity

    def merge(self, other: SmallestKeys) -> None:
        """Add what the other kept."""
        state = other._sorted()
        if state.keys is not None:
            self.add(state.keys, **state.values)

    def state(self) -> dict[str, Tensor]:
        """Return keys and payloads."""
        state = self._sorted()
        return {} if state.keys is None else {"keys": state.keys, **state.values}

    def load(self, state: Mapping[str, Tensor], dimension: int) -> None:
        """Take over what `state` gave."""
        if not state:
            return
        keys = check_tensor("keys", state["keys"], (None,), torch.int64)
        if len(keys) > self.capacity or bool((keys[1:] <= keys[:-1]).any()):
            raise MergeError(f"`keys` must be at most {self.capacity}, ascending and distinct; the state is damaged")
        for name, (shape, dtype, _) in self._payload.items():
            sizes = [dimension if axis == "D" else axis for axis in shape]
            check_tensor(name, state[name], (len(keys), *sizes), dtype)
        self._state = _Kept(keys, {name: state[name] for name in self._payload})

    def memory(self, dimension: int) -> int:
        """Return its size in bytes: the kept entries, and as many again that wait to be sorted in."""
        entry = 8
        for shape, dtype, _ in self._payload.values():
            entry += dtype.itemsize * prod(dimension if axis == "D" else axis for axis in shape)
        return 2 * self.capacity * entry


def _ordered(keys: Tensor, ties: Sequence[Tensor]) -> Tensor:
    """Return the order by key, then by each tie."""
    order = torch.arange(len(keys), device=keys.device)
    for column in (*reversed(ties), keys):
        order = order[torch.argsort(column[order], stable=True)]
    return order


def _reduce(values: Tensor, place: Tensor, kept: int, how: Reduce) -> Tensor:
    """Reduce the entries that share a place. `values` (M, ...), `place` (M,) ascending -> (kept, ...)."""
    if how == "first":
        first = torch.ones_like(place, dtype=torch.bool)
        first[1:] = place[1:] != place[:-1]
        return values[first]
    if how == "sum":
        zeros = torch.zeros((kept, *values.shape[1:]), dtype=values.dtype, device=values.device)
        return zeros.index_add_(0, place, values)
    initial = values.new_zeros((kept, *values.shape[1:]))
    return initial.scatter_reduce_(0, place, values, reduce=how, include_self=False)
