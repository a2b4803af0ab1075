"""Find the directory of a model: a path, or a name in the local hub cache. Never asks the network."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from embedwatch.core.errors import InputError

__all__ = ["CONFIG", "MODULES", "cached_directory", "find_model", "is_model", "read_json"]

CONFIG = "config.json"
MODULES = "modules.json"
"""Where sentence-transformers lists the modules that turn a text into a vector."""

LARGEST_JSON = 64 << 20
HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
SNAPSHOT = re.compile(r"models--(?P<name>.+)/snapshots/[0-9a-f]+")
VAGUE = frozenset({"model", "models", "checkpoint", "final", "best", "output", "0_Transformer"})
"""Folder names that say nothing: the label takes the folder above with it."""

OTHER_FORMATS = {
    ".gguf": "GGUF, a format of llama.cpp; convert it with `AutoModel.from_pretrained(..., gguf_file=...)`",
    ".onnx": "ONNX",
    ".bin": "a pickle, which can run code when read",
    ".pt": "a pickle, which can run code when read",
    ".pth": "a pickle, which can run code when read",
    ".ckpt": "a pickle, which can run code when read",
    ".h5": "TensorFlow",
    ".msgpack": "Flax",
    ".tflite": "TensorFlow Lite",
}
"""Ending of a weights file that cannot be read here to what it is."""


def find_model(name: str | Path) -> tuple[Path, str]:
    """Return the directory of a model and a short label for people.

    Args:
        name: a directory with config.json, or the name of a model in the local hub cache (`org/name`).

    Raises:
        InputError: if there is no such model; the message says how to get it.
    """
    text = name.as_posix() if isinstance(name, Path) else name
    path = Path(name)
    if _exists(path):
        return (path, label_of(path)) if is_model(path) else _refuse(path)
    directory = cached_directory(text)
    if directory is not None:
        return directory, text
    if not HUB_NAME.fullmatch(text):
        raise InputError(f"`{text}` must be a directory with {CONFIG}, got nothing at that path; check the spelling")
    raise InputError(
        f"`{text}` is neither a file nor a model in the local cache; download it first with `hf download {text}`"
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with a zero byte
        return False


def is_model(path: Path) -> bool:
    """Return whether this is a directory that claims to hold a model."""
    try:
        return path.is_dir() and ((path / CONFIG).is_file() or (path / MODULES).is_file())
    except (OSError, ValueError):
        return False


def cached_directory(name: str) -> Path | None:
    """Return the directory of a model in the local hub cache, or None."""
    if not HUB_NAME.fullmatch(name):
        return None
    try:
        from huggingface_hub import try_to_load_from_cache

        for file in (CONFIG, MODULES):
            found = try_to_load_from_cache(name, file)
            if isinstance(found, str):
                return Path(found).parent
    except (ImportError, OSError, ValueError):  # ValueError: not a legal name of a repository
        pass
    return None


def label_of(directory: Path) -> str:
    """Return a short name for people: that of the folder, or of the hub model whose snapshot it is."""
    full = directory.absolute()
    snapshot = SNAPSHOT.search(full.as_posix())
    if snapshot:
        return snapshot["name"].replace("--", "/", 1)
    return f"{full.parent.name}/{full.name}" if full.name in VAGUE else full.name


def _refuse(path: Path) -> Any:
    if path.is_file():
        kind = OTHER_FORMATS.get(path.suffix.lower())
        what = f"a file in {kind}" if kind in {"ONNX", "TensorFlow", "Flax", "TensorFlow Lite"} else kind or "a file"
        raise InputError(
            f"`{path}` must be a directory with {CONFIG} and model.safetensors, got {what}; "
            "give the directory that `save_pretrained` wrote"
        )
    if (path / "adapter_config.json").is_file():
        raise InputError(
            f"`{path}` must hold a whole model, got an adapter alone; "
            "merge it into its base with `merge_and_unload()` and save the result"
        )
    others = sorted({file.suffix.lower() for file in path.iterdir()} & set(OTHER_FORMATS))
    found = f"only {OTHER_FORMATS[others[0]].split(';')[0]} ({others[0]})" if others else f"no {CONFIG}"
    raise InputError(
        f"`{path}` must be a directory with {CONFIG} and model.safetensors, got {found}; "
        "give the directory that `save_pretrained` wrote"
    )


def read_json(path: Path, kind: type[Any] = dict) -> Any:
    """Return the content of a JSON file that must hold an object, or a list where `kind` says so."""
    name = f"{path.parent.name}/{path.name}"
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise InputError(f"`{name}` must be at most {LARGEST_JSON >> 20} MiB; it is not the file of a model")
        content = json.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise InputError(f"`{name}` must be readable, got {error.strerror}; check the path and its rights") from error
    except (ValueError, RecursionError) as error:  # ValueError: not UTF-8, or not JSON
        raise InputError(f"`{name}` must be JSON, got {_where(error)}; restore the file") from error
    if not isinstance(content, kind):
        expected = "a JSON object" if kind is dict else "a JSON list"
        raise InputError(f"`{name}` must be {expected}, got {type(content).__name__}; restore the file")
    return content


def _where(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.lower()} at line {error.lineno}, column {error.colno}"
    if isinstance(error, UnicodeDecodeError):
        return f"byte 0x{error.object[error.start]:02X} at {error.start}, which is not UTF-8"
    return "brackets nested too deep"
