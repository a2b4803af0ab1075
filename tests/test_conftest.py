"""The option that makes unexpected skips failures."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")
SKIPPING = {
    "mark": "import pytest\n@pytest.mark.skip(reason='no such machine')\ndef test_a(): pass\ndef test_b(): pass\n",
    "call": "import pytest\ndef test_a(): pytest.skip('no such machine')\ndef test_b(): pass\n",
    "module": "import pytest\npytest.importorskip('no_such_module_at_all', reason='no such machine')\n",
}


def run(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k not in ("EMBEDWATCH_NO_SKIPS", "PYTEST_ADDOPTS")} | environment
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    tmp_path.joinpath("conftest.py").write_text(CONFTEST.read_text())
    tmp_path.joinpath("pytest.ini").write_text("[pytest]\n")
    return tmp_path


@pytest.mark.parametrize("how", SKIPPING)
def test_a_skip_fails_the_run_when_asked(project: Path, how: str) -> None:
    project.joinpath("test_it.py").write_text(SKIPPING[how] + "def test_c(): pass\n")
    done = run(project, "--fail-on-skip")
    assert done.returncode == 1, done.stdout
    assert "unexpected skips fail this run" in done.stdout
    assert "no such machine" in done.stdout


def test_the_environment_can_ask_too_and_nobody_need_ask(project: Path) -> None:
    project.joinpath("test_it.py").write_text(SKIPPING["mark"])
    assert run(project, EMBEDWATCH_NO_SKIPS="1").returncode == 1
    assert run(project, EMBEDWATCH_NO_SKIPS="0").returncode == 0


def test_an_expected_reason_passes(project: Path) -> None:
    project.joinpath("test_it.py").write_text(SKIPPING["call"])
    source = project.joinpath("conftest.py").read_text()
    changed = re.sub(r"^EXPECTED_SKIPS\b.*$", "EXPECTED_SKIPS = ('no such',)", source, flags=re.MULTILINE)
    assert changed != source
    project.joinpath("conftest.py").write_text(changed)
    assert run(project, "--fail-on-skip").returncode == 0


def test_an_expected_failure_is_no_skip(project: Path) -> None:
    text = "import pytest\n@pytest.mark.xfail(reason='known')\ndef test_a(): assert False\ndef test_b(): pass\n"
    project.joinpath("test_it.py").write_text(text)
    assert run(project, "--fail-on-skip").returncode == 0


def test_works_over_several_processes(project: Path) -> None:
    project.joinpath("test_it.py").write_text(SKIPPING["call"])
    done = run(project, "--fail-on-skip", "-n", "1")
    assert done.returncode == 1, done.stdout
    assert done.stdout.count("no such machine") == 1
