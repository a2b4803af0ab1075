"""The benchmark of distances: what counts as seen, and the tables of the page."""

from __future__ import annotations

import doctest
import json

import pytest
import torch

from benchmarks import distances as benchmark
from embedwatch.core.registry import registered
from embedwatch.core.statistic import Statistic

RESULTS = benchmark.PAGE.parents[1] / "benchmarks" / "results"


def test_the_page_has_the_tables_of_what_was_measured() -> None:
    page = benchmark.PAGE.read_text(encoding="utf-8")
    newest = max(RESULTS.glob("distances-*.json"))
    assert benchmark.renewed(page, json.loads(newest.read_text(encoding="utf-8"))) == page
    assert {found["name"] for found in benchmark.MARK.finditer(page)} == set(benchmark.TABLES)


def test_every_measurement_that_is_shown_was_measured() -> None:
    facts = json.loads(max(RESULTS.glob("distances-*.json")).read_text(encoding="utf-8"))
    assert set(benchmark.SHOWN) <= {line["key"] for line in facts["lines"]}
    assert set(benchmark.NAMES) <= set(registered(Statistic))


def test_changes_are_what_they_are_called() -> None:
    rows = torch.randn(200, 6, generator=torch.Generator().manual_seed(0)) + 1
    others = torch.full((60, 6), 9.0)
    changed = dict(benchmark.changed(rows, rows.mean(0), others, torch.Generator().manual_seed(1)))
    assert set(changed) == set(benchmark.CHANGES)
    assert int((changed["5 % foreign"] == 9).all(1).sum()) == benchmark.FOREIGN
    assert torch.allclose(changed["norm +5 %"], 1.05 * rows)
    assert float(changed["collapse 10 %"].var(0).sum() / rows.var(0).sum()) == pytest.approx(0.81, abs=0.001)
    assert torch.allclose(changed["rotation 5°"].norm(dim=1), rows.norm(dim=1), atol=1e-4)
    spread = float((rows - rows.mean(0)).square().sum(1).mean())
    assert float((changed["noise 10 %"] - rows).square().sum(1).mean() / spread) == pytest.approx(0.01, abs=0.002)


def test_its_examples_hold() -> None:
    assert doctest.testmod(benchmark).failed == 0
