"""A loop by Accelerate: the optimizer and the model stand in its wrappers, gradients accumulate and are clipped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import embedwatch
from embedwatch.core.snapshot import Snapshot
from embedwatch.sinks.memory import Memory

accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed (extra: real)")
from accelerate.state import AcceleratorState, GradientState, PartialState  # noqa: E402

VOCABULARY, LENGTH, BATCH, BATCHES, ACCUMULATED = 60, 6, 4, 12, 2
STEPS = BATCHES // ACCUMULATED
RATE, CLIP = 0.05, 0.1


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Accelerate keeps the manner of a process for good."""
    yield
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


def model_of() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(VOCABULARY, 8), nn.Linear(8, VOCABULARY))


def batches() -> list[torch.Tensor]:
    return list(torch.randint(VOCABULARY, (BATCHES, BATCH, LENGTH), generator=torch.Generator().manual_seed(1)))


def trained(memory: Memory | None, *, told: bool, precision: str = "no") -> tuple[nn.Module, Any]:
    """Train as the documentation of Accelerate does, with three lines more where it is told."""
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATED, mixed_precision=precision)
    model = model_of()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=RATE))
    options = {"places": ["0"], "every": 1, "window": 2, "budget": None, "on_error": "raise"}
    monitor = None if memory is None else embedwatch.watch(model, sinks=[memory], **options)
    for ids in batches():
        norm = None
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(ids).flatten(0, 1).float(), ids.flatten())
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                norm = accelerator.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            optimizer.zero_grad()
        if monitor is not None and told and accelerator.sync_gradients:
            monitor.step(loss=loss, gradient_norm=norm, gradient_norm_limit=CLIP)
    if monitor is not None:
        monitor.detach()
    return accelerator.unwrap_model(model), monitor


def windows(memory: Memory, place: str) -> list[Snapshot]:
    return [snapshot for snapshot, _, _ in memory.deliveries if snapshot.space.place == place]


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_a_step_is_one_of_the_optimizer_however_many_batches_it_takes(precision: str) -> None:
    memory = Memory()
    plain, _ = trained(None, told=False, precision=precision)
    model, monitor = trained(memory, told=True, precision=precision)
    weights = zip(model.parameters(), plain.parameters(), strict=True)
    assert all(torch.equal(left, right) for left, right in weights)
    assert monitor.errors == {}
    assert monitor.blind() == {}
    training = windows(memory, "training")
    assert sum(int(each.number("steps_total") or 0) for each in training) == STEPS
    assert [each.provenance.step for each in training] == [1, 3, 5, STEPS]
    assert training[-1].number("learning_rate") == RATE
    assert training[-1].number("gradient_norm_mean") > CLIP  # type: ignore[operator]
    assert training[-1].number("gradient_norm_applied_mean") == pytest.approx(CLIP, rel=1e-2)
    moved = windows(memory, "0.weight")[-1]
    assert moved.number("token_update_ratio") > 0  # type: ignore[operator]


def test_the_optimizer_in_its_wrapper_tells_of_steps_by_itself() -> None:
    memory = Memory()
    _, monitor = trained(memory, told=False)
    assert monitor.pulse.ticker == "optimizer"
    assert monitor.pulse.step == STEPS
    assert windows(memory, "training")[-1].number("learning_rate") == RATE


def test_a_step_that_a_scaler_skips_moves_nothing_and_is_counted() -> None:
    memory = Memory()
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    monitor = embedwatch.watch(model, sinks=[memory], places=["0"], every=1, window=4, budget=None, on_error="raise")
    for step, ids in enumerate(batches()):
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        scaler.scale(loss * (torch.inf if step == 4 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        monitor.step()
    monitor.detach()
    assert monitor.errors == {}
    training = windows(memory, "training")
    assert sum(int(each.number("steps_total") or 0) for each in training) == BATCHES
    assert sum(int(each.number("skipped_steps_total") or 0) for each in training) == 1
    for window in windows(memory, "0.weight")[1:]:
        found = window.number("token_update_ratio")
        assert found is None or found > 0  # nothing that stood still is taken for a step
