"""An Aligner as a folder: JSON, and arrays in safetensors with their hash in it. Never pickle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from embedwatch.core.errors import EmbedwatchError, InputError
from embedwatch.core.strict_json import strict_json
from embedwatch.large_bytes import tensors_to_bytes
from embedwatch.whole_files import write_folder_whole
from embedwatch.window_states import read_tensors

__all__ = ["ARRAYS", "MANIFEST", "check_target", "is_aligner", "read_folder", "write_folder"]

SCHEMA = 1
MANIFEST, ARRAYS = "aligner.json", "aligner.safetensors"
MOST_BYTES, MOST_MANIFEST = 2 << 30, 4 << 20
DIGEST = 16
WHOLE = "blake2b"
"""Hash of everything else in the manifest."""


def is_aligner(path: Path) -> bool:
    """Return whether there is an Aligner."""
    return (path / MANIFEST).is_file()


def check_target(path: Path, *, replace: bool) -> None:
    """Refuse a path where something is that an Aligner does not replace.

    Raises:
        InputError: saying what is there.
    """
    if path.exists() and not (replace and is_aligner(path)):
        what = "an aligner; --replace replaces it" if is_aligner(path) else "something else; choose another name"
        raise InputError(f"{path} must not exist, got {what}")


def write_folder(path: Path, about: Mapping[str, Any], arrays: Mapping[str, Tensor], *, replace: bool) -> None:
    """Write a folder under another name, then rename it."""
    check_target(path, replace=replace)
    content = tensors_to_bytes({name: each.detach().cpu().contiguous() for name, each in arrays.items()}, {})
    manifest = {"schema": SCHEMA, **about, "arrays": {"bytes": len(content), "blake2b": _digest(content)}}
    manifest[WHOLE] = _digest(_canonical(manifest))
    text = json.dumps(manifest, ensure_ascii=False, allow_nan=False, indent=2)
    try:
        write_folder_whole(path, {ARRAYS: content, MANIFEST: text.encode()})
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}; check the folder") from error


def read_folder(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return what was written; nothing is believed before it is checked.

    Raises:
        InputError: in one line.
    """
    if not is_aligner(path):
        what = "nothing" if not path.exists() else "something else"
        raise InputError(
            f"{path} must be a folder that `embedwatch align fit` wrote, got {what}; "
            "make one with `embedwatch align fit A B -o ALIGNER`"
        )
    try:
        about = _manifest(path / MANIFEST)
        described = about.pop("arrays", None)
        if not isinstance(described, dict):
            raise InputError("its manifest names no arrays; copy it again, or fit it again")
        return about, read_tensors(_content(path / ARRAYS, described))
    except EmbedwatchError as error:
        raise InputError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise InputError(f"{path} must be readable, got {error.strerror}; check the folder") from error


def _manifest(path: Path) -> dict[str, Any]:
    if path.stat().st_size > MOST_MANIFEST:
        raise InputError(f"{path.name} must have at most {MOST_MANIFEST >> 20} MiB; fit it again")
    found = strict_json(path.read_bytes(), path.name)
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        schema = found.get("schema") if isinstance(found, dict) else None
        raise InputError(f"its schema must be {SCHEMA}, got {schema!r}; use the version of embedwatch that wrote it")
    if found.pop(WHOLE, None) != _digest(_canonical(found)):
        raise InputError(f"{path.name} must be as it was written, got other values; copy it again, or fit it again")
    return found


def _content(path: Path, described: Mapping[str, Any]) -> bytes:
    if not path.is_file():
        raise InputError(f"{path.name} must be there, got none; copy the folder whole, or fit it again")
    size, wanted = path.stat().st_size, described.get("bytes")
    if size != wanted or size > MOST_BYTES:
        raise InputError(f"{path.name} must have {wanted} bytes, got {size}; copy it again, or fit it again")
    data = path.read_bytes()
    if _digest(data) != described.get("blake2b"):
        raise InputError(f"{path.name} must be as it was written, got other bytes; copy it again, or fit it again")
    return data


def _canonical(manifest: Mapping[str, Any]) -> bytes:
    return json.dumps(manifest, sort_keys=True).encode()


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=DIGEST).hexdigest()
