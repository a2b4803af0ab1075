"""Find the directory of a model: a path, or a name in the local hub cache. Never asks the network."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from embedwatch.core.errors import InputError
from embedwatch.loading.messages import first_line, printable

__all__ = [
    "CONFIG",
    "FORMATS",
    "MODULES",
    "cached_directory",
    "find_model",
    "is_model",
    "label_of",
    "read_json",
    "short",
]

CONFIG = "config.json"
MODULES = "modules.json"
"""Where sentence-transformers lists the modules that turn a text into a vector."""

LARGEST_JSON = 64 << 20
HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
SNAPSHOT = re.compile(r"models--(?P<name>.+)/snapshots/[0-9a-f]+")
VAGUE = frozenset({"model", "models", "checkpoint", "final", "best", "output", "0_Transformer"})
"""Folder names that say nothing: the label takes the folder above with it."""

_PICKLE = "a pickle, which can run code when it is read"
FORMATS = {
    ".gguf": "weights in GGUF",
    ".onnx": "weights in ONNX",
    ".h5": "weights of TensorFlow",
    ".msgpack": "weights of Flax",
    ".bin": _PICKLE,
    ".pt": _PICKLE,
    ".pth": _PICKLE,
    ".ckpt": _PICKLE,
}
"""Ending of a weights file that is not read here to what it is."""


def find_model(name: str | Path) -> tuple[Path, str]:
    """Return the directory of a model and a short label for people.

    Args:
        name: a directory with config.json, or the name of a model in the local hub cache (`org/name`).

    Raises:
        InputError: if there is no such model; the message says how to get it.
    """
    text = name.as_posix() if isinstance(name, Path) else name
    path = Path(name)
    if is_model(path):
        return path, label_of(path)
    if _exists(path):
        raise InputError(_not_a_model(path))
    directory = cached_directory(text)
    if directory is not None:
        return directory, text
    shown = printable(text)
    if not HUB_NAME.fullmatch(text):
        raise InputError(f"`{shown}` must be a directory with {CONFIG}, got nothing at that path; check the spelling")
    raise InputError(
        f"`{shown}` is neither a file nor a model in the local cache; download it first with `hf download {shown}`"
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with a zero byte
        return False


def is_model(path: Path) -> bool:
    """Return whether this is a directory that claims to hold a model. Never raises."""
    try:
        return path.is_dir() and ((path / CONFIG).is_file() or (path / MODULES).is_file())
    except (OSError, ValueError):
        return False


def cached_directory(name: str) -> Path | None:
    """Return the directory of a model in the local hub cache, or None. Never raises, never asks the hub."""
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
    if full.name in ("", ".."):
        full = full.resolve()
    snapshot = SNAPSHOT.search(full.as_posix())
    if snapshot:
        return printable(snapshot["name"].replace("--", "/", 1))
    return printable(f"{full.parent.name}/{full.name}" if full.name in VAGUE else full.name)


def _not_a_model(path: Path) -> str:
    """Return what a path is that is there, but is no directory of a model."""
    label = f"`{printable(str(path))}` must be a directory with {CONFIG} and model.safetensors"
    fix = "give the directory that `save_pretrained` wrote"
    if not path.is_dir():
        return f"{label}, got {FORMATS.get(path.suffix.lower(), 'a file')}; {fix}"
    if (path / "adapter_config.json").is_file():
        return f"{label}, got an adapter alone; merge it into its base with `merge_and_unload()` and save the result"
    if any(path.glob("snapshots/*/config.json")):
        return f"{label}, got a folder of the hub cache; give the name of the model"
    others = sorted(file.suffix.lower() for file in path.iterdir() if file.suffix.lower() in FORMATS)
    return f"{label}, got {'only ' + FORMATS[others[0]] if others else 'no ' + CONFIG}; {fix}"


def short(path: Path) -> str:
    """Return a file's name and that of its folder, for messages."""
    return printable(f"{path.parent.name}/{path.name}")


def read_json(path: Path, kind: type[Any] = dict) -> Any:
    """Return the content of a JSON file that must hold an object, or a list where `kind` says so."""
    name = short(path)
    try:
        regular = path.is_file()  # a pipe would wait for ever
        size = path.stat().st_size
        text = path.read_bytes() if regular and size <= LARGEST_JSON else b""
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        why = getattr(error, "strerror", None) or first_line(error)
        raise InputError(f"`{name}` must be readable, got {why}; check the path and its rights") from error
    if not regular or size > LARGEST_JSON:
        raise InputError(f"`{name}` must be a file of at most {LARGEST_JSON >> 20} MiB, got none; restore the file")
    try:
        content = json.loads(text.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
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
    return "brackets nested too deep" if isinstance(error, RecursionError) else first_line(error)
