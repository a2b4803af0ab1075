"""Scores that a module has made itself become a call."""

from __future__ import annotations

from torch import Tensor

from embedwatch.observe.attention.calls import ScoresCall
from embedwatch.observe.attention.site import AttentionSite, Unseen
from embedwatch.observe.attention.sites import head_size_of, heads_of

__all__ = ["scores_call"]

FLAT = 3
"""Dimensions of scores whose first joins sequences and heads."""


def scores_call(site: AttentionSite, scores: Tensor) -> ScoresCall:
    """Return the call of a softmax over scores.

    Shape: (B, H, T, S), or (B · H, T, S).

    Raises:
        Unseen: if the number of heads is not known, or does not fit.
    """
    module = site.place.module
    if scores.dim() == FLAT:
        heads = heads_of(module)
        if not heads or scores.shape[0] % heads:
            raise Unseen("it joins sequences and heads, and says of how many heads")
        scores = scores.unflatten(0, (-1, heads))  # (B, H, T, S)
    return ScoresCall(scores.detach(), head_size_of(module, scores.shape[1]), cross=site.cross)
