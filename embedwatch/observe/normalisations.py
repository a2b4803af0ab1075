"""Normalisations of a model: what they multiply by and add, whatever their class keeps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from embedwatch.observe.anatomy import find_stacks
from embedwatch.observe.resting import resting

__all__ = ["Normalisation", "final_normalisation", "normalisations"]

NORM = re.compile(r"norm|^ln", re.IGNORECASE)


@dataclass(frozen=True)
class Normalisation:
    """One normalisation.

    Args:
        name: dotted path of the module.
        module: the module.
        gain: (D,) by what a normalised entry is multiplied.
        bias: (D,) what is added.
        has_bias: whether it holds a bias of its own.
    """

    name: str
    module: nn.Module
    gain: Tensor
    bias: Tensor
    has_bias: bool


def normalisations(model: nn.Module) -> Iterator[Normalisation]:
    """Yield the normalisations of a model that have a gain for each dimension.

    Gain and bias are what the module does, not what it keeps, since some keep the gain less one (Gemma): a vector x of
    entries ±1 is normalised already, so `gain = (f(x) - f(-x)) / 2x` and `bias = (f(x) + f(-x)) / 2`.

    Example:
        >>> norm = nn.LayerNorm(4)
        >>> found = next(normalisations(nn.Sequential(norm)))
        >>> [round(gain, 3) for gain in found.gain.tolist()], found.has_bias
        ([1.0, 1.0, 1.0, 1.0], True)
    """
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if NORM.search(type(module).__name__) and isinstance(weight, Tensor) and weight.ndim == 1 and len(weight) > 1:
            probed = _probe(module, weight)
            if probed is not None:
                yield Normalisation(name, module, *probed, getattr(module, "bias", None) is not None)


def _probe(module: nn.Module, weight: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return gain and bias; `None` where the module does not take one vector and give another."""
    signs = torch.ones(len(weight), dtype=weight.dtype, device=weight.device)
    signs[1::2] = -1
    try:
        with resting([module]):
            plus, minus = (module(rows[None, None])[0, 0].detach().double().cpu() for rows in (signs, -signs))
    except Exception:  # noqa: BLE001 - it normalises something else, as batches or images
        return None
    if plus.shape != signs.shape:
        return None
    return (plus - minus) / 2 / signs.double().cpu(), (plus + minus) / 2


def final_normalisation(model: nn.Module, dimension: int) -> nn.Module | None:
    """Return the last normalisation outside the layers that is as wide as the stream; `None` where there is none.

    That of an embedding stands before the layers, and is none that logits are made behind.
    """
    modules = dict(model.named_modules())
    stacks = tuple(f"{name}." for name in find_stacks(modules))
    names = list(modules)
    last = max((place for place, name in enumerate(names) if name.startswith(stacks)), default=len(names))
    after = [
        modules[name]
        for name in names[last + 1 :]
        if NORM.search(type(modules[name]).__name__)
        and isinstance(getattr(modules[name], "weight", None), Tensor)
        and modules[name].weight.shape == (dimension,)
    ]
    return after[-1] if after else None
