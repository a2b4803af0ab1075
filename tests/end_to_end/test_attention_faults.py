"""Faults of attention are found in short real trainings; their healthy twins are silent."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from embedwatch.core import Check
from embedwatch.core.registry import registered
from embedwatch_model import MultiHeadAttention, Transformer
from embedwatch_model.objectives import IGNORE, masked
from embedwatch_model.position_bias import AlibiPositions
from embedwatch_model.positions import LearnedPositions, SinusoidalPositions
from embedwatch_model.rotary import RotaryPositions
from tests.end_to_end.short_trainings import VOCABULARY, Act, Training, language_loss, train

pytestmark = pytest.mark.slow

FIRST, SECOND = "layers.0.attention", "layers.1.attention"
HEAD = slice(16, 32)
"""The rows of a projection that belong to the second of four heads."""
SCHEMES = ["sinusoidal", "learned", "rope", "alibi", "relative"]
ATTENTION = {name for name, check in registered(Check).items() if check.roles == ("attention",)}
Plant = Callable[[Transformer], None]


def watched(**options: Any) -> Training:
    """Train with a look at attention in every step that is looked at."""
    return train(**{"steps": 80, "attention_every": 1, **options})


def encoder_options() -> dict[str, Any]:
    """Return what trains an encoder to fill in masked tokens."""
    generator = torch.Generator().manual_seed(3)

    def loss_of(model: Transformer, batch: Tensor) -> Tensor:
        hidden = masked(batch[:, :-1], vocabulary=VOCABULARY, generator=generator)
        return functional.cross_entropy(model(hidden.ids).logits.transpose(1, 2), hidden.targets, ignore_index=IGNORE)

    return {"kind": "encoder", "loss_of": loss_of, "validate": loss_of}


def places(training: Training, check: str) -> set[str]:
    """Return where a check found something."""
    return {place for name, place, _ in training.found if name == check}


def attention(model: Transformer, layer: int) -> MultiHeadAttention:
    module: MultiHeadAttention = model.get_submodule(f"layers.{layer}.attention")  # type: ignore[assignment]
    return module


def once(act: Act, *, at: int) -> Act:
    """Return what acts after one step only."""
    steps = count(1)
    return lambda model: act(model) if next(steps) == at else None


def since(act: Act, *, at: int) -> Act:
    """Return what acts after each step from one on."""
    steps = count(1)
    return lambda model: act(model) if next(steps) >= at else None


@pytest.mark.parametrize("positions", SCHEMES)
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_healthy_decoder_is_silent(positions: str, dropout: float) -> None:
    training = watched(positions=positions, dropout=dropout)
    assert training.found == {}
    judged = {verdict.check for verdict in training.monitor.verdicts if verdict.status == "ok"}
    assert judged >= ATTENTION - {"attention_long_range", "attention_sinks"}, "texts of 48 tokens are too short for far"


@pytest.mark.parametrize("positions", SCHEMES)
def test_a_healthy_encoder_is_silent(positions: str) -> None:
    assert watched(positions=positions, dropout=0.0, **encoder_options()).found == {}


def without_places(model: Transformer) -> None:
    """Switch off whatever tells places."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, SinusoidalPositions):
                module.table.zero_()
            elif isinstance(module, LearnedPositions):
                module.table.weight.zero_().requires_grad_(False)
            elif isinstance(module, AlibiPositions):
                module.slopes.zero_()
            elif isinstance(module, RotaryPositions):
                module.rotate = lambda heads, at: heads  # type: ignore[method-assign]


TABLES = ("sinusoidal", "learned")
"""Positions that are added from a table, which is all zero where they are switched off: that is told as well."""


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rope", "alibi"])
def test_positions_that_are_switched_off_in_a_decoder(positions: str) -> None:
    training = watched(steps=30, positions=positions, dropout=0.0, start=without_places)
    expected = {("attention_order", FIRST, "warn"): 20}
    if positions in TABLES:
        expected["position_balance", "embedding.tokens.weight", "fail"] = 10
    if positions == "learned":
        expected["position_dead", "positions", "fail"] = 0  # told from the table itself, before anything ran
    assert training.found == expected
    assert "two near keys the same logit" in training.first("attention_order").reason


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rope", "alibi"])
def test_positions_that_are_switched_off_in_an_encoder(positions: str) -> None:
    training = watched(steps=30, positions=positions, dropout=0.0, start=without_places, **encoder_options())
    assert places(training, "attention_order") == {FIRST, SECOND}, "a bag of words at any depth"
    tables = {"sinusoidal": {"position_balance"}, "learned": {"position_balance", "position_dead"}}
    assert training.checks == {"attention_order", *tables.get(positions, ())}


def ten_times(model: Transformer) -> None:
    with torch.no_grad():
        for layer in (0, 1):
            for parameter in attention(model, layer).to_query.parameters():
                parameter.mul_(10)


def test_logits_ten_times_too_large_from_the_start() -> None:
    training = watched(steps=40, start=ten_times)
    assert training.found["attention_collapse", FIRST, "warn"] == 10
    assert training.checks == {"attention_collapse"}


def test_logits_that_become_ten_times_as_large() -> None:
    training = watched(after_step=once(ten_times, at=40))
    assert training.found["attention_collapse", FIRST, "fail"] == 50
    assert places(training, "attention_collapse") == {FIRST, SECOND}
    assert training.checks & ATTENTION == {"attention_collapse"}


def silenced(model: Transformer) -> None:
    with torch.no_grad():
        for parameter in attention(model, 1).to_value.parameters():
            parameter[HEAD] = 0


def cut_off(model: Transformer) -> None:
    def hook(module: torch.nn.Module, inputs: object, output: Tensor) -> Tensor:
        kept = torch.ones(output.shape[1])
        kept[1] = 0
        return output * kept[:, None, None]

    attention(model, 1).value.register_forward_hook(hook)


@pytest.mark.parametrize(
    ("options", "step", "empty"),
    [
        ({"start": silenced, "after_step": silenced}, 10, 0),
        ({"start": cut_off}, 10, None),
        ({"after_step": since(silenced, at=35)}, 50, 60),
    ],
    ids=["zero weights", "zero values", "in the middle"],
)
def test_a_head_that_puts_nothing_out(options: dict[str, Any], step: int, empty: int | None) -> None:
    training = watched(steps=60, **options)
    weights = {} if empty is None else {("empty_units", "layers", "warn"): empty}  # at the start, or when it was saved
    assert training.found == {("attention_dead_heads", SECOND, "warn"): step, **weights}
    assert "25% of the heads" in training.first("attention_dead_heads").reason


def copied(model: Transformer) -> None:
    with torch.no_grad():
        for projection in (attention(model, 1).to_query, attention(model, 1).to_key):
            for parameter in projection.parameters():
                parameter[HEAD] = parameter[: HEAD.start]


def test_a_head_that_is_the_copy_of_another() -> None:
    training = watched(steps=60, start=copied, after_step=copied)
    assert training.found == {("attention_twin_heads", SECOND, "warn"): 10}


def test_keys_that_are_no_numbers_in_a_batch_that_is_skipped() -> None:
    steps = iter(range(1_000))
    broken: list[bool] = []

    def hook(module: torch.nn.Module, inputs: object, output: Tensor) -> Tensor:
        return output * torch.nan if broken else output

    def loss_of(model: Transformer, batch: Tensor) -> Tensor:
        broken[:] = [True] * (next(steps) in (24, 25))
        loss = language_loss(model, batch)
        broken.clear()
        nothing = torch.stack([parameter.sum() for parameter in model.parameters()]).sum() * 0
        return loss if math.isfinite(float(loss.detach())) else nothing

    training = watched(steps=40, loss_of=loss_of, start=lambda model: _on_keys(model, hook))
    assert training.found["attention_nonfinite", SECOND, "fail"] in range(25, 31), "as soon as the evaluator knows"
    assert training.checks & ATTENTION == {"attention_nonfinite"}
    assert places(training, "attention_nonfinite") == {SECOND}


def _on_keys(model: Transformer, hook: Callable[[torch.nn.Module, object, Tensor], Tensor]) -> None:
    attention(model, 1).key.register_forward_hook(hook)
