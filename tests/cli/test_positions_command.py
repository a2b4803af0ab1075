"""`embedwatch positions`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from embedwatch.cli.main import main
from tests.loading import tiny
from tests.quiet import quiet_transformers


@pytest.fixture(scope="module", autouse=True)
def _silent() -> Iterator[None]:
    with quiet_transformers():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save("llama-lm", tmp_path_factory.mktemp("positions") / "tiny-llama")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["positions", *map(str, arguments)])


def test_a_healthy_model(folder: Path) -> None:
    result = run(folder)
    assert result.exit_code == 0, result.output
    assert "RoPE θ = 10,000" in result.stdout
    assert "tiny-llama/positions" in result.stdout
    assert "info    position longest wavelength" in result.stdout
    assert "position predictions" not in result.stdout
    assert result.stdout.splitlines()[-1].endswith("ok  (exit 0)")


def test_a_longer_length_fails_and_names_remedies(folder: Path) -> None:
    result = run(folder, "--length", 1_024)
    assert result.exit_code == 1
    flat = " ".join(result.stdout.split())
    assert "50.0% of the waves meet phases at 1,024 tokens that they never saw" in flat
    assert "chunks with separators" in flat
    assert run(folder, "--length", 1_024, "--fail-on", "never").exit_code == 0


def test_json(folder: Path) -> None:
    result = run(folder, "--json", "--deep", "--exhibits")
    data = json.loads(result.stdout)
    assert result.exit_code == data["exit"] == 0
    assert data["scheme"] == {"kinds": ["rope"], "words": "RoPE θ = 10,000"}
    assert data["errors"] == []
    (space,) = data["spaces"]
    assert space["snapshot"]["space"] == {"model": "tiny-llama", "place": "positions", "segment": "all"}
    names = {measurement["name"] for measurement in space["snapshot"]["measurements"]}
    assert {"position_base", "position_alias_lag", "position_ends_over_middle_ratio"} <= names
    assert {"position_kernel", "position_attention"} <= {exhibit["name"] for exhibit in space["exhibits"]}


def test_wrong_use_is_one_line(folder: Path, tmp_path: Path) -> None:
    blank = tmp_path / "blank.txt"
    blank.write_text("\n \n")
    for arguments, words in (
        ((), "MODEL"),
        ((folder, "--length", 1), "`length` must be at least 2, got 1"),
        ((folder, "--length", 10**20), "`length` must be from 1 to 1,000,000,000 tokens"),
        ((folder, "--seed", 10**20), "`--seed` must be from 0 to 2,147,483,647"),
        ((folder, "--seed", -1), "`--seed` must be from 0 to 2,147,483,647, got -1"),
        ((folder, "--text", tmp_path / "none.txt"), "none.txt does not exist"),
        ((folder, "--text", blank), "holds 2 blank lines and no text"),
        ((tmp_path / "nowhere",), "must be a directory with config.json"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2
        assert words in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1


def test_a_name_is_no_markup(folder: Path, tmp_path: Path) -> None:
    odd = tmp_path / "[b\x1b[31m]"
    odd.symlink_to(folder)
    result = run(odd)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("[b")
    assert "\x1b" not in result.stdout


def test_quiet_prints_only_what_is_not_ok(folder: Path) -> None:
    result = run(folder, "-q")
    assert len(result.stdout.strip().splitlines()) == 1
