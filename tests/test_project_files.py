"""Makefile, CI script and hooks hang together."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def read(name: str) -> str:
    return ROOT.joinpath(name).read_text(encoding="utf-8")


@needs_make
def test_make_alone_explains_every_target() -> None:
    shown = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    (line,) = re.findall(r"^\.PHONY: (.+)$", read("Makefile"), flags=re.M)
    for target in line.split():
        assert re.search(rf"^  make {target} +\w", shown, flags=re.M), target


@needs_make
def test_the_environment_is_made_once(tmp_path: Path) -> None:
    """With fresh stamps nothing is installed again; when the pins change, it is."""
    env = tmp_path / "env"
    env.mkdir()
    for stamp in (".created", ".dev", ".demo"):
        env.joinpath(stamp).touch()

    def plan() -> str:
        command = ["make", "--dry-run", "lint", f"VENV={env}"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout

    assert "pip" not in plan()
    for stamp in (".dev", ".demo"):
        os.utime(env / stamp, (1, 1))
    assert "pip" in plan()


@needs_make
def test_interpreter_and_environment_can_be_chosen(tmp_path: Path) -> None:
    command = ["make", "--dry-run", "test", f"VENV={tmp_path / 'env'}", "PYTHON=some-python"]
    plan = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    assert f"some-python -m venv {tmp_path / 'env'}" in plan
    assert f"{tmp_path / 'env'}/bin/python -m pytest" in plan


def test_ci_runs_the_readmes_command_and_allows_no_skips() -> None:
    script = read(".ci/run")
    subprocess.run(["bash", "-n", ROOT / ".ci" / "run"], check=True, timeout=60)
    assert "set -euo pipefail" in script
    assert "EMBEDWATCH_NO_SKIPS=1" in script
    lines = script.splitlines()
    assert lines.index("make test") < lines.index("make test-slow")


def test_hooks_run_what_is_here() -> None:
    text = read(".pre-commit-config.yaml")
    assert re.findall(r"repo: (\S+)", text) == ["local"]
    for entry in re.findall(r"entry: (.+)", text):
        assert entry.startswith(".venv/bin/")
        for word in entry.split():
            assert not word.endswith(".py") or ROOT.joinpath(word).exists()


def test_the_changelog_has_an_unreleased_section() -> None:
    assert re.search(r"^## \[Unreleased\]$", read("CHANGELOG.md"), flags=re.M)


def test_every_folder_with_modules_is_a_package() -> None:
    """One that is not works in a checkout, and is missing from the wheel."""
    folders = {path.parent for root in ("embedwatch", "model") for path in ROOT.joinpath(root).rglob("*.py")}
    assert len(folders) > 10
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []
