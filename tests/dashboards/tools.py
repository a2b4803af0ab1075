"""The committed outputs, the script that writes them, and promtool."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.checkout import ROOT, load_script

DASHBOARDS = ROOT / "dashboards"
PROMETHEUS = DASHBOARDS / "prometheus"
PROMTOOL = shutil.which("promtool")

needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")


def load_generator() -> ModuleType:
    """Load dashboards/generate.py."""
    return load_script(DASHBOARDS / "generate.py")


def promtool(*arguments: str | Path, cwd: Path | None = None) -> tuple[int, str]:
    """Run promtool; return its exit code, and what it said."""
    assert PROMTOOL is not None
    command = [PROMTOOL, *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    return done.returncode, done.stdout


def committed_rules() -> dict[str, Any]:
    rules: dict[str, Any] = yaml.safe_load(PROMETHEUS.joinpath("embedwatch.rules.yml").read_text(encoding="utf-8"))
    return rules


def committed_dashboards() -> dict[str, dict[str, Any]]:
    paths = sorted(DASHBOARDS.joinpath("grafana").glob("*.json"))
    return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in paths}


def parse_errors(expressions: list[str], folder: Path) -> str:
    """Return what promtool finds wrong with expressions; empty if it can parse them all."""
    rules = [{"record": f"parsed_{index}", "expr": expr} for index, expr in enumerate(expressions)]
    path = folder / "parsed.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "parsed", "rules": rules}]}), encoding="utf-8")
    code, said = promtool("check", "rules", "--lint=none", path)
    return said if code else ""
