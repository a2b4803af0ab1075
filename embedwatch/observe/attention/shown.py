"""What a model's own code shows of its attention: whether it fits together, said in one line where it does not."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from embedwatch.core.errors import UsageError

__all__ = ["check_shown", "check_site"]

FOUR = 4


def check_site(site: object, taken: Collection[str]) -> None:
    """Refuse a name that cannot be one.

    Args:
        site: the name.
        taken: names of places that show something else.

    Raises:
        UsageError: if it is no text, empty, or taken.
    """
    if not isinstance(site, str) or not site or not site.isprintable():
        raise UsageError(f"`site` must be the name of a place, got {site!r}; give it one such as 'layers.3'")
    if site in taken:
        raise UsageError(f"`site` must be a name of its own, got {site!r}, a place of vectors; add '.attention'")


def check_shown(query: Tensor, key: Tensor, mask: Tensor | None, output: Tensor | None) -> None:
    """Refuse what is not the attention of one call.

    Shape: query (B, H, T, K), key (B or 1, G, S, K) with H a multiple of G, mask broadcasts to (B, H, T, S), output
    (B, H, T, V).

    Raises:
        UsageError: if a shape or a type does not fit.

    Example:
        >>> check_shown(torch.zeros(2, 3, 8), torch.zeros(2, 3, 8), None, None)
        Traceback (most recent call last):
        embedwatch.core.errors.UsageError: `query` must be floating point of shape (B, H, T, K), got torch.float32 \
(2, 3, 8); split heads first
    """
    for name, given, shape in (("query", query, "(B, H, T, K)"), ("key", key, "(B, G, S, K)")):
        if given.dim() != FOUR or not given.is_floating_point():
            raise UsageError(f"`{name}` must be floating point of shape {shape}, got {_told(given)}; split heads first")
    batch, heads, queries, size = query.shape
    if key.shape[0] not in (1, batch) or key.shape[3] != size or not key.shape[1] or heads % key.shape[1]:
        fits = f"(B, G, S, K) with B {batch} or 1, K {size}, and G a divisor of {heads}"
        raise UsageError(f"`key` must be {fits}, got {_told(key)}; give it as scaled_dot_product_attention takes it")
    wanted = (batch, heads, queries, key.shape[2])
    if mask is not None:
        if mask.dtype != torch.bool and not mask.is_floating_point():
            fix = "convert it with .bool()"
            raise UsageError(f"`mask` must be bool, true where a query attends, or added, got {_told(mask)}; {fix}")
        if not _broadcasts(mask.shape, wanted):
            raise UsageError(f"`mask` must broadcast to {wanted}, got {_told(mask)}; give what hides keys of this call")
    if output is not None and (output.dim() != FOUR or output.shape[:3] != query.shape[:3]):
        fix = "give what heads put out before they are joined"
        raise UsageError(f"`output` must be {wanted[:3]} and V, got {_told(output)}; {fix}")


def _told(given: Tensor) -> str:
    return f"{given.dtype} {tuple(given.shape)}"


def _broadcasts(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    pairs = zip(reversed(shape), reversed(wanted), strict=False)
    return len(shape) <= len(wanted) and all(own in (1, other) for own, other in pairs)
