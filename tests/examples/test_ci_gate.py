"""The workflow for a CI gate: its form is GitHub's, and its steps stop what is broken and let through what is not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.checkout import ROOT
from tests.docs.test_readme import Block, commands, stale

FILE = ROOT / "examples" / "ci-gate.yml"
GATES = ("sound by themselves", "still the same space")


@pytest.fixture(scope="module")
def workflow() -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return found


def steps(workflow: dict[Any, Any]) -> list[dict[str, Any]]:
    (job,) = workflow["jobs"].values()
    found: list[dict[str, Any]] = job["steps"]
    return found


def test_it_is_a_workflow(workflow: dict[Any, Any]) -> None:
    assert set(workflow) == {"name", True, "permissions", "jobs"}, "`on` is true in YAML 1.1"
    assert workflow[True] == "pull_request"
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    assert set(job) == {"runs-on", "timeout-minutes", "env", "steps"}
    for step in steps(workflow):
        assert ("run" in step) != ("uses" in step)
        assert set(step) <= {"name", "run", "uses", "with", "if"}
        assert "@" in step.get("uses", "@"), "each action has its version"


def test_linters_that_are_here_find_nothing() -> None:
    schema = shutil.which("check-jsonschema", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    lint = shutil.which("actionlint")
    for command in (
        [schema, "--builtin-schema", "vendor.github-workflows", str(FILE)] if schema else [],
        [lint, str(FILE)] if lint else [],
    ):
        if command:
            subprocess.run(command, check=True, timeout=60)


def test_its_commands_exist(workflow: dict[Any, Any]) -> None:
    text = "\n".join(f"$ {step['run']}" for step in steps(workflow) if "run" in step)
    found = list(commands(Block("console", text, 1)))
    assert [arguments[0] for arguments in found] == ["doctor", "audit", "compare", "explain"]
    assert [fault for arguments in found for fault in stale(arguments)] == []


def perform(workflow: dict[Any, Any], folder: Path) -> dict[str, int]:
    """Run the two gates and return their exit statuses; as on a runner, the first that fails ends it."""
    found: dict[str, int] = {}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for step in steps(workflow):
        if step.get("name") in GATES:
            command = ["bash", "-e", "-c", step["run"]]
            done = subprocess.run(
                command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, timeout=300
            )
            found[step["name"]] = done.returncode
            if done.returncode:
                break
    return found


@pytest.mark.slow
def test_the_gates_stop_what_is_broken_and_let_through_what_is_not(workflow: dict[Any, Any], tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    np.save(tmp_path / "vectors.npy", draw.standard_normal((4_000, 32)).astype(np.float32))
    make = [str(Path(sys.executable).parent / "embedwatch"), "reference", "create", "vectors.npy", "-o", "healthy"]
    subprocess.run(make, cwd=tmp_path, check=True, capture_output=True, timeout=300)

    rows = draw.standard_normal((2_000, 32)).astype(np.float32)
    np.save(tmp_path / "vectors.npy", rows)
    assert perform(workflow, tmp_path) == dict.fromkeys(GATES, 0)

    np.save(tmp_path / "vectors.npy", rows + 1.0)  # sound by themselves, and elsewhere than they were
    assert perform(workflow, tmp_path) == {GATES[0]: 0, GATES[1]: 1}

    rows[3] = np.nan
    np.save(tmp_path / "vectors.npy", rows)
    assert perform(workflow, tmp_path) == {GATES[0]: 1}
