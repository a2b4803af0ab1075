"""The benchmark of the drill: what it keeps of each run, its counts, and the tables of the page."""

from __future__ import annotations

import doctest
import json
from pathlib import Path

import numpy as np

from benchmarks import drill as benchmark
from embedwatch import Drill, drill
from tests.topics import stream


def run(tmp_path: Path, **options: int) -> Drill:
    np.save(tmp_path / "rows.npy", stream(1_500, seed=0).numpy())
    return drill(tmp_path / "rows.npy", faults=["nan_rows", "off_by_one"], window=300, level=0.01, **options)


def test_runs_add_up_as_if_they_were_one(tmp_path: Path) -> None:
    whole = run(tmp_path, repeats=3)
    first, rest = run(tmp_path, repeats=1), run(tmp_path, repeats=2, seed=1)
    one = benchmark.added(benchmark.facts_of(whole, "minilm"), whole, 3.0)
    two = benchmark.facts_of(first, "minilm")
    for part, seconds in ((first, 1.0), (rest, 2.0)):
        two = benchmark.added(two, part, seconds)
    assert json.loads(json.dumps(one)) == json.loads(json.dumps(two))
    assert one["repeats"] == 3


def test_a_canary_is_counted_apart(tmp_path: Path) -> None:
    found = run(tmp_path, repeats=2)
    facts = benchmark.added(benchmark.facts_of(found, "minilm"), found, 1.0)
    nan_rows, off_by_one = benchmark.summary(facts)
    assert (nan_rows["without_canary"], nan_rows["rows"], nan_rows["found"]) == (2, 100, 2)
    assert nan_rows["interval"] == benchmark.wilson(2, 2)
    assert off_by_one["without_canary"] == 0
    assert off_by_one["by_canary"] == off_by_one["found"]
    assert off_by_one["rows"] is None


def test_tables_stand_where_the_page_has_a_place_for_them(tmp_path: Path) -> None:
    found = run(tmp_path)
    facts = benchmark.added(benchmark.facts_of(found, "minilm"), found, 1.0)
    facts |= {"summary": list(benchmark.summary(facts)), "alarms": 0}
    page = "before\n\n<!-- table: minilm -->\nold\n<!-- end -->\n\n<!-- table: e5 -->\n<!-- end -->\n"
    told = benchmark.renewed(page, {"minilm": facts})
    assert "old" not in told
    assert "| rows with NaN | 1 % | 1 | 1 | 100 rows |" in told
    assert "Not measured yet." in told
    assert benchmark.renewed(told, {"minilm": facts}) == told


def test_the_page_has_a_table_for_each_model() -> None:
    text = benchmark.PAGE.read_text(encoding="utf-8")
    assert {found["name"] for found in benchmark.MARK.finditer(text)} == set(benchmark.SETS)


def test_its_examples_hold() -> None:
    assert doctest.testmod(benchmark).failed == 0
