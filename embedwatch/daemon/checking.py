"""Checking: whether a configuration would work, without serving anything; and the configuration as YAML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from embedwatch.core.errors import UsageError
from embedwatch.daemon.auth import open_gate
from embedwatch.daemon.config import Config
from embedwatch.daemon.config_file import ConfigError, load_with_places
from embedwatch.daemon.config_sense import senseless
from embedwatch.daemon.config_words import Place, shown
from embedwatch.daemon.live import tls_context
from embedwatch.daemon.references import load_references

__all__ = ["check_config", "yaml_of"]

FILE, FOLDER, ANY = "file", "folder", "file or folder"
NAMED = {
    "path": ANY,
    "texts": FILE,
    "prompts": FILE,
    "queries": ANY,
    "present": ANY,
    "aligner": FOLDER,
}
"""Settings of a source that name something on the disk, and what that must be."""
OF_KIND = {"checkpoints": FOLDER, "canary": FILE}
"""What `path` must be."""
TEXTS = ("texts", "prompts")
PROBE = 1 << 16
"""So many bytes of a file of texts are looked at."""


def check_config(path: Path) -> list[str]:
    """Return every problem of a file and of the files that it names, each in one line."""
    try:
        config, where = load_with_places(path)
    except ConfigError as error:
        return list(error.problems)
    found = [(place, problem) for place, look in _looks(config) if (problem := _problem(look)) is not None]
    return where.lines([*senseless(config), *found])


def _looks(config: Config) -> Iterator[tuple[Place, Callable[[], object]]]:
    """Yield what the files are to be tried with that a part of the configuration names."""
    web = config.web
    yield ("web", "auth"), lambda: open_gate(web.auth)
    if web.tls is not None:
        tls = web.tls
        yield ("web", "tls"), lambda: tls_context(tls)
    for number, source in enumerate(config.sources):
        for name in NAMED:
            path = getattr(source, name)
            if path is not None:
                yield ("sources", number, name), partial(_require, path, f"sources[{number}].{name}", source.kind)
    yield ("references",), lambda: load_references(config.references)


def _problem(look: Callable[[], object]) -> str | None:
    try:
        look()
    except UsageError as error:
        return str(error)
    return None


def _require(path: Path, key: str, kind: str) -> None:
    """Refuse a path of a source at which there is nothing, or what can never be read as what it is named as."""
    if not path.exists():
        raise UsageError(f"`{key}` must exist, got {_printed(path)}; make it, or correct it")
    name = key.rpartition(".")[2]
    sort = OF_KIND.get(kind, ANY) if name == "path" else NAMED[name]
    if sort == FILE and not path.is_file():
        what = "a folder" if path.is_dir() else "neither a file nor a folder"
        raise UsageError(f"`{key}` must be a file, got {what}, {_printed(path)}; name a file")
    if sort == FOLDER and not path.is_dir():
        raise UsageError(f"`{key}` must be a folder, got a file, {_printed(path)}; name the folder that holds it")
    if name in TEXTS:
        _require_texts(path, key)


def _printed(path: Path) -> str:
    return str(path) if str(path).isprintable() else shown(str(path))


def _require_texts(path: Path, key: str) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(PROBE)
    except OSError as error:
        raise UsageError(f"`{key}` must be a readable file, got {error.strerror}; change its permissions") from error
    if not start.strip():
        raise UsageError(f"`{key}` must hold texts, one a line, got an empty file; write some into it")
    if b"\0" in start:
        raise UsageError(f"`{key}` must hold texts, one a line, got a file of bytes; name a file of texts")


def yaml_of(data: Mapping[str, Any]) -> str:
    """Return a configuration as YAML, in the order of its parts."""
    return str(yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True))
