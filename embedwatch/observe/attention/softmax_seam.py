"""The seam for attention that a model writes by hand: a softmax over scores, within modules that attend.

The scores of all queries exist there anyway, so rows are only copied. In eager code each softmax comes to the method of
tensors, whatever it is called by: `scores.softmax(-1)`, `torch.nn.functional.softmax`, `nn.Softmax`. Compiled code does
not look a method up where it would be replaced: there the compiler itself is told what to do with one. What is written
in C, `torch.softmax` and `torch.special.softmax`, calls no method.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from embedwatch.observe.attention.crossing import ORDER, compiling, watches
from embedwatch.observe.attention.frames import take_frame, waiting
from embedwatch.observe.attention.patches import Patch
from embedwatch.observe.attention.scored import scores_call

__all__ = ["compiled_method", "softmax_patches"]

DIMENSIONS = (3, 4)
"""Scores are (B, H, T, S), or (B · H, T, S)."""
METHOD = "method_softmax"
"""By this name torch's compiler looks up what it does with a method of tensors; it has nothing of its own for it."""


def _wrapped(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(original)
    def softmax(*args: Any, **kwargs: Any) -> Tensor:
        weights = original(*args, **kwargs)
        if compiling():
            _leave(*args, **kwargs)
        elif waiting() and watches():
            _see(args, kwargs)
        return weights

    return softmax


softmax_patches = tuple(
    Patch(owner, "softmax", _wrapped, known=True) for owner in (Tensor, functional, torch, torch.special)
)


@functools.cache
def compiled_method() -> Patch | None:
    """Return what lets compiled code hand on the scores of a method; `None` where this torch compiles otherwise."""
    try:
        tensors = importlib.import_module("torch._dynamo.variables.tensor").TensorVariable
        builder = importlib.import_module("torch._dynamo.variables.builder").SourcelessBuilder
    except (ImportError, AttributeError):
        return None
    if hasattr(tensors, METHOD) or not hasattr(builder, "create"):
        return None

    def make(_: object) -> Callable[..., None]:
        def method(variable: Any, tracer: Any, *args: Any, **kwargs: Any) -> None:
            builder.create(tracer, _leave).call_function(tracer, [variable, *args], kwargs)

        return method

    return Patch(tensors, METHOD, make)


def _leave(*args: Any, **kwargs: Any) -> None:
    """Leave an operator in compiled code. It is read by the compiler."""
    scores = _scores(args, kwargs) if watches() else None
    if scores is not None:
        torch.ops.embedwatch.attend_scores(scores.detach(), ORDER)


def _see(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    scores = _scores(args, kwargs)
    frame = None if scores is None else take_frame()
    if scores is not None and frame is not None:
        frame.site.attend(lambda: scores_call(frame.site, scores, frame.shape))


def _scores(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Return what the softmax takes, where it may be scores of attention, and goes over keys."""
    scores = args[0] if args else kwargs.get("input")
    over = args[1] if len(args) > 1 else kwargs.get("dim")
    if not isinstance(scores, Tensor) or scores.dim() not in DIMENSIONS or not scores.is_floating_point():
        return None
    return scores if over in (-1, scores.dim() - 1) else None
