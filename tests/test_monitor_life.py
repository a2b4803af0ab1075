"""How a Monitor begins and ends: beside an earlier one, dropped, at the end of the process, and in a forked child."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import optimizer as optimizers

import embedwatch.watched_models
from embedwatch.core.errors import UsageError
from embedwatch.monitor import watch
from embedwatch.recording import read_recording
from embedwatch.sinks.memory import Memory
from tests.polling import poll
from tests.test_monitor import VOCABULARY, tiny, train

PLACE = "layers.3"
SECONDS = 60
"""A process that hangs is ended after so long."""


def hooks(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def evaluators() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("embedwatch")}


@pytest.mark.parametrize(
    "wrong",
    [{"sinks": ["nosuch"]}, {"sinks": [3]}, {"only": ["nosuch"]}, {"places": ["nosuch"]}, {"every": 0}, {"nosuch": 1}],
    ids=str,
)
def test_what_is_refused_leaves_an_earlier_monitor_at_work(wrong: dict[str, Any]) -> None:
    model, memory = tiny(), Memory()
    before = evaluators()
    with watch(model, every=1, window=3, sinks=[memory], budget=None, on_error="raise") as monitor:
        train(model, monitor, 4)
        attached = hooks(model)
        with pytest.raises(UsageError):
            watch(model, **{"sinks": [], **wrong})
        assert not monitor.detached
        assert hooks(model) == attached
        assert len(evaluators()) == len(before) + 1
        windows = monitor.windows
        train(model, monitor, 7)
        assert monitor.windows >= windows + 2
        assert monitor._rounds.evaluator.wait(60)
        assert monitor.snapshots[PLACE].provenance.step is not None
    assert hooks(model) == 0


def test_a_second_monitor_takes_over_and_the_first_delivers_what_it_had() -> None:
    model, memories = tiny(), [Memory(), Memory()]
    first = watch(model, every=1, window=100, sinks=[memories[0]], budget=None, on_error="raise")
    train(model, first, 4)
    attached = hooks(model)
    second = watch(model, every=1, window=100, sinks=[memories[1]], budget=None, on_error="raise")
    assert (first.detached, second.detached) == (True, False)
    assert hooks(model) == attached
    train(model, second, 4)
    second.detach()
    for memory in memories:
        steps = [each.provenance.step for each, _, _ in memory.deliveries if each.space.place == PLACE]
        assert steps == [1, 4]


def test_a_sink_that_the_earlier_monitor_holds_passes_on(tmp_path: Path) -> None:
    model, file = tiny(), tmp_path / "run.jsonl"
    first = watch(model, every=1, window=100, sinks=[f"jsonl:{file}"], budget=None, on_error="raise")
    train(model, first, 3)
    with watch(model, every=1, window=100, sinks=[f"jsonl:{file}"], budget=None, on_error="raise", step=3) as second:
        assert first.detached
        train(model, second, 3)
    recorded = next(each for each in read_recording(str(file)).spaces if each.space.place == PLACE)
    assert [snapshot.provenance.step for snapshot in recorded.history] == [1, 3, 4, 6]


@pytest.mark.parametrize("trained", [True, False])
def test_a_monitor_that_is_dropped_with_its_model_leaves_nothing(trained: bool) -> None:
    before, listening, known = (
        evaluators(),
        len(optimizers._global_optimizer_post_hooks),
        len(embedwatch.watched_models._alive),
    )
    model = tiny()
    monitor = watch(model, every=1, window=3, sinks=[], budget=None, on_error="raise")
    if trained:
        train(model, monitor, 5)
    else:
        model(torch.randint(VOCABULARY, (2, 8)))
    (thread,) = evaluators() - before
    gone: list[weakref.ref[Any]] = [weakref.ref(each) for each in (*model.parameters(), model, monitor)]
    del model, monitor

    def ended() -> bool:
        gc.collect()  # the evaluator may hold its last job a moment longer
        return not thread.is_alive() and not any(reference() is not None for reference in gone)

    assert poll(ended)
    assert evaluators() == before
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    optimizer.step()  # whoever listens no more leaves with the next step of any optimizer
    assert len(optimizers._global_optimizer_post_hooks) == listening
    assert len(embedwatch.watched_models._alive) == known


def test_a_monitor_that_nobody_holds_goes_on_with_its_model() -> None:
    model, memory = tiny(), Memory()
    watch(model, every=1, window=3, sinks=[memory], budget=None, on_error="raise")
    gc.collect()
    assert hooks(model) > 0
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(8):
        model(torch.randint(VOCABULARY, (2, 8))).logits.square().mean().backward()
        optimizer.step()
    reference = embedwatch.watched_models._watchers[model]
    monitor = reference()
    assert monitor is not None
    assert monitor.pulse.step == 8
    monitor.detach()
    assert [each.provenance.step for each, _, _ in memory.deliveries if each.space.place == PLACE] == [2, 5, 8]


LEFT_ALONE = """
import torch, embedwatch
from tests.test_monitor import VOCABULARY, tiny
model = tiny()
embedwatch.watch(model, every=1, window=100, sinks=["jsonl:{file}"], budget=None, on_error="raise")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(5):
    model(torch.randint(VOCABULARY, (2, 8))).logits.square().mean().backward()
    optimizer.step()
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.mark.parametrize(
    "end", ["", "import sys; sys.exit(3)", "raise ZeroDivisionError"], ids=["end", "exit", "error"]
)
def test_at_the_end_of_the_process_what_is_open_is_judged(tmp_path: Path, end: str) -> None:
    file = tmp_path / "run.jsonl"
    done = run(LEFT_ALONE.format(file=file) + end)
    assert done.returncode == {"": 0, "import sys; sys.exit(3)": 3}.get(end, 1), done.stderr
    recorded = next(each for each in read_recording(str(file)).spaces if each.space.place == PLACE)
    assert [snapshot.provenance.step for snapshot in recorded.history] == [2, 5]


FORKED = """
import os, threading, sys, torch, embedwatch
from embedwatch.watched_models import _alive
from embedwatch.sinks.memory import Memory
from tests.test_monitor import VOCABULARY, tiny
from tests.test_monitor_life import hooks

torch.set_num_threads(1)
model, memory = tiny(), Memory()
monitor = embedwatch.watch(model, every=1, window=3, sinks=[memory], budget=None, on_error="raise")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

def train(steps):
    for _ in range(steps):
        model(torch.randint(VOCABULARY, (2, 8))).logits.square().mean().backward()
        optimizer.step()
        monitor.step(loss=1.0)

def looks():
    return sum(observer.looks for observer in monitor._attachment.observers)

train(4)
before = looks()
child = os.fork()
if child == 0:
    code = 10
    try:
        assert monitor.detached and hooks(model) == 0 and not list(_alive)
        train(5)
        monitor.flush(); monitor.examine(); monitor.detach()
        assert looks() == before and monitor.pulse.step == 4
        with embedwatch.watch(model, every=1, window=3, sinks=[], budget=None, on_error="raise") as own:
            model(torch.randint(VOCABULARY, (2, 8)))
            own.step(loss=1.0)
        assert own.snapshots["layers.3"].provenance.rows == 16
        code = 0
    finally:
        os._exit(code)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
train(4)
assert not monitor.detached and hooks(model) > 0
monitor.detach()
steps = [each.provenance.step for each, _, _ in memory.deliveries if each.space.place == "layers.3"]
assert steps == [1, 4, 7, 8], steps
"""


def test_a_forked_child_is_not_watched_and_the_parent_goes_on() -> None:
    done = run(FORKED)
    assert done.returncode == 0, done.stderr
