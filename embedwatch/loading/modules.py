"""modules.json of sentence-transformers, read as a list of names and folders. No class named there is imported."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from embedwatch.core.errors import InputError
from embedwatch.loading.find import MODULES, read_json, short

__all__ = ["Module", "list_modules"]

KNOWN = re.compile(
    r"sentence_transformers\.(models|base\.modules|sentence_transformer\.modules)(\.[a-z_]+)*\.(?P<name>[A-Za-z]+)"
)
"""Types as versions 2 to 6 write them."""


@dataclass(frozen=True)
class Module:
    """One entry of modules.json: the class's last name where it is known, its type as written, its folder."""

    name: str
    type: str
    folder: Path


def list_modules(directory: Path) -> tuple[Module, ...]:
    """Return the entries of modules.json; none where there is no such file."""
    if not (directory / MODULES).is_file():
        return ()
    label = short(directory / MODULES)
    modules = []
    for entry in read_json(directory / MODULES, list):
        kind, path = (entry.get("type"), entry.get("path")) if isinstance(entry, dict) else (None, None)
        if not isinstance(kind, str) or not isinstance(path, str):
            raise InputError(
                f"`{label}` must list modules with `type` and `path`, got {repr(entry)[:80]}; restore the file"
            )
        if not _inside(path):
            raise InputError(f"`{label}` must name folders inside its own, got {path!r}; restore the file")
        known = KNOWN.fullmatch(kind)
        modules.append(Module(known["name"] if known else "", kind, directory / path))
    return tuple(modules)


def _inside(path: str) -> bool:
    """Return whether this names a folder below another on every system."""
    parts = PurePosixPath(path).parts
    return path.isprintable() and not ({"..", "/"} & set(parts) or set("\\:") & set(path))
