"""`embedwatch audit` as a user and a machine meet it: exit status, tables, JSON, wrong input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from embedwatch import Snapshot
from embedwatch.cli import main


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    path = tmp_path / "vectors.npy"
    np.save(path, np.random.default_rng(0).normal(size=(500, 16)).astype(np.float32))
    return path


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    rows = np.random.default_rng(0).normal(size=(500, 16)).astype(np.float32)
    rows[[3, 77], 2] = np.nan
    rows[::100] = rows[::100] * 12
    path = tmp_path / "faulty.npy"
    np.save(path, rows)
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def refused(result: Result, *words: str) -> None:
    """One line on standard error that holds the words, and status 2."""
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("embedwatch: ")
    assert result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr


def test_sound_vectors(vectors: Path) -> None:
    result = run("audit", vectors)
    assert result.exit_code == 0
    assert result.stdout.startswith("vectors.npy/vectors  500 rows · 16-d · fingerprint ")
    assert "\n  ok      non-finite rows" in result.stdout
    assert "\n  info    intrinsic dimension" in result.stdout
    assert result.stdout.rstrip().endswith("9 ok  (exit 0)")
    assert result.stderr == ""
    assert "\x1b" not in result.stdout


def test_a_fault_comes_first_with_value_limit_rows_meaning_and_remedy(faulty: Path) -> None:
    result = run("audit", faulty)
    assert result.exit_code == 1
    lines = [line.strip() for line in result.stdout.splitlines()]
    assert lines[1].split() == ["fail", "non-finite", "rows", "2", "healthy", "<", "1"]
    assert lines[2] == "Of 500 rows, NaN is in 2 and Inf in 0."
    assert lines[3] == "rows 3 (holds nan), 77 (nan)"
    assert lines[4].startswith("Some vectors hold NaN or Inf")
    assert any(line.startswith("→ Stored vectors: remove these rows") for line in lines)
    assert any(line.startswith("warn") and "largest norm over median" in line for line in lines)
    assert lines[-1] == "1 fail · 1 warn · 7 ok  (exit 1)"


def test_quiet_shows_only_what_is_not_ok(vectors: Path, faulty: Path) -> None:
    assert run("audit", vectors, "-q").stdout == "9 ok  (exit 0)\n"
    quiet = run("audit", faulty, "--quiet").stdout
    assert "fail" in quiet
    assert "\n  ok " not in quiet
    assert "info" not in quiet


def test_verbose_shows_every_measurement(vectors: Path) -> None:
    verbose = run("audit", vectors, "-v").stdout
    assert "condition number" in verbose
    assert "0.01 " in verbose
    assert "condition number" not in run("audit", vectors).stdout


def test_json_holds_everything(faulty: Path) -> None:
    result = run("audit", faulty, "--json")
    data = json.loads(result.stdout)
    assert (data["schema"], data["status"], data["exit"], result.exit_code) == (1, "fail", 1, 1)
    assert data["counts"] == {"fail": 1, "warn": 1, "unknown": 0, "ok": 7}
    (space,) = data["spaces"]
    snapshot = Snapshot.from_json(space["snapshot"])
    assert snapshot.space.labels() == {"model": "faulty.npy", "place": "vectors", "segment": "all"}
    assert snapshot.provenance.coverage == {"rows_expected": 500, "rows_read": 500}
    assert snapshot.number("nonfinite_rows") == 2
    assert {exhibit["name"] for exhibit in space["exhibits"]} == {"nonfinite_rows", "largest_norms"}
    assert {"check", "status", "value", "threshold", "reason", "meaning", "remedy"} <= space["verdicts"][0].keys()
    everything = json.loads(run("audit", faulty, "--json", "--exhibits").stdout)["spaces"][0]["exhibits"]
    assert {"spectrum", "norm_distribution", "hubs"} <= {exhibit["name"] for exhibit in everything}


@pytest.mark.parametrize(
    ("options", "status"),
    [((), 1), (("--fail-on", "warn"), 1), (("--fail-on", "never"), 0), (("--skip", "nonfinite_rows"), 0)],
)
def test_what_fails_the_gate_can_be_chosen(faulty: Path, options: tuple[str, ...], status: int) -> None:
    assert run("audit", faulty, *options).exit_code == status


def test_a_warning_fails_the_gate_only_when_asked(faulty: Path) -> None:
    assert run("audit", faulty, "--only", "extreme_norms").exit_code == 0
    assert run("audit", faulty, "--only", "extreme_norms", "--fail-on", "warn").exit_code == 1


@pytest.mark.parametrize(
    ("only", "metrics", "checks"),
    [
        ("mean_cosine", {"mean_cosine"}, {"collapse"}),
        ("effective_rank", {"effective_rank"}, set()),
        ("collapse", {"mean_cosine", "distinct_rows"}, {"collapse"}),
        ("centroid", {"centroid_norm", "centroid_offset_ratio"}, set()),
    ],
)
def test_only_takes_statistics_measurements_and_checks(
    vectors: Path, only: str, metrics: set[str], checks: set[str]
) -> None:
    result = run("audit", vectors, "--json", "--only", only)
    (space,) = json.loads(result.stdout)["spaces"]
    assert {m["name"] for m in space["snapshot"]["measurements"]} == metrics
    assert {verdict["check"] for verdict in space["verdicts"]} == checks
    assert result.exit_code == (0 if checks else 1)  # nothing was judged


def test_skip_leaves_out(vectors: Path) -> None:
    (space,) = json.loads(run("audit", vectors, "--json", "--skip", "norms", "--skip", "collapse").stdout)["spaces"]
    names = {m["name"] for m in space["snapshot"]["measurements"]}
    assert "norm_mean" not in names
    assert "mean_cosine" in names
    assert {"collapse", "extreme_norms"}.isdisjoint(verdict["check"] for verdict in space["verdicts"])


def test_several_inputs_are_judged_in_order(vectors: Path, faulty: Path) -> None:
    data = json.loads(run("audit", vectors, faulty, "--json").stdout)
    assert [space["snapshot"]["space"]["model"] for space in data["spaces"]] == ["vectors.npy", "faulty.npy"]
    assert data["status"] == "fail"


def test_sinks_receive_every_space(vectors: Path, faulty: Path, tmp_path: Path) -> None:
    out = tmp_path / "audits.jsonl"
    run("audit", vectors, faulty, "--sink", f"jsonl:{out}")
    run("audit", vectors, "--sink", f"jsonl:{out}")
    entries = [json.loads(line) for line in out.read_text().splitlines()]
    assert [entry["snapshot"]["space"]["model"] for entry in entries] == ["vectors.npy", "faulty.npy", "vectors.npy"]
    assert entries[1]["exhibits"]


def test_labels_from_a_file(vectors: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("a\nb\n" * 250)
    (space,) = json.loads(run("audit", vectors, "--labels", labels, "--json").stdout)["spaces"]
    values = {m["name"]: m["value"] for m in space["snapshot"]["measurements"]}
    assert values["groups"] == 2
    labels.write_text("a\nb\n")
    refused(run("audit", vectors, "--labels", labels), "2", "500")


def test_labels_and_vectors_from_one_table(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3))
    table = tmp_path / "table.csv"
    lines = [f"{'ab'[i % 2]},{x:.6f},{y:.6f},{z:.6f}" for i, (x, y, z) in enumerate(rows)]
    table.write_text("topic,x,y,z\n" + "\n".join(lines) + "\n")
    (space,) = json.loads(run("audit", table, "--labels", "topic", "--json").stdout)["spaces"]
    values = {m["name"]: m["value"] for m in space["snapshot"]["measurements"]}
    assert (values["groups"], space["snapshot"]["provenance"]["dimension"]) == (2, 3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--only", "effective_rnak"],
            ['no statistic, diagnostic, measurement or check "effective_rnak"', '"effective_rank"'],
        ),
        (["--as", "npyy"], ['no source "npyy"', '"npy"']),
        (["--sink", "jsonl"], ["jsonl:PATH"]),
        (["--sink", "jsonl:/dev/null/all.jsonl"], ["/dev/null/all.jsonl"]),
        (["--sink", "jsnol:x"], ['"jsonl"']),
        (["--labels", "nowhere.txt"], ["nowhere.txt", "does not exist"]),
        (["--text", "texts.txt"], ["must come with a model"]),
        (["--pooling", "mean"], ["`pooling`", "`text`"]),
        (["--prefix", "query: "], ["`prefix`", "`text`"]),
        (["--fail-on", "ok"], ["--fail-on"]),
        (["--bogus"], ["--bogus", "--help"]),
        (["--only", "cohesion"], ["need labels"]),
    ],
)
def test_wrong_options_get_one_line(vectors: Path, arguments: list[str], words: list[str]) -> None:
    refused(run("audit", vectors, *arguments), *words)


def test_wrong_paths_get_one_line(tmp_path: Path) -> None:
    refused(run("audit"), "PATH")
    refused(run("audit", tmp_path / "nothing.npy"), "nothing.npy", "does not exist")
    refused(run("audit", tmp_path), "folder")
    whole = tmp_path / "whole.npy"
    np.save(whole, np.ones((4000, 384), np.float32))
    cut = tmp_path / "cut.npy"
    cut.write_bytes(whole.read_bytes()[:9000])
    refused(run("audit", cut), "cut.npy ends after 9,000 bytes", "4000 × 384 float32")


def test_an_input_that_breaks_later_leaves_what_was_judged_before(vectors: Path, tmp_path: Path) -> None:
    ragged = tmp_path / "ragged.csv"
    ragged.write_text("1.0,2.0\n" * 50_000 + "1.0\n")
    result = run("audit", vectors, ragged)
    assert result.exit_code == 2
    assert "vectors.npy/vectors" in result.stdout
    assert "50,001" in result.stderr or "50001" in result.stderr


def test_an_internal_error_is_one_line_unless_asked(vectors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("embedwatch.auditing.audit", broken)
    refused(run("audit", vectors), "internal error", "planted", "--debug")
    assert isinstance(run("audit", vectors, "--debug").exception, ZeroDivisionError)


def test_colour_only_when_asked(faulty: Path) -> None:
    assert "\x1b[" in run("audit", faulty, "--color", "always").stdout
    assert "\x1b[" not in run("audit", faulty, "--color", "never").stdout


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "embedwatch", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )


def test_it_is_a_program(faulty: Path) -> None:
    done = process("audit", str(faulty), "--json")
    assert done.returncode == 1
    data: dict[str, Any] = json.loads(done.stdout)
    assert data["status"] == "fail"
    assert process("audit", "nowhere.npy").returncode == 2


def test_help_shows_examples() -> None:
    for arguments in (("--help",), ("audit", "--help"), ("list", "-h")):
        done = run(*arguments)
        assert done.exit_code == 0
        assert "Examples:" in done.stdout
        assert "embedwatch " in done.stdout
    assert "0.1" in run("--version").stdout
    refused(run("aduit"), "aduit", "audit")


def test_a_failing_statistic_is_unknown_and_no_success(vectors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("embedwatch.stats.validity.Validity.add", broken)
    result = run("audit", vectors, "--json")
    data = json.loads(result.stdout)
    assert result.exit_code == 2
    assert data["counts"]["unknown"] == 2
    statuses = {verdict["check"]: verdict["status"] for verdict in data["spaces"][0]["verdicts"]}
    assert statuses["nonfinite_rows"] == statuses["zero_rows"] == "unknown"
    assert data["errors"] == [{"stage": "statistic", "name": "validity", "count": 1}]
    assert "Traceback" not in result.stderr


def test_a_sink_that_cannot_deliver_is_no_success(vectors: Path) -> None:
    result = run("audit", vectors, "--sink", "jsonl:/dev/full")
    assert result.exit_code == 2
    assert "'jsonl' failed, 1 in all" in result.stderr


def test_words_that_a_terminal_does_not_know(faulty: Path) -> None:
    done = process("audit", str(faulty), PYTHONIOENCODING="ascii")
    assert done.returncode == 1
    assert "? Stored vectors: remove these rows" in done.stdout


def test_float64_rows_that_float32_takes_for_zero(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(200, 8))
    rows[5] *= 1e-310
    path = tmp_path / "tiny.npy"
    np.save(path, rows)
    data = json.loads(run("audit", path, "--json").stdout)
    found = {verdict["check"]: verdict["value"] for verdict in data["spaces"][0]["verdicts"]}
    assert abs(found["collapse"]) < 0.1
    assert found["zero_rows"] == 1


def test_mostly_zero_rows_are_not_called_long(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(200, 8)).astype(np.float32)
    rows[:120] = 0
    path = tmp_path / "zeros.npy"
    np.save(path, rows)
    data = json.loads(run("audit", path, "--json").stdout)
    statuses = {verdict["check"]: verdict["status"] for verdict in data["spaces"][0]["verdicts"]}
    assert statuses["zero_rows"] == "fail"
    assert statuses["extreme_norms"] == "unknown"
