"""A drill on real embeddings: sentences of one source, encoded on the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from embedwatch import Drill, drill
from tests.checkout import ROOT

pytestmark = [pytest.mark.real, pytest.mark.slow]
TEXTS, WINDOW = 1_300, 400


@pytest.fixture(scope="module")
def found(minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> Drill:
    path = tmp_path_factory.mktemp("drill") / "sentences.txt"
    script = ROOT / "examples" / "stdlib_sentences.py"
    subprocess.run([sys.executable, str(script), str(path), "--limit", str(TEXTS)], check=True)
    return drill(path, model=minilm, window=WINDOW, shuffle=True, on_error="raise")


def test_healthy_sentences_are_left_alone(found: Drill) -> None:
    assert found.control.status == "ok"
    assert not found.control.names()


@pytest.mark.parametrize(
    ("fault", "check", "name"),
    [
        ("norm_growth", "drift", "norms"),
        ("normalisation", "drift", "normalisation"),
        ("truncation", "what_changed", "truncation"),
        ("low_rank", "canary", ""),
        ("other_model", "drift", "model"),
        ("bf16", "canary", "precision"),
        ("rotation", "canary", ""),
        ("off_by_one", "canary", ""),
        ("nan_rows", "nonfinite_rows", ""),
    ],
)
def test_faults_are_found_by_the_right_check_and_named(found: Drill, fault: str, check: str, name: str) -> None:
    trial = next(trial for trial in found.trials if trial.fault == fault)
    assert trial.status == "found"
    assert trial.rightly == 1
    assert check in trial.checks()
    assert not name or trial.names() == {name: 1}
