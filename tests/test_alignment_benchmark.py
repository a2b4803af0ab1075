"""What `python -m benchmarks.alignment` measures, on made-up spaces; and that what was measured reached its targets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import alignment
from embedwatch.align.candidates import METHODS
from embedwatch.testing.spaces import two_spaces

RESULTS = Path(alignment.__file__).parent / "results"


def test_every_way_and_every_baseline_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "GALLERY", 300)
    left, right = map(torch.from_numpy, two_spaces(700, left=96, right=64))
    found = dict(alignment.tried(left, right, 300, seed=0))
    assert set(found) == {*METHODS, *alignment.BASELINES, "default"}
    assert found["default"]["recall_1"] > 0.95
    assert found["default"]["uncentred_flagged"] is True
    # two ways to write the same map, one of them without us
    assert found["numpy_svd_uncentred"]["recall_1"] == pytest.approx(found["rotation"]["recall_1"], abs=0.01)
    assert found["numpy_svd_centred"]["recall_1"] == pytest.approx(found["centred_procrustes"]["recall_1"], abs=0.01)


def test_draws_are_joined() -> None:
    draws: list[dict[str, Any]] = [{"recall_1": value, "chosen": "x"} for value in (0.9, 0.7)]
    assert alignment.joined(draws) == {"recall_1": 0.8, "chosen": ["x", "x"], "recall_1_sd": 0.1}


def test_a_pass_counts_its_rows() -> None:
    found = alignment.one_pass(9_000)
    assert found["fitted"] + found["judging"] <= 9_000
    assert found["fitted"] > 6_000
    assert found["ratio"] > 1


@pytest.mark.parametrize("path", sorted(RESULTS.glob("alignment-*.json")), ids=lambda path: path.stem)
def test_targets_were_reached(path: Path) -> None:
    held = json.loads(path.read_text(encoding="utf-8"))
    line = next(
        each
        for each in held["parts"]["models"]["lines"]
        if (each["from"], each["to"], each["anchors"], each["way"]) == ("e5", "minilm", 5_000, "default")
    )
    assert line["recall_1"] >= held["targets"]["default_recall_1_e5_minilm_5000"]
    assert all(line["uncentred_flagged"])
    assert held["parts"]["pass"]["ratio"] <= held["targets"]["pass_ratio"]
    assert held["parts"]["pass"]["megabytes_after"] < 1.1 * held["parts"]["pass"]["megabytes_up_to_200000_rows"]
