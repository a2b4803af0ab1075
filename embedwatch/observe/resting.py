"""Resting: a model is run for our sake, and is afterwards as it was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

__all__ = ["resting"]


@contextmanager
def resting(models: Iterable[nn.Module]) -> Iterator[None]:
    """Put models in evaluation mode, without gradients, on random numbers of our own; then leave them as they were.

    Restored are the mode of each module, its buffers where they were replaced (a table of positions that grew), and the
    state of the random generators of the devices that hold the models.

    Args:
        models: that are run inside.

    Example:
        >>> dropout = nn.Dropout()
        >>> with resting([dropout]):
        ...     dropout.training
        False
        >>> dropout.training
        True
    """
    parts = list({id(part): part for model in models for part in model.modules()}.values())
    modes = [part.training for part in parts]
    buffers = [dict(part._buffers) for part in parts]
    devices = {weight.device for part in parts for weight in part.parameters(recurse=False) if weight.is_cuda}
    try:
        for part in parts:
            part.training = False
        with torch.inference_mode(mode=False), torch.no_grad(), torch.random.fork_rng(devices=sorted(devices, key=str)):
            yield
    finally:
        for part, mode, held in zip(parts, modes, buffers, strict=True):
            part.training = mode
            part._buffers.clear()
            part._buffers.update(held)
