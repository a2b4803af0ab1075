"""Reads the configuration: a flag beats the environment, the environment the file, the file a default."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import ValidationError

from embedwatch.core.errors import UsageError, did_you_mean
from embedwatch.daemon.config import Config
from embedwatch.daemon.config_sense import senseless
from embedwatch.daemon.config_words import Place, known_names, told

__all__ = ["ConfigError", "Where", "load_config", "load_with_places"]

PREFIX, BETWEEN = "EMBEDWATCH_", "__"
"""`web.max_body` is EMBEDWATCH_WEB__MAX_BODY in the environment."""
LARGEST_FILE = 1 << 20
DEEPEST = 20
"""Levels of nesting; the models have four."""
NAMED = re.compile(r"`([a-z_.]+)` ")
OF_OTHERS = re.compile(r"EMBEDWATCH_(?:TOKEN|NO_SKIPS|SERVICE_(?:HOST|PORT.*)|PORT(?:_[0-9]+_.*)?)")
"""Of the sink `daemon`, of our tests, and what Kubernetes sets where a service has our name."""
Tree = dict[str, Any]


class ConfigError(UsageError):
    """What is wrong with a configuration: every problem, each in one line with its place."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def load_config(
    path: Path | None = None, *, environment: Mapping[str, str] = os.environ, flags: Mapping[str, Any] | None = None
) -> Config:
    """Return the configuration.

    Args:
        path: of a YAML file; without one there are defaults.
        environment: values are YAML: `EMBEDWATCH_EVALUATION__INTERVAL=5m`, `EMBEDWATCH_WEB__LISTEN="[9477]"`. A
            variable that looks like one of these and is none is refused.
        flags: a tree like that of the file, from the command line.

    Raises:
        ConfigError: with every problem that was found.

    Example:
        >>> load_config(environment={"EMBEDWATCH_EVALUATION__INTERVAL": "5m"}).evaluation.interval
        300.0
        >>> load_config(environment={"EMBEDWATCH_WEB__LISTN": "9477"})
        Traceback (most recent call last):
        embedwatch.daemon.config_file.ConfigError: EMBEDWATCH_WEB__LISTN: `web` has no `listn`; did you mean "listen"?
    """
    config, where = load_with_places(path, environment=environment, flags=flags)
    if problems := where.lines(senseless(config)):
        raise ConfigError(problems)
    return config


def load_with_places(
    path: Path | None = None, *, environment: Mapping[str, str] = os.environ, flags: Mapping[str, Any] | None = None
) -> tuple[Config, Where]:
    """Return the configuration, and where each part of it comes from; whether its parts make sense is not looked at.

    Raises:
        ConfigError: with every problem that was found.
    """
    tree: Tree = {}
    origins: dict[Place, str] = {}
    if path is not None:
        tree = _file(path, origins)
    for name, place, value in _environment(environment):
        _lay_over(tree, place, value)
        _claim(origins, place, name)
    for place, value in _leaves(flags or {}):
        _lay_over(tree, place, value)
        _claim(origins, place, "command line")
    where = Where(origins, path)
    try:
        config = Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(sorted({where.line(tuple(each["loc"]), told(each)) for each in error.errors()})) from None
    return config, where


class Where:
    """Where each part of a configuration comes from.

    Args:
        origins: place to file and line, variable, or command line.
        path: of the file.
    """

    def __init__(self, origins: Mapping[Place, str], path: Path | None) -> None:
        self._origins, self._path = origins, path

    def lines(self, problems: Iterable[tuple[Place, str]]) -> list[str]:
        """Return problems, each with where it comes from before it, in the order of that."""
        return sorted(self.line(place, problem) for place, problem in problems)

    def line(self, place: Place, problem: str) -> str:
        """Return a problem with where it comes from before it; one of the whole stands where the key in it does."""
        named = NAMED.match(problem)
        if not place and named is not None:
            place = tuple(named[1].split("."))
        sizes = range(len(place), -1, -1)
        found = next((self._origins[place[:size]] for size in sizes if place[:size] in self._origins), None)
        return f"{found or self._path or 'configuration'}: {problem}"


def _file(path: Path, origins: dict[Place, str]) -> Tree:
    """Return what a file says, and note the line of each part."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise ConfigError([f"{path}: must be at most {LARGEST_FILE} bytes; is it a configuration?"])
        node = yaml.compose(content.decode("utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise ConfigError(
            [f"{path}: must be a readable file, got {error.strerror or error}; correct the path"]
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: must be UTF-8, got another coding; convert it"]) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError([f"{_at(path, error)}: must be YAML, got {_reason(error)}; correct it there"]) from error
    if node is None:
        return {}
    problems = list(_lines(node, (), path, origins, set()))
    if problems:
        raise ConfigError(problems)
    try:
        tree = yaml.safe_load(content)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError([f"{_at(path, error)}: must be YAML, got {_reason(error)}; correct it there"]) from error
    if not isinstance(tree, dict):
        raise ConfigError([f"{path}:1: must be names with values, got {type(tree).__name__}; write `web:` and so on"])
    return tree


def _lines(node: yaml.Node, place: Place, path: Path, origins: dict[Place, str], seen: set[int]) -> Iterator[str]:
    """Note where each part stands; yield what YAML allows and a configuration does not."""
    line = f"{path}:{node.start_mark.line + 1}"
    origins.setdefault(place, line)
    if len(place) > DEEPEST or id(node) in seen:
        yield f"{line}: must be plain YAML, got {'an alias' if id(node) in seen else 'deep nesting'}; write it out"
        return
    if isinstance(node, yaml.MappingNode):
        seen.add(id(node))
        names: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            where = f"{path}:{key.start_mark.line + 1}"
            if name in names:
                yield f"{where}: `{name}` must be given once, got it twice; leave one out"
            names.add(name)
            below: Place = (*place, name)
            origins[below] = where
            yield from _lines(value, below, path, origins, seen)
    elif isinstance(node, yaml.SequenceNode):
        seen.add(id(node))
        for number, value in enumerate(node.value):
            yield from _lines(value, (*place, number), path, origins, seen)


def _environment(environment: Mapping[str, str]) -> Iterator[tuple[str, Place, Any]]:
    """Yield (variable, place, value); variables that are like no part of the configuration are of somebody else.

    Raises:
        ConfigError: for one that was meant for us, and names nothing.
    """
    for name, text in sorted(environment.items()):
        place = tuple(name.removeprefix(PREFIX).lower().split(BETWEEN))
        if not name.startswith(PREFIX) or OF_OTHERS.fullmatch(name):
            continue
        if place[0] not in Config.model_fields:
            guess = did_you_mean(name.removeprefix(PREFIX), _variables())
            if guess or len(place) > 1:
                fix = guess.replace('"', f'"{PREFIX}', 1) or "unset it"
                raise ConfigError([f"{name}: must name a part of the configuration, got another name; {fix}"])
            continue
        try:
            yield name, place, yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError([f"{name}: must be a YAML value, got {_reason(error)}"]) from error


def _variables(place: Place = ()) -> Iterator[str]:
    """Yield the variables for all parts of the configuration, without what stands before each."""
    for name in known_names(place):
        yield BETWEEN.join(map(str, (*place, name))).upper()
        yield from _variables((*place, name))


def _leaves(tree: Mapping[str, Any], place: Place = ()) -> Iterator[tuple[Place, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*place, name))
        else:
            yield ((*place, name), value)


def _lay_over(tree: Tree, place: Place, value: Any) -> None:
    """Set one value; what stands in the way and is no mapping gives way."""
    *above, last = cast("tuple[str, ...]", place)
    for name in above:
        if not isinstance(tree.get(name), dict):
            tree[name] = {}
        tree = tree[name]
    tree[last] = value


def _claim(origins: dict[Place, str], place: Place, name: str) -> None:
    """Let a part and all below it come from there."""
    for known in [each for each in origins if each[: len(place)] == place]:
        del origins[known]
    origins[place] = name


def _at(path: Path, error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    return str(path) if mark is None else f"{path}:{mark.line + 1}"


def _reason(error: Exception) -> str:
    return str(getattr(error, "problem", None) or getattr(error, "reason", None) or "what nobody can read")
