"""`embedwatch compare` as a user and a machine meet it: exit status, tables, JSON, wrong input."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

from embedwatch.cli import main
from tests.topics import stream


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return saved(tmp_path / "old.npy", seed=0, count=1_200)


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return saved(tmp_path / "new.npy", seed=1)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """One row in twenty is foreign: enough for a warning."""
    rows = stream(600, seed=1)
    rows[::20] = 1.8 * torch.randn(30, rows.shape[1], generator=torch.Generator().manual_seed(2))
    np.save(tmp_path / "other.npy", rows.numpy())
    return tmp_path / "other.npy"


def saved(path: Path, *, seed: int, count: int = 600) -> Path:
    np.save(path, stream(count, seed=seed).numpy())
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["compare", *map(str, arguments)])


def test_no_difference(old: Path, new: Path) -> None:
    result = run(old, new)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[0].startswith("new.npy/vectors  600 rows · 16-d · fingerprint ")
    assert lines[1].startswith("  new.npy is compared with old.npy: 1,200 rows, fingerprint ")
    assert lines[2].split()[:5] == ["ok", "drift", "from", "the", "reference"]
    assert lines[-1].endswith("ok  (exit 0)")
    assert "drift family p value" in result.stdout
    assert result.stderr == ""


def test_a_difference_names_sizes_rows_and_cells(old: Path, other: Path) -> None:
    result = run(old, other)
    assert result.exit_code == 1
    assert "  warn    drift from the reference" in result.stdout
    assert "Rows differ (p = " in result.stdout
    assert "of the rows or more are foreign" in " ".join(result.stdout.split())
    assert "\n          rows " in result.stdout
    assert "\n          cells " in result.stdout
    assert "2 warn" in result.stdout.splitlines()[-1]


@pytest.mark.parametrize(("option", "status"), [("warn", 1), ("fail", 0), ("never", 0)])
def test_what_fails_the_gate_can_be_chosen(old: Path, other: Path, option: str, status: int) -> None:
    assert run(old, other, "--fail-on", option).exit_code == status


def test_too_few_rows_are_no_pass(tmp_path: Path, old: Path) -> None:
    result = run(old, saved(tmp_path / "few.npy", seed=1, count=50), "--fail-on", "never")
    assert result.exit_code == 1
    assert "50 rows are too few: each side needs 100, the reference twice as many." in result.stdout
    assert re.search(r"\d unknown .*\(exit 1\)$", result.stdout.rstrip())


@pytest.mark.parametrize("value", [0.0, 0.1])
def test_one_row_a_thousand_times_over_is_no_pass(tmp_path: Path, old: Path, value: float) -> None:
    path = tmp_path / "alike.npy"
    np.save(path, np.full((1000, np.load(old).shape[1]), value, dtype="float32"))
    result = run(str(old), str(path), "--json")
    found = {each["check"]: each for each in json.loads(result.stdout)["verdicts"]}
    assert result.exit_code == 1
    assert (found["drift"]["status"], found["what_changed"]["status"]) == ("unknown", "unknown")
    assert "those that were sampled are all the same" in found["drift"]["reason"]


def test_quiet_and_verbose(old: Path, new: Path) -> None:
    assert re.fullmatch(r"\d ok  \(exit 0\)\n", run(old, new, "-q").stdout)
    verbose = run(old, new, "-v").stdout
    assert "drift blocks" in verbose
    assert "Rows farthest from the reference" in verbose


def test_json(old: Path, other: Path) -> None:
    result = run(old, other, "--json", "--level", "0.05")
    data = json.loads(result.stdout)
    assert (data["exit"], data["status"], data["level"], result.exit_code) == (1, "warn", 0.05, 1)
    verdict = next(each for each in data["verdicts"] if each["check"] == "drift")
    assert {"check", "p_value", "effect", "reason", "remedy"} <= verdict.keys()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--level", "0"), "`--level` must be a number from 0.0005 to 1"),
        (("--pooling", "mean"), "`--pooling` must come with"),
        (("--model", "no-such-model"), "no-such-model"),
        (("--as", "no_kind"), "no_kind"),
    ],
)
def test_wrong_options_are_one_line(old: Path, new: Path, options: tuple[str, ...], words: str) -> None:
    refused(run(old, new, *options), words)


def test_wrong_input_is_one_line(tmp_path: Path, old: Path) -> None:
    np.save(tmp_path / "narrow.npy", np.zeros((300, 5), dtype=np.float32))
    refused(run(old, tmp_path / "narrow.npy"), "16 dimensions like old.npy, got 5")
    refused(run(old, tmp_path / "absent.npy"), "absent.npy")
    refused(run(saved(tmp_path / "few.npy", seed=1, count=50), old), "at least 200 rows")
    refused(run(old), "Missing argument")
    np.save(tmp_path / "flat.npy", np.ones((400, 16), dtype=np.float32))
    refused(run(tmp_path / "flat.npy", old), "give rows that differ")


def refused(result: Result, words: str) -> None:
    """One line on standard error that holds the words, and status 2."""
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("embedwatch: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr


def test_help_loads_no_torch() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from embedwatch.cli import main; "
        "print(CliRunner().invoke(main, ['compare', '--help']).exit_code, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["0", "False"]
