"""An Aligner as a folder: a manifest in JSON, and arrays in safetensors. Never pickle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from embedwatch.core.errors import EmbedwatchError, InputError
from embedwatch.hashed_folder import HashedFolder
from embedwatch.large_bytes import tensors_to_bytes
from embedwatch.window_states import read_tensors

__all__ = ["ARRAYS", "FOLDER", "MANIFEST", "read_folder", "write_folder"]

MANIFEST, ARRAYS = "aligner.json", "aligner.safetensors"
FOLDER = HashedFolder(
    manifest=MANIFEST,
    noun="an aligner",
    command="embedwatch align fit",
    usage="embedwatch align fit A B -o ALIGNER",
    again="fit it again",
)


def write_folder(path: Path, about: Mapping[str, Any], arrays: Mapping[str, Tensor], *, replace: bool) -> None:
    """Write a folder under another name, then rename it."""
    content = tensors_to_bytes({name: each.detach().cpu().contiguous() for name, each in arrays.items()}, {})
    try:
        FOLDER.write(path, about, {ARRAYS: content}, replace=replace)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}; check the folder") from error


def read_folder(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return what was written; nothing is believed before it is checked.

    Raises:
        InputError: in one line.
    """
    FOLDER.check_source(path)
    try:
        about, files = FOLDER.read(path, needed=(ARRAYS,), known=())
        return about, read_tensors(files[ARRAYS])
    except EmbedwatchError as error:
        raise InputError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise InputError(f"{path} must be readable, got {error.strerror}; check the folder") from error
