"""The configuration: units, precedence, every problem in one line with its place, the example."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given

from embedwatch.core.errors import UsageError
from embedwatch.daemon.config import Config, config_schema
from embedwatch.daemon.config_file import ConfigError, load_config
from embedwatch.daemon.units import Address, duration, duration_text, size, size_text

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "embedwatch.yaml"


def load(tmp_path: Path, text: str, **options: Any) -> Config:
    path = tmp_path / "e.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(path, environment=options.pop("environment", {}), **options)


def problems(tmp_path: Path, text: str, **options: Any) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, text, **options)
    assert all("\n" not in problem for problem in refused.value.problems)
    return [problem.replace(f"{tmp_path}/", "") for problem in refused.value.problems]


@given(st.integers(0, 10**9))
def test_a_duration_is_read_as_it_is_written(milliseconds: int) -> None:
    assert duration(duration_text(milliseconds / 1000)) == pytest.approx(milliseconds / 1000)


@given(st.integers(0, 10**14))
def test_a_size_is_read_as_it_is_written(count: int) -> None:
    assert size(size_text(count)) == count


@pytest.mark.parametrize("text", ["", "5", "m", "5m1h", "-5m", "5 m", "5mm", "1.5h", "٣m", "5m\n"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="a duration must be a number with a unit"):
        duration(text)


@pytest.mark.parametrize(
    ("text", "host", "port", "local"),
    [
        ("9477", "127.0.0.1", 9477, True),
        ("127.8.8.8:1", "127.8.8.8", 1, True),
        ("localhost:0", "localhost", 0, True),
        ("[::1]:9477", "::1", 9477, True),
        (":9477", "0.0.0.0", 9477, False),
        ("[::]:9477", "::", 9477, False),
        ("10.0.0.1:9477", "10.0.0.1", 9477, False),
        ("example.org:9477", "example.org", 9477, False),
    ],
)
def test_addresses(text: str, host: str, port: int, local: bool) -> None:
    address = Address.read(text)
    assert (address.host, address.port, address.is_local) == (host, port, local)
    assert Address.read(str(address)) == address


@pytest.mark.parametrize("text", ["", "host", "h:65536", "h:port", "::1:9477", "unix:", "unix:" + "p" * 101, "a b:1"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UsageError, match=r"must be \[HOST:\]PORT or unix:PATH|must have a path"):
        Address.read(text)


def test_without_a_file_there_is_a_working_default() -> None:
    config = load_config(environment={})
    assert config.web.listen == ["127.0.0.1:9477"]
    assert config == Config()


def test_a_flag_beats_the_environment_and_that_beats_the_file(tmp_path: Path) -> None:
    text = "evaluation: {interval: 2m, max_spaces: 5}\nlog: {level: error, format: json}"
    environment = {"EMBEDWATCH_EVALUATION__INTERVAL": "3m", "EMBEDWATCH_LOG__LEVEL": "debug", "EMBEDWATCH_OTHER": "x"}
    config = load(tmp_path, text, environment=environment, flags={"log": {"level": "warning"}, "web": {}})
    assert (config.evaluation.interval, config.evaluation.max_spaces) == (180.0, 5)
    assert (config.log.level, config.log.format) == ("warning", "json")
    assert load_config(environment={"EMBEDWATCH_WEB__LISTEN": "['9478', 'unix:/x']"}).web.listen == [
        "127.0.0.1:9478",
        "unix:/x",
    ]


def test_every_problem_is_told_at_its_line(tmp_path: Path) -> None:
    text = "web:\n  lisen: [9477]\n  max_body: 8\nevaluation:\n  interval: 15\nlogs: {}\ndrain: 5x\n"
    assert problems(tmp_path, text) == [
        'e.yaml:2: `web` has no `lisen`; did you mean "listen"?',
        "e.yaml:3: `web.max_body` must be a size: a whole number with a unit, got 8; write 8MiB or 512KiB",
        "e.yaml:5: `evaluation.interval` must be a duration: a number with a unit, got 15; write 15m, 90s or 1h30m",
        'e.yaml:6: the configuration has no `logs`; did you mean "log"?',
        "e.yaml:7: `drain` must be a duration: a number with a unit, got '5x'; write 15m, 90s or 1h30m",
    ]


def test_a_problem_in_a_list_names_its_place(tmp_path: Path) -> None:
    text = "sources:\n- kind: files\n  path: x\n  name: ok\n- kind: filez\n  path: x\n  nam: y\n"
    found = problems(tmp_path, text)
    assert any(line.startswith("e.yaml:5: `sources[1].kind` must be 'checkpoints', 'files'") for line in found)
    assert 'e.yaml:7: `sources[1]` has no `nam`; did you mean "name"?' in found


def test_a_problem_of_the_environment_or_a_flag_says_so(tmp_path: Path) -> None:
    environment = {"EMBEDWATCH_WEB__LISTN": "1", "EMBEDWATCH_DRAIN": "soon"}
    found = problems(tmp_path, "drain: 5s", environment=environment, flags={"log": {"level": "loud"}})
    assert [line.partition(":")[0] for line in found] == ["EMBEDWATCH_DRAIN", "EMBEDWATCH_WEB__LISTN", "command line"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("web: [", "must be YAML"),
        ("web: {a: 1, a: 2}", "`a` must be given once"),
        ("a: &x [1]\nb: *x\n", "got an alias"),
        ("[" * 60 + "]" * 60, "got deep nesting"),
        ("[" * 5000, "must be YAML"),
        ("- 1", "must be names with values"),
        ("web: !!python/object/apply:os.system [x]", "must be YAML"),
        ("drain: 2020-99-99", "must be YAML"),
        ("web: 5", "`web` must be names with values, got 5; write one of listen, tls"),
        ("storage: {pending: 2000GiB}", "must be a size: from 1KiB to 1024GiB"),
        ("drain: 900w", "must be a duration: from 100ms to 1 year"),
        (
            "evaluation: {alarms: seldom}",
            "`evaluation.alarms` must be a number of false alarms and a duration in m, h, d or w, got 'seldom'; write",
        ),
        ("evaluation: {alarms: 5}", "in m, h, d or w, got 5; write 1 per 30d"),
        (
            f"evaluation: {{alarms: {'9' * 400} per 1d}}",
            "`evaluation.alarms` must be above 0, got inf; 1 per 30d is usual",
        ),
        ("9: 1", "9"),
    ],
)
def test_what_is_no_configuration(tmp_path: Path, text: str, told: str) -> None:
    (problem,) = problems(tmp_path, text)
    assert told in problem
    assert problem.startswith("e.yaml")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be a readable file"):
        load_config(tmp_path / "none.yaml", environment={})
    path = tmp_path / "e.yaml"
    path.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="must be UTF-8"):
        load_config(path, environment={})
    path.write_bytes(b"#" * (1 << 21))
    with pytest.raises(ConfigError, match="must be at most"):
        load_config(path, environment={})


def test_an_open_door_needs_a_lock(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, "web: {listen: ['9477', ':9478']}")
    assert "this machine only where nobody has to authenticate, got 0.0.0.0:9478" in problem
    for lock in ("insecure: true", "auth: {token_file: t}", "tls: {cert_file: c, key_file: k, client_ca_file: a}"):
        assert load(tmp_path, f"web: {{listen: [':9478'], {lock}}}").web.listen == ["0.0.0.0:9478"]
    assert problems(tmp_path, "web: {listen: [':9478'], tls: {cert_file: c, key_file: k}}")


def test_what_is_shown_is_read_back() -> None:
    config = load_config(environment={"EMBEDWATCH_SINKS": "[log]", "EMBEDWATCH_EVALUATION__EXPIRES": "1d"})
    assert Config.model_validate(config.model_dump(mode="json")) == config


def test_the_example_says_what_the_defaults_are(tmp_path: Path) -> None:
    assert load_config(EXAMPLE, environment={}) == Config()


def test_the_example_shows_everything_and_what_is_commented_out_is_right(tmp_path: Path) -> None:
    text = re.sub(r"^( *)#(?! [^ ])", r"\1", EXAMPLE.read_text(encoding="utf-8"), flags=re.M)
    text = re.sub(r"^(sinks|sources|references): \[\]$", r"\1:", text, flags=re.M)
    config = load(tmp_path, text)
    assert config.web.tls is not None
    assert config.sources[0].every == 300.0
    assert config.sinks == ["jsonl:windows.jsonl"]
    assert config.references[0].segment == "*"
    shown = yaml.safe_load(text)
    for section, model in (
        (shown, Config),
        *((shown[name], type(getattr(config, name))) for name in ("web", "storage")),
    ):
        assert set(model.model_fields) - set(section) <= {"insecure"}


def test_the_schema_knows_every_field_and_refuses_others() -> None:
    schema = config_schema()
    text = json.dumps(schema)
    for model in (schema, *schema["$defs"].values()):
        assert model["additionalProperties"] is False
        assert all("description" in part or "$ref" in part for part in model["properties"].values()), model["title"]
    assert '"default": "1m"' in text
    assert '"default": "32MiB"' in text
