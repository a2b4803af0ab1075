"""Frozen: arrays that were fitted once, which statistics compare with and never change."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from embedwatch.core.errors import MergeError, UsageError
from embedwatch.sketches.base import Sketch

__all__ = ["Frozen", "FrozenMark"]


class Frozen(Mapping[str, Tensor]):
    """Named tensors on the CPU. Two are equal where all their bits are; `repr` is a fingerprint.

    Example:
        >>> Frozen({"mean": torch.zeros(3)}) == Frozen({"mean": torch.zeros(3)})
        True
    """

    def __init__(self, arrays: Mapping[str, Tensor]) -> None:
        wrong = [name for name, array in arrays.items() if not isinstance(array, Tensor)]
        if wrong:
            raise UsageError(f"`frozen` must hold tensors, got others in {', '.join(wrong)}; give what `fit` returned")
        self._arrays = {name: arrays[name].detach().cpu().contiguous() for name in sorted(arrays)}

    def __getitem__(self, name: str) -> Tensor:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def check(self, names: Sequence[str]) -> None:
        """Refuse arrays of which some are missing.

        Raises:
            UsageError: naming the first.
        """
        missing = [name for name in names if name not in self._arrays]
        if missing:
            raise UsageError(f"`frozen` must hold {', '.join(names)}, got no {missing[0]}; give what `fit` returned")

    def under(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors whose names begin so, without that beginning."""
        return {name.removeprefix(prefix): array for name, array in self._arrays.items() if name.startswith(prefix)}

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits of the hash of names, types, shapes and bits."""
        found = hashlib.blake2b(digest_size=8)
        for name, array in self._arrays.items():
            found.update(f"{name} {array.dtype} {tuple(array.shape)} ".encode())
            found.update(array.reshape(-1).view(torch.uint8).numpy().tobytes())
        return found.hexdigest()

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Frozen) and self.fingerprint == other.fingerprint)

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"Frozen({self.fingerprint})"


class FrozenMark(Sketch):
    """The fingerprint of the arrays that a state was made with: a state of others is refused."""

    def __init__(self, frozen: Frozen) -> None:
        self._frozen = frozen
        self._used = False

    def use(self) -> None:
        """Say that rows were compared with the arrays."""
        self._used = True

    def merge(self, other: FrozenMark) -> None:
        """Add what the other saw; settings were compared before."""
        self._used = self._used or other._used

    def state(self) -> dict[str, Any]:
        """Return the fingerprint."""
        return {"fingerprint": [self._frozen.fingerprint]} if self._used else {}

    def load(self, state: Mapping[str, Any], dimension: int) -> None:
        """Refuse a state of other arrays."""
        self._used = dimension > 0
        if self._used and state["fingerprint"] != [self._frozen.fingerprint]:
            wanted, got = self._frozen.fingerprint, state["fingerprint"]
            raise MergeError(f"`frozen` must be {wanted}, got {got!r}; use the arrays of that state")

    def memory(self, dimension: int) -> int:
        """Return its size in bytes."""
        del dimension
        return 16
