"""The seam for attention that a model writes by hand: a softmax over scores, within modules that attend.

The scores of all queries exist there anyway, so rows are only copied.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from embedwatch.observe.attention.crossing import ORDER, compiling, watches
from embedwatch.observe.attention.frames import take_open, waiting
from embedwatch.observe.attention.patches import Patch
from embedwatch.observe.attention.scored import scores_call

__all__ = ["softmax_patches"]

DIMENSIONS = (3, 4)
"""Scores are (B, H, T, S), or (B · H, T, S)."""


def _wrapped(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(original)
    def softmax(*args: Any, **kwargs: Any) -> Tensor:
        weights = original(*args, **kwargs)
        if compiling():
            scores = _scores(args, kwargs) if watches() else None
            if scores is not None:
                torch.ops.embedwatch.attend_scores(scores.detach(), ORDER)
        elif waiting() and watches():
            _see(args, kwargs)
        return weights

    return softmax


softmax_patches = tuple(Patch(owner, "softmax", _wrapped, known=True) for owner in (functional, torch))


def _see(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    scores = _scores(args, kwargs)
    site = None if scores is None else take_open()
    if scores is not None and site is not None:
        site.attend(lambda: scores_call(site, scores))


def _scores(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Return what the softmax takes, where it may be scores of attention, and goes over keys."""
    scores = args[0] if args else kwargs.get("input")
    over = args[1] if len(args) > 1 else kwargs.get("dim")
    if not isinstance(scores, Tensor) or scores.dim() not in DIMENSIONS or not scores.is_floating_point():
        return None
    return scores if over in (-1, scores.dim() - 1) else None
