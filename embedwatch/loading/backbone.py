"""The model with its weights, built strictly: nothing that takes part in an embedding may be random."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from embedwatch.core.errors import InputError
from embedwatch.loading.blueprint import Blueprint
from embedwatch.loading.messages import first_line, printable
from embedwatch.loading.quiet import quiet
from embedwatch.loading.tables import FLOATS, find_tensor
from embedwatch.loading.weights import Weights

__all__ = ["Backbone", "build_backbone", "build_writer", "text_part"]

IN_A_LAYER = re.compile(r"\.\d+\.")
MANY, FAR = 50_000_000, 4
"""A class with more weights than so many, and so many times as many as the files hold, is of another model."""
POOLER = re.compile(r"(^|\.)pooler(\.|$)")
"""The pooler of BERT and its kin is not in the way of the hidden states; most encoders are saved without it."""


@dataclass(eq=False)
class Backbone:
    """The part of a model that turns tokens into hidden states, or into the features of its own text head.

    Args:
        model: the whole model, in evaluation mode, float32.
        part: what is called.
        features: whether the model's own `get_text_features` is called.
        notes: what a reader of the numbers must know.
    """

    model: Any
    part: nn.Module
    features: bool
    notes: tuple[str, ...] = ()
    accepted: frozenset[str] = field(init=False)
    """Names of the arguments that the forward pass takes."""

    def __post_init__(self) -> None:
        self.accepted = frozenset(inspect.signature(self._call if self.features else self.part.forward).parameters)

    @property
    def _call(self) -> Callable[..., Any]:
        call: Callable[..., Any] = self.model.get_text_features if self.features else self.part
        return call

    def __call__(self, **inputs: Tensor) -> Tensor:
        """Return hidden states (B, T, D), or features (B, D).

        Raises:
            InputError: if the model returns nothing of this shape.
        """
        with torch.inference_mode():
            outputs = self._call(**inputs)
        name, axes = ("pooler_output", 1) if self.features else ("last_hidden_state", 2)
        found = outputs if self.features and isinstance(outputs, Tensor) else getattr(outputs, name, None)
        expected = inputs["input_ids"].shape[:axes]  # a model may stride over its tokens: then no mask fits
        if not isinstance(found, Tensor) or found.ndim != axes + 1 or found.shape[:axes] != expected:
            got = (
                f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(outputs).__name__} without it"
            )
            raise InputError(
                f"`{type(self.part).__name__}` must return `{name}` of shape ({', '.join(map(str, expected))}, D), "
                f"got {got}; save the vectors to a file and audit that"
            )
        return found


def build_backbone(blueprint: Blueprint, weights: Weights, *, label: str, features: bool) -> Backbone:
    """Build the model from its class and weights.

    Args:
        blueprint: class and configuration.
        weights: the tensors.
        label: name of the model, for messages.
        features: whether the model's own text features are wanted, where it has two towers.

    Raises:
        InputError: if a weight that takes part is missing, of another shape or quantised.
    """
    model, info = _loaded(blueprint.model_class, blueprint, weights, label)
    part = model if features else text_part(model)
    _check_loading(part, model, info, label)
    return Backbone(model.eval(), part, features, _unused(blueprint, info, label))


def build_writer(model_class: type[Any], blueprint: Blueprint, weights: Weights, *, label: str) -> nn.Module:
    """Build the whole model with its head from the class that the weights were saved from.

    Raises:
        InputError: if a weight is missing, of another shape or quantised.
    """
    model, info = _loaded(model_class, blueprint, weights, label)
    _check_loading(model, model, info, label)
    return model.eval()


def _loaded(
    model_class: type[Any], blueprint: Blueprint, weights: Weights, label: str
) -> tuple[nn.Module, dict[str, Any]]:
    """Return a model of this class with the weights in float32, and what transformers says of them."""
    _check_kind(blueprint, label)
    _check_plain(weights, label)
    _check_numbers(blueprint, weights, label)
    state = {new: weights.tensor(old) for old, new in _renamed(blueprint, weights).items()}
    with quiet():
        try:
            model, info = model_class.from_pretrained(
                None,  # nothing in the directory is opened by transformers: it gets the tensors from us
                config=blueprint.config,
                state_dict=state,
                dtype=torch.float32,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # reported below, all of them
                local_files_only=True,
            )
        except Exception as error:
            raise InputError(
                f"`{label}` must hold weights for {model_class.__name__}, got {first_line(error)}; "
                "download or save it again"
            ) from error
    return model, info


def _check_kind(blueprint: Blueprint, label: str) -> None:
    scheme = blueprint.raw.get("quantization_config")
    if isinstance(scheme, dict):
        name = printable(str(scheme.get("quant_method", "quantised")))
        raise InputError(
            f"`{label}` must have plain weights to encode texts, got {name} ones; open the unquantised model"
        )
    if not blueprint.tables:
        raise InputError(
            f"`{label}` must read tokens to encode texts, got a {blueprint.architecture} without a token table"
        )
    if getattr(blueprint.model_class, "main_input_name", "input_ids") != "input_ids":
        raise InputError(f"`{label}` must read texts, got a {blueprint.architecture}, which reads other inputs")


def _check_plain(weights: Weights, label: str) -> None:
    """Refuse integers for weights: transformers would take them for numbers where no configuration explains them."""
    for name in weights:
        if name.endswith("weight") and len(weights[name].shape) > 1 and weights[name].dtype not in FLOATS:
            raise InputError(
                f"`{label}` must have plain weights to encode texts, got {printable(name)} in {weights[name].dtype}; "
                "open the unquantised model"
            )


def _check_numbers(blueprint: Blueprint, weights: Weights, label: str) -> None:
    """Refuse a configuration of far more weights than the files hold, before memory is taken for them."""
    if blueprint.numbers > max(MANY, FAR * weights.parameters):
        raise InputError(
            f"`{label}` must hold the {blueprint.numbers:,} weights that its config.json describes, got "
            f"{weights.parameters:,}; the files are of different models, download them together"
        )


def _renamed(blueprint: Blueprint, weights: Weights) -> dict[str, str]:
    """Return each name in the files to its name in the model, without a prefix that transformers does not know."""
    name = find_tensor(weights, blueprint.tables, blueprint.table_shape) or ""
    for known in blueprint.tables:
        if name.endswith(f".{known}"):
            prefix = name[: -len(known)]
            if prefix != f"{blueprint.model_class.base_model_prefix}.":
                return {old: old.removeprefix(prefix) for old in weights}
    return {old: old for old in weights}


def text_part(model: Any) -> nn.Module:
    """Return what turns tokens into hidden states: the encoder, the text tower, or the model itself."""
    config = model.config
    if getattr(config, "is_encoder_decoder", False):
        encoder: nn.Module = model.get_encoder()
        return encoder
    tower = getattr(model, "text_model", None)
    return tower if hasattr(model, "get_text_features") and isinstance(tower, nn.Module) else model


def _check_loading(part: nn.Module, model: nn.Module, info: dict[str, Any], label: str) -> None:
    inside = {id(weight) for weight in [*part.parameters(), *part.buffers()]}
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    used = {name for name, weight in named if id(weight) in inside and not POOLER.search(name)}
    wrong = sorted(entry for entry in info["mismatched_keys"] if entry[0] in used)
    if wrong:
        name, stored, expected = wrong[0]
        raise InputError(
            f"`{label}` must have {name} of shape {tuple(expected)} by its config.json, got {tuple(stored)}"
            f"{_more(wrong)}; the files are of different models, download them together"
        )
    missing = sorted(set(info["missing_keys"]) & used)
    if missing:
        raise InputError(
            f"`{label}` must hold all weights of {type(part).__name__}, got none for {missing[0]}{_more(missing)}; "
            "download or save the whole model"
        )
    if info["error_msgs"]:
        raise InputError(
            f"`{label}` must hold whole weights, got {printable(str(info['error_msgs'][0]))[:200]}; download it again"
        )


def _more(names: list[Any]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def _unused(blueprint: Blueprint, info: dict[str, Any], label: str) -> tuple[str, ...]:
    """Return a note on weights inside layers that the built-in class has no place for; refuse them in custom models."""
    unused = sorted(name for name in info["unexpected_keys"] if IN_A_LAYER.search(name))
    if not unused:
        return ()
    what = f"{printable(unused[0])}{_more(unused)}"
    if blueprint.custom:
        raise InputError(
            f"`{label}` needs its own code, which is never run: {blueprint.model_class.__name__} has no place for "
            f"{what}; save the vectors to a file and audit that"
        )
    return (f"{blueprint.model_class.__name__} has no place for {what} in the weights; they were left out",)
