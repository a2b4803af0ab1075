"""Masks: what a model was told about its positions, and which rows of an output are real by that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.hashing import hash_integers

__all__ = ["BATCH_AND_POSITION", "Mask", "Padding", "real_rows"]

BATCH_AND_POSITION = 2
PLACE_BITS = 32
"""A token's number lies in so many bits, its place in the sequence above them."""


class Padding(NamedTuple):
    """What stands for no token, where no mask says so.

    Args:
        token: its number.
        starts: whether the same token also begins each sequence, as in T5.
    """

    token: int
    starts: bool = False


@dataclass(frozen=True)
class Mask:
    """What a scope was told about its positions.

    Args:
        real: (B, T), or longer where it covers what is in a cache; nonzero where a token is real; `None` for all.
        ids: (B, T) tokens.
        others: (B,) int64 identity of each input, where they are no tokens.
    """

    real: Tensor | None
    ids: Tensor | None
    others: Tensor | None = None

    def fits(self, shape: torch.Size) -> bool:
        """Return whether it says anything about positions of this shape; else a scope around it may."""
        if self.real is None:
            return self.ids is not None and self.ids.shape == shape
        return self._real(shape) is not None

    def valid(self, shape: torch.Size, padding: Padding | None) -> Tensor | None:
        """Return which of the rows of this shape are real; `None` where all are, or nothing fits. Shape: (B, T)."""
        if self.real is None:
            if padding is None or self.ids is None or self.ids.shape != shape:
                return None
            return _no_padding(self.ids, padding)
        real = self._real(shape)
        if real is None or padding is None or self.ids is None or self.ids.shape != shape == real.shape:
            return None if real is None else real != 0
        if self.real.shape[-1] <= shape[-1]:
            return real != 0
        # Who generates goes on to the longest text: those that have ended get padding, which the mask calls real.
        return (real != 0) & (self.ids != padding.token)

    def inputs(self, shape: torch.Size, padding: Padding | None) -> Tensor | None:
        """Return the identity of what each row of this shape was made of: its token, or else a whole input.

        `None` where that is not known. Shape: (N,) int64.
        """
        ids = self.ids
        if ids is not None and hasattr(ids, "to_local"):  # spread over devices
            return None
        if ids is not None and ids.numel() == shape.numel():
            return (ids.T if ids.shape != shape == ids.T.shape else ids).reshape(-1).long()
        wholes = self.others if ids is None else _sequences(ids, self.valid(ids.shape, padding))
        if wholes is None or not shape or shape[0] != len(wholes):
            return None
        return wholes[:, None].expand(-1, shape[1:].numel()).reshape(-1)

    def _real(self, shape: torch.Size) -> Tensor | None:
        real, ids = self.real, self.ids
        if real is None or len(shape) != BATCH_AND_POSITION:
            return None
        if ids is not None and ids.shape == shape and real.shape[1] > shape[1]:
            real = real[:, -shape[1] :]  # the tokens before stand in a cache
        if real.shape != shape:
            real = real.T  # positions first
        return real if real.shape == shape else None


def _no_padding(ids: Tensor, padding: Padding) -> Tensor:
    real = ids != padding.token
    if padding.starts:
        real[:, 0] = True
    return real


def _sequences(ids: Tensor, real: Tensor | None) -> Tensor:
    """Return the identity of each sequence of tokens, wherever its padding stands. Shape: (B, T) -> (B,) int64."""
    real = torch.ones_like(ids, dtype=torch.int64) if real is None else real.to(ids.device).long()
    hashes = hash_integers(ids.long() + (real.cumsum(1) << PLACE_BITS))  # (B, T)
    return (hashes * real).sum(1)


def real_rows(
    masks: Mapping[str, Mask], scopes: Sequence[str], shape: torch.Size, padding: Padding | None
) -> Tensor | None:
    """Return which rows of this shape are real, by the first of these scopes that says anything about them."""
    fitting = (masks[name] for name in scopes if name in masks and masks[name].fits(shape))
    mask = next(fitting, None)
    return None if mask is None else mask.valid(shape, padding)
