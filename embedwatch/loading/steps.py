"""What sentence-transformers does to pooled vectors: dense layers, layer norms, scaling. Built from data alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from embedwatch.core.errors import InputError, UsageError
from embedwatch.loading.find import CONFIG, read_json
from embedwatch.loading.messages import LONGEST, printable
from embedwatch.loading.weights import Weights

__all__ = ["STEPS", "Step"]

ACTIVATIONS = {
    f"torch.nn.modules.activation.{kind.__name__}": kind
    for kind in (nn.Tanh, nn.ReLU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.LeakyReLU, nn.ELU, nn.SELU, nn.Mish, nn.Softplus)
} | {"torch.nn.modules.linear.Identity": nn.Identity}
"""The activations that a dense layer may name. Any other name is refused, never imported."""


class Step(NamedTuple):
    """A map of vectors (B, D), what to call it, and the dimension that it gives where it sets one."""

    apply: Callable[[Tensor], Tensor]
    words: str
    width: int | None = None


def _dense(folder: Path) -> Step:
    """Return `activation(W x + b)`."""
    label, config = f"{folder.name}/{CONFIG}", _config(folder)
    if config.get("use_residual"):
        raise InputError(f"`{label}` must have no residual, got use_residual; choose a pooling with `--pooling`")
    name = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise InputError(f"`{label}` must name an activation of torch.nn, got {name!r}; choose one with `--pooling`")
    activation: nn.Module = ACTIVATIONS[name]()
    shape = config.get("out_features"), config.get("in_features")
    biased = config.get("bias", True) is not False
    shapes = {"linear.weight": shape} | ({"linear.bias": shape[:1]} if biased else {})
    tensors = _tensors(folder, shapes)
    weight, bias = tensors["linear.weight"], tensors.get("linear.bias")

    def apply(vectors: Tensor) -> Tensor:
        if vectors.shape[1] != weight.shape[1]:
            raise UsageError(
                f"`pooling` must give the {weight.shape[1]} dimensions that {folder.name} takes, "
                f"got {vectors.shape[1]}; leave it out for the model's own"
            )
        mapped: Tensor = activation(nn.functional.linear(vectors, weight, bias))
        return mapped

    return Step(apply, f"a dense layer to {len(weight)} dimensions", len(weight))


def _layer_norm(folder: Path) -> Step:
    size = _config(folder).get("dimension")
    tensors = _tensors(folder, {"norm.weight": (size,), "norm.bias": (size,)})
    weight, bias = tensors["norm.weight"], tensors["norm.bias"]
    return Step(lambda vectors: nn.functional.layer_norm(vectors, weight.shape, weight, bias), "a layer norm")


def _normalize(folder: Path) -> Step:
    if (folder / CONFIG).is_file():  # older versions wrote none
        _config(folder)
    return Step(lambda vectors: nn.functional.normalize(vectors, dim=1), "scaled to length 1")


def _dropout(_folder: Path) -> Step:
    return Step(lambda vectors: vectors, "")  # nothing, outside of training


STEPS: dict[str, Callable[[Path], Step]] = {
    "Dense": _dense,
    "LayerNorm": _layer_norm,
    "Normalize": _normalize,
    "Dropout": _dropout,
}
"""Name of a module to the function that builds it from its folder."""


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = read_json(folder / CONFIG)
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, "sentence_embedding"):
            raise InputError(
                f"`{folder.name}/{CONFIG}` must map one vector a text, got {config[key]!r}: "
                "the model gives one a token; choose a pooling with `--pooling`"
            )
    return config


def _tensors(folder: Path, shapes: dict[str, tuple[Any, ...]]) -> dict[str, Tensor]:
    """Return all tensors of a folder, which must be these and no others."""
    weights = Weights(folder)
    found = {name: weights[name].shape for name in weights}
    if found != shapes:
        raise InputError(
            f"`{folder.name}` must hold {_list(shapes)} by its {CONFIG}, got {_list(found)}; download or save it again"
        )
    return {name: weights.tensor(name).to(torch.float32) for name in weights}


def _list(shapes: dict[str, tuple[Any, ...]]) -> str:
    listed = printable(", ".join(f"{name} {shape}" for name, shape in sorted(shapes.items()))) or "nothing"
    return listed if len(listed) <= LONGEST else f"{len(shapes)} tensors"
