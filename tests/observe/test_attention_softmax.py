"""A softmax that a model takes by hand is seen, whatever it is called by; what is not seen is said with its cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.functional import softmax as function_by_name
from torch.special import softmax as builtin_by_name

from embedwatch.observe.attachment import CALLED
from embedwatch.observe.attention.code import code_of
from embedwatch.observe.attention.sites import find_sites
from embedwatch.observe.attention.softmax_seam import METHOD, compiled_method, softmax_patches
from embedwatch.observe.observer import EMPTY
from tests.observe import attending, tiny

HEADS = 2
BEFORE = (function_by_name, builtin_by_name, scaled_dot_product_attention)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Forget what was compiled; afterwards nothing of ours is left, in torch or in this module."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    assert (function_by_name, builtin_by_name, scaled_dot_product_attention) == BEFORE
    assert not any(patch.held for patch in softmax_patches)
    assert "softmax" not in vars(Tensor)
    assert not hasattr(torch._dynamo.variables.tensor.TensorVariable, METHOD)


class Attention(nn.Module):
    """Two heads, whose shares are made in a way of their own."""

    num_heads = HEADS

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.Linear(tiny.D, 3 * tiny.D)
        self.shares = nn.Softmax(dim=-1)

    def forward(self, rows: Tensor) -> Tensor:
        query, key, value = self.maps(rows).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4).unbind()
        output: Tensor = self.attend(query, key, value).transpose(1, 2).flatten(2)
        return output

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        output: Tensor = self.weigh((query @ key.mT) / query.shape[3] ** 0.5) @ value
        return output

    def weigh(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1)


class Wide(Attention):
    def weigh(self, scores: Tensor) -> Tensor:
        return scores.softmax(dim=3, dtype=torch.float64).float()


class Function(Attention):
    def weigh(self, scores: Tensor) -> Tensor:
        return functional.softmax(scores, dim=-1)


class Builtin(Attention):
    def weigh(self, scores: Tensor) -> Tensor:
        return torch.softmax(scores, -1, dtype=torch.float32)


class Special(Attention):
    def weigh(self, scores: Tensor) -> Tensor:
        weights: Tensor = torch.special.softmax(scores, -1)
        return weights


class Part(Attention):
    def weigh(self, scores: Tensor) -> Tensor:
        weights: Tensor = self.shares(scores)
        return weights


class FunctionByName(Attention):
    def weigh(self, scores: Tensor) -> Tensor:
        return function_by_name(scores, dim=-1)


class BuiltinByName(Attention):
    def weigh(self, scores: Tensor) -> Tensor:
        weights: Tensor = builtin_by_name(scores, dim=-1)
        return weights


class AttentionByName(Attention):
    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return scaled_dot_product_attention(query, key, value)


WAYS = (Attention, Wide, Function, Builtin, Special, Part, FunctionByName, BuiltinByName, AttentionByName)


class Mixer(Attention):
    """Named like nothing in particular; it says of its heads."""


class Held(Attention):
    """Holds a function of torch that nobody can replace there."""

    def weigh(self, scores: Tensor, by: Callable[..., Tensor] = torch.softmax) -> Tensor:
        return by(scores, -1)


class Block(nn.Module):
    def __init__(self, mix: nn.Module) -> None:
        super().__init__()
        self.mix = mix

    def forward(self, rows: Tensor) -> Tensor:
        output: Tensor = rows + self.mix(rows)
        return output


class Model(nn.Module):
    def __init__(self, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.tokens = nn.Embedding(tiny.VOCABULARY, tiny.D)
        self.layers = nn.ModuleList(Block(make()) for _ in range(2))

    def forward(self, ids: Tensor) -> Tensor:
        rows: Tensor = self.tokens(ids)
        for layer in self.layers:
            rows = layer(rows)
        return rows


def built(make: Callable[[], nn.Module]) -> Model:
    torch.manual_seed(0)
    model = Model(make).eval()
    attending.spread(model)
    return model


def weights(layer: Any, rows: Tensor) -> Tensor:
    """Return what each head of a layer makes of each query, by the plain formula. Shape: (B, H, T, S)."""
    query, key, _ = layer.maps(rows).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4).unbind()
    shares: Tensor = ((query @ key.mT) / query.shape[3] ** 0.5).double().softmax(-1).float()
    return shares


@pytest.mark.parametrize("backend", ["", "eager", "aot_eager"], ids=["plain", "eager", "aot_eager"])
@pytest.mark.parametrize("make", WAYS)
def test_every_softmax_is_seen_once_and_changes_nothing(make: type[Attention], backend: str) -> None:
    model, ids = built(make), tiny.numbers(2, 6)
    counter = CompileCounterWithBackend(backend or "eager")
    run: Any = torch.compile(model, backend=counter, fullgraph=True) if backend else model
    with torch.no_grad():
        plain = model(ids)
        with attending.looking(model) as looks:
            assert torch.equal(run(ids), plain)
            found = looks.collect()
            assert torch.equal(run(ids), plain)
            assert counter.frame_count == (1 if backend else 0)
        assert torch.equal(run(ids), plain)
        expected = weights(model.get_submodule("layers.0.mix"), model.tokens(ids))
    assert list(found) == ["layers.0.mix", "layers.1.mix"]
    assert {len(each) for each in found.values()} == {1}
    assert attending.errors(found["layers.0.mix"][0], expected) < 1e-5


def test_a_compiled_training_has_one_graph_and_the_same_gradients() -> None:
    results = []
    for watching in (False, True):
        torch._dynamo.reset()
        model, counter = built(Attention).train(), CompileCounterWithBackend("aot_eager")
        run: Any = torch.compile(model, backend=counter, fullgraph=True)
        if watching:
            with attending.looking(model) as looks:
                run(tiny.numbers(2, 6)).square().mean().backward()
                assert {len(each) for each in looks.collect().values()} == {1}
        else:
            run(tiny.numbers(2, 6)).square().mean().backward()
        assert counter.frame_count == 1
        results.append([parameter.grad for parameter in model.parameters()])
    assert all(torch.equal(mine, other) for mine, other in zip(*results, strict=True))


def test_two_who_watch_and_one_who_leaves() -> None:
    models = [built(FunctionByName), built(FunctionByName)]
    with attending.looking(models[1]) as second:
        with attending.looking(models[0]) as first, torch.no_grad():
            models[0](tiny.numbers(2, 6))
            assert len(first.collect()) == 2
        with torch.no_grad():
            models[1](tiny.numbers(2, 6))
        assert len(second.collect()) == 2


@pytest.mark.parametrize("compiled", [False, True])
def test_what_is_held_before_watching_is_named_with_its_cause_and_has_no_numbers(compiled: bool) -> None:
    model = built(Held)
    run: Any = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
    with attending.looking(model) as looks, torch.no_grad():
        run(tiny.numbers(2, 6))
        assert looks.collect() == {}
        assert looks.attention.coverage() == {"own": (0, 2)}
        assert looks.attachment.blind() == dict.fromkeys(("layers.0.mix", "layers.1.mix"), CALLED)


def test_what_is_made_like_attention_is_a_site_by_whatever_name() -> None:
    with attending.looking(built(Mixer)) as looks:
        assert [site.name for site in looks.attention.due()] == ["layers.0.mix", "layers.1.mix"]


class Head(nn.Module):
    """One head, which says of none: Karpathy's."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(tiny.D, 4) for _ in range(3))

    def forward(self, rows: Tensor) -> Tensor:
        scores = self.query(rows) @ self.key(rows).transpose(-2, -1) * 0.5
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).tril() == 0, float("-inf"))
        output: Tensor = functional.softmax(scores, dim=-1) @ self.value(rows)
        return output


class MultiHeadAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(Head() for _ in range(2))
        self.output = nn.Linear(8, tiny.D)

    def forward(self, rows: Tensor) -> Tensor:
        output: Tensor = self.output(torch.cat([head(rows) for head in self.heads], dim=-1))
        return output


@pytest.mark.parametrize("compiled", [False, True])
def test_a_head_in_a_class_of_its_own_is_one_head(compiled: bool) -> None:
    model, ids = built(MultiHeadAttention), tiny.numbers(3, 6)
    run: Any = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
    with attending.looking(model) as looks, torch.no_grad():
        run(ids)
        found = looks.first()
        assert list(found) == [f"layers.{layer}.mix.heads.{head}" for layer in (0, 1) for head in (0, 1)]
        head: Any = model.get_submodule("layers.0.mix.heads.0")
        rows = model.tokens(ids)
        scores = head.query(rows) @ head.key(rows).mT * 0.5
        shares = scores.masked_fill(torch.ones(6, 6).tril() == 0, -torch.inf).softmax(-1)
        assert attending.errors(found["layers.0.mix.heads.0"], shares[:, None]) < 1e-5


class Router(nn.Module):
    """Chooses experts by a softmax, and multiplies twice: made like attention, and none."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(tiny.D, 4), nn.Parameter(torch.randn(4, tiny.D, tiny.D))

    def forward(self, rows: Tensor) -> Tensor:
        shares = self.gate(rows).softmax(-1)  # (B, T, experts)
        return torch.einsum("bte,btd,edf->btf", shares, rows, self.experts) @ torch.eye(tiny.D)


def test_a_router_of_experts_is_neither_seen_nor_missed() -> None:
    model = built(Router)
    with attending.looking(model) as looks, torch.no_grad():
        model(tiny.numbers(2, 6))
        assert looks.collect() == {}
        assert looks.attachment.blind() == {}


class FeatureAttention(Attention):
    """A softmax over the places of each head: attention of linear cost, without shares of keys."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return query.softmax(-1) @ (key.softmax(2).mT @ value)


def test_a_softmax_over_places_of_a_head_is_no_attention_to_keys() -> None:
    model = built(FeatureAttention)
    with attending.looking(model) as looks, torch.no_grad():
        model(tiny.numbers(2, 6))
        assert looks.collect() == {}
        assert "not over keys" in looks.attachment.blind()["layers.0.mix"]


def test_a_recurrence_that_is_named_attention_is_none() -> None:
    config = hf.RwkvConfig(
        vocab_size=tiny.VOCABULARY, hidden_size=tiny.D, attention_hidden_size=tiny.D, num_hidden_layers=2
    )
    model = hf.RwkvModel(config).eval()
    assert find_sites(dict(model.named_modules())) == []
    with attending.looking(model) as looks, torch.no_grad():
        model(tiny.numbers(2, 6))
        assert looks.attachment.blind() == {}


def test_code_that_cannot_be_read_may_attend() -> None:
    layer = Attention()
    layer.act = torch.relu  # type: ignore[assignment]
    assert code_of(layer).opaque
    assert not code_of(nn.Linear(2, 2)).may_attend


def test_an_empty_batch_is_told_apart_from_code_that_was_compiled_before() -> None:
    model = built(Attention)
    with attending.looking(model) as looks, torch.no_grad():
        model(tiny.numbers(2, 6)[:0])
        blind = looks.attachment.blind()
        assert set(blind.values()) == {EMPTY}
        model(tiny.numbers(2, 6))
        assert looks.attachment.blind() == {}


def called_as_a_function(scores: Tensor) -> Tensor:
    return torch.Tensor.softmax(scores, -1)


def test_a_method_that_is_called_as_a_function_compiles_while_we_watch_and_afterwards() -> None:
    assert compiled_method() is not None
    scores, patch = torch.randn(2, 2, 4, 4), softmax_patches[0]
    run: Any = torch.compile(called_as_a_function, backend="eager", fullgraph=True)
    patch.hold()
    try:
        assert torch.equal(run(scores), functional.softmax(scores, -1))
    finally:
        patch.release()
    torch._dynamo.reset()
    assert torch.equal(run(scores), scores.softmax(-1))


@pytest.mark.parametrize("make", [Attention, Function, AttentionByName])
def test_layers_that_are_compiled_one_by_one_share_one_graph_and_each_site_is_seen(make: type[Attention]) -> None:
    """Of twelve layers eight are watched: code that is made for one is run by all."""
    torch.manual_seed(0)
    model, ids = Model(make), tiny.numbers(2, 6)
    model.layers = nn.ModuleList(Block(make()) for _ in range(12))
    model.eval()
    counter = CompileCounterWithBackend("aot_eager")
    with torch.no_grad():
        with attending.looking(model) as looks:
            model(ids)
            plain = looks.first()
        for layer in model.layers:
            layer.compile(backend=counter)
        with attending.looking(model) as looks:
            model(ids)
            compiled = looks.first()
    assert counter.frame_count == 1
    assert plain.keys() == compiled.keys()
    assert len(plain) == 8
    for name, rows in plain.items():
        torch.testing.assert_close(rows.weights, compiled[name].weights)


class Torchs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(tiny.D, HEADS, batch_first=True)

    def forward(self, rows: Tensor) -> Tensor:
        output: Tensor = self.attend(rows, rows, rows, need_weights=False)[0]
        return output


def test_layers_of_torchs_attention_that_are_compiled_one_by_one_are_seen_too() -> None:
    model = Model(Torchs)
    model.layers = nn.ModuleList(Block(Torchs()) for _ in range(12))
    model.eval()
    counter = CompileCounterWithBackend("aot_eager")
    for layer in model.layers:
        layer.compile(backend=counter)
    with attending.looking(model) as looks, torch.no_grad():
        model(tiny.numbers(2, 6))
        assert len(looks.collect()) == 8
        assert looks.attachment.blind() == {}
    assert counter.frame_count == 1
