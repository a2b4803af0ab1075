"""`embedwatch drill` as a user and a machine meet it: exit status, table, JSON, wrong input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from embedwatch.cli import main
from tests.topics import stream

FEW = ("--window", "300")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("drill") / "healthy.npy"
    np.save(found, stream(1_500, seed=0).numpy())
    return found


@pytest.fixture(scope="module")
def repeating(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows that a check does not like in health."""
    rows = stream(1_500, seed=0)
    rows[::20] = rows[1::20]
    found = tmp_path_factory.mktemp("drill") / "repeating.npy"
    np.save(found, rows.numpy())
    return found


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["drill", *map(str, arguments)])


def test_a_table_says_what_found_each_fault_and_how_soon(path: Path) -> None:
    result = run(path, *FEW, "--fault", "nan_rows", "--fault", "norm_growth")
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[0].startswith("healthy.npy  1,500 rows · 16-d · fingerprint ")
    assert lines[1].startswith("  reference ")
    assert "window 300, dealt in blocks of 10; level 0.001" in lines[1]
    assert lines[2].split() == ["ok", "healthy", "rows", "in", "300", "rows"]
    assert "rows with NaN" in lines[3]
    assert "1 %  " in lines[3]
    assert "nonfinite_rows after 100 rows" in lines[3]
    assert lines[4].split()[:3] == ["found", "norms", "grow"]
    assert lines[-1] == "healthy rows ok · 2 found  (exit 0)"
    assert result.stderr == ""


def test_a_table_says_what_a_canary_alone_finds_and_what_it_is_called(path: Path) -> None:
    result = run(path, *FEW, "--fault", "bf16", "--fault", "norm_growth")
    told = " ".join(result.stdout.split())
    assert "canary after 100 rows named: precision without a canary: noticed by what_changed, and called" in told
    assert "named: norms" in told


@pytest.mark.parametrize(("option", "status"), [("missed", 1), ("fired", 0), ("never", 0)])
def test_a_fault_that_is_missed_fails_the_gate_that_asks_for_it(path: Path, option: str, status: int) -> None:
    result = run(path, *FEW, "--fault", "lost_topic", "--strength", "0.01", "--fail-on", option)
    assert result.exit_code == status
    assert "  missed " in result.stdout
    assert "Chance explains the difference" in " ".join(result.stdout.split())


@pytest.mark.parametrize(("option", "status"), [("missed", 1), ("fired", 1), ("never", 0)])
def test_what_fires_on_healthy_rows_fails(repeating: Path, option: str, status: int) -> None:
    result = run(repeating, *FEW, "--fault", "nan_rows", "--fail-on", option)
    assert result.exit_code == status
    assert "  fired " in result.stdout
    assert "duplicate_rows after" in result.stdout


def test_quiet_says_only_what_is_not_as_it_should_be(path: Path, repeating: Path) -> None:
    assert run(path, *FEW, "--fault", "nan_rows", "-q").stdout == "healthy rows ok · 1 found  (exit 0)\n"
    told = run(repeating, *FEW, "--fault", "nan_rows", "-q").stdout
    assert "  fired " in told
    assert "rows with NaN" not in told


def test_json_holds_every_repeat(path: Path) -> None:
    result = run(path, *FEW, "--fault", "zero_rows", "--strength", "all", "--repeats", "2", "--seed", "7", "--json")
    data = json.loads(result.stdout)
    assert (data["exit"], data["status"], result.exit_code) == (0, "ok", 0)
    assert [trial["strength"] for trial in data["trials"]] == [0.001, 0.01, 0.1]
    assert [outcome["seed"] for outcome in data["trials"][0]["outcomes"]] == [7, 8]
    assert data["trials"][0]["checks"] == {"zero_rows": 2}


def test_repeats_are_counted_in_the_table(path: Path) -> None:
    assert "zero_rows after 100 rows  (2 of 2)" in run(path, *FEW, "--fault", "zero_rows", "--repeats", 2).stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--fault", "rotatoin"), 'no fault "rotatoin"; did you mean "rotation"? `embedwatch list faults` shows all.'),
        (("--strength", "0.1"), "`--strength` must come with the names of faults"),
        (("--fault", "noise", "--strength", "much"), "`--strength` must be numbers, or \"all\" alone, got 'much'"),
        (("--fault", "noise", "--strength", "-1"), "`--strength` of noise must be above 0"),
        (("--fault", "bf16", "--fault", "noise", "--strength", "50"), "`--strength` of bf16 must be above 0"),
        (("--window", "5"), "`--window` must be from 200 to 100,000 rows, got 5"),
        (("--level", "0"), "`--level` must be from 0.0005 to 1"),
        (("--repeats", "0"), "`--repeats` must be from 1 to 10,000"),
        (("--pooling", "mean"), "`--pooling` must come with"),
        (("--other", "absent.npy"), "absent.npy"),
        (("--as", "no_kind"), "no_kind"),
    ],
)
def test_wrong_options_are_one_line(path: Path, options: tuple[str, ...], words: str) -> None:
    refused(run(path, *options), words)


def test_wrong_input_is_one_line(tmp_path: Path) -> None:
    np.save(tmp_path / "few.npy", stream(300, seed=0).numpy())
    refused(run(tmp_path / "few.npy"), "at least 1,200 finite rows for a window of 1,000, got 300 in few.npy")
    np.save(tmp_path / "flat.npy", np.ones((1_500, 16), dtype=np.float32))
    refused(run(tmp_path / "flat.npy"), "rows that differ")
    refused(run(tmp_path / "absent.npy"), "absent.npy")
    refused(run(), "Missing argument")


def refused(result: Result, words: str) -> None:
    """One line on standard error that holds the words, and status 2."""
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("embedwatch: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr


def test_faults_are_listed() -> None:
    listed = CliRunner().invoke(main, ["list", "faults", "--json"])
    assert {"rotation", "new_topic"} <= {entry["name"] for entry in json.loads(listed.stdout)["faults"]}


def test_help_loads_no_torch() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from embedwatch.cli import main; "
        "print(CliRunner().invoke(main, ['drill', '--help']).exit_code, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["0", "False"]
