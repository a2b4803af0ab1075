"""Tokens on disk: written as they come, read by mapping."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from .errors import ModelError

__all__ = ["open_tokens", "write_tokens"]

CODE = "i"
"""Four bytes a token, as `array` and int32 have them."""


def write_tokens(path: Path, pieces: Iterable[Sequence[int]]) -> int:
    """Write tokens to a file as they come, in constant memory; return their number."""
    count = 0
    with path.open("wb") as file:
        for piece in pieces:
            array(CODE, piece).tofile(file)
            count += len(piece)
    return count


def open_tokens(path: Path) -> Tensor:
    """Return the tokens of a file, mapped, not read. Shape: (N,) int32.

    Raises:
        ModelError: if there are none.
    """
    try:
        size = path.stat().st_size
    except OSError as error:
        raise ModelError(f"`{path}` must be readable, got {error.strerror}; train into a new directory") from error
    if size == 0 or size % 4:
        raise ModelError(f"`{path}` must hold whole tokens, got {size:,} bytes; train into a new directory")
    return torch.from_file(str(path), shared=False, size=size // 4, dtype=torch.int32)
