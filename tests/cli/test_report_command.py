"""`embedwatch report` as a user meets it: what it takes, what it writes, exit status, wrong input."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from click.testing import CliRunner, Result

from embedwatch.cli import main
from tests.recordings import broken, record


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors of which one is not finite, the same a little moved, and what audit says of them."""
    found = tmp_path_factory.mktemp("report")
    rows = np.random.default_rng(0).normal(size=(400, 8)).astype("float32")
    np.save(found / "old.npy", rows)
    np.save(found / "new.npy", rows + 0.001)
    rows[7, 0] = np.nan
    np.save(found / "bad.npy", rows)
    (found / "labels.txt").write_text("\n".join("</script>" if n % 2 else "b" for n in range(400)), encoding="utf-8")
    audited = CliRunner().invoke(main, ["audit", str(found / "bad.npy"), "--exhibits", "--json"])
    (found / "audit.json").write_text(audited.stdout, encoding="utf-8")
    return found


def embedded(page: Path) -> dict[str, object]:
    text = page.read_text(encoding="utf-8").partition('id="verdicts-json">')[2].partition("</script>")[0]
    found: dict[str, object] = json.loads(text)
    return found


def test_a_page_has_the_verdicts_of_the_audit(folder: Path) -> None:
    page = folder / "bad.html"
    result = run(
        folder / "bad.npy",
        "--labels",
        folder / "labels.txt",
        "-o",
        page,
        "--json",
        "--only",
        "validity",
        "--only",
        "cohesion",
    )
    data = json.loads(result.stdout)
    assert (result.exit_code, data["exit"]) == (1, 1)
    told = embedded(page)
    assert told["counts"] == data["counts"]
    wanted = [(each["check"], each["status"], each["value"]) for space in data["spaces"] for each in space["verdicts"]]
    assert [(each["check"], each["status"], each["value"]) for each in told["verdicts"]] == wanted  # type: ignore[attr-defined]
    text = page.read_text(encoding="utf-8")
    assert '"kind":"map"' in text
    assert "\\u003c/script\\u003e" in text  # the name of a group
    assert len(text) < 2_000_000


def test_saved_json_gives_the_same(folder: Path) -> None:
    page = folder / "saved.html"
    result = run(folder / "audit.json", "-o", page)
    data = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
    assert result.exit_code == data["exit"] == 1
    assert embedded(page)["counts"] == data["counts"]
    assert str(page) in result.stdout.replace("\n", "")
    assert result.stdout.rstrip().endswith("(exit 1)")


def test_formats_follow_the_ending(folder: Path) -> None:
    assert run(folder / "audit.json", "-o", folder / "found.xml").exit_code == 1
    assert ET.parse(folder / "found.xml").getroot().get("failures") == "1"
    result = run(folder / "audit.json", "--format", "md", "--fail-on", "never")
    assert result.exit_code == 0
    assert result.stdout.startswith("## ✕ embedwatch: audit.json")


def test_a_run_is_told_with_its_findings(tmp_path: Path) -> None:
    record(tmp_path, [10, 20, 30], broken)
    result = run(tmp_path, "-o", tmp_path / "run.html")
    assert result.exit_code == 1
    assert '"spans":[{"from":10,"to":30,"status":"fail"' in (tmp_path / "run.html").read_text(encoding="utf-8")


def test_two_sides_exit_as_their_commands_do(folder: Path) -> None:
    result = run(
        folder / "new.npy", "--against", folder / "old.npy", "-o", folder / "moved.html", "--points", 100, "--json"
    )
    data = json.loads(result.stdout)
    compared = CliRunner().invoke(main, ["compare", str(folder / "old.npy"), str(folder / "new.npy"), "--json"])
    assert result.exit_code == data["exit"] == compared.exit_code
    assert data["counts"] == json.loads(compared.stdout)["counts"]
    assert re.search(r"row \d+ of old\.npy", (folder / "moved.html").read_text(encoding="utf-8"))
    result = run("--pair", folder / "old.npy", folder / "new.npy", "-o", folder / "pair.html")
    assert result.exit_code == 0
    assert "Verdict: identical" in (folder / "pair.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "`INPUT` must be named"),
        (["missing.npy", "-o", "x.html"], "missing.npy"),
        (["missing.jsonl"], "missing.jsonl"),
        (["audit.json", "--labels", "topic"], "`--labels` must be left out for results that were written before"),
        (["audit.json", "--as", "npy"], "audit.json"),
        (["audit.json", "audit.json"], "`INPUT` must be one where it is results, got 2"),
        (["old.npy", "--against", "new.npy", "--deep"], "`--deep` must be left out with --against"),
        (["old.npy", "new.npy", "--against", "old.npy"], "`INPUT` must be one with --against, got 2"),
        (["old.npy", "--pair", "old.npy", "new.npy"], "`--pair` must stand alone"),
        (["--pair", "old.npy", "new.npy", "--labels", "x"], "`--labels` must be left out with --pair"),
        (["old.npy", "--model", "m"], "`--model` must be left out without --against"),
        (["old.npy", "--json"], "`--output` must be given with --json"),
        (["old.npy", "-o", "nowhere/x.html"], "`--output` must lie in a folder that exists"),
        (["old.npy", "-o", "."], "`--output` must be a file"),
        (["old.npy", "--points", "50001"], "50001"),
        (["empty.json"], "empty.json must hold"),
        (["list.json"], "list.json must hold a JSON object, got list"),
        (["lies.json"], "lies.json must hold what embedwatch wrote"),
        (["cells.json"], "exhibit 'hubs' must be plain rows"),
        (["nan.json"], "strict JSON"),
    ],
)
def test_wrong_input_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(folder)
    saved = json.loads(Path("audit.json").read_text(encoding="utf-8"))
    Path("empty.json").write_text("{}", encoding="utf-8")
    Path("list.json").write_text("[]", encoding="utf-8")
    Path("nan.json").write_text("{NaN}", encoding="utf-8")
    Path("lies.json").write_text(json.dumps({"spaces": [3]}), encoding="utf-8")
    saved["spaces"][0]["exhibits"] = [
        {"name": "hubs", "shape": "table", "caption": "", "columns": ["row"], "rows": [[{}]], "truncated": 0}
    ]
    Path("cells.json").write_text(json.dumps(saved), encoding="utf-8")
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1
    assert words in result.stderr
    assert "internal error" not in result.stderr
    assert not Path("x.html").exists()
