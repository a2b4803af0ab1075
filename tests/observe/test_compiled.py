"""Compiled models: one graph as before, the same results, rows that are seen, and an honest word where they are not."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

from embedwatch.monitor import Monitor, watch
from tests.observe import tiny

STEPS, EVERY = 6, 2
PLACE = "layers.1"


def watched(model: nn.Module, **options: Any) -> Monitor:
    settings = {"every": EVERY, "sinks": [], "only": ["norms"], "on_error": "raise", "budget": None}
    return watch(model, **{**settings, **options})


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Forget what was compiled, and silence what torch itself warns of when its compiler is loaded."""
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")
        warnings.filterwarnings("ignore", "`torch.jit", category=DeprecationWarning)
        warnings.filterwarnings(
            "ignore", "The .grad attribute of a Tensor", category=UserWarning
        )  # after a graph break
        yield
    torch._dynamo.reset()


class Layer(nn.Module):
    """One of many that are alike."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(tiny.D)
        self.linear = nn.Linear(tiny.D, tiny.D)
        self.dropout = nn.Dropout(0.2)

    def forward(self, rows: Tensor) -> Tensor:
        output: Tensor = rows + self.dropout(torch.tanh(self.linear(self.norm(rows))))
        return output


class Small(nn.Module):
    """A stack that compiles fast.

    Args:
        breaks: whether its forward breaks the graph in the middle.
        checkpoints: whether layers are computed again in the backward pass; `True` the reentrant way.
    """

    def __init__(self, *, breaks: bool = False, checkpoints: bool | None = None) -> None:
        super().__init__()
        self.breaks, self.checkpoints = breaks, checkpoints
        self.tokens = nn.Embedding(tiny.VOCABULARY, tiny.D)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.norm = nn.LayerNorm(tiny.D)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        rows = self.tokens(ids)
        for layer in self.layers:
            if self.checkpoints is None:
                rows = layer(rows)
            else:
                rows = checkpoint(layer, rows, use_reentrant=self.checkpoints)
        if self.breaks:
            torch._dynamo.graph_break()
        output: Tensor = self.norm(rows)
        return output


def small(**options: Any) -> Small:
    torch.manual_seed(0)
    return Small(**options).train()


@dataclass
class Ran:
    """What a training came to."""

    counter: Any
    results: list[Tensor] = field(default_factory=list)
    looks: dict[str, int] = field(default_factory=dict)

    def same(self, other: Ran) -> bool:
        mine, theirs = self.results, other.results
        return len(mine) == len(theirs) and all(map(tiny.identical, mine, theirs))


Compile = Callable[[nn.Module, Any], Callable[..., Any]]


def in_place(model: nn.Module, backend: Any) -> Callable[..., Any]:
    model.compile(backend=backend)
    return model


def in_a_function(model: nn.Module, backend: Any) -> Callable[..., Any]:
    @torch.compile(backend=backend)
    def call(**batch: Tensor) -> Any:
        return model(**batch)

    return call


WAYS: dict[str, Compile] = {
    "torch.compile": lambda model, backend: torch.compile(model, backend=backend),
    "in place": in_place,
    "in a function": in_a_function,
    "in another module": lambda model, backend: torch.compile(Around(model), backend=backend),
}


class Around(nn.Module):
    """Holds a model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **batch: Tensor) -> Any:
        return self.model(**batch)


def train(
    model: nn.Module,
    batch: tiny.Batch,
    compile_: Compile = WAYS["torch.compile"],
    *,
    watching: bool,
    backend: str = "aot_eager",
) -> Ran:
    """Compile and train a model, and validate it in between."""
    ran = Ran(CompileCounterWithBackend(backend))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with watched(model) if watching else nullcontext() as monitor:
        compiled = compile_(model, ran.counter)
        torch.manual_seed(1)
        for _ in range(STEPS):
            outputs = tiny.tensors(compiled(**batch))
            outputs[0].square().mean().backward()
            ran.results += [each.detach().clone() for each in outputs]
            ran.results += [each.grad.clone() for each in model.parameters() if each.grad is not None]
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                ran.results += [each.clone() for each in tiny.tensors(compiled(**batch))]
        if monitor is not None:
            ran.looks = {observer.place.name: observer.looks for observer in monitor._attachment.observers}
            assert monitor.pulse.step == STEPS
    ran.results += tiny.generators()
    return ran


def padded() -> tiny.Batch:
    ids, mask = tiny.tokens()
    return {"ids": ids, "mask": mask}


@pytest.mark.parametrize(
    ("way", "backend"),
    [*((way, "eager") for way in WAYS), *((way, "aot_eager") for way in ("torch.compile", "in a function"))],
)
def test_as_many_graphs_the_same_results_and_each_armed_step_seen(way: str, backend: str) -> None:
    alone = train(small(), padded(), WAYS[way], watching=False, backend=backend)
    torch._dynamo.reset()
    together = train(small(), padded(), WAYS[way], watching=True, backend=backend)
    assert alone.counter.frame_count == together.counter.frame_count > 0
    assert together.same(alone)
    assert set(together.looks.values()) == {STEPS // EVERY}


@pytest.mark.parametrize(
    "options",
    [{"breaks": True}, {"checkpoints": False}],
    ids=["graph breaks", "checkpoints"],
)
def test_graph_breaks_and_checkpoints_are_no_more_than_before(options: dict[str, Any]) -> None:
    alone = train(small(**options), padded(), watching=False)
    torch._dynamo.reset()
    together = train(small(**options), padded(), watching=True)
    assert alone.counter.frame_count == together.counter.frame_count > 0
    assert together.same(alone)
    assert set(together.looks.values()) == {STEPS // EVERY}


def test_one_graph_that_is_never_compiled_again() -> None:
    model = small().eval()
    counter = CompileCounterWithBackend("aot_eager")
    with watched(model, every=3) as monitor, torch.no_grad():
        compiled = torch.compile(model, backend=counter, fullgraph=True)
        compiled(**padded())
        with torch._dynamo.config.patch(error_on_recompile=True):
            for _ in range(6):
                compiled(**padded())
            monitor.pulse.every = 1
            compiled(**padded())
        looks = {observer.looks for observer in monitor._attachment.observers}
        assert looks == {4}  # of the steps 0, 3, 6 and 7
        assert counter.frame_count == 1


def test_compiled_code_hands_on_the_rows_without_padding() -> None:
    model = small().eval()
    batch = padded()
    with torch.no_grad():
        expected = model(**batch)
        with tiny.eyes(model) as eyes:
            torch.compile(model, backend="aot_eager", fullgraph=True)(**batch)
            assert torch.equal(eyes.looks("norm")[0], expected[batch["mask"]])
            assert len(eyes.looks("tokens")[0]) == int(batch["mask"].sum())


def test_a_model_may_be_watched_through_its_compiled_wrapper() -> None:
    model = small().eval()
    compiled: Any = torch.compile(model, backend="aot_eager", fullgraph=True)
    with watched(compiled) as monitor, torch.no_grad():
        compiled(**padded())
        assert monitor.model is model
        assert monitor.name == "Small"
        assert monitor.blind() == {}


@pytest.mark.parametrize("way", WAYS)
def test_a_model_that_was_compiled_before_is_blind_and_told_why(way: str) -> None:
    model = small().eval()
    with torch.no_grad():
        compiled = WAYS[way](model, "aot_eager")
        before = compiled(**padded())
        with watched(model, every=1) as monitor:
            assert tiny.identical(compiled(**padded()), before)
            blind = monitor.blind()
            assert blind.keys() == {place.name for place in monitor.places}
            assert all("compile" in cause and "reset()" in cause for cause in blind.values())
            torch.compiler.reset()
            compiled(**padded())
            assert monitor.blind() == {}


def test_after_detach_compiled_code_runs_on_and_sees_nothing() -> None:
    model = small().eval()
    counter = CompileCounterWithBackend("aot_eager")
    with torch.no_grad():
        with watched(model, every=1) as monitor:
            compiled = torch.compile(model, backend=counter)
            before = compiled(**padded())
        looks = [observer.looks for observer in monitor._attachment.observers]
        forwards = monitor.pulse.forwards
        assert tiny.identical(compiled(**padded()), before)
        assert [observer.looks for observer in monitor._attachment.observers] == looks
        assert monitor.pulse.forwards == forwards
        assert counter.frame_count <= 2  # torch may compile once more where hooks are gone
        del monitor
        assert tiny.identical(compiled(**padded()), before)


def test_what_is_exported_or_traced_holds_nothing_of_ours() -> None:
    model = small().eval()
    batch = padded()
    with watched(model):
        exported = torch.export.export(model, (batch["ids"],))
        traced = torch.jit.trace(model, (batch["ids"],))
    assert "embedwatch" not in str(exported.graph)
    assert "embedwatch" not in str(traced.inlined_graph)
    with torch.no_grad():
        assert torch.equal(traced(batch["ids"]), model(batch["ids"]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "modernbert", "gpt2-lm", "llama-lm", "t5-lm", "torch-encoder"])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_real_architectures_compile_whole(kind: str, backend: str) -> None:
    def whole(model: nn.Module, counter: Any) -> Callable[..., Any]:
        return torch.compile(model, backend=counter, fullgraph=True)

    alone = train(tiny.build(kind).train(), tiny.inputs(kind), whole, watching=False, backend=backend)
    torch._dynamo.reset()
    together = train(tiny.build(kind).train(), tiny.inputs(kind), whole, watching=True, backend=backend)
    assert alone.counter.frame_count == together.counter.frame_count > 0
    assert together.same(alone)
    assert {count for place, count in together.looks.items() if place != "shared"} == {STEPS // EVERY}
