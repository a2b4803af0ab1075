"""Each rule against the Hugging Face processor of its name, and against what its docstring says."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.generation import logits_process as theirs

from embedwatch_model.errors import ModelError
from embedwatch_model.rule_chain import usual_rules
from embedwatch_model.rules import (
    Rule,
    apply,
    no_repeat_ngram,
    repetition_penalty,
    temperature,
    top_k,
    top_p,
)
from embedwatch_model.sampling import greedy

CHAIN: list[Rule] = [
    partial(repetition_penalty, theta=1.3),
    partial(no_repeat_ngram, n=2),
    partial(temperature, tau=0.7),
    partial(top_k, k=3),
    partial(top_p, p=0.8),
]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Ids (B, T) that repeat themselves, and logits (B, V) of both signs."""
    B, T, V = draw(st.integers(1, 4)), draw(st.integers(1, 12)), draw(st.integers(1, 20))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    ids = torch.randint(0, min(V, draw(st.integers(1, 5))), (B, T), generator=generator)
    spread = draw(st.sampled_from([0.1, 1.0, 10.0]))
    return ids, spread * torch.randn(B, V, generator=generator, dtype=torch.float64)


def same(ours: Rule, processor: Any, case: tuple[Tensor, Tensor]) -> None:
    ids, logits = case
    before = ids.clone(), logits.clone()
    found = ours(ids, logits)
    assert torch.equal(ids, before[0])
    assert torch.equal(logits, before[1])
    torch.testing.assert_close(found, processor(ids, logits.clone()))


@settings(max_examples=60)
@given(case=cases(), tau=st.floats(0.01, 10))
def test_temperature(case: tuple[Tensor, Tensor], tau: float) -> None:
    same(partial(temperature, tau=tau), theirs.TemperatureLogitsWarper(tau), case)


@settings(max_examples=60)
@given(case=cases(), k=st.integers(1, 25))
def test_top_k(case: tuple[Tensor, Tensor], k: int) -> None:
    same(partial(top_k, k=k), theirs.TopKLogitsWarper(k), case)


@settings(max_examples=60)
@given(case=cases(), p=st.floats(0.01, 0.999) | st.just(1.0))
def test_top_p(case: tuple[Tensor, Tensor], p: float) -> None:
    same(partial(top_p, p=p), theirs.TopPLogitsWarper(p), case)


@settings(max_examples=60)
@given(case=cases(), theta=st.floats(0.1, 5))
def test_repetition_penalty(case: tuple[Tensor, Tensor], theta: float) -> None:
    same(partial(repetition_penalty, theta=theta), theirs.RepetitionPenaltyLogitsProcessor(theta), case)


@settings(max_examples=100)
@given(case=cases(), n=st.integers(1, 5))
def test_no_repeat_ngram(case: tuple[Tensor, Tensor], n: int) -> None:
    same(partial(no_repeat_ngram, n=n), theirs.NoRepeatNGramLogitsProcessor(n), case)


@settings(max_examples=60)
@given(case=cases())
def test_a_chain_of_all(case: tuple[Tensor, Tensor]) -> None:
    processors = theirs.LogitsProcessorList(
        [
            theirs.RepetitionPenaltyLogitsProcessor(1.3),
            theirs.NoRepeatNGramLogitsProcessor(2),
            theirs.TemperatureLogitsWarper(0.7),
            theirs.TopKLogitsWarper(3),
            theirs.TopPLogitsWarper(0.8),
        ]
    )
    same(partial(apply, CHAIN), processors, case)


@settings(max_examples=60)
@given(case=cases(), padding=st.integers(1, 6), p=st.sampled_from(range(len(CHAIN))))
def test_padding_counts_for_nothing(case: tuple[Tensor, Tensor], padding: int, p: int) -> None:
    ids, logits = case
    padded = torch.cat([torch.full((len(ids), padding), -1), ids], dim=1)
    assert torch.equal(CHAIN[p](padded, logits), CHAIN[p](ids, logits))


@settings(max_examples=60)
@given(case=cases(), p=st.floats(0.01, 0.99))
def test_the_nucleus_is_the_smallest_set_that_holds_p(case: tuple[Tensor, Tensor], p: float) -> None:
    probability = case[1].softmax(-1)
    kept = top_p(case[0], case[1], p=p).isfinite()
    for row, keep in zip(probability, kept, strict=True):
        assert row[keep].sum() >= p - 1e-12
        assert row[keep].sum() - row[keep].min() < p + 1e-12
        assert not (~keep).any() or row[~keep].max() <= row[keep].min()


@settings(max_examples=30)
@given(case=cases())
def test_temperature_zero_is_its_limit(case: tuple[Tensor, Tensor]) -> None:
    ids, logits = case
    limit = temperature(ids, logits, tau=0)
    assert (limit.isfinite().sum(-1) == 1).all()
    assert torch.equal(greedy(limit), greedy(logits))
    torch.testing.assert_close(limit.softmax(-1), temperature(ids, logits, tau=1e-9).softmax(-1))


@settings(max_examples=30)
@given(case=cases(), tau=st.floats(0.1, 5))
def test_temperature_may_change_places_with_penalties_and_bans(case: tuple[Tensor, Tensor], tau: float) -> None:
    warm = partial(temperature, tau=tau)
    for rule in CHAIN[:2]:
        torch.testing.assert_close(apply([warm, rule], *case), apply([rule, warm], *case))


def test_equals_at_the_border_of_top_k_all_stay() -> None:
    logits = torch.tensor([[1.0, 2.0, 1.0, 0.0]])
    assert top_k(torch.zeros(1, 1, dtype=torch.int64), logits, k=2).isfinite().tolist() == [[True, True, True, False]]


def test_a_nucleus_of_one_keeps_all_however_sums_are_rounded() -> None:
    logits = 3 * torch.randn(1, 50_000, generator=torch.Generator().manual_seed(0))
    assert top_p(torch.zeros(1, 1, dtype=torch.int64), logits, p=1.0).isfinite().all()


def test_a_gap_in_the_ids_is_no_part_of_any_ngram() -> None:
    logits = torch.zeros(1, 6)
    assert no_repeat_ngram(torch.tensor([[-1, 5, 3, -1, 5]]), logits, n=3).isfinite().all()
    assert no_repeat_ngram(torch.tensor([[-1, 5, 3, -1, 5]]), logits, n=2).isfinite().tolist()[0][3] is False


def test_an_id_outside_the_logits_is_dropped() -> None:
    ids, logits = torch.tensor([[7, 1]]), torch.tensor([[1.0, 1.0]])
    assert repetition_penalty(ids, logits, theta=2).tolist() == [[1.0, 0.5]]
    assert no_repeat_ngram(ids, logits, n=1).tolist() == [[1.0, -torch.inf]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("rule", range(len(CHAIN)))
def test_every_float_type_stays(rule: int, dtype: torch.dtype) -> None:
    logits = torch.randn(2, 9, generator=torch.Generator().manual_seed(0)).to(dtype)
    found = CHAIN[rule](torch.tensor([[1, 2, 1], [3, 3, 3]]), logits)
    assert found.dtype == dtype
    assert found.shape == logits.shape
    assert not found.isnan().any()


def test_a_row_that_the_rules_emptied_stays_empty() -> None:
    logits = torch.full((1, 4), -torch.inf)
    assert torch.equal(apply(CHAIN, torch.tensor([[0]]), logits), logits)


@pytest.mark.parametrize(
    ("rule", "value", "name"),
    [
        (partial(temperature, tau=-1.0), "-1.0", "temperature"),
        (partial(temperature, tau=float("nan")), "nan", "temperature"),
        (partial(temperature, tau=float("inf")), "inf", "temperature"),
        (partial(top_k, k=0), "0", "top_k"),
        (partial(top_k, k=True), "True", "top_k"),
        (partial(top_k, k=2.5), "2.5", "top_k"),
        (partial(top_p, p=0.0), "0.0", "top_p"),
        (partial(top_p, p=1.5), "1.5", "top_p"),
        (partial(top_p, p=float("nan")), "nan", "top_p"),
        (partial(repetition_penalty, theta=0.0), "0.0", "repetition_penalty"),
        (partial(repetition_penalty, theta=float("inf")), "inf", "repetition_penalty"),
        (partial(no_repeat_ngram, n=-3), "-3", "no_repeat_ngram"),
    ],
)
def test_a_wrong_value_is_refused_with_name_value_and_remedy(rule: Rule, value: str, name: str) -> None:
    with pytest.raises(ModelError, match=rf"^`{name}` must be .*, got {value}; "):
        rule(torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, 3))


def test_usual_rules_are_bound_in_their_order_and_refuse_at_once() -> None:
    rules = usual_rules(top_p=0.8, top_k=3, no_repeat_ngram=2, repetition_penalty=1.3)
    assert [rule.func.__name__ for rule in rules] == [rule.func.__name__ for rule in CHAIN if rule is not CHAIN[2]]
    assert usual_rules() == []
    with pytest.raises(ModelError, match="`top_k` must be"):
        usual_rules(top_k=0)
