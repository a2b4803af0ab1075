"""Who may look at whom. Letters: B batch, H heads, T queries, S keys."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["AttentionMask", "attention_mask"]


@dataclass(frozen=True)
class AttentionMask:
    """What `scaled_dot_product_attention` gets, built once for all layers.

    Attributes:
        values: bool (True = may look) or float (added to scores), broadcast to (B, H, T, S); None: everything.
        causal: nothing but a square triangle: the kernels know that one, and read no mask.
        empty: queries (B, 1, T, 1) that may look at nothing. Their softmax is 0/0, and kernels differ in what they make
            of it: here they look everywhere, and their result is set to 0.
    """

    values: Tensor | None = None
    causal: bool = False
    empty: Tensor | None = None


def attention_mask(
    queries: int,
    keys: int,
    *,
    causal: bool,
    window: int | None = None,
    padding: Tensor | None = None,
    bias: Tensor | None = None,
    device: torch.device | None = None,
) -> AttentionMask:
    """Join all that limits attention. The queries stand at the last T of the S key positions (self-attention).

    Args:
        queries: T.
        keys: S.
        causal: query t sees no key after it.
        window: and only the last `window` keys up to itself (not causal: as many on either side).
        padding: which keys are real tokens (B, S).
        bias: added to the scores (1 or B, H, T, S).
        device: of the mask.

    Example:
        >>> attention_mask(3, 3, causal=True, window=2).values[0, 0].int()
        tensor([[1, 0, 0],
                [1, 1, 0],
                [0, 1, 1]], dtype=torch.int32)
    """
    if window is None and padding is None and bias is None:
        if not causal or queries == 1:
            return AttentionMask()
        if queries == keys:
            return AttentionMask(causal=True)
    allowed = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=device)  # (1, 1, T, S)
    steps = torch.arange(keys - queries, keys, device=device)[:, None] - torch.arange(keys, device=device)  # (T, S)
    if causal:
        allowed = allowed & (steps >= 0)
    if window is not None:
        allowed = allowed & (steps.abs() < window)
    empty = None
    if padding is not None:
        allowed = allowed & padding[:, None, None, :]  # (B, 1, T, S)
        empty = ~allowed.any(dim=-1, keepdim=True)  # (B, 1, T, 1)
        allowed = allowed | empty
    if bias is None:
        return AttentionMask(values=allowed, empty=empty)
    return AttentionMask(values=bias.masked_fill(~allowed, float("-inf")), empty=empty)
