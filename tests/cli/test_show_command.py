"""`embedwatch show` as a user and a machine meet it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

from embedwatch import Space, Verdict
from embedwatch.cli import main
from embedwatch.cli.sparkline import ASCII, UNICODE
from embedwatch.core import Metric, Provenance, Snapshot
from embedwatch.recording import RECORDING_FILE
from embedwatch.sinks.jsonl import JsonLines
from tests.recordings import JUDGE, TABLE, broken, collapsed, healthy, measured, record, record_scalars, scalar

LAYER = Space("tiny", "layers.0")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Fails from step 300 to 400, and at the end in another way."""
    folder = tmp_path / "run"
    record(folder, range(100, 300, 100))
    record(folder, range(300, 500, 100), collapsed)
    record(folder, range(500, 1300, 100))
    record(folder, range(1300, 1500, 100), broken)
    record(folder, range(100, 1500, 100), space=LAYER)
    return folder


def show(*arguments: object, columns: int | None = None) -> Result:
    environment = {"COLUMNS": None if columns is None else str(columns)}
    return CliRunner().invoke(main, ["show", *map(str, arguments)], env=environment)


def table(result: Result) -> dict[str, str]:
    """The line of each measurement by its name."""
    lines = [line for line in result.stdout.splitlines() if set(line) & set(UNICODE[0])]
    return {line[2:].split("  ")[0].strip(): line for line in lines}


class TestTable:
    def test_headings(self, run: Path) -> None:
        lines = show(run, columns=200).stdout.splitlines()
        assert lines[0] == f"{run / RECORDING_FILE}  model tiny · 2 spaces · 28 lines"
        assert lines[2] == (
            "tiny/token_table  14 windows · steps 100 to 1,400 · 40 rows in the last · 8-d · places seen 1 of 2"
        )

    def test_each_measurement_with_its_course_and_verdict(self, run: Path) -> None:
        rows = table(show(run, "--place", "token_table", columns=200))
        assert next(iter(rows)) == "nonfinite rows"  # the gravest on top
        assert rows["nonfinite rows"].split() == [
            *("nonfinite", "rows", "▁▁▁▁▁▁▁▁▁▁▁▁██", "0", "0", "1", "1"),
            *("fail", "since", "1,300"),
        ]
        assert rows["mean cosine"].endswith("ok since 500")
        assert rows["mean cosine"].split()[2] == "▁▁██▁▁▁▁▁▁▁▁▁▁"
        assert rows["norm mean"].split()[-1] != "ok"  # nobody judges it
        assert "norm quantile" not in " ".join(rows)
        healthy_rows = table(show(run, "--place", "layers.0"))
        assert healthy_rows["mean cosine"].endswith("  ok")

    def test_findings_of_now_and_of_before(self, run: Path) -> None:
        lines = [line.strip() for line in show(run, columns=200).stdout.splitlines()]
        now, past = lines.index("now"), lines.index("came and went")
        assert lines[now + 1].split() == ["fail", "non-finite", "rows", "1", "healthy", "<", "1"]
        assert lines[now + 2] == "since step 1,300"
        assert any(line.startswith("→ ") for line in lines[now:past])
        assert lines[past + 1].startswith("fail    mean cosine  ")
        assert lines[past + 2] == "fail from step 300 to 400; ok since step 500"
        assert any(line.startswith("→ In training") for line in lines[past:])

    def test_one_that_comes_and_goes_often_is_told_in_a_few_words(self, tmp_path: Path) -> None:
        for step in range(1, 13):
            record(tmp_path, [step], collapsed if step % 2 else healthy)
        assert (
            "3 times before; fail at step 7; fail at step 9; fail at step 11; ok since step 12"
            in show(tmp_path, columns=200).stdout
        )

    def test_all_shows_labels_and_what_is_not_for_tables(self, run: Path) -> None:
        rows = table(show(run, "--all", "--place", "token_table", columns=200))
        assert {"norm quantile q=0.5", "norm quantile q=0.99", "norm max"} <= set(rows)

    def test_two_measurements_of_one_title_are_told_apart(self, tmp_path: Path) -> None:
        record(tmp_path, [1, 2])
        rows = table(show(tmp_path, "--all"))
        assert {"nan rows", "inf rows", "nonfinite_rows", "nonfinite_rows_ratio"} <= set(rows)

    def test_verdicts_shows_those_that_are_ok(self, run: Path) -> None:
        def judged(*arguments: str) -> list[str]:
            lines = show(run, "--place", "layers.0", *arguments).stdout.splitlines()
            return [line.split("  ")[1] for line in lines if line.startswith("  ok ")]

        assert judged() == []
        assert judged("--verdicts") == ["ok", "ok"]

    def test_quiet_shows_what_is_not_ok(self, run: Path) -> None:
        result = show(run, "-q")
        assert list(table(result)) == ["nonfinite rows"]
        assert "layers.0" not in result.stdout
        assert RECORDING_FILE not in result.stdout
        sound = show(run, "-q", "--place", "layers.0")
        assert sound.stdout.splitlines() == ["2 ok  (exit 0)"]

    @pytest.mark.parametrize("columns", [60, 80, 100, 200])
    def test_columns_align_and_fit_also_with_wide_characters(
        self, tmp_path: Path, columns: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)  # its path may be longer than a line
        space = Space("模型", "词表")
        record(tmp_path, range(1_000, 60_000, 1_000), space=space)
        record(tmp_path, range(60_000, 62_000, 1_000), broken, space=space)
        result = show(Path(RECORDING_FILE), columns=columns)
        lines = [line for line in result.stdout.splitlines() if set(line) & set(UNICODE[0])]
        assert len({line.index(next(c for c in line if c in UNICODE[0])) for line in lines}) == 1
        assert len({cell_len(line) for line in lines if line.endswith(" ok")}) == 1
        if columns >= 80:
            assert max(map(cell_len, result.stdout.splitlines())) <= columns

    def test_a_long_wide_name_is_shortened(self, tmp_path: Path) -> None:
        metric = Metric("cohesion", "Cohesion of a group.", labels=("group",))
        snapshots = [
            Snapshot(
                TABLE,
                tuple(metric.measure(float(step), group=g) for g in ("词" * 60, "b\x1b[31m")),
                Provenance(0.0, 1, step=step),
            )
            for step in (1, 2)
        ]
        record_scalars(tmp_path, snapshots)
        result = show(tmp_path, "--all", "--fail-on", "never", columns=80)
        lines = [line for line in result.stdout.splitlines() if "▁█" in line]
        assert len({cell_len(line[: line.index("▁█")]) for line in lines}) == 1
        assert "…" in lines[0]
        assert "\x1b" not in result.stdout

    def test_windows_without_a_step_show_times(self, tmp_path: Path) -> None:
        day = 86_400.0
        record_scalars(tmp_path, [scalar(None, number, time=number * day) for number in (1.0, 2.0)])
        result = show(tmp_path, "--fail-on", "never", columns=200)
        assert "2 windows · 1970-01-02 00:00 to 1970-01-03 00:00 UTC" in result.stdout

    def test_a_single_window(self, tmp_path: Path) -> None:
        record(tmp_path, [7])
        assert "1 window · step 7 · " in show(tmp_path, columns=200).stdout

    def test_what_was_lost_is_said(self, run: Path) -> None:
        with (run / RECORDING_FILE).open("a") as file:
            file.write('nothing\n{"snap')
        text = " ".join(show(run, columns=200).stdout.split())
        assert "Line 29 cannot be read and is left out: not JSON from character 1 on." in text
        assert "Line 30, the last, is cut" in text


class TestSelection:
    def test_a_place_by_its_name_or_the_whole_one(self, run: Path) -> None:
        for glob in ("token_*", "tiny/token_table"):
            assert "layers.0" not in show(run, "--place", glob).stdout

    def test_measurements_and_the_verdicts_about_them(self, run: Path) -> None:
        result = show(run, "--metric", "mean_*", "--place", "token_table")
        assert list(table(result)) == ["mean cosine"]
        assert "came and went" in result.stdout
        assert "non-finite" not in result.stdout
        assert result.exit_code == 1  # the status is that of the place, whatever is looked at

    def test_since_and_last(self, run: Path) -> None:
        assert "10 windows · steps 500 to 1,400" in show(run, "--since", "500", columns=200).stdout
        assert "10 windows · steps 500 to 1,400" in show(run, "--since", "1970-01-01T08:20", columns=200).stdout
        assert "3 windows · steps 1,200 to 1,400" in show(run, "--last", "3", columns=200).stdout
        assert "came and went" not in show(run, "--since", "1,000").stdout

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--place", "tokn_table"], "must match a place, got 'tokn_table'; did you mean \"token_table\"?"),
            (["--place", "zzz"], "there are token_table, layers.0"),
            (["--metric", "mean_cosin"], 'did you mean "mean_cosine"?'),
            (["--since", "yesterday"], "no step and no time"),
            (["--since", "99999"], "`--since` must leave a window, got 99999; the newest is of step 1,400"),
            (["--last", "0"], "--last"),
            (["--last", "100000"], "`--last` must be from 1 to"),
        ],
    )
    def test_what_is_not_there_is_said_in_one_line(self, run: Path, arguments: list[str], words: str) -> None:
        result = show(run, *arguments)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1
        assert words in result.stderr

    def test_no_recording(self, tmp_path: Path) -> None:
        result = show(tmp_path)
        assert result.exit_code == 2
        assert result.stderr == (
            f"embedwatch: {tmp_path / RECORDING_FILE} does not exist; "
            f"record it with --sink jsonl:{tmp_path / RECORDING_FILE}\n"
        )


class TestStatus:
    @pytest.mark.parametrize(
        ("place", "fail_on", "status"),
        [
            ("token_table", "fail", 1),
            ("token_table", "warn", 1),
            ("token_table", "never", 0),
            ("layers.0", "fail", 0),
            ("layers.0", "warn", 0),
        ],
    )
    @pytest.mark.parametrize("form", [[], ["--json"], ["-q"]])
    def test_it_is_that_of_the_newest_verdicts(
        self, run: Path, place: str, fail_on: str, status: int, form: list[str]
    ) -> None:
        assert show(run, "--place", place, "--fail-on", fail_on, *form).exit_code == status

    def test_a_warning(self, tmp_path: Path) -> None:
        snapshot = measured(1, collapsed(1))
        warning = [Verdict.from_json({**verdict.to_json(), "status": "warn"}) for verdict in JUDGE.judge(snapshot)]
        with JsonLines(tmp_path / RECORDING_FILE) as sink:
            sink.write(snapshot, warning)
        assert [show(tmp_path, "--fail-on", grade).exit_code for grade in ("warn", "fail")] == [1, 0]

    def test_nothing_judged_is_no_success(self, tmp_path: Path) -> None:
        record_scalars(tmp_path, [scalar(1, 1.0)])
        result = show(tmp_path)
        assert result.exit_code == 1
        assert result.stdout.endswith("nothing was judged  (exit 1)\n")
        assert show(tmp_path, "--fail-on", "never").exit_code == 0


class TestJson:
    def shown(self, *arguments: object) -> dict[str, Any]:
        data = json.loads(show(*arguments, "--json").stdout, parse_constant=pytest.fail)
        assert isinstance(data, dict)
        return data

    def test_the_same_facts(self, run: Path) -> None:
        data = self.shown(run)
        assert set(data) == {
            *("schema", "path", "status", "counts", "exit", "lines", "lost", "damaged", "notes", "spaces")
        }
        assert (data["schema"], data["status"], data["exit"], data["lines"]) == (1, "fail", 1, 28)
        assert data["counts"] == {"fail": 1, "warn": 0, "unknown": 0, "ok": 3}
        space = data["spaces"][0]
        assert set(space) == {
            *("space", "role", "windows", "first", "last", "rows", "dimension", "coverage", "axis"),
            *("measurements", "verdicts", "past"),
        }
        assert space["space"] == TABLE.labels()
        assert (space["windows"], space["axis"], space["dimension"]) == (14, "step", 8)
        assert (space["first"]["step"], space["last"]["step"]) == (100, 1400)
        assert space["coverage"] == {"places_expected": 2, "places_seen": 1}
        cosine = next(each for each in space["measurements"] if each["name"] == "mean_cosine")
        assert set(cosine) == {
            *("name", "labels", "unit", "first", "min", "max", "last", "windows"),
            *("check", "status", "since", "points"),
        }
        assert (cosine["check"], cosine["status"], cosine["since"]["step"]) == ("collapse", "ok", 500)
        assert [step for step, _ in cosine["points"]] == list(range(100, 1500, 100))
        values = [value for _, value in cosine["points"]]
        assert (values[0], min(values), max(values)) == (cosine["first"], cosine["min"], cosine["max"])

    def test_verdicts_with_since_and_what_is_over(self, run: Path) -> None:
        space = self.shown(run)["spaces"][0]
        assert {verdict["check"]: (verdict["status"], verdict["since"]["step"]) for verdict in space["verdicts"]} == {
            "collapse": ("ok", 500),
            "nonfinite_rows": ("fail", 1300),
        }
        (past,) = space["past"]
        assert (past["since"]["step"], past["until"]["step"], past["windows"]) == (300, 400, 2)
        assert Verdict.from_json(past["verdict"]).status == "fail"

    def test_rows_are_those_of_the_table(self, run: Path) -> None:
        few, every = self.shown(run), self.shown(run, "--all")
        keys = [len(each["spaces"][0]["measurements"]) for each in (few, every)]
        assert keys[0] < keys[1]
        assert any(each["labels"] == {"q": "0.5"} for each in every["spaces"][0]["measurements"])

    def test_damage(self, run: Path) -> None:
        with (run / RECORDING_FILE).open("a") as file:
            file.write("nothing\n")
        data = self.shown(run)
        assert data["lost"] == 1
        assert data["damaged"] == [{"line": 29, "reason": "not JSON from character 1 on", "cut": False}]


class TestOutput:
    def shell(self, *arguments: object, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "embedwatch", "show", *map(str, arguments)],
            capture_output=True,
            env={**os.environ, **environment},
            timeout=60,
        )
        assert done.stderr == b""
        return done.stdout.decode(environment.get("PYTHONIOENCODING", "utf-8"))

    def test_no_colour_in_a_pipe_unless_asked(self, run: Path) -> None:
        assert "\x1b" not in self.shell(run)
        assert "\x1b[1;31m" in self.shell(run, "--color", "always", TERM="xterm")
        assert "\x1b" not in self.shell(run, "--color", "never", TERM="xterm")

    def test_an_output_that_cannot_show_blocks_gets_letters(self, run: Path) -> None:
        line = next(
            line
            for line in self.shell(run, PYTHONIOENCODING="ascii", COLUMNS="100").splitlines()
            if "nonfinite rows" in line
        )
        assert line.split()[2] == "____________##"
        assert set(line.split()[2]) <= set(ASCII[0])

    def test_an_output_that_closes_early_is_no_error(self, run: Path) -> None:
        done = subprocess.run(
            f"{sys.executable} -m embedwatch show {run} --all | head -n 1", shell=True, capture_output=True, timeout=60
        )
        assert done.stderr == b""
        assert done.stdout.count(b"\n") == 1
