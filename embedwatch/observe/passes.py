"""One pass of tokens through a model for our sake: what enters the first layer, and what leaves each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

from embedwatch.core.errors import InputError
from embedwatch.observe.anatomy import find_stacks
from embedwatch.observe.resting import resting

__all__ = ["Stack", "entering", "leaving", "logits_of", "reader_of", "stack_of"]

Stack = list[tuple[str, nn.Module]]
"""Layers with their dotted paths, in order."""


class _ReachedError(Exception):
    """The pass has come to the first layer."""


def stack_of(model: nn.Module) -> Stack:
    """Return the layers of the stack that tokens enter first, with their dotted paths; none where there is no stack."""
    for name, layers in find_stacks(dict(model.named_modules())).items():
        return [(f"{name}.{child}", layer) for child, layer in layers.named_children()]
    return []


def reader_of(model: nn.Module) -> nn.Module:
    """Return the part of a model that reads its input alone: the encoder, where it has one beside a decoder."""
    getter = getattr(model, "get_encoder", None)
    if callable(getter) and getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        found = getter()
        return found if isinstance(found, nn.Module) else model
    encoder = getattr(model, "encoder", None)
    kind = getattr(getattr(model, "config", None), "kind", "")
    return encoder if kind == "encoder_decoder" and isinstance(encoder, nn.Module) else model


def entering(model: nn.Module, ids: Tensor) -> Tensor | None:
    """Return what enters the first layer for some tokens. The pass ends there: no layer is run.

    Shape: (B, T) -> (B, T, D) float32; `None` where the model has no stack of layers, or it is entered by something
    else.

    Raises:
        InputError: if the model cannot be called with tokens.
    """
    model = reader_of(model)
    layers = stack_of(model)
    if not layers:
        return None
    caught: list[Tensor] = []
    mine = threading.get_ident()

    def stop(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        del module
        if threading.get_ident() != mine:  # a pass of somebody else's
            return
        caught.extend(_rows(part, ids) for part in (*args, *kwargs.values()) if _fits(part, ids))
        raise _ReachedError

    with resting([model]):  # it refuses where the model is at work, before anything hangs there
        handle = layers[0][1].register_forward_pre_hook(stop, with_kwargs=True)
        try:
            _call(model, ids)
        finally:
            handle.remove()
    return caught[0] if caught else None


def leaving(model: nn.Module, ids: Tensor, *, extra: Callable[[], Iterator[None]] | None = None) -> list[Tensor]:
    """Return what enters the first layer, and what leaves each layer, for some tokens. Shape: (B, T) -> (B, T, D) each.

    Args:
        model: the model.
        ids: its tokens (B, T), without padding.
        extra: entered around the pass, for whoever looks at more.

    Raises:
        InputError: if the model cannot be called with tokens.
    """
    model = reader_of(model)
    layers = stack_of(model)
    caught: list[Tensor] = []

    def enters(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        del module
        caught.extend([_rows(part, ids) for part in (*args, *kwargs.values()) if _fits(part, ids)][:1])

    def leaves(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        del module, args
        parts = output if isinstance(output, tuple | list) else [output]
        caught.extend([_rows(part, ids) for part in parts if _fits(part, ids)][:1])

    with resting([model]), contextmanager(extra or _nothing)():
        handles: list[Any] = [layer.register_forward_hook(leaves) for _, layer in layers]
        handles += [layer.register_forward_pre_hook(enters, with_kwargs=True) for _, layer in layers[:1]]
        try:
            _call(model, ids)
        finally:
            for handle in handles:
                handle.remove()
    return caught


def _nothing() -> Iterator[None]:
    yield


def _fits(part: object, ids: Tensor) -> bool:
    """Return whether this holds one vector for each token."""
    return (
        isinstance(part, Tensor)
        and part.is_floating_point()
        and part.ndim >= 2
        and part.shape[:-1].numel() == ids.numel()
        and part.shape[-1] > 1
    )


def _rows(part: Tensor, ids: Tensor) -> Tensor:
    return part.detach().float().cpu().reshape(*ids.shape, part.shape[-1]).clone()


def logits_of(model: nn.Module, ids: Tensor) -> Tensor | None:
    """Return the logits of a model that writes, one row for each token. Shape: (B, T) -> (B, T, V) float32.

    A model with an encoder reads the tokens, and is asked for what follows the same tokens.

    Raises:
        InputError: if it cannot be called with tokens.
    """
    pair = reader_of(model) is not model
    ours = getattr(getattr(model, "config", None), "kind", "") == "encoder_decoder"
    named = {"source": ids} if ours else {"decoder_input_ids": ids} if pair else {}
    with resting([model]):
        found = getattr(_run(model, ids, named), "logits", None)
    if not isinstance(found, Tensor) or found.ndim != 3:
        return None
    return found.detach().float().cpu()


def _call(model: nn.Module, ids: Tensor) -> None:
    """Run a model until it ends, or comes to where it is stopped."""
    with suppress(_ReachedError):
        _run(model, ids, {})


def _run(model: nn.Module, ids: Tensor, named: Mapping[str, Tensor]) -> Any:
    device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
    try:
        return model(ids.to(device), **{name: value.to(device) for name, value in named.items()})
    except _ReachedError:
        raise
    except Exception as error:
        what = str(error).strip().split("\n")[0][:160]
        raise InputError(
            f"`{type(model).__name__}` must take tokens (B, T), got {type(error).__name__}: {what}; "
            "give the part that reads tokens"
        ) from error
