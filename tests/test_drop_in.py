"""The promise that adding a statistic takes one file, kept on a copy of the repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkout import copy_checkout

pytestmark = pytest.mark.slow

NAME = "mean_absolute_value"
STATISTIC = '''"""Mean absolute value of the entries."""

from __future__ import annotations

from collections.abc import Mapping

from embedwatch.batch import VectorBatch
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.sketches import Additive, SketchStatistic

MEAN = Metric("entry_mean_absolute", "Mean absolute value of all entries.")


class MeanAbsoluteValue(SketchStatistic):
    """Mean absolute value of all entries, `Σ |x| / (n D)`.

    State: two numbers; merge exact.

    Example:
        >>> import torch
        >>> statistic = MeanAbsoluteValue()
        >>> statistic.update(VectorBatch(torch.tensor([[1.0, -3.0]])))
        >>> statistic.compute()[0].value
        2.0
    """

    name = "mean_absolute_value"
    title = "mean absolute value"
    metrics = (MEAN,)

    def __init__(self) -> None:
        super().__init__()
        self._totals = self.keep("totals", Additive(sums={"absolute": ()}, counts={"entries": ()}))

    def add(self, batch: VectorBatch) -> None:
        """Add a batch whose dimension fits."""
        rows = batch.clean.rows
        self._totals.add("absolute", rows.abs().double().sum())
        self._totals.add("entries", rows.numel())

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        entries = int(self._totals["entries"])
        return [MEAN.measure(float(self._totals["absolute"]) / entries if entries else None)]

    def oracle(self, batch: VectorBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on all rows at once."""
        rows = batch.rows.double()
        rows = rows[rows.isfinite().all(1)]
        return {MEAN.name: float(rows.abs().mean()) if len(rows) else None}
'''


class Copy:
    """A copy of the repository and a way to run commands that see only it."""

    def __init__(self, root: Path) -> None:
        self.root = copy_checkout(root)
        self.env = {**os.environ, "PYTHONPATH": f"{self.root}{os.pathsep}{self.root / 'typings'}"}

    def run(self, *arguments: str, code: int | tuple[int, ...] = 0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=self.root, env=self.env, capture_output=True, text=True, timeout=600)
        assert done.returncode in ((code,) if isinstance(code, int) else code), (
            f"{command}\n{done.stdout}\n{done.stderr}"
        )
        return done

    def embedwatch(self, *arguments: str, code: int | tuple[int, ...] = 0) -> subprocess.CompletedProcess[str]:
        return self.run("-c", "from embedwatch.cli import main; main(prog_name='embedwatch')", *arguments, code=code)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A copy to which one file has been added."""
    made = Copy(tmp_path_factory.mktemp("drop_in") / "checkout")
    made.run("docs/generate.py")  # whether the pages were fresh before is asked elsewhere
    made.run("docs/generate.py", "--check")
    assert NAME not in made.embedwatch("list", "statistics").stdout
    made.root.joinpath("embedwatch", "stats", f"{NAME}.py").write_text(STATISTIC, encoding="utf-8")
    return made


def test_the_copy_imports_itself(copy: Copy) -> None:
    where = copy.run("-c", "import embedwatch, embedwatch_model as m; print(embedwatch.__file__, m.__file__)").stdout
    assert all(Path(path).resolve().is_relative_to(copy.root) for path in where.split())


def test_the_command_line_lists_it(copy: Copy) -> None:
    assert NAME in copy.embedwatch("list", "statistics").stdout


def test_an_audit_runs_it(copy: Copy, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows, allow_pickle=False)
    done = copy.embedwatch("audit", str(tmp_path / "rows.npy"), "--only", NAME, "--json", code=(0, 1))
    values = {each["name"]: each["value"] for each in measurements(json.loads(done.stdout))}
    assert values["entry_mean_absolute"] == pytest.approx(float(np.abs(rows).mean()), rel=1e-5)


def measurements(data: Any) -> list[Mapping[str, Any]]:
    """Return everything in a JSON document that looks like a measurement, wherever it stands."""
    if isinstance(data, list):
        return [found for item in data for found in measurements(item)]
    if isinstance(data, dict):
        own = [data] if {"name", "value", "kind"} <= data.keys() else []
        return own + [found for item in data.values() for found in measurements(item)]
    return []


def test_the_laws_find_it_and_it_obeys_them(copy: Copy) -> None:
    done = copy.run("-m", "pytest", "tests/conformance", "-k", NAME, "-v", "-p", "no:cacheprovider", "-m", "")
    passed = [line for line in done.stdout.split("\n") if NAME in line and "PASSED" in line]
    assert len(passed) >= 10, done.stdout


def test_the_laws_would_refuse_a_wrong_one(copy: Copy) -> None:
    path = copy.root / "embedwatch" / "stats" / f"{NAME}.py"
    path.write_text(STATISTIC.replace('self._totals.add("entries", rows.numel())', 'self._totals.add("entries", 1)'))
    try:
        copy.run("-m", "pytest", "tests/conformance", "-k", NAME, "-q", "-p", "no:cacheprovider", "-m", "", code=1)
    finally:
        path.write_text(STATISTIC, encoding="utf-8")


def test_the_docs_are_stale_until_generated_and_then_document_it(copy: Copy) -> None:
    assert "metrics.md is stale" in copy.run("docs/generate.py", "--check", code=1).stderr
    copy.run("docs/generate.py")
    text = copy.root.joinpath("docs", "metrics.md").read_text(encoding="utf-8")
    assert f"\n## {NAME}\n" in text
    assert "| `entry_mean_absolute` | gauge |" in text
    copy.run("docs/generate.py", "--check")


def test_its_example_is_run_and_the_import_rules_see_it(copy: Copy) -> None:
    done = copy.run(
        *("-m", "pytest", "tests/test_doctests.py", "tests/test_architecture.py", "-q", "-p", "no:cacheprovider"),
        *("-k", f"{NAME} or test_the_rule_holds or every_statistic_has"),
    )
    assert " passed" in done.stdout
