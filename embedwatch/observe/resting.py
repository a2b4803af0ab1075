"""Resting: a model is run for our sake, and is afterwards as it was."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from embedwatch.core.errors import InputError

__all__ = ["beside_work", "check_rest", "resting"]

_thread = threading.local()


@contextmanager
def beside_work() -> Iterator[None]:
    """Say that models may be at work on other threads: within, on this thread, `resting` refuses to disturb them.

    Example:
        >>> with beside_work(), resting([nn.Linear(2, 2)]):
        ...     pass
        Traceback (most recent call last):
        embedwatch.core.errors.InputError: the model must be at rest to be run, got one that may be at work; ask ...
    """
    before = getattr(_thread, "beside_work", False)
    _thread.beside_work = True
    try:
        yield
    finally:
        _thread.beside_work = before


def check_rest() -> None:
    """Refuse to run a model here.

    Raises:
        InputError: within `beside_work`.
    """
    if getattr(_thread, "beside_work", False):
        raise InputError(
            "the model must be at rest to be run, got one that may be at work; ask `Monitor.diagnose` between steps"
        )


@contextmanager
def resting(models: Iterable[nn.Module]) -> Iterator[None]:
    """Put models in evaluation mode, without gradients, on random numbers of our own; then leave them as they were.

    Restored are the mode of each module, its buffers where they were replaced (a table of positions that grew), and the
    state of the random generators of the devices that hold the models.

    Args:
        models: that are run inside.

    Raises:
        InputError: within `beside_work`.

    Example:
        >>> dropout = nn.Dropout()
        >>> with resting([dropout]):
        ...     dropout.training
        False
        >>> dropout.training
        True
    """
    check_rest()
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
