"""The head of a model: the class that the weights were saved from, its table of outputs, and the model that writes."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from embedwatch.loading.blueprint import Blueprint, class_named
from embedwatch.loading.own import EmbedwatchConfig, EmbedwatchModel
from embedwatch.loading.quiet import quiet

__all__ = ["is_writer", "output_names", "outputs_of", "saved_class"]


def saved_class(blueprint: Blueprint) -> type[Any] | None:
    """Return the class that the weights were saved from, head and all; `None` where transformers does not have it."""
    if isinstance(blueprint.config, EmbedwatchConfig):
        return EmbedwatchModel
    names = blueprint.raw.get("architectures")
    for name in names if isinstance(names, list) else []:
        found = class_named(name, blueprint.config)
        if found is not None:
            return found
    return None


def is_writer(model: type[Any] | nn.Module, config: Any) -> bool:
    """Return whether a model, or a class of models, has a head that predicts the next token."""
    if isinstance(config, EmbedwatchConfig):
        return config.model.kind != "encoder"
    asked = getattr(model, "can_generate", None)
    return bool(callable(asked) and asked())


def output_names(blueprint: Blueprint) -> tuple[tuple[str, ...], tuple[int, ...], bool]:
    """Return the names of the matrix that makes logits, its shape, and whether it is the token table itself."""
    saved = saved_class(blueprint)
    if saved is None:
        return (), (), False
    with quiet():
        try:
            with torch.device("meta"):
                model = saved(copy.deepcopy(blueprint.config))
        except Exception:  # noqa: BLE001 - a head that cannot be built is none that could be examined
            return (), (), False
    outputs = outputs_of(model)
    if outputs is None:
        return (), (), False
    named = model.named_parameters(remove_duplicate=False)
    names = tuple(name for name, weight in named if weight is outputs.weight)
    return names, tuple(outputs.weight.shape), _is_tied(model, outputs, blueprint.config)


def outputs_of(model: nn.Module) -> Any:
    """Return the module whose weight makes logits of hidden states; `None` where there is none."""
    getter = getattr(model, "get_output_embeddings", None)
    if callable(getter):
        try:
            found = getter()
        except Exception:  # noqa: BLE001 - a model without a head raises what it likes
            return None
    else:
        found = getattr(model, "projection", None)
    return found if getattr(getattr(found, "weight", None), "ndim", 0) == 2 else None


def _is_tied(model: nn.Module, outputs: Any, config: Any) -> bool:
    getter = getattr(model, "get_input_embeddings", None)
    inputs = getter() if callable(getter) else None
    if inputs is not None and getattr(inputs, "weight", None) is outputs.weight:
        return True
    return bool(getattr(config, "tie_word_embeddings", False))
