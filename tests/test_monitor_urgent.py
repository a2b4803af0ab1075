"""What is not finite does not wait for the end of the window, once; silence of a place is told after some windows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from embedwatch.core.verdict import Verdict
from embedwatch.monitor import Monitor, watch
from embedwatch.observe.attachment import SILENT, SILENT_NOW
from embedwatch.sinks.memory import Memory
from tests.test_monitor import VOCABULARY, step, tiny

PLACE = "layers.3"
WINDOW = 1000
NAN = float("nan")


def windows(memory: Memory, place: str) -> list[int | None]:
    return [snapshot.provenance.step for snapshot, _, _ in memory.deliveries if snapshot.space.place == place]


class Poisoned:
    """Makes rows of a module not finite while it is on."""

    def __init__(self, model: nn.Module, place: str) -> None:
        self.on = False
        model.get_submodule(place).register_forward_pre_hook(self.spoil)

    def spoil(self, module: nn.Module, args: tuple[Any, ...]) -> Any:
        return (args[0] * NAN, *args[1:]) if self.on else None


def settled(monitor: Monitor) -> None:
    assert monitor._rounds.evaluator.wait(60)


def serve(model: nn.Module, monitor: Monitor, steps: int) -> None:
    """Step without learning; a row that is not finite waits for nothing but the evaluator."""
    for _ in range(steps):
        with torch.no_grad():
            model(torch.randint(VOCABULARY, (4, 64)))
        monitor.step()
        settled(monitor)


def test_the_first_rows_that_are_not_finite_close_the_window_and_later_ones_do_not() -> None:
    model, memory = tiny(length=64), Memory()
    poison = Poisoned(model, PLACE)
    with watch(model, every=1, window=WINDOW, sinks=[memory], budget=None, on_error="raise") as monitor:
        serve(model, monitor, 10)
        assert monitor.windows == 1, "that of the start"
        poison.on = True
        serve(model, monitor, 10)
        assert monitor.windows == 2
        (found,) = {verdict.check for verdict in monitor.findings if verdict.space.place == PLACE} & {"nonfinite_rows"}
        assert found
        serve(model, monitor, 40)
        assert monitor.windows == 2, "not every step"
        poison.on = False
        monitor.flush()  # of both sorts
        serve(model, monitor, 10)
        monitor.flush()  # a sound one
        poison.on = True
        serve(model, monitor, 10)
        assert monitor.windows == 5, "it came again"


def test_the_first_loss_that_is_not_finite_closes_the_window_and_later_ones_do_not() -> None:
    model, memory = tiny(), Memory()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with watch(model, every=1, window=WINDOW, sinks=[memory], budget=None, on_error="raise") as monitor:

        def go(steps: int, loss: float) -> None:
            for _ in range(steps):
                step(model, optimizer)
                monitor.step(loss=torch.tensor(loss))
                settled(monitor)

        go(100, 2.0)
        assert monitor.windows == 1
        go(40, NAN)
        assert monitor.windows == 2
        assert "nonfinite_loss" in {verdict.check for verdict in monitor.findings}
        go(100, NAN)
        assert monitor.windows == 2, "not every step"
        monitor.flush()
        go(40, 2.0)
        monitor.flush()
        go(80, NAN)
        assert monitor.windows == 5, "it came again"
    assert windows(memory, "training")[0] == 1


class Branches(nn.Module):
    """Goes one of two ways."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens = nn.Embedding(VOCABULARY, 16)
        self.left, self.right = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, ids: Tensor, *, left: bool = True, right: bool = True) -> Tensor:
        rows: Tensor = self.tokens(ids)
        for branch, taken in ((self.left, left), (self.right, right)):
            rows = branch(rows) if taken else rows
        return rows


def blind(monitor: Monitor) -> list[Verdict]:
    return [verdict for verdict in monitor.findings if verdict.check == "blind_places"]


@pytest.fixture
def branches() -> Branches:
    return Branches()


def go(model: nn.Module, monitor: Monitor, **ways: bool) -> None:
    """One window of three passes."""
    with torch.no_grad():
        for _ in range(3):
            model(torch.randint(VOCABULARY, (4, 8)), **ways)
    monitor.flush()


def test_a_place_that_has_fallen_silent_is_a_finding_with_its_cause_until_it_is_seen_again(branches: Branches) -> None:
    places = ["tokens", "left", "right"]
    with watch(branches, places=places, every=1, sinks=[], budget=None, on_error="raise") as monitor:
        go(branches, monitor)
        for _ in range(SILENT - 1):
            go(branches, monitor, right=False)
            assert not blind(monitor)
        go(branches, monitor, right=False)
        (found,) = blind(monitor)
        assert found.space.place == "monitor"
        assert f"right: {SILENT_NOW}" in found.reason
        assert monitor.blind() == {"right": SILENT_NOW}
        assert monitor.snapshots["monitor"].provenance.coverage == {"places_expected": 3, "places_seen": 2}
        go(branches, monitor)
        assert not blind(monitor)
        assert monitor.blind() == {}


def test_windows_in_which_the_model_was_not_looked_at_make_nobody_silent(branches: Branches) -> None:
    with watch(branches, places=["left", "right"], every=1, sinks=[], budget=None, on_error="raise") as monitor:
        go(branches, monitor)
        for _ in range(SILENT + 1):
            monitor.flush()
        assert monitor.blind() == {}
        assert not blind(monitor)


def test_silence_that_is_interrupted_is_counted_anew(branches: Branches) -> None:
    with watch(branches, places=["left", "right"], every=1, sinks=[], budget=None, on_error="raise") as monitor:
        for _ in range(3):
            go(branches, monitor)
            for _ in range(SILENT - 1):
                go(branches, monitor, right=False)
                assert monitor.blind() == {}
