"""The watched model is untouched: results, gradients and random numbers are the same bit for bit."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from embedwatch.batch import VectorBatch
from embedwatch.monitor import Monitor, watch
from embedwatch.stats.norms import Norms
from tests.observe import tiny

FEW = 4
SECONDS = 60
FUSED = "aten::_transformer_encoder_layer_fwd"


def watched(model: nn.Module, **options: Any) -> Monitor:
    """Watch each step, and raise whatever goes wrong on our side."""
    return watch(model, **{"every": 1, "sinks": [], "only": ["norms"], "on_error": "raise", **options})


def description(model: nn.Module) -> dict[str, Any]:
    """Return what a model consists of, in the eyes of whoever saves, moves or trains it."""
    return {
        "parameters": {name: id(each) for name, each in model.named_parameters(remove_duplicate=False)},
        "buffers": {name: id(each) for name, each in model.named_buffers(remove_duplicate=False)},
        "state": {name: each.data_ptr() for name, each in model.state_dict().items()},
        "modules": {name: id(each) for name, each in model.named_modules(remove_duplicate=False)},
        "training": [each.training for each in model.modules()],
        "attributes": {name: sorted(each.__dict__) for name, each in model.named_modules()},
        "text": repr(model),
    }


def unlike(model: nn.Module, batch: tiny.Batch, before: dict[str, tiny.Trace]) -> dict[str, list[str]]:
    found = {name: trace.differences(before[name]) for name, trace in traces(model, batch).items()}
    return {name: differences for name, differences in found.items() if differences}


def traces(model: nn.Module, batch: tiny.Batch) -> dict[str, tiny.Trace]:
    trained = {f"train {name}": tiny.run(model, batch, mode, train=True) for name, mode in tiny.TRAININGS.items()}
    return trained | {f"eval {name}": tiny.run(model, batch, mode) for name, mode in tiny.EVALUATIONS.items()}


@pytest.mark.parametrize("kind", tiny.KINDS)
def test_results_gradients_and_random_numbers_are_the_same_bit_for_bit(kind: str) -> None:
    model = tiny.shared(kind)
    tiny.run(model, tiny.inputs(kind))  # some models get ready at their first call
    described = description(model)
    for rows, batch in ((tiny.ALL, tiny.inputs(kind)), (FEW, tiny.inputs(kind, left=True, seed=1))):
        before = traces(model, batch)
        with watched(model, rows=rows) as monitor:
            assert not unlike(model, batch, before)
            assert description(model) == described
            monitor.flush()
            seen = {snapshot.provenance.rows for snapshot in monitor.snapshots.values()}
        assert max(seen) >= FEW  # it was looked at
    assert description(model) == described


def test_a_pass_that_draws_one_more_random_number_or_differs_in_one_bit_is_noticed() -> None:
    model, batch = tiny.build("bert"), tiny.inputs("bert")
    before = tiny.run(model, batch, train=True)

    def draws(*anything: Any) -> None:
        torch.rand(1)

    handle = model.get_submodule("encoder.layer.0").register_forward_hook(draws)
    differences = tiny.run(model, batch, train=True).differences(before)
    handle.remove()
    assert {"outputs", "generators"} <= set(differences)
    assert not tiny.run(model, batch, train=True).differences(before)
    with torch.no_grad():
        weight = model.get_parameter("encoder.layer.1.output.LayerNorm.weight")
        weight[0] = torch.nextafter(weight[0], torch.tensor(2.0))
    assert "outputs" in tiny.run(model, batch).differences(tiny.run(tiny.build("bert"), batch))
    for draw in (random.random, lambda: torch.rand(1)):
        state = tiny.generators()
        draw()
        assert not all(map(torch.equal, state, tiny.generators()))


@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not reentrant"])
@pytest.mark.parametrize("kind", ["bert", "gpt2-lm", "llama-lm", "mixtral", "t5-lm", "bart-lm", "vit", "wav2vec2"])
def test_gradient_checkpointing_computes_the_same(kind: str, reentrant: bool) -> None:
    model, batch = tiny.build(kind), tiny.inputs(kind)
    tiny.checkpoint(model, reentrant=reentrant)
    for mode in tiny.TRAININGS.values():
        before = tiny.run(model, batch, mode, train=True)
        with watched(model, rows=FEW):
            assert not tiny.run(model, batch, mode, train=True).differences(before)


@pytest.mark.parametrize("kind", ["gpt2-lm", "llama-lm", "t5-lm", "bart-lm"])
@pytest.mark.parametrize("sampled", [False, True], ids=["greedy", "sampled"])
def test_generation_with_a_cache_writes_the_same_tokens(kind: str, sampled: bool) -> None:
    model, batch = tiny.shared(kind), tiny.inputs(kind, left=True)
    given: dict[str, Any] = {name: batch[name] for name in ("input_ids", "attention_mask")}
    if kind in tiny.PAIRS:
        given["decoder_start_token_id"] = tiny.START

    def written() -> Tensor:
        torch.manual_seed(0)
        tokens: Tensor = model.generate(
            **given, max_new_tokens=6, min_new_tokens=6, do_sample=sampled, use_cache=True, pad_token_id=tiny.PAD
        )
        return tokens

    before = written()
    with watched(model, rows=FEW):
        assert torch.equal(written(), before)


def test_our_own_generation_with_a_cache_writes_the_same_tokens() -> None:
    from embedwatch_model import generate

    model = tiny.shared("own-decoder")
    prompts = tiny.numbers(2, 4).tolist()
    before = generate(model, prompts, max_tokens=6)
    with watched(model):
        after = generate(model, prompts, max_tokens=6)
    assert torch.equal(after.ids, before.ids)
    assert tiny.identical(after.log_probabilities, before.log_probabilities)


def fused_calls(model: nn.Module, *given: Tensor, **masks: Tensor) -> int:
    with profile(activities=[ProfilerActivity.CPU]) as profiled, torch.inference_mode():
        model(*given, **masks)
    return Counter({event.key: event.count for event in profiled.key_averages()})[FUSED]


@pytest.mark.parametrize("kind", ["torch-encoder", "torch-encoder-positions-first"])
def test_the_fused_path_of_torch_is_not_left_because_of_us(kind: str) -> None:
    model, batch = tiny.shared(kind), tiny.inputs(kind)
    layers = 2 if kind == "torch-encoder" else 0
    assert fused_calls(model, **batch) == layers
    with watched(model) as monitor:
        assert fused_calls(model, **batch) == layers
        assert monitor.blind() == {}
    with watched(model, places=["encoder.layers.0"]):
        assert fused_calls(model, **batch) == max(0, layers - 1)  # what hooks inside would do


def test_torch_alone_is_a_model_too() -> None:
    model = tiny.shared("torch-encoder").get_submodule("encoder")
    rows = torch.randn(2, 5, tiny.D)
    with watched(model) as monitor:
        assert fused_calls(model, rows) == len(model.get_submodule("layers"))
        monitor.flush()
        assert {"input", "output"} <= monitor.snapshots.keys()
        assert monitor.snapshots["output"].provenance.rows == rows.shape[0] * rows.shape[1]


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9),
}


def trained(kind: str, make: Callable[[Any], torch.optim.Optimizer], *, watching: bool) -> list[Tensor]:
    """Return the weights and the optimizer's state after a few steps with dropout."""
    model = tiny.build(kind).train()
    optimizer = make(model.parameters())
    torch.manual_seed(1)
    with watched(model, rows=FEW) if watching else nullcontext():
        for step in range(4):
            optimizer.zero_grad()
            outputs = tiny.tensors(model(**tiny.inputs(kind, seed=step)))
            loss = outputs[0].square().mean()
            loss.backward()
            optimizer.step()
    state = [each for entry in optimizer.state.values() for each in entry.values() if isinstance(each, Tensor)]
    return [*model.state_dict().values(), *state, *tiny.generators()]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", ["bert", "llama-lm", "t5-lm", "own-encoder_decoder"])
def test_training_ends_at_the_same_weights(kind: str, optimizer: str) -> None:
    alone = trained(kind, OPTIMIZERS[optimizer], watching=False)
    together = trained(kind, OPTIMIZERS[optimizer], watching=True)
    assert len(alone) == len(together)
    assert all(map(tiny.identical, alone, together))


def test_threads_of_torch_stay_as_many() -> None:
    before = torch.get_num_threads()
    with watched(tiny.shared("bert")):
        assert torch.get_num_threads() == before
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    "surroundings",
    [torch.inference_mode, torch.no_grad, lambda: torch.device("meta"), tiny.EVALUATIONS["autocast"]],
    ids=["inference mode", "no grad", "another default device", "autocast"],
)
def test_watching_may_begin_and_end_in_any_mode(surroundings: tiny.Mode) -> None:
    model, batch = tiny.build("bert"), tiny.inputs("bert")
    before = tiny.run(model, batch)
    with surroundings():
        monitor = watched(model, rows=tiny.ALL)
        monitor.flush()
    assert not tiny.run(model, batch).differences(before)
    with surroundings():
        monitor.flush()
    assert not tiny.run(model, batch).differences(before)
    with surroundings():
        monitor.detach()
    assert monitor.errors == {}
    assert monitor.snapshots["encoder.layer.1"].provenance.rows == sum(tiny.LENGTHS)


def casts(loss: Tensor, weight: Tensor) -> int:
    """Return how many times a weight was cast on the way to a loss."""
    found, waiting = {}, [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        for following, _ in () if node is None else node.next_functions:
            if following is not None and getattr(following, "variable", None) is weight:
                found[id(node)] = node
            elif following is not None:
                waiting.append(following)
    return len(found)


def test_what_runs_beside_the_model_leaves_the_casts_of_autocast_alone() -> None:
    """All threads share them. Cast twice, a weight has a gradient that is rounded twice."""
    linear = nn.Linear(tiny.D, tiny.D)
    rows = torch.randn(4, tiny.D)
    statistic = Norms()

    def measure() -> None:
        statistic.update(VectorBatch(rows))

    with torch.autocast("cpu", dtype=torch.bfloat16):
        once = linear(rows)
        beside = threading.Thread(target=measure)
        beside.start()
        beside.join()
        measure()
        twice = linear(rows)
    assert casts((once + twice).sum(), linear.weight) == 1
    with torch.autocast("cpu", dtype=torch.bfloat16):
        once = linear(rows)
        torch.clear_autocast_cache()
        twice = linear(rows)
    assert casts((once + twice).sum(), linear.weight) == 2  # what would be seen otherwise


MORE_THREADS = """
import torch

from embedwatch.monitor import watch
from tests.observe import tiny

torch.set_num_threads(2)
torch.manual_seed(0)
model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True), 2)
batch = {"src": torch.randn(8, 64, 256)}
before = tiny.run(model, batch, train=True)
assert not tiny.run(model, batch, train=True).differences(before)
with watch(model, every=1, sinks=[], on_error="raise", budget=None) as monitor:
    for _ in range(3):
        assert not tiny.run(model, batch, train=True).differences(before)
        monitor.flush(wait=False)  # while the evaluator computes
    assert torch.get_num_threads() == 2
print("done")
"""


@pytest.mark.slow  # two threads on busy cores
def test_with_several_threads_too() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-W", "ignore", "-c", MORE_THREADS]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "done\n"
