"""A canary as a file: safetensors, with everything but the vectors as JSON in its header."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import safetensors.torch
from torch import Tensor

from embedwatch.canary.canary import LARGEST_VALUES, Canary, CanaryMetric, text_hash
from embedwatch.canary.floor import Floor
from embedwatch.core.errors import InputError
from embedwatch.whole_files import write_whole

__all__ = ["CANARY_SCHEMA", "read_canary", "write_canary"]

CANARY_SCHEMA = 1
"""Version of the file."""
KEY, TENSOR = "embedwatch.canary", "vectors"
LONGEST_HEADER = 16 << 20
LARGEST_FILE = 4 * LARGEST_VALUES + LONGEST_HEADER
LENGTH_BYTES = 8
"""A safetensors file begins with the length of its header, little-endian."""


def write_canary(canary: Canary, path: Path) -> None:
    """Write a canary, whole or not at all.

    Raises:
        InputError: if it cannot be written, or its texts are too long.
    """
    about = json.dumps({"schema": CANARY_SCHEMA, **canary.to_json()}, ensure_ascii=True)
    if 2 * len(about) > LONGEST_HEADER:
        raise InputError(f"texts of a canary must take at most {LONGEST_HEADER >> 21} MiB, got more; shorten them")
    content = safetensors.torch.save({TENSOR: canary.vectors.contiguous()}, {KEY: about})
    try:
        write_whole(path, content)
    except OSError as error:
        raise InputError(f"{path.name} cannot be written: {error.strerror or error}; check the folder") from error


def read_canary(path: Path) -> Canary:
    """Read a canary.

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
    return _made(about, vectors.float(), path.name)


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


def _made(about: Mapping[str, Any], vectors: Tensor, name: str) -> Canary:
    """Return the canary that a header and its vectors make."""
    texts, hashes, notes = (about.get(key) for key in ("texts", "hashes", "notes"))
    model, fingerprint, metric = (about.get(key) for key in ("model", "fingerprint", "metric"))
    recorded, floor = about.get("recorded"), about.get("floor")
    sound = all(isinstance(each, list) and all(isinstance(one, str) for one in each) for each in (texts, hashes, notes))
    sound = sound and all(isinstance(each, str) for each in (model, fingerprint, metric)) and isinstance(floor, dict)
    if not sound or not isinstance(recorded, int | float) or not math.isfinite(recorded):
        raise InputError(f"{name} is damaged: its header lacks something; record it again")
    try:
        canary = Canary(
            vectors=vectors,
            floor=Floor.from_json(floor or {}),
            hashes=tuple(hashes or ()),
            texts=tuple(texts or ()),
            model=str(model),
            fingerprint=str(fingerprint),
            metric=cast("CanaryMetric", metric),
            recorded=float(recorded),
            notes=tuple(notes or ()),
        )
    except ValueError as error:
        raise InputError(f"{name} is damaged: {error}") from error
    if canary.texts and tuple(map(text_hash, canary.texts)) != canary.hashes:
        raise InputError(f"{name} is damaged: its texts and their hashes differ; record it again")
    return canary
