"""Prompts as people give them, and as one tensor. Letters: B prompts, T tokens of the longest."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from .errors import ModelError

__all__ = ["NOTHING", "Prompts", "left_padded"]

Prompts = Sequence[Sequence[int] | Tensor] | Tensor
"""Rows of ids: ragged lists or tensors, or one tensor (B, T)."""

NOTHING = -1
"""Stands in `ids` where a row has no token; the rules ignore it, and the model is told by a mask."""


def left_padded(name: str, rows: Prompts, vocabulary: int) -> Tensor:
    """Return rows of ids as one tensor (B, T), shorter ones with −1 before them.

    Raises:
        ModelError: if there is no row, an empty one, or an id outside the vocabulary.

    Example:
        >>> left_padded("prompts", [[5], [6, 7]], 10)
        tensor([[-1,  5],
                [ 6,  7]])
    """
    parts = [_row(name, row, vocabulary) for row in rows]
    if not parts:
        raise ModelError(f"`{name}` must hold at least one row, got none; give one")
    longest = max(map(len, parts))
    return torch.stack([functional.pad(row, (longest - len(row), 0), value=NOTHING) for row in parts])  # (B, T)


def _row(name: str, row: Sequence[int] | Tensor, vocabulary: int) -> Tensor:
    try:
        ids = torch.as_tensor(row)
    except (TypeError, ValueError, RuntimeError):  # texts, or rows of rows
        ids = torch.empty(0)
    if ids.ndim != 1 or not len(ids):
        fix = "begin with a begin token"
        raise ModelError(f"`{name}` must be rows of at least one id each, got {_shown(row)}; {fix}")
    wrong = ids if ids.is_floating_point() else ids[(ids < 0) | (ids >= vocabulary)]
    if len(wrong):
        fix = "use the model's own tokenizer"
        raise ModelError(f"`{name}` must hold ids from 0 to {vocabulary - 1}, got {wrong[0].item()}; {fix}")
    return ids.long()  # (T,)


def _shown(row: object) -> str:
    text = repr(row)
    return text if len(text) <= 40 else f"{text[:40]}…"
