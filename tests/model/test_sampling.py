"""How a token is chosen: greedily, or drawn as softmax says."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from embedwatch_model.errors import ModelError
from embedwatch_model.rules import apply, temperature, top_k, top_p
from embedwatch_model.sampling import greedy, log_probabilities, sample

LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -30.0])
DRAWS = 100_000
SIGMAS = 4.5
"""Beyond this a binomial count lies once in 150,000 times; the seeds are fixed."""


def frequencies(logits: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    drawn = sample(logits.expand(DRAWS, -1), generator)
    return torch.bincount(drawn, minlength=logits.shape[-1]) / DRAWS


def within_binomial_error(logits: Tensor, seed: int = 0) -> None:
    expected = logits.softmax(-1)
    error = (expected * (1 - expected) / DRAWS).sqrt()
    assert ((frequencies(logits, seed) - expected).abs() <= SIGMAS * error + 1e-9).all()


@pytest.mark.parametrize("tau", [0.5, 1.0, 2.0])
def test_draws_follow_softmax(tau: float) -> None:
    within_binomial_error(LOGITS / tau)


def test_draws_follow_what_the_rules_leave() -> None:
    rules = [partial(temperature, tau=1.5), partial(top_k, k=4), partial(top_p, p=0.9)]
    ruled = apply(rules, torch.zeros(1, 1, dtype=torch.int64), LOGITS[None])[0]
    within_binomial_error(ruled, seed=1)
    assert (frequencies(ruled, seed=2)[~ruled.isfinite()] == 0).all()


def test_single_draws_follow_softmax_too() -> None:
    """One row at a time, as in generation, from one generator that moves on."""
    generator = torch.Generator().manual_seed(3)
    drawn = torch.cat([sample(LOGITS[None, :3], generator) for _ in range(4_000)])
    expected = LOGITS[:3].softmax(-1)
    error = (expected * (1 - expected) / len(drawn)).sqrt()
    assert ((torch.bincount(drawn, minlength=3) / len(drawn) - expected).abs() <= SIGMAS * error).all()


def test_the_seed_decides_and_the_global_generator_stays() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    logits = torch.randn(50, 30, generator=torch.Generator().manual_seed(1))
    first, again, other = (sample(logits, torch.Generator().manual_seed(seed)) for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_greedy_takes_the_first_of_the_largest() -> None:
    assert greedy(torch.tensor([[0.0, 3.0, 3.0], [-torch.inf, -torch.inf, -5.0]])).tolist() == [1, 2]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_log_probabilities_in_single_precision_at_least(dtype: torch.dtype) -> None:
    logits = (10 * torch.randn(3, 1_000, generator=torch.Generator().manual_seed(0))).to(dtype)
    found = log_probabilities(logits)
    assert found.dtype == torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(found.double().logsumexp(-1), torch.zeros(3, dtype=torch.float64), atol=1e-5, rtol=0)


@pytest.mark.parametrize("choose", [greedy, partial(sample, generator=torch.Generator())])
def test_rows_without_a_choice_are_named(choose: partial[Tensor]) -> None:
    good = torch.zeros(3)
    with pytest.raises(ModelError, match=r"`rules` must leave a token to choose, got none in row 1; "):
        choose(torch.stack([good, torch.full((3,), -torch.inf)]))
    for value in ("nan", "inf"):
        bad = torch.tensor([0.0, float(value), 1.0])
        with pytest.raises(ModelError, match=rf"`logits` must be finite numbers, got {value} in row 2; "):
            choose(torch.stack([good, good, bad]))
