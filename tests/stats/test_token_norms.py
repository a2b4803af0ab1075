"""Norms of a table, token by token: known answers, evidence, what is left out, and the frequency correlation."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from embedwatch.batch import TokenBatch
from embedwatch.core import MergeError, Statistic, UsageError
from embedwatch.core.registry import get


def statistic(**settings: Any) -> Statistic[Any]:
    return get(Statistic, "token_norms")(**settings)


def table(norms: torch.Tensor, counts: torch.Tensor | None = None) -> TokenBatch:
    unknown = torch.full_like(norms, torch.nan)
    seen = torch.zeros(len(norms), dtype=torch.int64) if counts is None else counts
    return TokenBatch(torch.arange(len(norms)), norms, seen, unknown, unknown)


def values(fed: Statistic[Any]) -> dict[str, float | None]:
    return {measurement.name: measurement.number for measurement in fed.compute()}


def test_zero_and_nonfinite_rows_are_counted_apart_and_enter_nothing() -> None:
    fed = statistic()
    fed.update(table(torch.tensor([0.0, torch.nan, torch.inf, 2.0, 2.0, 2.0])))
    found = values(fed)
    assert (found["zero_token_rows"], found["nonfinite_token_rows"]) == (1, 2)
    assert (found["token_norm_mean"], found["token_norm_extreme_ratio"]) == (2.0, 1.0)


def test_the_share_of_long_rows_is_exact_off_the_limit() -> None:
    norms = torch.ones(1_000)
    norms[:37], norms[37:50] = 30.0, 9.8
    fed = statistic()
    fed.update(table(norms))
    assert values(fed)["token_norm_over_ratio"] == 0.037
    stricter = statistic(limit=5.0)
    stricter.update(table(norms))
    assert values(stricter)["token_norm_over_ratio"] == 0.05


def test_a_correlation_that_was_put_in_comes_out_within_its_error() -> None:
    generator = torch.Generator().manual_seed(0)
    counts = torch.exp(3 + torch.randn(5_000, generator=generator)).long() + 1
    noise = torch.randn(5_000, generator=generator)
    logarithms = torch.log1p(counts.double())
    scale = logarithms.std()
    norms = torch.exp(0.1 * (logarithms - logarithms.mean()) / scale + 0.1 * noise)
    fed = statistic()
    fed.update(table(norms, counts))
    found = next(each for each in fed.compute() if each.name == "token_norm_frequency_correlation")
    assert found.error is not None
    assert found.number == pytest.approx(0.5**0.5, abs=4 * found.error)


def test_tokens_that_never_came_enter_no_correlation() -> None:
    fed = statistic()
    fed.update(table(torch.tensor([1.0, 2.0, 3.0, 50.0, 60.0]), torch.tensor([1, 3, 9, 0, 0])))
    assert values(fed)["token_norm_frequency_correlation"] == pytest.approx(0.99, abs=0.02)
    assert values(fed)["tokens_seen_ratio"] == 0.6


@pytest.mark.parametrize("norms", [[1.0, 2.0], [1.0, 1.0, 1.0, 1.0]], ids=["two tokens", "equal norms"])
def test_no_correlation_where_there_can_be_none(norms: list[float]) -> None:
    fed = statistic()
    fed.update(table(torch.tensor(norms), torch.arange(len(norms)) + 1))
    assert values(fed)["token_norm_frequency_correlation"] is None


def test_the_longest_rows_are_shown_with_how_often_they_came() -> None:
    fed, other = statistic(), statistic()
    whole = table(torch.tensor([1.0, 5.0, 9.0, 2.0]), torch.tensor([7, 0, 3, 1]))
    fed.update(whole.take(slice(0, 2)))
    other.update(whole.take(slice(2, 4)))
    fed.merge(other)
    (exhibit,) = fed.exhibits()
    assert exhibit.columns == ("row", "norm", "times_seen")
    assert exhibit.rows == ((2, 9.0, 3), (1, 5.0, 0), (3, 2.0, 1), (0, 1.0, 7))


def test_a_limit_below_the_median_is_refused() -> None:
    with pytest.raises(UsageError, match=r"`limit` must be above 1, got 0\.5"):
        statistic(limit=0.5)


def test_parts_that_saw_other_rows_are_refused() -> None:
    fed = statistic()
    fed.update(table(torch.ones(4)))
    state = fed.state_dict()
    state["totals.rows"] = torch.tensor(9)
    with pytest.raises(MergeError, match="same rows"):
        statistic().load_state_dict(state)
