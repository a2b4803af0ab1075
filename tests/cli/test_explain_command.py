"""`embedwatch explain` on what the other commands print."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from embedwatch.cli import main
from tests.recordings import collapsed, healthy


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audited")
    np.save(folder / "alike.npy", collapsed(0).numpy())
    (folder / "audit.json").write_text(run("audit", folder / "alike.npy", "--json").stdout)
    return folder / "audit.json"


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared")
    for name, count, scale in (("old", 20, 1.0), ("new", 10, 1.3)):
        np.save(folder / f"{name}.npy", np.concatenate([healthy(len(name) + n) for n in range(count)]) * scale)
    (folder / "found.json").write_text(run("compare", folder / "old.npy", folder / "new.npy", "--json").stdout)
    return folder / "found.json"


def test_a_comparison_is_explained(compared: Path) -> None:
    found = run("explain", compared, "drift")
    assert found.exit_code == 0
    lines = " ".join(found.stdout.split())
    for words in (
        "drift: drift from the reference, new.npy/vectors",
        "test: permutation of blocks of rows, one look",
        "compared: 400 rows",
        "independent ones",
        "it matters at 1.01 and beyond",
        "0.01 is the level of one look",
        "do: If the input changed",
        "changes: above 0.01 it would be ok",
    ):
        assert words in lines, words


def test_without_a_check_what_is_not_ok_is_explained(audited: Path) -> None:
    found = run("explain", audited)
    assert "verdict: fail (something is wrong)" in found.stdout
    assert "verdict: ok" not in found.stdout
    assert "ok; name the check or add --all" in found.stdout
    assert "verdict: ok" in run("explain", audited, "--all").stdout


def test_every_verdict_of_every_check_has_a_test_and_what_it_compared(audited: Path, compared: Path) -> None:
    for path in (audited, compared):
        found = json.loads(run("explain", path, "--all", "--json").stdout)
        assert found["schema"] == 1
        assert len(found["verdicts"]) > 1
        for verdict in found["verdicts"]:
            assert {"verdict", "found", "test", "compared", "value"} <= set(verdict["explained"]), verdict["check"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.json"], "nowhere.json cannot be read"),
        (["http://127.0.0.1:1"], "see that the daemon runs"),
        (["FOUND", "drft"], "`check` must match a verdict, got 'drft'"),
        (["FOUND", "--place", "xyz"], "`--place` must match a verdict, got 'xyz'"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(compared: Path, arguments: list[str], message: str) -> None:
    found = run("explain", *(compared if each == "FOUND" else each for each in arguments))
    assert found.exit_code == 2
    assert message in found.stderr
    assert len(found.stderr.splitlines()) == 1
