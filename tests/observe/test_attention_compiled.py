"""Attention in compiled code: one graph, the same bits, the same rows, and an honest word where nothing is seen."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from embedwatch.observe.attachment import NO_FORWARD, NOTHING
from tests.observe import attending, tiny

STEPS, EVERY = 6, 2
WAYS = ("interface", "sdpa", "softmax", "multihead")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Forget what was compiled, and silence what torch itself warns of when its compiler is loaded."""
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")
        warnings.filterwarnings("ignore", "`torch.jit", category=DeprecationWarning)
        yield
    torch._dynamo.reset()


class Attention(nn.Module):
    """Two heads, in a way that is asked for."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.maps = nn.Linear(tiny.D, 3 * tiny.D)

    def forward(self, rows: Tensor, mask: Tensor) -> Tensor:
        query, key, value = self.maps(rows).unflatten(2, (3, 2, -1)).permute(2, 0, 3, 1, 4).unbind()
        allowed = mask[:, None, None]
        if self.way == "sdpa":
            found = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=allowed)
        else:
            scores = (query @ key.transpose(2, 3)) / query.shape[3] ** 0.5
            found = nn.functional.softmax(scores.masked_fill(~allowed, -1e9), dim=-1) @ value
        output: Tensor = found.transpose(1, 2).flatten(2)
        return output


class Interfaced(nn.Module):
    """Two heads, in the way of transformers."""

    is_causal = False

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.Linear(tiny.D, 3 * tiny.D)

    def forward(self, rows: Tensor, mask: Tensor) -> Tensor:
        split = self.maps(rows).unflatten(2, (3, 2, -1)).permute(2, 0, 3, 1, 4).unbind()
        function = ALL_ATTENTION_FUNCTIONS.get_interface("sdpa", nn.Identity())
        output: Tensor = function(self, *split, mask[:, None, None], scaling=None)[0]
        return output.flatten(2)


def made(way: str) -> nn.Module:
    if way == "interface":
        return Interfaced()
    return nn.MultiheadAttention(tiny.D, 2, batch_first=True) if way == "multihead" else Attention(way)


class Small(nn.Module):
    """Two layers that attend.

    Args:
        way: `interface`, as models of transformers do it, `sdpa`, `softmax` or `multihead`.
        checkpoints: whether layers are computed again in the backward pass.
    """

    def __init__(self, way: str, *, checkpoints: bool = False) -> None:
        super().__init__()
        self.way, self.checkpoints = way, checkpoints
        self.tokens = nn.Embedding(tiny.VOCABULARY, tiny.D)
        self.attentions = nn.ModuleList(made(way) for _ in range(2))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        rows: Tensor = self.tokens(ids)
        for attention in self.attentions:
            if self.way == "multihead":
                rows = rows + attention(rows, rows, rows, key_padding_mask=~mask, need_weights=False)[0]
            elif self.checkpoints:
                again: Tensor = checkpoint(attention, rows, mask, use_reentrant=False)
                rows = rows + again
            else:
                rows = rows + attention(rows, mask)
        return rows


def small(way: str, **options: Any) -> Small:
    torch.manual_seed(0)
    return Small(way, **options).train()


def padded() -> tiny.Batch:
    ids, mask = tiny.tokens()
    return {"ids": ids, "mask": mask}


Looked = tuple[int, list[Tensor], dict[str, int]]


def train(model: nn.Module, batch: tiny.Batch, *, watching: bool, backend: str = "aot_eager") -> Looked:
    """Compile and train a model whole; return the number of graphs, all results, and how often each place was seen."""
    counter = CompileCounterWithBackend(backend)
    results = []
    looks: dict[str, int] = {}
    with attending.looking(model, every=EVERY) if watching else nullcontext() as seen:
        compiled: Callable[..., Any] = torch.compile(model, backend=counter, fullgraph=True)
        torch.manual_seed(1)
        for _ in range(STEPS):
            outputs = tiny.tensors(compiled(**batch))
            outputs[0].square().mean().backward()
            results += [each.detach().clone() for each in outputs]
            results += [each.grad.clone() for each in model.parameters() if each.grad is not None]
            model.zero_grad()
            if seen is not None:
                seen.pulse.tick("manual")
        if seen is not None:
            looks = {site.name: site.looks for site in seen.attention.sites}
    return counter.frame_count, [*results, *tiny.generators()], looks


def close(mine: Tensor, theirs: Tensor) -> bool:
    """Return whether two tensors differ by rounding only, as some do where inductor compiles around our operators."""
    return torch.allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def compare(make: Callable[[], nn.Module], batch: tiny.Batch, *, backend: str = "aot_eager") -> None:
    frames, results, _ = train(make(), batch, watching=False, backend=backend)
    torch._dynamo.reset()
    same_frames, same_results, looks = train(make(), batch, watching=True, backend=backend)
    assert frames == same_frames == 1
    same = tiny.identical if backend != "inductor" else close
    assert all(map(same, results, same_results))
    assert set(looks.values()) == {STEPS // EVERY}


@pytest.mark.parametrize("way", WAYS)
def test_one_graph_the_same_results_and_each_armed_step_seen(way: str) -> None:
    compare(lambda: small(way), padded())


def test_layers_that_are_computed_twice_are_seen_once() -> None:
    compare(lambda: small("sdpa", checkpoints=True), padded())


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(
    "kind",
    ["bert", "llama-lm", "modernbert", "gpt2-lm", "t5-lm", "mpnet", "gemma2", "vit", "torch-encoder"],
)
def test_real_architectures_compile_whole(kind: str, backend: str) -> None:
    compare(lambda: tiny.build(kind).train(), tiny.inputs(kind), backend=backend)


@pytest.mark.parametrize("way", [*WAYS, *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("bert", "gemma2"))])
def test_compiled_code_hands_on_the_same_rows(way: str) -> None:
    hugging = way in tiny.KINDS
    model: Any = tiny.build(way) if hugging else small(way).eval()
    batch = tiny.inputs(way) if hugging else padded()
    with attending.looking(model) as looks, torch.no_grad():
        model(**batch)
        plain = looks.first()
    with attending.looking(model) as looks, torch.no_grad():
        run: Callable[..., Any] = torch.compile(model, backend="aot_eager", fullgraph=True)
        run(**batch)
        compiled = looks.first()
    assert plain.keys() == compiled.keys() != set()
    for name, rows in plain.items():
        assert torch.equal(rows.queries, compiled[name].queries)
        torch.testing.assert_close(rows.weights, compiled[name].weights)
        assert torch.equal(rows.visible, compiled[name].visible)


def test_one_graph_that_is_never_compiled_again_and_runs_on_after_detaching() -> None:
    model, batch = small("sdpa").eval(), padded()
    counter = CompileCounterWithBackend("aot_eager")
    with torch.no_grad():
        with attending.looking(model, every=3, attention_every=3) as looks:
            compiled = torch.compile(model, backend=counter, fullgraph=True)
            before = compiled(**batch)
            with torch._dynamo.config.patch(error_on_recompile=True):
                for _ in range(6):
                    compiled(**batch)
            assert {len(each) for each in looks.collect().values()} == {3}  # of the passes 0, 3 and 6
            assert counter.frame_count == 1
        assert tiny.identical(compiled(**batch), before)
        assert looks.collect() == {}


def late(model: nn.Module) -> dict[str, str]:
    """Watch a model that was compiled before; return which places of attention are blind, after a pass."""
    compiled = torch.compile(model, backend="aot_eager")
    with torch.no_grad():
        before = tiny.tensors(compiled(**padded()))[0]
        with attending.looking(model) as looks:
            assert tiny.identical(tiny.tensors(compiled(**padded()))[0], before)
            sites = {site.name for site in looks.attention.sites}
            blind = {name: cause for name, cause in looks.attachment.blind().items() if name in sites}
            torch.compiler.reset()
            compiled(**padded())
            assert not sites & looks.attachment.blind().keys()
    return blind


def test_a_model_that_was_compiled_before_is_blind_and_told_why() -> None:
    blind = late(small("interface").eval())
    assert len(blind) == 2
    assert set(blind.values()) <= {NOTHING, NO_FORWARD}


def test_compiled_code_that_calls_a_function_which_we_replace_is_compiled_anew_and_seen() -> None:
    assert late(small("sdpa").eval()) == {}


def test_what_is_exported_or_traced_holds_nothing_of_ours() -> None:
    model, batch = small("sdpa").eval(), padded()
    with attending.looking(model):
        exported = torch.export.export(model, (batch["ids"], batch["mask"]))
        traced = torch.jit.trace(model, (batch["ids"], batch["mask"]))
    assert "embedwatch" not in str(exported.graph)
    assert "embedwatch::" not in str(traced.inlined_graph)
