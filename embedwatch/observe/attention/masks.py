"""Masks and biases of every form, read at sampled queries only.

Letters: B batch, H heads, T queries, S keys; I sequences chosen, Q queries of each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from embedwatch.observe.attention.queries import Chosen, over_items

__all__ = ["HIDDEN", "Alignment", "Masking", "Rule", "joined"]

HIDDEN = -9_999.0
"""What is added to a score and is not above this hides the key: `finfo.min`, -inf, -1e9 and -1e4 all do. A bias of
distance (ALiBi) that is as low takes no share of attention either."""
HEADS_AND_PLACES = 4

Alignment = Literal["", "first", "last"]
"""Where the triangle of a causal call without a mask stands: the first query sees the first key, the last the last."""
Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""A rule of flex attention: batch, head, query and key to whether the query may attend."""


@dataclass(frozen=True)
class Masking:
    """What hides keys, and what is added to scores, all of it together.

    Args:
        masks: each broadcasts to (B, H, T, S); bool, true where a query attends, or added to the scores.
        padding: (B, S) nonzero where a key is real.
        causal: where no mask says so.
        window: keys at so many places or more before the query are hidden; 0 for none. With `causal` only.
        rule: of flex attention.
    """

    masks: tuple[Tensor, ...] = ()
    padding: Tensor | None = None
    causal: Alignment = ""
    window: int = 0
    rule: Rule | None = None

    @property
    def limits(self) -> bool:
        """Whether anything may hide a key."""
        return bool(self.masks or self.causal) or self.padding is not None or self.rule is not None

    def cropped(self, keys: int) -> Masking:
        """Return it for so many keys: masks for a cache that is longer are cut, as models do."""
        padding = None if self.padding is None else self.padding[:, -keys:]
        return replace(self, masks=tuple(mask[..., :keys] for mask in map(_four, self.masks)), padding=padding)

    def rows(self, chosen: Chosen, queries: int, keys: int) -> tuple[Tensor | None, Tensor | None]:
        """Return what is added to the scores of the chosen queries, and which keys they see.

        Shape: each broadcasts to (I, H, Q, S); `None` for nothing and for all.
        """
        bias: Tensor | None = None
        seen: Tensor | None = None
        for mask in self.masks:
            row = _rows(mask, chosen)  # (I, H or 1, Q or 1, S or 1)
            if row.dtype != torch.bool:
                visible = ~(row.float() <= HIDDEN)
                bias = joined(bias, torch.where(visible, row.float(), 0.0), torch.add)
                row = visible
            seen = joined(seen, row, torch.logical_and)
        if self.padding is not None:
            real = torch.stack([self.padding[item] for item in chosen.items]) != 0  # (I, S)
            seen = joined(seen, real[:, None, None], torch.logical_and)
        at = torch.arange(keys, device=chosen.index.device)
        own = chosen.index[:, None, :, None]  # (I, 1, Q, 1)
        if self.causal:
            own = own + (keys - queries if self.causal == "last" else 0)
            seen = joined(seen, at <= own, torch.logical_and)
            if self.window:
                seen = joined(seen, at > own - self.window, torch.logical_and)
        if self.rule is not None:
            items = over_items(chosen.items, at.device)[:, None, None, None]
            ruled = self.rule(items, torch.zeros_like(items), chosen.index[:, None, :, None], at)
            seen = joined(seen, ruled, torch.logical_and)
        return bias, seen

    def real_keys(self, batch: int, queries: int, keys: int, *, cross: bool, device: torch.device) -> Tensor | None:
        """Return which keys are no padding, as far as masks tell. Shape: (B, S) bool; `None` where they tell nothing.

        Where queries and keys are the same tokens, a real one may attend to itself. Else a key is real if any query
        may attend to it.
        """
        found = None if self.padding is None else self.padding != 0
        same = queries == keys and not cross
        for mask in self.masks:
            first = mask[:, 0]  # (B or 1, T or 1, S or 1)
            if first.shape[2] == 1:
                continue
            if same and first.shape[1] == queries:
                told = first.diagonal(dim1=1, dim2=2)  # (B or 1, S)
            else:
                told = first.amax(1) if first.is_floating_point() else first.any(1)
            real = told if told.dtype == torch.bool else ~(told.float() <= HIDDEN)
            found = joined(found, real, torch.logical_and)
        if self.rule is not None and same:
            at = torch.arange(keys, device=device)
            items = torch.arange(batch, device=at.device)[:, None]
            found = joined(found, self.rule(items, torch.zeros_like(items), at, at), torch.logical_and)
        return None if found is None else found.expand(batch, keys)

    def most(self) -> Tensor | float:
        """Return the most that masks add to any score, of each head. Shape: (H or 1,) or a number."""
        most: Tensor | float = 0.0
        for mask in self.masks:
            if mask.is_floating_point():
                highest = mask.amax(dim=(0, 2, 3)).float()  # (H or 1,)
                most = most + torch.where(highest > HIDDEN, highest, 0.0)
        return most


def joined(found: Tensor | None, other: Tensor, how: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Join two tensors, the first of which may be missing."""
    return other if found is None else how(found, other)


def _four(mask: Tensor) -> Tensor:
    """Return a mask as four dimensions. Shape: (…, T, S) -> (B or 1, H or 1, T, S)."""
    return mask[(None,) * (HEADS_AND_PLACES - mask.dim())] if mask.dim() < HEADS_AND_PLACES else mask


def _rows(mask: Tensor, chosen: Chosen) -> Tensor:
    """Return a mask at the chosen queries. Shape: (B or 1, H or 1, T or 1, S or 1) -> (I, H or 1, Q or 1, S or 1)."""
    rows = []
    for item, index in zip(chosen.items, chosen.index, strict=True):
        own = mask[item if mask.shape[0] > 1 else 0]  # (H or 1, T or 1, S or 1)
        rows.append(own.index_select(1, index) if own.shape[1] > 1 else own)
    return torch.stack(rows)
