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
from embedwatch.daemon.config_words import Place
from embedwatch.daemon.live import tls_context
from embedwatch.daemon.references import load_references

__all__ = ["check_config", "yaml_of"]


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
        yield ("sources", number, "path"), partial(_require, source.path, f"sources[{number}].path")
    yield ("references",), lambda: load_references(config.references)


def _problem(look: Callable[[], object]) -> str | None:
    try:
        look()
    except UsageError as error:
        return str(error)
    return None


def _require(path: Path, key: str) -> None:
    if not path.exists():
        raise UsageError(f"`{key}` must exist, got {path}; make it, or correct it")


def yaml_of(data: Mapping[str, Any]) -> str:
    """Return a configuration as YAML, in the order of its parts."""
    return str(yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True))
