"""Reads the configuration: a flag beats the environment, the environment the file, the file a default."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import BaseModel, ValidationError

from embedwatch.core.errors import UsageError, did_you_mean
from embedwatch.daemon.config import Config

__all__ = ["ConfigError", "load_config"]

PREFIX, BETWEEN = "EMBEDWATCH_", "__"
"""`web.max_body` is EMBEDWATCH_WEB__MAX_BODY in the environment."""
LARGEST_FILE = 1 << 20
DEEPEST = 20
"""Levels of nesting; the models have four."""
WORDS = {
    "string_pattern_mismatch": "must be one line of up to 200 letters that begins with neither a space nor a slash",
    "missing": "must be given; add it",
}
"""Types of errors of pydantic to what a person reads instead."""
Path_ = tuple[str | int, ...]
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
        environment: values are YAML: `EMBEDWATCH_EVALUATION__INTERVAL=5m`, `EMBEDWATCH_WEB__LISTEN="[9477]"`.
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
    tree: Tree = {}
    origins: dict[Path_, str] = {}
    if path is not None:
        tree = _file(path, origins)
    for name, place, value in _environment(environment):
        _lay_over(tree, place, value)
        _claim(origins, place, name)
    for place, value in _leaves(flags or {}):
        _lay_over(tree, place, value)
        _claim(origins, place, "command line")
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(sorted({_problem(each, origins, path) for each in error.errors()})) from None


def _file(path: Path, origins: dict[Path_, str]) -> Tree:
    """Return what a file says, and note the line of each part."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise ConfigError([f"{path}: must be at most {LARGEST_FILE} bytes; is it a configuration?"])
        node = yaml.compose(content.decode("utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise ConfigError([f"{path}: must be a readable file, got {error.strerror or error}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: must be UTF-8, got another coding; convert it"]) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError([f"{_at(path, error)}: must be YAML, got {_reason(error)}"]) from error
    if node is None:
        return {}
    problems = list(_lines(node, (), path, origins, set()))
    if problems:
        raise ConfigError(problems)
    try:
        tree = yaml.safe_load(content)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError([f"{_at(path, error)}: must be YAML, got {_reason(error)}"]) from error
    if not isinstance(tree, dict):
        raise ConfigError([f"{path}:1: must be names with values, got {type(tree).__name__}; write `web:` and so on"])
    return tree


def _lines(node: yaml.Node, place: Path_, path: Path, origins: dict[Path_, str], seen: set[int]) -> Iterator[str]:
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
            below: Path_ = (*place, name)
            origins[below] = where
            yield from _lines(value, below, path, origins, seen)
    elif isinstance(node, yaml.SequenceNode):
        seen.add(id(node))
        for number, value in enumerate(node.value):
            yield from _lines(value, (*place, number), path, origins, seen)


def _environment(environment: Mapping[str, str]) -> Iterator[tuple[str, Path_, Any]]:
    """Yield (variable, place, value); variables that name no part of the configuration are of somebody else."""
    for name, text in sorted(environment.items()):
        place = tuple(name.removeprefix(PREFIX).lower().split(BETWEEN))
        if not name.startswith(PREFIX) or place[0] not in Config.model_fields:
            continue
        try:
            yield name, place, yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError([f"{name}: must be a YAML value, got {_reason(error)}"]) from error


def _leaves(tree: Mapping[str, Any], place: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*place, name))
        else:
            yield ((*place, name), value)


def _lay_over(tree: Tree, place: Path_, value: Any) -> None:
    """Set one value; what stands in the way and is no mapping gives way."""
    *above, last = cast("tuple[str, ...]", place)
    for name in above:
        if not isinstance(tree.get(name), dict):
            tree[name] = {}
        tree = tree[name]
    tree[last] = value


def _claim(origins: dict[Path_, str], place: Path_, name: str) -> None:
    """Let a part and all below it come from there."""
    for known in [each for each in origins if each[: len(place)] == place]:
        del origins[known]
    origins[place] = name


def _problem(error: Any, origins: Mapping[Path_, str], path: Path | None) -> str:
    """Return one line: where, what, and what to do."""
    place: Path_ = tuple(error["loc"])
    found = next((origins[place[:size]] for size in range(len(place), -1, -1) if place[:size] in origins), None)
    where = found or (str(path) if path else "configuration")
    if error["type"] == "extra_forbidden":
        section = _dotted(place[:-1])
        guess = did_you_mean(str(place[-1]), _known(place[:-1]))
        owner = f"`{section}`" if section else "the configuration"
        return f"{where}: {owner} has no `{_short(place[-1])}`; {guess or 'embedwatch config schema lists what it has'}"
    raised = error.get("ctx", {}).get("error")
    if not place:
        return f"{where}: {raised or error['msg']}" if path is None else f"{path}: {raised or error['msg']}"
    message = str(raised or WORDS.get(error["type"], error["msg"]))
    if error["type"] == "literal_error":
        message = f"{message}; {did_you_mean(str(error['input']), _choices(error)) or 'choose one of them'}"
    return f"{where}: `{_dotted(place)}`: {message[0].lower()}{message[1:]}"


def _choices(error: Any) -> list[str]:
    return re.findall(r"'(\w+)'", str(error["ctx"]["expected"]))


def _known(place: Path_) -> Sequence[str]:
    """Return the names that the model at a place has."""
    model: Any = Config
    for name in place:
        if isinstance(name, int):
            continue
        annotation = model.model_fields[name].annotation
        inner = [each for each in (annotation, *getattr(annotation, "__args__", ())) if _is_model(each)]
        if not inner:
            return ()
        model = inner[0]
    return tuple(model.model_fields)


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _dotted(place: Path_) -> str:
    return "".join(f"[{each}]" if isinstance(each, int) else f".{_short(each)}" for each in place).lstrip(".")


def _short(name: object) -> str:
    return " ".join(str(name)[:60].split())


def _at(path: Path, error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    return str(path) if mark is None else f"{path}:{mark.line + 1}"


def _reason(error: Exception) -> str:
    return str(getattr(error, "problem", None) or getattr(error, "reason", None) or "what nobody can read")
