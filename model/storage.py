"""Weights and JSON on disk: what is written is complete, what is read is checked."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from .errors import ModelError

__all__ = ["load_tensors", "load_weights", "read_json", "save_weights", "sync", "write_json"]


def save_weights(model: nn.Module, path: Path) -> None:
    """Write parameters and buffers; a tensor under several names is stored under the first."""
    known = dict(model.named_parameters()) | dict(model.named_buffers())  # each object once
    state = {name: known[name].detach().contiguous() for name in model.state_dict(keep_vars=True) if name in known}
    save_file(state, path, metadata={"format": "pt"})


def load_weights(model: nn.Module, path: Path) -> None:
    """Read weights into a model, tied ones into their one tensor.

    Raises:
        ModelError: if one is missing, unknown or of another shape.
    """
    stored = load_tensors(path)
    own = model.state_dict(keep_vars=True)
    once = {id(tensor): name for name, tensor in reversed(own.items())}
    missing = sorted(set(once.values()) - set(stored))
    unknown = sorted(set(stored) - set(own))
    wrong = sorted(name for name in set(stored) & set(own) if stored[name].shape != own[name].shape)
    if missing or unknown or wrong:
        what = (
            f"no {missing[0]}"
            if missing
            else f"{(unknown or wrong)[0]} of shape {tuple(stored[(unknown or wrong)[0]].shape)}"
        )
        raise ModelError(f"`{path}` must hold the weights of its config.json, got {what}; the files are of two models")
    with torch.no_grad():
        for name, tensor in stored.items():
            own[name].copy_(tensor)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ModelError: if there is none.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"`{path}` must be a JSON file, got {type(error).__name__}; restore it") from error
    if not isinstance(content, dict):
        raise ModelError(f"`{path}` must hold a JSON object, got {type(content).__name__}; restore it")
    return content


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a safetensors file.

    Raises:
        ModelError: if it is missing or damaged.
    """
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"`{path}` must be whole safetensors, got {str(error)[:80]}; restore the file") from error


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON object for people and machines."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def sync(path: Path) -> None:
    """Wait until a file or the names in a directory are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
