"""Recurrence from segment to segment. Letters: B batch, M positions in memory, T positions in a segment, D d_model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Memory"]


@dataclass(frozen=True)
class Memory:
    """States of earlier segments, which the next segment looks at but no gradient enters.

    A text is cut into segments of T positions. Layer l of segment τ takes its keys and values from
    `[stop_gradient(m_l), h_l]`, where `m_l` are the inputs of the same layer at the M positions before the segment, as
    they were computed then. So information travels up to L·M positions back, for the cost of T + M.

    Positions must be offsets: with absolute ones, position 3 of the memory and position 3 of the segment would look the
    same. Transformer-XL adds to each score a term for the offset, from sinusoids through a learned matrix; here the
    scheme of the configuration does that: the bias of T5 (their term (d), a learned bias for each offset, without the
    detour through sinusoids), RoPE or ALiBi.

    References:
        Dai et al. 2019, "Transformer-XL", sections 3.2 and 3.3. https://arxiv.org/abs/1901.02860

    Attributes:
        states: inputs (B, M, D) of each layer.
        mask: which of them are real tokens (B, M); None: all.
    """

    states: tuple[Tensor, ...]
    mask: Tensor | None = None

    @property
    def length(self) -> int:
        """M, the number of positions that are remembered."""
        return self.states[0].shape[1]

    @classmethod
    def empty(cls, states: Sequence[Tensor]) -> Memory:
        """Return a memory of nothing, fit for layers with these inputs (B, T, D)."""
        return cls(tuple(state[:, :0] for state in states))

    def joined_mask(self, mask: Tensor | None, *, like: Tensor) -> Tensor | None:
        """Return which of the M + T positions are real tokens (B, M + T), or None if all are; `like` is (B, T)."""
        if mask is None and self.mask is None:
            return None
        old = like.new_ones(len(like), self.length, dtype=torch.bool) if self.mask is None else self.mask
        new = torch.ones_like(like, dtype=torch.bool) if mask is None else mask
        return torch.cat([old, new], dim=1)  # (B, M + T)

    def updated(self, states: Sequence[Tensor], mask: Tensor | None, *, limit: int) -> Memory:
        """Return the memory after a segment with these inputs (B, T, D) of its layers, and its mask (B, T)."""
        joined = tuple(
            torch.cat([old, new], dim=1)[:, -limit:].detach() for old, new in zip(self.states, states, strict=True)
        )  # (B, M, D) each
        real = self.joined_mask(mask, like=states[0][:, :, 0])
        return Memory(joined, None if real is None else real[:, -limit:])
