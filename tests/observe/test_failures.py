"""What fails on our side is counted, logged once and switched off; what fails in the model is none of our business."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from embedwatch.monitor import Monitor, watch
from embedwatch.observe.observer import Observer
from embedwatch.observe.scopes import Scope
from tests.observe import tiny

PLACE = "encoder.layer.1"
PATIENCE = 5


def watched(model: nn.Module, **options: Any) -> Monitor:
    return watch(model, **{"every": 1, "sinks": [], "only": ["norms"], "on_error": "count", "budget": None, **options})


def observer(monitor: Monitor, place: str = PLACE) -> Observer:
    return next(each for each in monitor._attachment.observers if each.place.name == place)


class Broken:
    """Raises, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, *anything: Any, **named: Any) -> Any:
        self.asked += 1
        raise ZeroDivisionError("ours")


@pytest.mark.parametrize("train", [False, True])
def test_an_observer_that_raises_is_counted_logged_once_and_switched_off(
    train: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, batch = tiny.build("bert"), tiny.inputs("bert")
    before = tiny.run(model, batch, train=train)
    broken = Broken()
    with watched(model) as monitor:
        tiny.run(model, batch, train=train)
        monkeypatch.setattr(observer(monitor), "_look", broken)
        for number in range(1, PATIENCE + 4):
            assert not tiny.run(model, batch, train=train).differences(before)
            assert monitor.errors == {("observer", PLACE): min(number, PATIENCE)}
        assert broken.asked == PATIENCE
        assert observer(monitor, "encoder.layer.0").looks == PATIENCE + 4
        assert monitor.blind() == {PLACE: "looking at it failed too often in a row, see the log"}
    records = [record for record in caplog.records if PLACE in record.getMessage() and record.levelno >= logging.ERROR]
    assert [record.exc_info is not None for record in records] == [True, False]
    assert "in a row" in records[1].getMessage()


def test_an_observer_that_recovers_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = tiny.build("bert"), tiny.inputs("bert")
    with watched(model) as monitor:
        for _ in range(3):
            with monkeypatch.context() as patched:
                patched.setattr(observer(monitor), "_look", Broken())
                for _ in range(PATIENCE - 1):
                    tiny.run(model, batch)
            before = observer(monitor).looks
            tiny.run(model, batch)
            assert observer(monitor).looks == before + 1
        assert monitor.errors == {("observer", PLACE): 3 * (PATIENCE - 1)}


def test_a_scope_that_raises_costs_the_mask_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = tiny.build("bert"), tiny.inputs("bert")
    before = tiny.run(model, batch)
    broken = Broken()
    monkeypatch.setattr(Scope, "see", broken)
    with watched(model) as monitor:
        scopes = len(monitor._attachment._scopes)
        for _ in range(PATIENCE + 2):
            assert not tiny.run(model, batch).differences(before)
        assert broken.asked == scopes * PATIENCE
        assert sum(monitor.errors.values()) == scopes * PATIENCE
        assert observer(monitor).looks == PATIENCE + 2


def test_a_tick_that_raises_does_not_stop_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = tiny.build("bert"), tiny.inputs("bert")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with watched(model) as monitor:
        monkeypatch.setattr(monitor._attachment.table, "stepped", Broken())
        for step in range(3):
            model(**batch).last_hidden_state.square().mean().backward()
            optimizer.step()
            assert monitor.pulse.step == step + 1
        assert monitor.errors == {("monitor", "tick"): 3}


def test_where_exceptions_are_to_be_raised_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = tiny.build("bert"), tiny.inputs("bert")
    with watched(model, on_error="raise") as monitor:
        with monkeypatch.context() as patched:
            patched.setattr(observer(monitor), "_look", Broken())
            with pytest.raises(ZeroDivisionError, match="ours"):
                model(**batch)
        tiny.run(model, batch)
        assert observer(monitor).looks == 1


class Hostile:
    """An output whose parts must not be asked for."""

    @property
    def last_hidden_state(self) -> Tensor:
        raise RuntimeError("not now")


class Odd(nn.Module):
    """Gives what the model around it does not care about."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output
        self.linear = nn.Linear(1, 1)

    def forward(self, rows: Tensor) -> Any:
        return self.output


class WithOdd(nn.Module):
    """Has a place with an odd output."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.tokens = nn.Embedding(tiny.VOCABULARY, tiny.D)
        self.odd = Odd(output)

    def forward(self, ids: Tensor) -> Tensor:
        rows: Tensor = self.tokens(ids)
        self.odd(rows)
        return rows


def test_an_output_that_raises_when_it_is_looked_at_harms_nobody() -> None:
    model = WithOdd(Hostile())
    ids = tiny.numbers(2, 5)
    with watched(model, places=["tokens", "odd"]) as monitor:
        assert torch.equal(model(ids), model.tokens(ids))
        assert monitor.errors == {("observer", "odd"): 1}


ODD: dict[str, Any] = {
    "nothing": None,
    "an empty tuple": (),
    "a tuple of nothing": (None, torch.ones(2, 3)),
    "numbers": torch.arange(6).reshape(2, 3),
    "one dimension": torch.ones(3),
    "a text": "text",
    "a mapping without vectors": {"loss": torch.tensor(1.0)},
    "sparse": torch.eye(3).to_sparse(),
    "without data": torch.ones(2, 3, device="meta"),
    "without rows": torch.ones(0, 3),
    "complex": torch.ones(2, 3, dtype=torch.complex64),
}


@pytest.mark.parametrize("output", ODD)
def test_an_output_without_vectors_is_blind_with_a_cause(output: str) -> None:
    model = WithOdd(ODD[output])
    with watched(model, places=["tokens", "odd"], on_error="raise") as monitor:
        model(tiny.numbers(2, 5))
        assert list(monitor.blind()) == ["odd"]
        assert monitor.blind()["odd"]


def test_a_nan_or_infinity_in_an_output_is_seen_as_it_is() -> None:
    rows = torch.ones(4, 3)
    rows[0, 0], rows[1, 1] = float("nan"), float("inf")
    model = WithOdd(rows)
    with tiny.eyes(model, ["odd"]) as eyes:
        model(tiny.numbers(2, 5))
        assert tiny.identical(eyes.looks("odd")[0], rows)


def test_an_exception_of_the_model_comes_through_and_the_next_pass_is_seen() -> None:
    model, batch = tiny.build("bert"), tiny.inputs("bert")
    failing = [True]

    def fail(*_: Any) -> None:
        if failing[0]:
            raise KeyError("the model's own")

    model.get_submodule("encoder.layer.0").register_forward_hook(fail)
    with tiny.eyes(model) as eyes, torch.no_grad():
        for _ in range(3):
            with pytest.raises(KeyError, match="the model's own"):
                model(**batch)
        assert eyes.looks(PLACE) == []
        assert eyes.pulse.context.masks == {}
        assert not eyes.pulse.context.inside
        failing[0] = False
        model(**batch)
        assert [len(rows) for rows in eyes.looks(PLACE)] == [sum(tiny.LENGTHS)]
        given = torch.cat(eyes.numbers("embeddings"))
        assert len(given.unique()) == len(given)


def test_what_fails_in_compiled_code_is_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    model = WithOdd(torch.ones(2, 3)).eval()
    ids = tiny.numbers(2, 5)
    torch._dynamo.reset()
    with watched(model, places=["tokens"]) as monitor, torch.no_grad():
        monkeypatch.setattr(observer(monitor, "tokens"), "_look", Broken())
        assert torch.equal(torch.compile(model, backend="eager", fullgraph=True)(ids), model.tokens(ids))
        assert monitor.errors[("observer", "tokens")] >= 1
    torch._dynamo.reset()
