"""Which tensor of a module's output holds vectors. These functions may be traced by a compiler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

__all__ = ["POOLED", "named_tensor", "vectors_of"]

HIDDEN = ("last_hidden_state", "hidden_states", "hidden", "sentence_embedding", "pooler_output")
"""Names under which outputs hold hidden states."""
POOLED = ("sentence_embedding", "text_embeds", "image_embeds")
"""Names under which a whole model's output holds one vector for each input."""


def vectors_of(output: Any) -> Tensor | None:
    """Return the vectors (…, D) in a module's output: itself, a named part, or the first tensor of a tuple."""
    if isinstance(output, Tensor):
        return _vectors(output)
    if isinstance(output, (tuple, list)):
        return _vectors(output[0]) if len(output) > 0 else None
    for name in HIDDEN:
        tensor = named_tensor(output, name)
        if tensor is not None:
            return tensor
    return None


def named_tensor(output: Any, name: str) -> Tensor | None:
    """Return a tensor of vectors from a mapping or an object by its name."""
    if isinstance(output, Mapping):
        return _vectors(output[name]) if name in output else None
    if isinstance(output, (Tensor, tuple, list)) or output is None:
        return None
    return _vectors(getattr(output, name, None))


def _vectors(value: Any) -> Tensor | None:
    """Return it where it can hold vectors: floating point, (…, D)."""
    if isinstance(value, Tensor) and value.is_floating_point() and value.dim() >= 2:
        return value
    return None
