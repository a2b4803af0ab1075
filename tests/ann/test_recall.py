"""Sampled recall: known answers, ties, intervals that hold."""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np
import pytest

from embedwatch.ann.facts import IndexRefusedError
from embedwatch.ann.intervals import interval
from embedwatch.ann.recall import sampled_recall
from tests.ann.index_makers import ROWS, built, rows


def exact(index: Any, x: Any, queries: Any, k: int) -> float:
    """Independent: sets of ids against numpy's own order."""
    truth = np.argsort(-queries @ x.T, axis=1)[:, :k]
    found = index.search(queries, k)[1]
    return float(np.mean([len(set(a) & set(b)) / k for a, b in zip(found.tolist(), truth.tolist(), strict=True)]))


@pytest.mark.parametrize("recipe", ["IVF16,Flat", "HNSW4", "Flat"])
@pytest.mark.parametrize("metric", [faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2])
def test_equals_a_search_by_hand(recipe: str, metric: int) -> None:
    x, queries = rows(), rows(100, seed=1)
    index = built(recipe, x, metric=metric)
    found = sampled_recall(index, queries)
    assert found.value == pytest.approx(exact(index, x, queries, 10), abs=1e-9)
    assert (found.low or 0.0) <= (found.value or 0.0) <= (found.high or 0.0)
    assert (found.queries, found.own) == (100, False)


def test_more_probes_find_more() -> None:
    index = built("IVF32,Flat", rows(2000))
    values = []
    for probes in (1, 4, 32):
        index.nprobe = probes
        values.append(sampled_recall(index).value or 0.0)
    assert values[0] < values[1] < values[2] == 1.0


def test_a_row_is_no_neighbour_of_its_own_and_twins_are_no_miss() -> None:
    x = np.repeat(rows(100), 6, axis=0)
    for recipe in ("Flat", "IDMap2,Flat"):
        ids = np.arange(600) * 7 if "IDMap" in recipe else None
        assert sampled_recall(built(recipe, x, ids)).value == 1.0


def test_ids_of_ones_own_and_holes() -> None:
    index = built("IVF8,Flat", rows(), np.arange(ROWS) * 5 + 3)
    index.remove_ids(np.array([3, 8]))
    index.nprobe = 8
    found = sampled_recall(index)
    assert (found.value, found.rows, found.worst) == (1.0, ROWS - 2, 1.0)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_hardly_any_rows(count: int) -> None:
    index = faiss.IndexFlatL2(4)
    index.add(rows(count, 4) if count else np.zeros((0, 4), np.float32))
    assert sampled_recall(index).value == (1.0 if count == 2 else None)


def test_rows_that_are_no_numbers_are_not_asked() -> None:
    x = rows()
    x[:50] = np.nan
    assert sampled_recall(built("Flat", x), count=ROWS).queries == ROWS - 50


def test_another_metric_is_refused() -> None:
    with pytest.raises(IndexRefusedError, match="compares by metric"):
        sampled_recall(built("Flat", rows(), metric=faiss.METRIC_L1))


def test_an_interval_holds_the_truth_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    for mean in (0.5, 0.9, 0.99):
        inside = 0
        for _ in range(400):
            shares = generator.binomial(10, np.clip(mean + generator.normal(0, 0.005, 100), 0, 1)) / 10
            low, high = interval(shares)
            inside += low <= mean <= high
        assert inside / 400 > 0.91, mean
