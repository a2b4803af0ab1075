"""A model that was trained and now serves, or the other way round; what a pause in serving means."""

from __future__ import annotations

import gc

import pytest
import torch

from embedwatch.checks.blind_places import BlindPlaces
from embedwatch.judging import Judge
from embedwatch.monitor import Monitor, watch
from embedwatch.observe.attachment import MANY_PASSES, SILENT
from embedwatch.observe.pulse import SERVING_PASSES
from embedwatch.sinks.memory import Memory
from tests.test_monitor import VOCABULARY, step, tiny, train

PLACE = "layers.3"
VALIDATIONS = 1000


def looks(monitor: Monitor) -> int:
    """Return how many times one place was looked at."""
    return {observer.place.name: observer.looks for observer in monitor._attachment.observers}[PLACE]


def is_paused(monitor: Monitor) -> bool:
    return monitor.pulse.paused


def validate(model: torch.nn.Module, batches: int) -> None:
    with torch.no_grad():
        for _ in range(batches):
            model(torch.randint(VOCABULARY, (1, 4)))


def test_a_long_validation_is_neither_steps_nor_looked_at() -> None:
    model = tiny()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with watch(model, every=1, window=10, sinks=[], budget=None, on_error="raise") as monitor:
        for _ in range(3):
            step(model, optimizer)
        before, windows = looks(monitor), monitor.windows
        model.eval()
        validate(model, VALIDATIONS)
        assert (monitor.pulse.step, looks(monitor), monitor.windows) == (3, before, windows)
        model.train()
        step(model, optimizer)
        assert monitor.pulse.step == 4
        assert looks(monitor) > before


@pytest.mark.parametrize("said", [False, True], ids=["optimizer", "manual"])
def test_when_its_optimizer_is_gone_a_trained_model_serves(said: bool) -> None:
    model, memory = tiny(), Memory()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with watch(model, every=1, window=10, sinks=[memory], budget=None, on_error="raise") as monitor:
        for _ in range(5):
            loss = step(model, optimizer)
            if said:
                monitor.step(loss=loss)
        del optimizer
        gc.collect()
        model.eval()
        before = looks(monitor)
        validate(model, SERVING_PASSES - 1)
        assert (monitor.pulse.step, looks(monitor)) == (5, before), "it may still be a validation"
        validate(model, 30)
        assert monitor.pulse.step == 5 + 30
        assert not monitor.pulse.training
        assert looks(monitor) == before + 30
        monitor.flush()
        windows = [snapshot.provenance for snapshot, _, _ in memory.deliveries if snapshot.space.place == PLACE]
        assert windows[-1].rows == 30 * 4, "its rows are none of the training's"


def test_a_training_that_goes_on_after_serving_counts_its_own_steps() -> None:
    model = tiny()
    with watch(model, every=1, window=10, sinks=[], budget=None, on_error="raise") as monitor:
        for steps in (5, 9):
            train(model, monitor, steps)  # with an optimizer of its own
            gc.collect()
            trained = monitor.pulse.step
            validate(model, SERVING_PASSES + 30)
            assert monitor.pulse.step > trained
        assert trained == 5 + 9
        train(model, monitor, 25)
        assert monitor.pulse.step == 5 + 9 + 25
        monitor.flush()
        assert monitor.snapshots["training"].provenance.step == 5 + 9 + 25


def test_windows_go_on_where_steps_are_counted_anew() -> None:
    model, memory = tiny(), Memory()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with watch(model, every=1, window=10, sinks=[memory], budget=None, on_error="raise") as monitor:
        for number in (*range(1000, 1021), *range(101, 131)):
            monitor.step(number, loss=step(model, optimizer))
        assert monitor.pulse.step == 130
        monitor.flush()
    steps = [snapshot.provenance.step for snapshot, _, _ in memory.deliveries if snapshot.space.place == PLACE]
    assert steps == [1000, 1010, 1020, 111, 121, 130]


def test_steps_in_strides_are_looked_at_each_and_close_windows_when_enough_are_done() -> None:
    model, memory = tiny(), Memory()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with watch(model, every=10, window=300, sinks=[memory], budget=None, on_error="raise") as monitor:
        found = []
        for number in range(0, 1300, 100):
            before = looks(monitor)
            loss = step(model, optimizer)
            found.append(looks(monitor) - before)
            monitor.step(number, loss=loss)
    assert found == [1, 0, *[1] * 11], "by its own count no step was done when the second began"
    steps = [snapshot.provenance.step for snapshot, _, _ in memory.deliveries if snapshot.space.place == PLACE]
    assert steps == [100, 400, 700, 1000, 1200]


def test_within_a_stride_a_step_of_many_passes_is_looked_at_once() -> None:
    model = tiny()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with watch(model, every=1000, window=5000, sinks=[], budget=None, on_error="raise") as monitor:
        found = []
        for number in range(100, 2500, 100):
            before = looks(monitor)
            for _ in range(3):
                step(model, optimizer)
            found.append(looks(monitor) - before)
            monitor.step(number)
    armed = [number for number, seen in zip(range(0, 2400, 100), found, strict=True) if seen]
    assert armed == [0, 1000, 2000]
    assert max(found) == 1


def test_while_it_is_paused_serving_is_not_looked_at_and_then_it_is_again() -> None:
    model = tiny().eval()
    with watch(model, every=1, window=10, sinks=[], budget=0.01, on_error="raise") as monitor, torch.inference_mode():
        validate(model, 2)
        assert not is_paused(monitor)
        monitor._rounds._seconds += 100.0  # as if a look had cost so much
        validate(model, 2)
        assert is_paused(monitor)
        before = looks(monitor)
        validate(model, 20)
        assert (looks(monitor), monitor.pulse.step) == (before, 23), "its passes are counted all the same"
        monitor.pulse.busy += 100.0 / 0.01 * 4  # the model has worked for long since
        validate(model, 1)  # the end of the pass before settles it
        assert not is_paused(monitor)
        validate(model, 3)
        assert looks(monitor) == before + 4


class Towers(torch.nn.Module):
    """Two modules, of which a pass calls one."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, rows: torch.Tensor, *, right: bool) -> torch.Tensor:
        found: torch.Tensor = (self.right if right else self.left)(rows)
        return found


def told(monitor: Monitor) -> tuple[str, str]:
    """Return what is said of blind places."""
    monitor.flush()
    memory = monitor.snapshots["monitor"]
    (verdict,) = Judge([BlindPlaces()]).judge(memory)
    return verdict.status, verdict.reason


def test_a_pause_hides_no_place_that_is_never_called() -> None:
    model = Towers().eval()
    options = {"places": ["left", "right"], "every": 1, "window": 10, "sinks": [], "on_error": "raise"}
    with watch(model, budget=0.01, **options) as monitor, torch.inference_mode():
        for _ in range(MANY_PASSES):
            model(torch.randn(4, 8), right=False)  # each is looked at
        monitor._rounds._seconds += 100.0
        for _ in range(2):
            model(torch.randn(4, 8), right=False)
        assert is_paused(monitor)
        assert told(monitor)[0] == "warn"
        assert set(monitor.blind()) == {"right"}


def test_a_pause_makes_no_place_blind() -> None:
    model = Towers().eval()
    options = {"places": ["left", "right"], "every": 1, "window": 10, "sinks": [], "on_error": "raise"}
    with watch(model, budget=0.01, **options) as monitor, torch.inference_mode():
        model(torch.randn(4, 8), right=False)
        monitor._rounds._seconds += 100.0  # as if a look had cost so much
        for _ in range(3 * MANY_PASSES):
            model(torch.randn(4, 8), right=True)  # never looked at
        assert is_paused(monitor)
        for _ in range(SILENT + 1):
            status, reason = told(monitor)
            assert status == "unknown"
            assert reason.startswith("Looking is paused at times")
            assert "right: not looked at yet." in reason
            assert monitor.blind() == {}
            assert "1 of 2 places seen" in repr(monitor)
            for _ in range(MANY_PASSES + 1):
                model(torch.randn(4, 8), right=True)
        monitor.pulse.busy += 100.0 / 0.01 * 4  # the model has worked for long since
        for _ in range(3):
            model(torch.randn(4, 8), right=True)
        assert not is_paused(monitor)
        assert told(monitor)[0] == "ok", "the window held both, and `left` may have been called in the pause"
        assert told(monitor)[0] == "ok"
        for _ in range(SILENT):
            for _ in range(3):
                model(torch.randn(4, 8), right=True)
            status, reason = told(monitor)
        assert (status, list(monitor.blind())) == ("warn", ["left"])


class Encoder(torch.nn.Module):
    """Gives one vector for each input, in which one dimension may rule."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(16, 32)
        self.factor = factor

    def forward(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        scale = torch.ones(32)
        scale[3] = self.factor
        return {"sentence_embedding": self.linear(rows) * scale}


@pytest.mark.parametrize(("factor", "grave"), [(1.0, False), (200.0, True)])
def test_a_dimension_that_rules_what_an_encoder_gives_out_is_found_in_serving(factor: float, grave: bool) -> None:
    model = Encoder(factor).eval()
    options = {"places": ["linear"], "every": 1, "window": 10, "sinks": [], "budget": None, "on_error": "raise"}
    with watch(model, **options) as monitor, torch.inference_mode():
        for _ in range(5):
            model(torch.randn(64, 16))
        monitor.flush()
        found = {(verdict.check, verdict.space.place) for verdict in monitor.findings if verdict.status == "fail"}
    assert (("dominating_dimension", "sentence_embedding") in found) is grave


def test_a_training_is_never_paused() -> None:
    model = tiny()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with watch(model, every=1, window=1000, sinks=[], budget=0.01, on_error="raise") as monitor:
        validate(model, 3)
        monitor._rounds._seconds += 100.0
        validate(model, 2)
        assert is_paused(monitor), "nothing says yet that it is a training"
        for _ in range(2):
            step(model, optimizer)
        before = looks(monitor)
        for _ in range(5):
            step(model, optimizer)
        assert looks(monitor) == before + 5
