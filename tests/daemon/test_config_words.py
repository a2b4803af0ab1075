"""Words of the configuration: whatever is wrong at whatever key is one line with file, line, key, value and remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from embedwatch.daemon.checking import check_config
from embedwatch.daemon.config import config_schema
from embedwatch.daemon.config_file import ConfigError, load_config

WRONG: dict[str, Any] = {
    "number": 7,
    "fraction": 0.5,
    "negative": -3,
    "true": True,
    "empty text": "",
    "text": "zz zz",
    "long text": "z" * 500,
    "list": [],
    "long list": list(range(40)),
    "names": {"zz": 1},
    "nothing": None,
}
"""A value of each sort; most keys take none of them."""
TOLD: dict[str, str] = {
    "fraction": r"0\.5|a number",
    "true": "true|True",
    "empty text": "''|a text|zero bytes",
    "text": "'zz zz'|a text",
    "long text": r"'z+\.\.\.'|'z{40,80}'|a text",
    "list": r"\[\]|a list",
    "long list": r"\[0, 1, .*\.\.\.|\[0, 1, |a list|40",
    "names": r"\{'zz': 1\}|names",
    "nothing": "nothing|None",
}
Key = tuple[str | int, ...]


def keys() -> Iterator[tuple[Key, dict[str, Any]]]:
    """Yield each key of the schema, with what the schema says of it; the first entry of a list stands for all."""
    schema = config_schema()

    def below(place: Key, part: dict[str, Any]) -> Iterator[tuple[Key, dict[str, Any]]]:
        for choice in part.get("anyOf", [part]):
            model = schema["$defs"][choice["$ref"].rpartition("/")[2]] if "$ref" in choice else choice
            for name, field in model.get("properties", {}).items():
                yield (*place, name), {**field, "allowed": list(allowed(field))}
                yield from below((*place, name), field)
            if "items" in model:
                yield (*place, 0), {**model["items"], "allowed": list(allowed(model["items"]))}
                yield from below((*place, 0), model["items"])

    def allowed(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for choice in part.get("anyOf", [part]):
            yield schema["$defs"][choice["$ref"].rpartition("/")[2]] if "$ref" in choice else choice

    yield from below((), schema)


SORTS: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "boolean": (bool,), "array": (list,), "object": (dict,), "null": (type(None),),
}  # fmt: skip


def takes(field: dict[str, Any], value: Any) -> bool:
    """Return whether the schema takes a value; of lists and names, whether it takes their sort and number."""
    return any(_fits(choice, value) for choice in field["allowed"])


def _fits(choice: dict[str, Any], value: Any) -> bool:
    if "enum" in choice:
        return value in choice["enum"]
    if not isinstance(value, SORTS[choice["type"]]) or (isinstance(value, bool) and choice["type"] != "boolean"):
        return False
    if isinstance(value, str):
        is_path = choice.get("format") == "path"
        return bool(value or not is_path) and bool(re.search(choice.get("pattern", ""), value))
    if isinstance(value, int) and not isinstance(value, bool):
        return bool(choice.get("minimum", value) <= value <= choice.get("maximum", value))
    if isinstance(value, list):  # of a long one, what is in it is wrong
        return bool(choice.get("minItems", 0) <= len(value) <= choice.get("maxItems", len(value)))
    return not isinstance(value, dict)


def document(place: Key, value: Any) -> Any:
    """Return a configuration with one value, and what else its sections cannot do without."""
    for name in reversed(place):
        value = [value] if isinstance(name, int) else {name: value}
    return value


def dotted(place: Key) -> str:
    return "".join(f"[{name}]" if isinstance(name, int) else f".{name}" for name in place).lstrip(".")


CASES = [(place, sort) for place, field in keys() for sort, value in WRONG.items() if not takes(field, value)]


@pytest.mark.parametrize(("place", "sort"), CASES, ids=lambda part: dotted(part) if isinstance(part, tuple) else part)
def test_a_wrong_value_is_one_line_with_key_value_and_remedy(tmp_path: Path, place: Key, sort: str) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(yaml.safe_dump(document(place, WRONG[sort])), encoding="utf-8")
    try:
        load_config(path, environment={})
    except ConfigError as error:
        lines = [line for line in error.problems if re.search(rf"`{re.escape(dotted(place))}(\[0\])?` ", line)]
    else:
        lines = []
    if not lines and place == ("web", "listen", 0) and WRONG[sort] == WRONG["number"]:
        return  # a port alone may be a number
    assert len(lines) == 1, (place, sort)
    (line,) = lines
    if f"`{dotted(place)}` has no" in line:
        assert sort == "names"
        return
    assert re.match(rf"{re.escape(str(path))}:\d+: `{re.escape(dotted(place))}(\[0\])?` must ", line), line
    told = TOLD.get(sort, f"{WRONG[sort]}|a number")
    assert re.search(rf", got [\"']?({told})", line), line
    assert re.search(r"; \w", line), line
    assert len(line) < len(str(path)) + 330
    assert "nput should" not in line


def test_there_are_cases_of_every_key() -> None:
    assert {place for place, _ in CASES} == {place for place, _ in keys()}
    assert len(CASES) > 300


def test_what_may_be_a_secret_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    for text in (
        "web: {auth: s3cret}",
        "web: {auth: [s3cret]}",
        "web: {auth: {token_file: [s3cret]}}",
        "sinks: [{webhook: 'https://user:s3cret@host/s3cret'}]",
        "sinks: 'webhook:https://host/s3cret'",
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError) as refused:
            load_config(path, environment={})
        assert "s3cret" not in str(refused.value), text


def problems(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "e.yaml"
    path.write_text(text, encoding="utf-8")
    return [problem.replace(f"{tmp_path}/", "") for problem in check_config(path)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sinks: [log, jsonl]", "`sinks[1]` must be written jsonl:PATH, got 'jsonl'; write it so"),
        ("sinks: [jsnl:x]", "`sinks[0]` must begin with the name of a sink, got 'jsnl'; did you mean \"jsonl\"?"),
        (
            "evaluation: {only: [normz]}",
            "`evaluation.only[0]` must name a statistic, measurement or check, got 'normz'; did you mean",
        ),
        (
            "evaluation: {skip: [norms, zz]}",
            "`evaluation.skip[1]` must name a statistic, measurement or check, got 'zz'",
        ),
        ("sinks: ['daemon:http://localhost:9477']", "`sinks[0]` must be another daemon"),
        ("web: {listen: ['unix:/a/b']}\nsinks: ['daemon:unix:/a/../a/b']", "`sinks[0]` must be another daemon"),
        ("sinks: ['prometheus:9477']", "`sinks[0]` must have a port of its own"),
        ("web: {listen: [9477, '127.0.0.1:9477']}", "`web.listen[1]` must be another address than `web.listen[0]`"),
        ("sources: [{kind: files, path: /no/such, name: a}]", "`sources[0].path` must exist, got /no/such; make it"),
        (
            "sources: [{kind: files, path: /, name: a}, {kind: files, path: /, name: a}]",
            "`sources[1].name` must be another than `sources[0].name`, got 'a' twice; choose another name",
        ),
        (
            "sources: [{kind: checkpoints, path: /, name: a, texts: /}]",
            "`sources[0].texts` must be a file, got a folder",
        ),
        ("sources: [{kind: checkpoints, path: /, name: a, prompts: /dev/zero}]", "must be a file, got neither a file"),
        ("sources: [{kind: checkpoints, path: /dev/null, name: a}]", "`sources[0].path` must be a folder, got a file"),
        (
            "sources: [{kind: checkpoints, path: /, name: a, texts: /proc/self/attr/none}]",
            "`sources[0].texts` must exist",
        ),
        ('sources: [{kind: files, path: /, name: "a\\eb"}]', "must be one line of up to 200 letters, without control"),
        ("sources: [{kind: files, path: /, name: a, queries: /no/such}]", "`sources[0].queries` must exist"),
        ("web: {auth: {token_file: /no/such}}", "/no/such: must be a readable file"),
        ("web: {tls: {cert_file: /no/c, key_file: /no/k}}", "`web.tls` must name PEM files that belong together"),
    ],
)
def test_what_makes_no_sense_is_one_line_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    (problem,) = problems(tmp_path, text)
    assert re.match(r"e\.yaml:\d+: ", problem)
    assert told in problem


@pytest.mark.parametrize(
    "text",
    [
        "sinks: ['daemon:http://localhost:9478', 'prometheus:9478']",
        "web: {listen: ['127.0.0.1:0']}\nsinks: ['prometheus:0']",
        "sinks: ['daemon:http://elsewhere.example:9477']",
        "web: {listen: ['127.0.0.1:0', '127.0.0.1:0']}",
    ],
)
def test_what_only_looks_like_it_is_right(tmp_path: Path, text: str) -> None:
    assert problems(tmp_path, text) == []


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("EMBEDWATCH_WEB_LISTEN", "EMBEDWATCH_WEB__LISTEN"),
        ("EMBEDWATCH_STORAGE_PATH", "EMBEDWATCH_STORAGE__PATH"),
        ("EMBEDWATCH_EVALUATON__INTERVAL", "EMBEDWATCH_EVALUATION__INTERVAL"),
        ("EMBEDWATCH_SINK", "EMBEDWATCH_SINKS"),
        ("EMBEDWATCH_TOKEN_FILE", "EMBEDWATCH_WEB__AUTH__TOKEN_FILE"),
    ],
)
def test_a_misspelt_variable_is_refused_with_the_nearest_name(name: str, nearest: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(environment={name: "1"})
    assert refused.value.problems == (
        f'{name}: must name a part of the configuration, got another name; did you mean "{nearest}"?',
    )


@pytest.mark.parametrize(
    "name",
    ["EMBEDWATCH_TOKEN", "EMBEDWATCH_PORT_9477_TCP_ADDR", "EMBEDWATCH_SERVICE_HOST", "EMBEDWATCH_SERVICE_PORT_HTTP"],
)
def test_variables_of_others_are_left_alone(name: str) -> None:
    assert load_config(environment={name: "1"}) == load_config(environment={})
