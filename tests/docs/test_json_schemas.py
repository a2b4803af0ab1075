"""What `--json` prints is what docs/schemas says: every command has a schema, and real outputs fit theirs."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from embedwatch.cli import main
from embedwatch.testing.spaces import two_spaces
from tests.docs.generator import DOCS
from tests.quiet import quiet_transformers
from tests.recordings import broken, collapsed, healthy, record
from tests.topics import stream

ENDING = ".schema.json"
SCHEMAS = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in (DOCS / "schemas").glob(f"*{ENDING}")}
COMMON = f"common{ENDING}"
SETTINGS = f"config-show{ENDING}"
REGISTRY: Any = Registry().with_resources((name, DRAFT202012.create_resource(each)) for name, each in SCHEMAS.items())
EXTENDED = ("evidence", "verdict_fields")
"""Open by themselves: what refers to them closes them."""


def with_json(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the commands that print JSON."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            if (member := command.get_command(context, name)) is not None:
                yield from with_json(member, (*path, name))
    elif any("--json" in option.opts for option in command.params):
        yield " ".join(path)


COMMANDS = frozenset(with_json(main))


class Line(NamedTuple):
    """A command as one types it, its exit status, and the file that its output goes to."""

    typed: str
    status: int = 0
    file: str = ""

    @property
    def command(self) -> str:
        words = self.typed.split()
        return next(name for size in (2, 1) if (name := " ".join(words[:size])) in COMMANDS)


def save_rows(folder: Path) -> None:
    """Healthy rows, others, and some that are not sound."""
    rows = np.random.default_rng(0).standard_normal((240, 8)).astype("float32")
    bad = rows.copy()
    bad[:50] += 40
    bad[3, 0], bad[9] = np.nan, 0
    for name, each in (("healthy", rows), ("other", rows[::-1] * 1.5 + 1), ("bad", bad), ("near", rows[:220] * 1.01)):
        np.save(folder / f"{name}.npy", each)


def save_segments(folder: Path) -> None:
    """Two segments that are enough, and one that is not."""
    rows = np.random.default_rng(1).standard_normal((920, 4)).round(4)
    names = ["few"] * 40 + ["one", "two"] * 440
    lines = (",".join(map(str, [*row, name])) for row, name in zip(rows, names, strict=True))
    (folder / "by.csv").write_text("\n".join(["w,x,y,z,half", *lines]))


def save_stream(folder: Path) -> None:
    np.save(folder / "stream.npy", stream(800, seed=0).numpy())


def save_canary(folder: Path) -> None:
    save_rows(folder)
    arguments = ["canary", "record", "--vectors", str(folder / "healthy.npy"), "-o", str(folder / "it.canary")]
    assert CliRunner().invoke(main, arguments).exit_code == 0


def save_run(folder: Path) -> None:
    """A run that was not always sound, and a line that is cut."""
    for steps, rows in (((100, 200), healthy), ((300,), collapsed), ((400,), broken)):
        record(folder / "run", steps, rows)
    with (folder / "run" / "embedwatch.jsonl").open("a") as file:
        file.write('{"half": ')


def save_pairs(folder: Path) -> None:
    """The same items in two spaces, an index of one, and a store that several wrote."""
    from tests.ann.index_makers import built, written

    new, old = two_spaces(400, left=16, right=16, mean=0.4)
    mixed = old.copy()
    mixed[5] = mixed[6]
    mixed[9:20] = np.random.default_rng(0).standard_normal((11, 16))
    for name, rows in (("new", new), ("old", old), ("mixed", mixed)):
        np.save(folder / f"{name}.npy", rows)
    (folder / "found.txt").write_text("\n".join(map(str, range(400))))
    written(folder, built("IVF2,Flat", old), "docs.faiss")


def save_model(folder: Path) -> None:
    from tests.loading import tiny

    tiny.save("llama-lm", folder / "tiny")
    (folder / "texts.txt").write_text("\n".join(tiny.texts(12, 19)))


def save_corpus(folder: Path) -> None:
    from tests.model import training

    training.corpus(folder).rename(folder / "corpus.txt")


def save_settings(folder: Path) -> None:
    (folder / "wrong.yaml").write_text("drain: 30s\nno_such_key: 1\n")
    (folder / "right.yaml").write_text("drain: 20s\n")


INPUTS: dict[str, tuple[Callable[[Path], object], tuple[Line, ...]]] = {
    "rows": (
        save_rows,
        (
            Line("audit healthy.npy", file="audit.json"),
            Line("audit bad.npy --exhibits", 1),
            Line("compare healthy.npy other.npy", 1, "found.json"),
            Line("compare audit.json audit.json"),
            Line("explain found.json --all"),
            Line("report audit.json -o report.md"),
            Line("report found.json -o report.xml", 1),
        ),
    ),
    "segments": (save_segments, (Line("compare by.csv by.csv --by half"),)),
    "reference": (
        save_rows,
        (
            Line("reference create healthy.npy -o one"),
            Line("reference create near.npy --like one -o two"),
            Line("reference show two"),
            Line("reference create healthy.npy -o bare --no-rows"),
            Line("reference merge one two -o both"),
        ),
    ),
    "canary": (save_canary, (Line("canary check it.canary --vectors other.npy", 1), Line("canary show it.canary"))),
    "run": (save_run, (Line("show run --all", 1), Line("report run -o report.md", 1))),
    "pairs": (
        save_pairs,
        (
            Line("align check new.npy old.npy", 1, "pair.json"),
            Line("align fit new.npy old.npy -o bridge --method procrustes"),
            Line("align apply bridge new.npy -o mapped.npy"),
            Line("align index bridge docs.faiss -o new.faiss"),
            Line("align plan bridge old.npy new.npy"),
            Line("align plan bridge old.npy new.npy --queries new.npy --old-queries old.npy --relevant found.txt"),
            Line("align mixed mixed.npy --expected old.npy", 1),
            Line("align mixed mixed.npy", 1),
            Line("report pair.json -o report.md", 1),
        ),
    ),
    "catalogues": (
        save_settings,
        (
            Line("list"),
            Line("list faults"),
            Line("metrics"),
            Line("rules"),
            Line("rules --tests"),
            Line("config check wrong.yaml", 2),
            Line("config check right.yaml"),
            Line("config show right.yaml"),
        ),
    ),
    "stream": (save_stream, (Line("drill stream.npy --window 200 --fault nan_rows --fault bf16 --repeats 2"),)),
    "model": (
        save_model,
        (
            Line("audit tiny --deep --text texts.txt --exhibits"),
            Line("positions tiny --deep --exhibits"),
            Line("attention tiny --text texts.txt --heads 1.0", file="heads.json"),
            Line("report heads.json -o report.md"),
        ),
    ),
    "corpus": (
        save_corpus,
        (
            Line("train corpus.txt --out run --size 1 --vocabulary 280 --length 16 --batch 4 --steps 12 -q"),
            Line("train corpus.txt --out dark --size 1 --vocabulary 280 --length 16 --batch 4 --steps 2 -q --no-watch"),
            Line("generate run the --max-tokens 5"),
        ),
    ),
    "installation": (save_settings, (Line("doctor --fail-on never"), Line("metrics --estimate --daemon"))),
}
SLOW = ("segments", "stream", "model", "corpus", "installation")


def strict(text: str) -> Any:
    """Read JSON as the standard has it: no NaN, no Infinity."""
    return json.loads(text, parse_constant=pytest.fail)


def printed(line: Line) -> Any:
    done = CliRunner().invoke(main, [*line.typed.split(), "--json"])
    assert done.exit_code == line.status, f"{line.typed}: {done.output[-800:]}"
    if line.file:
        Path(line.file).write_text(done.stdout, encoding="utf-8")
    return strict(done.stdout)


def told(name: str, output: Any) -> list[str]:
    """Return what does not fit the schema of a command."""
    schema = {"$ref": f"{name.replace(' ', '-')}{ENDING}"}
    found = Draft202012Validator(schema, registry=REGISTRY).iter_errors(output)
    return [f"{each.json_path}: {each.message[:300]} {[why.message[:200] for why in each.context]}" for each in found]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in INPUTS]
)
def test_outputs_fit_their_schemas(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, lines = INPUTS[name]
    make(tmp_path)
    monkeypatch.chdir(tmp_path)
    with quiet_transformers():
        for line in lines:
            assert told(line.command, printed(line)) == [], line.typed


def test_every_command_with_json_has_a_schema_an_output_and_a_line_on_the_page() -> None:
    files = {f"{command.replace(' ', '-')}{ENDING}": command for command in COMMANDS}
    assert {*files, COMMON} == set(SCHEMAS)
    assert {line.command for _, lines in INPUTS.values() for line in lines} == COMMANDS
    page = DOCS.joinpath("json.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `([a-z ]+)` \| \[[^]]+\]\(schemas/([^)]+)\) \|", page, re.M)
    assert {file: command for command, file in table} == files


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("audited")
    save_rows(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return printed(Line("audit bad.npy --only validity --only nonfinite_rows --exhibits", 1))


def objects(audited: Any) -> dict[str, dict[str, Any]]:
    """One of each sort of object in an audit."""
    (judged,) = audited["spaces"]
    return {
        "audit": audited,
        "counts": audited["counts"],
        "judged": judged,
        "snapshot": judged["snapshot"],
        "provenance": judged["snapshot"]["provenance"],
        "space": judged["snapshot"]["space"],
        "measurement": judged["snapshot"]["measurements"][0],
        "verdict": judged["verdicts"][0],
        "limit": next(each["limit"] for each in judged["verdicts"] if each["limit"]),
        "exhibit": judged["exhibits"][0],
    }


@pytest.mark.parametrize(
    ("where", "key"),
    [
        ("audit", "counts"),
        ("counts", "fail"),
        ("judged", "seconds"),
        ("snapshot", "provenance"),
        ("provenance", "rows"),
        ("space", "segment"),
        ("measurement", "help"),
        ("verdict", "remedy"),
        ("verdict", "value"),
        ("limit", "side"),
        ("exhibit", "truncated"),
    ],
)
def test_a_key_too_few_and_one_too_many_are_caught(where: str, key: str, audited: Any) -> None:
    assert told("audit", audited) == []
    less, more = copy.deepcopy(audited), copy.deepcopy(audited)
    del objects(less)[where][key]
    assert f"'{key}' is a required property" in " ".join(told("audit", less))
    objects(more)[where]["surprise"] = 1
    assert "'surprise' was unexpected" in " ".join(told("audit", more))


def parts(schema: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every schema within a schema."""
    if isinstance(schema, dict):
        yield path, schema
        for key in ("properties", "$defs"):
            for name, each in schema.get(key, {}).items():
                yield from parts(each, f"{path}/{key}/{name}")
        for key in ("items", "additionalProperties"):
            yield from parts(schema.get(key), f"{path}/{key}")
        for key in ("anyOf", "allOf", "prefixItems"):
            for place, each in enumerate(schema.get(key, ())):
                yield from parts(each, f"{path}/{key}/{place}")


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_schemas_are_valid_closed_and_described(name: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[name])
    for path, part in parts(SCHEMAS[name], name):
        if "properties" in part:
            closed = part.get("additionalProperties") is False or part.get("unevaluatedProperties") is False
            assert closed or path.rpartition("/")[2] in EXTENDED, path
            assert set(part.get("required", ())) <= set(part["properties"]), path
        if path.split("/")[-2:-1] == ["properties"]:
            at = part if "description" in part else SCHEMAS[name]["$defs"][part["$ref"].rpartition("/")[2]]
            assert at["description"].strip(), path
            assert "\n" not in at["description"] or name == SETTINGS, path


def test_the_schema_of_the_settings_is_the_one_that_the_daemon_reads_by() -> None:
    """Renewed by `embedwatch config schema > docs/schemas/config-show.schema.json`."""
    from embedwatch.daemon.config import config_schema

    assert SCHEMAS[SETTINGS] == config_schema()
