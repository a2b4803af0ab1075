"""`embedwatch align fit` and `embedwatch align apply`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from embedwatch.cli import main
from embedwatch.testing.spaces import two_spaces

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of pairs, their queries, and a map."""
    path = tmp_path_factory.mktemp("align")
    for name, rows in zip(("new", "old"), two_spaces(1_000, left=96, right=64), strict=True):
        np.save(path / f"{name}.npy", rows[:700])
        np.save(path / f"{name}-q.npy", rows[700:])
    result = run("align", "fit", path / "new.npy", path / "old.npy", "-o", path / "bridge", "--left-name", "m-2")
    assert result.exit_code == 0, result.output
    (path / "told.txt").write_text(result.output)
    return path


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_fit_tells_every_way_and_what_to_know(folder: Path) -> None:
    told = " ".join((folder / "told.txt").read_text().split())
    for part in (
        "96-d -> old.npy 64-d", "700 pairs", "rotation", "residual_net", "shuffled pairs", "recall@1 by anchors 50",
        "no queries among the anchors", "never take the SVD", "A bridge while you embed again, not an upgrade.",
    ):  # fmt: skip
        assert part in told


def test_fit_as_json(folder: Path) -> None:
    result = run(
        "align", "fit", folder / "new.npy", folder / "old.npy", "-o", folder / "b2", "--json", "--side", "corpus",
        "--queries", folder / "new-q.npy", folder / "old-q.npy", "--method", "procrustes", "--method", "ridge_1",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found["side"] == "corpus"
    assert [each["method"] for each in found["report"]["judged"]] == ["procrustes", "ridge_1"]
    assert found["report"]["pairs"]["queries"] == 300
    assert json.loads((folder / "b2" / "aligner.json").read_text())["report"] == found["report"]


def test_quiet_fit_prints_warnings_and_the_end(folder: Path) -> None:
    result = run(
        "align", "fit", folder / "new.npy", folder / "old.npy", "-o", folder / "b3", "-q", "--method", "ridge_1"
    )
    assert "shuffled pairs" not in result.output
    assert "warn" in result.output


def test_apply(folder: Path) -> None:
    result = run("align", "apply", folder / "bridge", folder / "new-q.npy", "-o", folder / "mapped.npy")
    assert result.exit_code == 0, result.output
    assert "300 rows of 64 dimensions by " in " ".join(result.output.split())
    found = np.load(folder / "mapped.npy", allow_pickle=False)
    old = np.load(folder / "old-q.npy", allow_pickle=False)
    assert ((found @ old.T).argmax(1) == np.arange(300)).mean() > 0.9


def test_apply_as_json(folder: Path) -> None:
    result = run(
        "align", "apply", folder / "bridge", folder / "new-q.npy", "-o", folder / "m.parquet", "--name", "m-2", "--json"
    )
    found = json.loads(result.output)
    assert (found["rows"], found["dimension"], found["unmapped"]) == (300, 64, 0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("fit", "new.npy", "old.npy", "-o", "bridge"), "must not exist, got an aligner; --replace replaces it"),
        (("fit", "new.npy", "old-q.npy", "-o", "b9"), "both sides must have a row for each item"),
        (("fit", "new.npy", "old.npy", "-o", "b9", "--method", "procrustis"), "`--method` must be one of"),
        (("fit", "new.npy", "old.npy", "-o", "b9", "--gallery", "0"), "`--gallery` must be"),
        (
            ("fit", "new.npy", "old.npy", "-o", "b9", "--left-pooling", "mean"),
            "`--left-pooling` must come with a model",
        ),
        (("apply", "none", "new.npy", "-o", "x.npy"), "got nothing; make one with"),
        (("apply", "bridge", "old.npy", "-o", "x.npy"), "old.npy must have 96 dimensions"),
        (("apply", "bridge", "new.npy", "-o", "x.txt"), "`--output` must end in .npy"),
        (("apply", "bridge", "new.npy", "-o", "x.npy", "--name", "m-1"), "must come from the model m-2"),
        (("apply", "bridge", "new.npy", "-o", "new-q.npy"), "--replace writes over it"),
        (("apply", "bridge", "new.npy", "-o", "new.npy", "--replace"), "`--output` must be another file than the rows"),
        (("fit", "new.npy", "old.npy", "-o", "b9", "--seed", str(10**20)), "`--seed` must be from 0 to"),
    ],
)
def test_what_is_wrong_is_one_line_and_status_2(
    folder: Path, words: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    result = run("align", *words)
    assert result.exit_code == 2
    assert told in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (folder / "b9").exists()
    assert not (folder / "x.npy").exists()


def test_a_name_says_nothing_to_the_terminal(folder: Path, tmp_path: Path) -> None:
    done = run("align", "apply", folder / "bridge", folder / "new.npy", "-o", tmp_path / "m\x1b[31m[b].npy")
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.stdout
    assert "[b].npy" in done.stdout


def test_help_names_the_commands() -> None:
    result = run("align", "--help")
    assert result.exit_code == 0
    for name in ("fit", "apply"):
        assert f"  {name}" in result.output
