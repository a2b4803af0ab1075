"""`embedwatch align check` and `align mixed`: exit statuses, JSON, one line for each error."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from embedwatch.cli.main import main
from embedwatch.testing.spaces import two_spaces

LEFT, RIGHT = two_spaces(400, mean=0.4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("pairs")
    store = LEFT.copy()
    store[7:12] = np.random.default_rng(0).standard_normal((5, 96))
    for name, rows in (("old", LEFT), ("new", RIGHT), ("short", RIGHT[:50]), ("store", store)):
        np.save(found / f"{name}.npy", rows)
    return found


def run(folder: Path, command: str, *names: str) -> Result:
    arguments = [str(folder / name) if name.endswith(".npy") else name for name in names]
    return CliRunner().invoke(main, ["align", command, *arguments], env={"COLUMNS": "120"})


def test_a_bridge_is_offered_where_two_models_are_alignable(folder: Path) -> None:
    found = run(folder, "check", "old.npy", "new.npy", "--gallery", "11000")
    assert found.exit_code == 1, found.output
    lines = found.output.splitlines()
    assert lines[0] == "  old.npy 96-d · new.npy 64-d · 400 pairs · 10 neighbours (chance 0.025)"
    assert any(line.startswith("  verdict          alignable") for line in lines)
    assert "of 11,000 rows; derived, from smaller galleries" in found.output
    assert "→ Bridge with `embedwatch align fit` while you embed again; a map is no upgrade." in found.output
    assert lines[-1] == "fail  (exit 1)"
    assert run(folder, "check", "old.npy", "new.npy", "--fail-on", "never", "-v").exit_code == 0


def test_the_same_space_is_identical_and_quiet(folder: Path) -> None:
    found = run(folder, "check", "old.npy", "old.npy")
    assert found.exit_code == 0
    assert "verdict          identical" in found.output
    assert run(folder, "check", "old.npy", "old.npy", "-q").output == ""


def test_json_holds_all(folder: Path) -> None:
    data = json.loads(run(folder, "check", "old.npy", "new.npy", "--json").stdout)
    assert (data["verdict"], data["status"], data["exit"]) == ("alignable", "fail", 1)
    assert data["snapshot"]["provenance"]["role"] == "pairs"
    assert {exhibit["name"] for exhibit in data["exhibits"]} >= {"pair_recall_curve", "pair_residual_spectrum"}


def test_towers_have_their_line(folder: Path) -> None:
    found = run(folder, "check", "old.npy", "store.npy", "--towers")
    assert "modality gap" in found.output
    assert found.exit_code == 0, found.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("old.npy", "short.npy"), "both sides must have a row for each item, got old.npy 400 and short.npy 50; embed"),
        (("old.npy", "none.npy"), "none.npy"),
        (("old.npy", "new.npy", "--pairs", "3"), "`--pairs` must be from 200 to 20,000, got 3; 4,000 is usual"),
        (("old.npy", "new.npy", "--left-prefix", "q"), "`--left-prefix` must come with a model and `text`, got 'q'"),
        (("old.npy", "new.npy", "--join", "name"), "`--join` by name needs names on both sides, got none in old.npy"),
    ],
)
def test_what_cannot_be_compared_is_one_line_and_exit_2(folder: Path, arguments: tuple[str, ...], told: str) -> None:
    found = run(folder, "check", *arguments)
    assert found.exit_code == 2, found.output
    assert told in found.stderr
    assert len(found.stderr.splitlines()) == 1


def test_mixed_names_the_rows(folder: Path) -> None:
    found = run(folder, "mixed", "store.npy", "--expected", "old.npy")
    assert found.exit_code == 1
    assert "another model, or another text" in found.output
    assert "rows 7, 8, 9, 10, …" in found.output
    assert "told as others (95 %)" in found.output
    data = json.loads(run(folder, "mixed", "store.npy", "--expected", "old.npy", "--json").stdout)
    assert [(group["name"], group["rows"]) for group in data["groups"]] == [("agrees", 395), ("other", 5)]
    assert data["groups"][1]["ids"] == [7, 8, 9, 10, 11]
    assert data["false_positives"] < 0.01


def test_a_healthy_store_is_ok_and_a_wrong_one_refused(folder: Path) -> None:
    assert run(folder, "mixed", "old.npy", "--expected", "old.npy").exit_code == 0
    assert run(folder, "mixed", "old.npy").exit_code == 0
    found = run(folder, "mixed", "new.npy", "--expected", "old.npy")
    assert found.exit_code == 2
    assert "must have the 96 dimensions that the model writes, got 64" in found.stderr
    assert run(folder, "mixed", "old.npy", "--model", "m").exit_code == 2
