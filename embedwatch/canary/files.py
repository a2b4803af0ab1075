"""A canary as a file: safetensors, with everything but the vectors as JSON in its header."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from embedwatch.core.errors import InputError
from embedwatch.whole_files import write_whole

__all__ = ["CANARY_SCHEMA", "LARGEST_VALUES", "read_canary", "write_canary"]

CANARY_SCHEMA = 1
"""Version of the file."""
LARGEST_VALUES = 1 << 26
"""Numbers in the vectors of a canary, 256 MiB."""
KEY, TENSOR = "embedwatch.canary", "vectors"
LONGEST_HEADER = 16 << 20
LARGEST_FILE = 4 * LARGEST_VALUES + LONGEST_HEADER
LENGTH_BYTES = 8
"""A safetensors file begins with the length of its header, little-endian."""


def write_canary(about: Mapping[str, Any], vectors: Tensor, path: Path) -> None:
    """Write a canary, whole or not at all.

    Args:
        about: everything but its vectors, as plain JSON types.
        vectors: (N, D).
        path: of the file.

    Raises:
        InputError: if it cannot be written, or its texts are too long.
    """
    text = json.dumps({"schema": CANARY_SCHEMA, **about}, ensure_ascii=True)
    if 2 * len(text) > LONGEST_HEADER:
        raise InputError(f"texts of a canary must take at most {LONGEST_HEADER >> 21} MiB, got more; shorten them")
    content = safetensors.torch.save({TENSOR: vectors.contiguous()}, {KEY: text})
    try:
        write_whole(path, content)
    except OSError as error:
        raise InputError(f"{path.name} cannot be written: {error.strerror or error}; check the folder") from error


def read_canary(path: Path) -> tuple[Mapping[str, Any], Tensor]:
    """Return what a file says of a canary, and its vectors in float32, (N, D).

    Raises:
        InputError: if it is none, or damaged; one line says what is wrong.
    """
    try:
        size = path.stat().st_size
        if not path.is_file() or not 0 < size <= LARGEST_FILE:
            raise InputError(
                f"{path.name} must be a file of at most {LARGEST_FILE >> 20} MiB, it is not; name a canary"
            )
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path.name} cannot be read: {error.strerror or error}; check the path") from error
    about = _about(content, path.name)
    try:
        tensors = safetensors.torch.load(content)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path.name} is damaged: {str(error).splitlines()[0]}; record it again") from error
    vectors = tensors.get(TENSOR)
    if vectors is None or len(tensors) != 1:
        raise InputError(
            f"{path.name} must hold `{TENSOR}` alone, got {', '.join(sorted(tensors)) or 'nothing'}; record it again"
        )
    return about, vectors.float()


def _about(content: bytes, name: str) -> Mapping[str, Any]:
    """Return the JSON of the header."""
    length = int.from_bytes(content[:LENGTH_BYTES], "little")
    header = content[LENGTH_BYTES : LENGTH_BYTES + min(length, LONGEST_HEADER)]
    try:
        about = json.loads(json.loads(header)["__metadata__"][KEY])
        schema = about["schema"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{name} is no canary; make one with `embedwatch canary record`") from error
    if schema != CANARY_SCHEMA:
        raise InputError(f"{name} must have schema {CANARY_SCHEMA}, got {str(schema)[:20]}; record it again")
    return about if isinstance(about, Mapping) else {}
