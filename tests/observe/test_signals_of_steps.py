"""What a Monitor sees of a training step by itself: predictions, gradients, steps that are skipped."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from embedwatch.monitor import Monitor, watch
from embedwatch.observe.gradients import gradient_norms
from embedwatch.observe.predictions import predictions

VOCABULARY, LIMIT = 40, 0.01


def test_predictions_are_those_of_real_rows() -> None:
    logits = torch.randn(2, 5, 11, generator=torch.Generator().manual_seed(0))
    valid = torch.tensor([[True, True, True, False, False], [True, False, False, False, False]])
    found = predictions(logits, forward=0, valid=valid)
    real = logits[valid]
    probabilities = real.softmax(1)
    entropy = -(probabilities * probabilities.log()).sum(1).mean() / math.log(11)
    assert float(found["output_entropy"]) == pytest.approx(float(entropy), rel=1e-5)
    assert float(found["output_top_share"]) == pytest.approx(int(real.argmax(1).bincount().max()) / 4)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_predictions_that_are_no_numbers_are_nan(value: float) -> None:
    found = predictions(torch.full((3, 7), value), forward=0)
    assert all(math.isnan(float(scalar)) for scalar in found.values())


def test_no_real_row_is_nan_and_a_forbidden_token_is_fine() -> None:
    logits = torch.zeros(4, 8)
    nothing = predictions(logits, forward=0, valid=torch.zeros(4, dtype=torch.bool))
    assert all(math.isnan(float(scalar)) for scalar in nothing.values())
    logits[:, 0] = -math.inf
    assert float(predictions(logits, forward=0)["output_entropy"]) == pytest.approx(math.log(7) / math.log(8))


def test_rows_of_a_large_vocabulary_are_few() -> None:
    seen: list[tuple[int, ...]] = []

    class Notes(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = function(*args, **(kwargs or {}))
            if isinstance(found, Tensor):
                seen.append(tuple(found.shape))
            return found

    with Notes():  # type: ignore[no-untyped-call]
        predictions(torch.zeros(100, 131_072, dtype=torch.bfloat16), forward=0)
    assert {shape[0] for shape in seen if len(shape) == 2 and shape[1] == 131_072} == {32, 100}


def test_the_norm_is_that_of_all_gradients_and_of_the_table() -> None:
    weights = [torch.ones(3, requires_grad=True), torch.ones(2, 2, requires_grad=True), torch.ones(5)]
    (weights[0].sum() * 2 + weights[1].sum() * 3).backward()
    found = gradient_norms(weights, weights[1])
    assert float(found["gradient_norm_applied"]) == pytest.approx(math.sqrt(3 * 4 + 4 * 9))
    assert float(found["table_gradient_norm"]) == pytest.approx(6.0)
    assert gradient_norms([torch.ones(3)]) == {}


def test_sparse_gradients_have_no_norm() -> None:
    table = nn.Embedding(5, 3, sparse=True)
    table(torch.tensor([1, 1, 2])).sum().backward()
    assert gradient_norms(table.parameters()) == {}


def trained(model: nn.Module, *, steps: int, skip: tuple[int, ...] = (), parts: int = 1, **scalars: Any) -> Monitor:
    """Train, clip, and tell each step; some without a step of the optimizer, or only every so many."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(0)
    with watch(model, places=["0"], every=1, window=1_000, sinks=[], budget=None, on_error="raise") as monitor:
        for step in range(1, steps + 1):
            ids = torch.randint(VOCABULARY, (4, 6), generator=generator)
            nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
            if step not in skip and step % parts == 0:
                optimizer.step()
                optimizer.zero_grad()
            monitor.step(**scalars)
    return monitor


def model_of(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Embedding(VOCABULARY, 8), nn.Linear(8, VOCABULARY))


def test_a_plain_loop_needs_to_tell_nothing() -> None:
    found = trained(model_of(), steps=10).snapshots["training"]
    assert found.number("gradient_norm_applied_mean") == pytest.approx(LIMIT, rel=0.01)
    table = found.number("table_gradient_norm_mean")
    assert table is not None
    assert 0 < table < LIMIT
    assert 0.5 < (found.number("output_entropy_ratio") or 0) < 1
    assert 0 < (found.number("output_top_share_ratio") or 0) < 1
    assert found.number("chance_loss") == pytest.approx(math.log(VOCABULARY))
    assert found.number("skipped_steps_total") == 0


def test_who_says_it_knows_it_better() -> None:
    assert trained(model_of(), steps=5, gradient_norm_applied=7.0).snapshots["training"].number(
        "gradient_norm_applied_mean"
    ) == pytest.approx(7.0)


def test_steps_without_one_of_the_optimizer_were_skipped() -> None:
    assert trained(model_of(), steps=12, skip=(5, 9)).snapshots["training"].number("skipped_steps_total") == 2


def test_parts_of_an_accumulated_batch_are_not_skipped() -> None:
    assert trained(model_of(), steps=12, parts=4).snapshots["training"].number("skipped_steps_total") == 0


def test_outputs_that_are_no_tokens_are_not_looked_at() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(VOCABULARY, 8), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, places=["0"], every=1, sinks=[], budget=None, on_error="raise") as monitor:
        for _ in range(3):
            model(torch.arange(VOCABULARY)[None]).square().mean().backward()
            optimizer.step()
            monitor.step()
    assert monitor.snapshots["training"].number("output_entropy_ratio") is None


def test_training_is_the_same_to_the_bit() -> None:
    watched = model_of()
    trained(watched, steps=6)
    plain = model_of()
    optimizer, generator = torch.optim.SGD(plain.parameters(), lr=0.1), torch.Generator().manual_seed(0)
    for _ in range(6):
        ids = torch.randint(VOCABULARY, (4, 6), generator=generator)
        nn.functional.cross_entropy(plain(ids).flatten(0, 1), ids.flatten()).backward()
        nn.utils.clip_grad_norm_(plain.parameters(), LIMIT)
        optimizer.step()
        optimizer.zero_grad()
    for ours, theirs in zip(watched.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)
