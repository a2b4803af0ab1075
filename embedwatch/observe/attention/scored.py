"""Scores that a module has made itself become a call."""

from __future__ import annotations

from torch import Tensor

from embedwatch.observe.attention.calls import ScoresCall
from embedwatch.observe.attention.site import AttentionSite, Unseen
from embedwatch.observe.attention.sites import head_size_of, heads_of

__all__ = ["scores_call"]

FLAT = 3
"""Dimensions of scores whose first joins sequences and heads."""


def scores_call(site: AttentionSite, scores: Tensor, entered: tuple[int, ...] = ()) -> ScoresCall:
    """Return the call of a softmax over scores.

    Args:
        site: of the module.
        scores: what the softmax takes.
        entered: (B, T, D) shape of what the module was given, for one that does not say how many heads it has.

    Shape: (B, H, T, S), or (B · H, T, S).

    Raises:
        Unseen: if the number of heads is not known or does not fit, or what is divided are no scores of keys.
    """
    module = site.place.module
    if scores.dim() == FLAT:
        heads = heads_of(module) or _heads(scores, entered)
        if not heads or scores.shape[0] % heads:
            raise Unseen("it joins sequences and heads, and says of how many heads")
        scores = scores.unflatten(0, (-1, heads))  # (B, H, T, S)
    _, heads, queries, keys = scores.shape
    size = head_size_of(module, heads)
    if not site.cross and 1 < queries != keys == size:
        raise Unseen("its softmax goes over the places of a head, not over keys")
    return ScoresCall(scores.detach(), size, cross=site.cross)


def _heads(scores: Tensor, entered: tuple[int, ...]) -> int:
    """Return how many heads there are for each of the sequences that went in; 0 where that is not known."""
    if len(entered) != FLAT or not entered[0] or not entered[1] == scores.shape[1] == scores.shape[2]:
        return 0
    return scores.shape[0] // entered[0] if scores.shape[0] % entered[0] == 0 else 0
