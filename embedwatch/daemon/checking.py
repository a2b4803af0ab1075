"""Checking: whether a configuration would work, without serving anything; and the configuration as YAML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from embedwatch.core.errors import UsageError
from embedwatch.core.registry import get
from embedwatch.core.sink import Sink
from embedwatch.daemon.auth import open_gate
from embedwatch.daemon.config import Config, Evaluation
from embedwatch.daemon.config_file import ConfigError, load_config
from embedwatch.daemon.live import tls_context

__all__ = ["check_config", "yaml_of"]


def check_config(path: Path) -> list[str]:
    """Return every problem of a file and of the files that it names, each in one line."""
    try:
        config = load_config(path)
    except ConfigError as error:
        return list(error.problems)
    return [problem for look in _looks(config) if (problem := _problem(look)) is not None]


def _looks(config: Config) -> list[Callable[[], object]]:
    web = config.web
    looks: list[Callable[[], object]] = [lambda: open_gate(web.auth)]
    if web.tls is not None:
        tls = web.tls
        looks.append(lambda: tls_context(tls))
    looks += [lambda text=text: _could_open(text) for text in config.sinks]  # type: ignore[misc]
    looks += [lambda path=source.path: _exists(path) for source in config.sources]  # type: ignore[misc]
    evaluation = config.evaluation
    if evaluation.only or evaluation.skip:
        looks.append(lambda: _choose(evaluation))
    return looks


def _problem(look: Callable[[], object]) -> str | None:
    try:
        look()
    except UsageError as error:
        return str(error)
    return None


def _could_open(text: str) -> None:
    """Refuse a sink that does not exist, or whose target does not fit; nothing is opened."""
    name, _, target = text.partition(":")
    get(Sink, name).require(target)


def _choose(evaluation: Evaluation) -> None:
    """Refuse names of nothing that is measured or checked."""
    from embedwatch.course_maker import CourseMaker  # with torch, so only where a name is given

    CourseMaker(only=evaluation.only, skip=evaluation.skip)


def _exists(path: Path) -> None:
    if not path.exists():
        raise UsageError(f"`path` of a source must exist, got {path}; make it, or correct it")


def yaml_of(data: Mapping[str, Any]) -> str:
    """Return a configuration as YAML, in the order of its parts."""
    return str(yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True))
