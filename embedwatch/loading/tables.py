"""A table among the weights: found by the name that its module has, read by rows."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from embedwatch.core.errors import InputError
from embedwatch.loading.messages import printable
from embedwatch.loading.weights import Weights

__all__ = ["FLOATS", "Table", "find_tensor", "guess_tensor"]

FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
EMBEDDING = re.compile(r"emb|wte")
CHUNK = 1 << 20


@dataclass(frozen=True)
class Table:
    """A matrix of the weights, read by rows: the token table, or learned positions.

    Args:
        weights: the files that hold it.
        name: name of the tensor in them.
    """

    weights: Weights
    name: str

    def __post_init__(self) -> None:
        stored = self.weights[self.name]
        if stored.dtype not in FLOATS:
            raise InputError(
                f"`{printable(self.name)}` must be floating point, got {stored.dtype}: it is quantised; "
                "open the unquantised model"
            )

    def __len__(self) -> int:
        return self.weights[self.name].shape[0]

    @property
    def dimension(self) -> int:
        """D."""
        return self.weights[self.name].shape[1]

    def read(self, start: int, stop: int) -> Tensor:
        """Return some rows, in the type of the file. Shape: (N, D)."""
        return self.weights.read(self.name, start, stop)

    def fingerprint(self) -> str:
        """Return 16 hex digits of the BLAKE2b hash of its type, shape and every byte."""
        stored = self.weights[self.name]
        digest = hashlib.blake2b(json.dumps([stored.dtype, stored.shape]).encode(), digest_size=8)
        with stored.file.open("rb") as file:
            file.seek(stored.start)
            left = stored.stop - stored.start
            while left > 0 and (chunk := file.read(min(left, CHUNK))):
                digest.update(chunk)
                left -= len(chunk)
        return digest.hexdigest()


def find_tensor(weights: Weights, names: Sequence[str], shape: tuple[int, ...]) -> str | None:
    """Return the name in the files of a tensor that the model knows under `names`, or None.

    Files put prefixes before a name (`bert.`, `model.`, `0.auto_model.`) or lack some of it. The longest common ending
    wins, and among equals the shape that the configuration promises. Where only an ending of the name is there, the
    number of columns must agree.
    """
    for whole, ending in _endings(names):
        found = [
            name for name in weights if f".{name}".endswith(f".{ending}") and len(weights[name].shape) == len(shape)
        ]
        exact = [name for name in found if weights[name].shape == shape]
        near = [name for name in found if whole or weights[name].shape[1:] == shape[1:]]
        if exact or near:
            return min(exact or near, key=lambda name: (len(name), name))
    return None


def guess_tensor(weights: Weights, shape: tuple[int, ...], *, tied: bool) -> str | None:
    """Return the one tensor of this shape that is called an embedding, or None.

    For files whose names are of another origin than the class's. Where input and output share one matrix, the only
    tensor of the shape will do.
    """
    same = [name for name in weights if len(shape) == 2 and weights[name].shape == shape]
    called = [name for name in same if EMBEDDING.search(name)]
    chosen = called or (same if tied else [])
    return chosen[0] if len(chosen) == 1 else None


def _endings(names: Sequence[str]) -> Iterator[tuple[bool, str]]:
    """Yield whole names, then ever shorter endings of them, down to a module and its parameter."""
    yield from ((True, name) for name in names)
    parts = [name.split(".") for name in names]
    for length in range(max(map(len, parts), default=0) - 1, 1, -1):
        yield from ((False, ".".join(part[-length:])) for part in parts if len(part) > length)
