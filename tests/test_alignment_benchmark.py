"""What `python -m benchmarks.alignment` measures, on made-up spaces; and that what was measured reached its targets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import alignment
from benchmarks import alignment_ladder as ladder
from benchmarks import alignment_names as names
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


def test_a_row_itself_counts_or_not() -> None:
    rows = torch.nn.functional.normalize(torch.randn(60, 8, generator=torch.Generator().manual_seed(0))).double()
    other = torch.nn.functional.normalize(torch.randn(60, 8, generator=torch.Generator().manual_seed(1))).double()
    for own in (False, True):
        shares = []
        for row in range(60):
            found, wanted = (
                sorted((j for j in range(60) if own or j != row), key=lambda j: -float(query @ rows[j]))[: ladder.K]
                for query in (other[row], rows[row])
            )
            shares.append(len(set(found) & set(wanted)) / ladder.K)
        assert ladder.overlap(other, rows, own=own) == pytest.approx(sum(shares) / 60)
    assert ladder.overlap(rows, rows, own=True) == 1.0


@pytest.mark.parametrize(
    ("name", "verdict", "told", "grade"),
    [
        ("", "identical", "precision", "right"),
        ("", "degraded", "precision", "wrong"),
        ("prefix", "mismatch", "prefix", "right"),
        ("prefix", "mismatch", "pooling", "wrong"),
        ("prefix", "mismatch", "altered", "withheld"),
        ("pooling", "alignable", "", "withheld"),
    ],
)
def test_names_are_right_wrong_or_withheld(name: str, verdict: str, told: str, grade: str) -> None:
    assert names.graded(name, verdict, told) == grade


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
    few, many = held["parts"]["scale"]["lines"]
    assert (few["rows"], many["rows"]) == (10_000, 10_000_000)
    assert many["megabytes_at_most"] < 1.5 * few["megabytes_at_most"]
    counted = held["parts"]["ladder"]["sets"]["synopses"]
    for name in ("bfloat16", "int8", "prefix"):  # as the study counts; no way to count gives its figure of CLS pooling
        assert abs(counted[name]["own_counted_right_searches"] - ladder.STUDY[name]) < ladder.WITHIN
    assert held["parts"]["pass"]["megabytes_after"] < 1.1 * held["parts"]["pass"]["megabytes_up_to_200000_rows"]
