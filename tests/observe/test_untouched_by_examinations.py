"""What is examined beside a training, with everything on, leaves its results and its random numbers alone."""

from __future__ import annotations

import threading
from contextlib import nullcontext

import pytest
import torch

from embedwatch.core.errors import InputError
from embedwatch.diagnosing import diagnose
from embedwatch.inquiry import Inquiry
from embedwatch.loading.live import LiveSubject
from embedwatch.monitor import watch
from embedwatch.observe.passes import entering, leaving
from embedwatch.observe.resting import beside_work
from tests.observe import tiny


def test_a_diagnosis_on_another_thread_does_not_put_random_numbers_back() -> None:
    """Random numbers that are kept and put back on one thread are taken twice on another."""
    model = tiny.shared("llama-lm")

    def examine() -> None:
        for _ in range(3):
            with beside_work():  # as a Monitor asks
                diagnose(Inquiry(LiveSubject(model)))

    thread = threading.Thread(target=examine)
    torch.manual_seed(0)
    thread.start()
    beside = []
    while thread.is_alive():
        beside.append(torch.rand(1))
    torch.manual_seed(0)
    assert tiny.identical(torch.cat(beside), torch.cat([torch.rand(1) for _ in beside]))


def test_a_model_that_may_be_at_work_is_not_run_and_nothing_hangs_there() -> None:
    model = tiny.build("llama-lm").train()
    hooks = [dict(part._forward_pre_hooks) for part in model.modules()]
    with beside_work():
        for run in (entering, leaving):
            with pytest.raises(InputError, match="must be at rest"):
                run(model, tiny.numbers(2, 5))
    assert [dict(part._forward_pre_hooks) for part in model.modules()] == hooks
    assert all(part.training for part in model.modules())
    assert entering(model, tiny.numbers(2, 5)) is not None  # who asks for it may


def trained(kind: str, *, watching: bool) -> list[torch.Tensor]:
    """Return weights and generators after a few steps with dropout; the table is examined before each."""
    model = tiny.build(kind).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(1)
    options = {"every": 1, "attention_every": 1, "window": 1, "sinks": [], "on_error": "raise", "budget": None}
    with watch(model, **options) if watching else nullcontext() as monitor:
        for step in range(3):
            if monitor is not None:
                monitor.examine()
            tiny.tensors(model(**tiny.inputs(kind, seed=step)))[0].square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return [*model.state_dict().values(), *tiny.generators()]


@pytest.mark.parametrize("kind", ["gpt2-lm", "bart-lm"])
def test_training_with_everything_on_ends_at_the_same_weights(kind: str) -> None:
    alone, together = trained(kind, watching=False), trained(kind, watching=True)
    assert all(map(tiny.identical, alone, together))
