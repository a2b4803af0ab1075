"""Keys and values that a forward pass leaves for the next one.

Letters: B batch, G key and value heads, S positions so far, T new positions, K head size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import ModelError

__all__ = ["Cache", "LayerCache"]


class LayerCache:
    """Keys and values of one attention, so that a new token is compared with the old ones and these are not redone.

    Keys are stored after position encoding.

    Shape: keys and values (B, G, S, K), G key and value heads.
    """

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def append(self, keys: Tensor, values: Tensor) -> None:
        """Add the keys and values of new positions."""
        self.keys = keys if self.keys is None else torch.cat([self.keys, keys], dim=2)  # (B, G, S + T, K)
        self.values = values if self.values is None else torch.cat([self.values, values], dim=2)

    def together(self) -> tuple[Tensor, Tensor]:
        """Return all keys and values so far."""
        if self.keys is None or self.values is None:
            raise ModelError("`cache` must hold keys and values, got an empty one; run a forward pass with it first")
        return self.keys, self.values

    def keep(self, count: int) -> None:
        """Forget all but the last `count` positions."""
        if self.keys is not None and self.values is not None and self.keys.shape[2] > count:
            start = self.keys.shape[2] - count
            self.keys, self.values = self.keys[:, :, start:], self.values[:, :, start:]

    def reorder(self, index: Tensor) -> None:
        """Select rows of the batch."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys.index_select(0, index), self.values.index_select(0, index)


class Cache:
    """Everything that a decoder needs to continue a batch of sequences by new tokens alone.

    Without it, T tokens are generated with T passes over up to T positions; with it, over one position each.
    With a sliding window, what has left the window is dropped, so that its size is bounded.

    Made by `Transformer.cache`, filled by `Transformer.forward`.

    Attributes:
        batch: B.
        length: number of positions so far, padding included.
        at: positions of the keys (1 or B, S): how many real tokens stand before each.
        mask: which keys are real tokens (B, S); None: all.
        layers, cross: one `LayerCache` for each self- and cross-attention.
        source_mask: which source positions are real tokens (B, S); None: all.
    """

    def __init__(self, batch: int, layers: int) -> None:
        self.batch = batch
        self.length = 0
        self.at: Tensor | None = None
        self.next: Tensor | None = None
        self.mask: Tensor | None = None
        self.source_mask: Tensor | None = None
        self.layers = [LayerCache() for _ in range(layers)]
        self.cross = [LayerCache() for _ in range(layers)]

    @property
    def has_source(self) -> bool:
        """Whether keys and values of an encoded source are there, so that the source itself is needed no more."""
        return self.cross[0].keys is not None

    def extend(self, at: Tensor, following: Tensor, mask: Tensor | None) -> None:
        """Note new positions (1 or B, T): where they stand, where the next one will, and which are real tokens."""
        old = at[:, :0] if self.at is None else self.at
        if mask is not None or self.mask is not None:
            before = self._all_real(old) if self.mask is None else self.mask
            self.mask = torch.cat([before, self._all_real(at) if mask is None else mask], dim=1)  # (B, S + T)
        rows = max(len(old), len(at))
        self.at = torch.cat([old.expand(rows, -1), at.expand(rows, -1)], dim=1)  # (1 or B, S + T)
        self.next = following
        self.length += at.shape[1]

    def _all_real(self, at: Tensor) -> Tensor:
        return torch.ones(self.batch, at.shape[1], dtype=torch.bool, device=at.device)  # (B, T)

    def keys_at(self) -> Tensor:
        """Return the positions of the keys (1 or B, S)."""
        if self.at is None:
            raise ModelError("`cache` must hold positions, got an empty one; run a forward pass with it first")
        return self.at

    def keep(self, count: int) -> None:
        """Forget all but the last `count` positions; `length` goes on counting them."""
        if self.at is None or self.at.shape[1] <= count:
            return
        start = self.at.shape[1] - count
        self.at = self.at[:, start:]
        self.mask = None if self.mask is None else self.mask[:, start:]
        for layer in self.layers:
            layer.keep(count)

    def reorder(self, index: Tensor) -> None:
        """Select rows of the batch, in any order and number: beam search continues some beams twice, others never."""

        def select(tensor: Tensor | None) -> Tensor | None:
            shared = tensor is None or (len(tensor) == 1 and self.batch > 1)
            return tensor if shared or tensor is None else tensor.index_select(0, index)

        for layer in [*self.layers, *self.cross]:
            layer.reorder(index)
        self.at, self.next, self.mask = select(self.at), select(self.next), select(self.mask)
        self.source_mask = select(self.source_mask)
        self.batch = len(index)
