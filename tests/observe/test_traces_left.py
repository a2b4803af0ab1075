"""After `detach` nothing of ours remains; copies of a watched model report nothing, and load where we are missing."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import optimizer as optimizers
from torch.optim import swa_utils

import embedwatch.watched_models
from embedwatch.core.errors import UsageError
from embedwatch.monitor import Monitor, watch
from tests.observe import tiny

KINDS = ("bert", "gpt2-lm", "t5-lm", "albert", "clip", "wav2vec2", "own-decoder", "torch-encoder")
SECONDS = 60


def watched(model: nn.Module, **options: Any) -> Monitor:
    return watch(model, **{"every": 1, "sinks": [], "only": ["norms"], "on_error": "raise", **options})


def attributes(model: nn.Module) -> dict[str, dict[str, Any]]:
    """Return all that modules hold, tables of hooks as their lengths and anything else as its identity."""
    return {
        name: {
            key: len(value) if isinstance(value, dict) and "hook" in key else id(value)
            for key, value in vars(module).items()
        }
        for name, module in model.named_modules(remove_duplicate=False)
    }


def hooks(model: nn.Module) -> int:
    return sum(
        len(value)
        for module in model.modules()
        for key, value in vars(module).items()
        if key.endswith("hooks") and value
    )


def evaluators() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("embedwatch")]


def optimizer_hooks() -> int:
    return len(optimizers._global_optimizer_post_hooks)


def train(model: nn.Module, batch: tiny.Batch, steps: int = 2) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        tiny.tensors(model(**batch))[0].square().mean().backward()
        optimizer.step()
    return optimizer


@pytest.mark.parametrize("kind", KINDS)
def test_after_detach_nothing_of_ours_remains(kind: str) -> None:
    model, batch = tiny.build(kind), tiny.inputs(kind)
    before, listening, alive = attributes(model), optimizer_hooks(), evaluators()
    monitor = watched(model)
    assert attributes(model) != before
    assert optimizer_hooks() == listening + 1
    assert len(evaluators()) == len(alive) + 1
    optimizer = train(model, batch)
    monitor.detach()
    model.zero_grad()
    assert attributes(model) == before
    assert optimizer_hooks() == listening
    assert evaluators() == alive
    own = (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)
    assert not any(own)
    assert monitor.snapshots  # what was judged is still there
    rows = {place: snapshot.provenance.rows for place, snapshot in monitor.snapshots.items()}
    train(model, batch)
    monitor.step()
    monitor.flush()
    assert {place: snapshot.provenance.rows for place, snapshot in monitor.snapshots.items()} == rows


def test_the_hook_on_optimizers_goes_with_the_last_monitor() -> None:
    models = [tiny.build("bert"), tiny.build("gpt2-lm")]
    listening = optimizer_hooks()
    monitors = [watched(model) for model in models]
    assert optimizer_hooks() == listening + 1
    monitors[0].detach()
    assert optimizer_hooks() == listening + 1
    train(models[1], tiny.inputs("gpt2-lm"))
    assert monitors[1].pulse.step == 2
    assert monitors[0].pulse.step == 0
    monitors[1].detach()
    assert optimizer_hooks() == listening


@pytest.mark.parametrize("kind", ["bert", "t5-lm", "own-decoder"])
def test_nothing_keeps_the_model_alive(kind: str) -> None:
    model = tiny.build(kind)
    monitor = watched(model)
    train(model, tiny.inputs(kind))
    monitor.detach()
    gone: list[weakref.ref[Any]] = [weakref.ref(module) for module in model.modules()]
    gone += [weakref.ref(parameter) for parameter in model.parameters()]
    del model, monitor
    gc.collect()
    assert not [each() for each in gone if each() is not None]


@pytest.mark.parametrize("kind", ["bert", "gpt2-lm", "own-decoder", "torch-encoder", "torch-pair", "mpnet"])
def test_a_monitor_that_is_kept_lets_the_model_go(kind: str) -> None:
    model = tiny.build(kind)
    monitor = watch(model, every=1, attention_every=1, sinks=[], on_error="raise")
    train(model, tiny.inputs(kind))
    places, blind = [place.name for place in monitor.places], monitor.blind()
    monitor.detach()
    assert monitor.model.training == model.training
    gone: list[weakref.ref[Any]] = [weakref.ref(module) for module in model.modules()]
    gone += [weakref.ref(parameter) for parameter in model.parameters()]
    del model
    gc.collect()
    assert not [each() for each in gone if each() is not None]
    assert [place.name for place in monitor.places] == places
    assert monitor.blind() == blind
    assert monitor.snapshots
    assert monitor.memory() > 0
    assert "detached" in repr(monitor)
    monitor.detach()


def test_a_monitor_that_is_kept_holds_no_hooks_in_the_model() -> None:
    model = tiny.build("bert")
    with watched(model) as monitor:
        train(model, tiny.inputs("bert"))
    assert hooks(model) == 0
    assert "detached" in repr(monitor)


def test_detach_twice_and_step_after_it_do_nothing() -> None:
    model = tiny.build("bert")
    monitor = watched(model)
    monitor.detach()
    monitor.detach()
    monitor.step(loss=1.0)
    monitor.examine()
    monitor.flush()
    assert monitor.pulse.step == 0
    assert hooks(model) == 0


def test_watching_again_detaches_the_earlier_monitor() -> None:
    model, batch = tiny.build("bert"), tiny.inputs("bert")
    first = watched(model)
    once = hooks(model)
    wrapper: Any = torch.compile(model, backend="eager")
    second = watched(wrapper)  # the same model
    assert (first.detached, second.detached) == (True, False)
    assert hooks(model) == once
    tiny.run(model, batch)
    first.detach()  # of the earlier one: must not end the later one
    assert hooks(model) == once
    watched(model).detach()
    assert (first.detached, second.detached) == (True, True)
    assert hooks(model) == 0


def test_an_exception_in_the_block_ends_watching_and_goes_on() -> None:
    model = tiny.build("bert")
    alive = evaluators()
    monitor = watched(model)

    def fail() -> None:
        with monitor:
            tiny.run(model, tiny.inputs("bert"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert monitor.detached
    assert monitor.snapshots
    assert hooks(model) == 0
    assert evaluators() == alive


@pytest.mark.parametrize(
    "wrong", [{"only": ["nonsense"]}, {"sinks": ["nonsense"]}, {"places": ["nonsense"]}, {"every": 0}, {"rows": 0.5}]
)
def test_an_option_that_is_refused_leaves_nothing_behind(wrong: dict[str, Any]) -> None:
    model = tiny.build("bert")
    before, listening, alive = attributes(model), optimizer_hooks(), evaluators()
    with pytest.raises(UsageError):
        watch(model, **{"sinks": [], **wrong})
    assert attributes(model) == before
    assert optimizer_hooks() == listening
    assert evaluators() == alive
    assert model not in embedwatch.watched_models._watchers


COPIES: dict[str, Callable[[nn.Module], nn.Module]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
}
CANNOT_PICKLE = "wav2vec2"
"""Its weights are parametrised, which torch refuses to pickle."""


@pytest.mark.parametrize(
    ("kind", "way"), [(kind, way) for kind in KINDS for way in COPIES if (kind, way) != (CANNOT_PICKLE, "pickle")]
)
def test_a_copy_computes_the_same_and_reports_nothing(kind: str, way: str) -> None:
    model, batch = tiny.build(kind), tiny.inputs(kind)
    before = tiny.run(model, batch, train=True)
    with watched(model) as monitor:
        twin = COPIES[way](model)
        forwards = monitor.pulse.forwards
        assert not tiny.run(twin, batch, train=True).differences(before)
        train(twin, batch)
        assert monitor.pulse.forwards == forwards
        assert monitor.pulse.step == 0
    with watched(twin) as monitor:  # and may be watched itself
        tiny.run(twin, batch)
        assert monitor.pulse.forwards == 1
        assert monitor.blind() == {}


def test_a_copy_compiles_whole() -> None:
    model, batch = tiny.build("llama-lm"), tiny.inputs("llama-lm")
    with watched(model):
        twin = copy.deepcopy(model)
    with torch.no_grad():
        expected = model(**batch).logits
        compiled: Any = torch.compile(twin, backend="eager", fullgraph=True)
        assert tiny.identical(compiled(**batch).logits, expected)


def test_a_moving_average_of_the_weights_follows_the_training() -> None:
    model, batch = tiny.build("bert").train(), tiny.inputs("bert")
    with watched(model) as monitor:
        average = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))
        for _ in range(3):
            train(model, batch, steps=1)
            average.update_parameters(model)
        assert monitor.pulse.step == 3
        forwards = monitor.pulse.forwards
        average.eval()(**batch)
        assert monitor.pulse.forwards == forwards
    moved = zip(average.module.parameters(), model.parameters(), strict=True)
    assert any(not torch.equal(mine, theirs) for mine, theirs in moved)


ELSEWHERE = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "embedwatch":
            raise ImportError("not installed here")

sys.meta_path.insert(0, Blocked())
import torch

model = torch.load(sys.argv[1], weights_only=False)
print(model(torch.tensor([[5, 6, 7]])).logits.double().sum().item())
assert "embedwatch" not in sys.modules
"""


def test_a_saved_model_loads_where_we_are_not_installed(tmp_path: Path) -> None:
    model = tiny.build("own-decoder")
    with watched(model):
        torch.save(model, tmp_path / "model.pt")
        expected = model(torch.tensor([[5, 6, 7]])).logits.double().sum().item()
    ran = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, tmp_path / "model.pt"], capture_output=True, text=True, timeout=SECONDS
    )
    assert ran.returncode == 0, ran.stderr
    assert float(ran.stdout) == pytest.approx(expected, abs=1e-9)


def test_a_state_dict_is_the_same_and_loads_into_a_watched_model() -> None:
    model = tiny.build("bert")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with watched(model):
        assert model.state_dict().keys() == before.keys()
        model.load_state_dict(before)
        model.load_state_dict(before, assign=True)
        tiny.run(model, tiny.inputs("bert"), train=True)
    assert model.state_dict().keys() == before.keys()
