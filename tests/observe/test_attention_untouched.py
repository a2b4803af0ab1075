"""A model whose attention is looked at is untouched: the same bits, and afterwards nothing of ours is left."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.modeling_utils import AttentionInterface

from embedwatch.core.boundary import Boundary
from embedwatch.observe.attachment import Attachment
from embedwatch.observe.attention import registry
from embedwatch.observe.pulse import Pulse
from tests.observe import attending, tiny
from tests.observe.test_untouched import description, traces

SEAMS = ((functional, "scaled_dot_product_attention"), (functional, "softmax"), (torch, "softmax"))
FUNCTIONS = (*SEAMS, (functional, "multi_head_attention_forward"), (AttentionInterface, "get_interface"))
KINDS = ("bert", "mpnet", "deberta-v2", "albert", "gpt2-lm", "llama-lm", "gemma2", "bloom", "falcon", "t5-lm")
MORE = ("bart-lm", "vit", "own-decoder", "own-encoder_decoder", "torch-encoder", "torch-pair")


def functions() -> list[Any]:
    return [getattr(owner, name) for owner, name in FUNCTIONS]


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    """All that is replaced in a process stands in its place again."""
    before = functions()
    yield
    assert all(now is then for now, then in zip(functions(), before, strict=True))
    assert registry._watchers == ()
    assert registry._modules == {}


@pytest.mark.parametrize("kind", [*KINDS, *MORE])
def test_results_gradients_and_random_numbers_are_the_same_bit_for_bit(kind: str) -> None:
    model, batch = tiny.shared(kind), tiny.inputs(kind)
    described, before = description(model), traces(model, batch)
    with attending.looking(model) as looks:
        after = traces(model, batch)
        assert {name: differences for name in after if (differences := after[name].differences(before[name]))} == {}
        assert description(model) == described
        assert looks.collect()
    assert description(model) == described
    assert all(not hooks for module in model.modules() for hooks in (module._forward_hooks, module._forward_pre_hooks))


@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not reentrant"])
@pytest.mark.parametrize("kind", ["llama-lm", "bert", "t5-lm"])
def test_layers_that_are_computed_twice_are_seen_once(kind: str, reentrant: bool) -> None:
    model, batch = tiny.build(kind), tiny.inputs(kind)
    tiny.checkpoint(model, reentrant=reentrant)
    before = tiny.run(model, batch, train=True)
    with attending.looking(model) as looks:
        assert not tiny.run(model, batch, train=True).differences(before)
        assert {len(each) for each in looks.collect().values()} == {1}
        assert {site.calls for site in looks.attention.sites} == {1}


def test_a_shared_layer_is_a_place_at_each_of_its_calls() -> None:
    model = tiny.build("albert")
    with attending.looking(model) as looks, torch.no_grad():
        model(**tiny.inputs("albert"))
        place = "encoder.albert_layer_groups.0.albert_layers.0.attention"
        assert list(looks.collect()) == [place, f"{place}#1"]


def test_rows_are_in_single_precision_whatever_the_model_computes_in() -> None:
    model, batch = tiny.build("llama-lm"), tiny.inputs("llama-lm")
    with attending.looking(model) as looks:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            model(**batch)
        with torch.inference_mode():
            model.to(torch.bfloat16)(**batch)
        for each in looks.collect().values():
            assert len(each) == 2
            assert {rows.logits.dtype for rows in each} == {torch.float32}
            assert not any(rows.logits.is_inference() or rows.logits.requires_grad for rows in each)


def test_rows_do_not_depend_on_anything_but_the_pass_and_the_seed() -> None:
    model, batch = tiny.build("bert"), tiny.inputs("bert")
    chosen: list[list[Tensor]] = []
    for _ in range(2):
        torch.manual_seed(len(chosen))
        with attending.looking(model, rows=4) as looks, torch.no_grad():
            for _ in range(4):
                model(**batch)
            chosen.append([rows.queries & 0xFFFFFF for rows in looks.collect()["encoder.layer.0.attention.self"]])
    assert all(map(torch.equal, *chosen))
    assert len({tuple(queries.tolist()) for queries in chosen[0]}) > 1  # other queries at other passes


def test_copies_and_pickles_of_the_model_hold_nothing_of_ours() -> None:
    for kind in ("mpnet", "own-decoder", "torch-pair"):
        model, batch = tiny.build(kind), tiny.inputs(kind)
        with attending.looking(model) as looks, torch.no_grad():
            for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
                copied(**batch)
                assert looks.collect() == {}
            assert b"embedwatch.observe" not in pickle.dumps(model)


class Failing(RuntimeError):
    """What a module raises."""


class Stumbling(nn.Module):
    """Attends, and fails in the middle when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(tiny.VOCABULARY, tiny.D)
        self.first, self.second = Attention(), Attention()

    def forward(self, ids: Tensor, fail: bool = False) -> Tensor:
        rows = self.tokens(ids)
        try:
            rows = self.first(rows, fail)
        except Failing:
            rows = functional.scaled_dot_product_attention(rows[:, None], rows[:, None], rows[:, None])[:, 0]
        output: Tensor = self.second(rows)
        return output


class Attention(nn.Module):
    """Two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.Linear(tiny.D, 3 * tiny.D)

    def forward(self, rows: Tensor, fail: bool = False) -> Tensor:
        if fail:
            raise Failing
        query, key, value = self.maps(rows).unflatten(2, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return found.transpose(1, 2).flatten(2)


def test_what_a_module_raises_is_raised_and_what_comes_after_is_not_taken_for_its_attention() -> None:
    model, ids = Stumbling(), tiny.numbers(2, 5)
    with attending.looking(model) as looks, torch.no_grad():
        expected = model(ids, fail=True)
        assert list(looks.collect()) == ["attention", "second"]  # the model itself attends in place of the first
        with pytest.raises(Failing):
            model.first(model.tokens(ids), fail=True)
        model(ids)
        assert list(looks.collect()) == ["first", "second"]
    with torch.no_grad():
        assert torch.equal(model(ids, fail=True), expected)


class Scripted(nn.Module):
    """Calls builtin functions that we replace in a process."""

    def forward(self, rows: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(rows, rows, rows) + torch.softmax(rows, dim=-1)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_another_model_can_be_scripted_meanwhile() -> None:
    model, rows = Scripted(), torch.randn(2, 5, tiny.D)
    with attending.looking(tiny.build("mpnet")):
        scripted = torch.jit.script(model)
    torch.testing.assert_close(scripted(rows), model(rows))


@pytest.mark.parametrize("kind", ["bert", "mpnet", "own-decoder", "torch-pair"])
def test_our_own_failures_are_counted_and_do_not_reach_the_model(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = tiny.build(kind), tiny.inputs(kind)
    before = tiny.run(model, batch, train=True)

    def fails(*anything: Any, **more: Any) -> None:
        raise ZeroDivisionError

    with attending.looking(model, on_error="count") as looks:
        monkeypatch.setattr("embedwatch.observe.attention.site.sample_attention", fails)
        for _ in range(8):
            assert not tiny.run(model, batch, train=True).differences(before)
        boundary = looks.attention.sites[-1].boundary
        site = looks.attention.sites[-1]
        assert boundary.errors["attention", site.name] == boundary.patience
        assert looks.attachment.blind()[site.name].startswith("looking at it failed")
        assert looks.attention._share.waiting == 0


def test_two_monitors_and_threads_see_each_its_own() -> None:
    models = {kind: tiny.build(kind) for kind in ("bert", "mpnet", "own-decoder", "llama-lm")}
    with (
        attending.looking(models["bert"]) as first,
        attending.looking(models["mpnet"]) as second,
        attending.looking(models["own-decoder"]) as third,
    ):
        seams = functions()

        def run(kind: str) -> None:
            with torch.no_grad():
                for _ in range(5):
                    models[kind](**tiny.inputs(kind))

        threads = [threading.Thread(target=run, args=(kind,)) for kind in models]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for looks in (first, second, third):
            assert {len(each) for each in looks.collect().values()} == {5}
        assert functions() == seams
    with attending.looking(models["llama-lm"]):
        assert functional.softmax is not seams[1]  # an interface needs no other seam


def test_modules_that_were_replaced_are_followed() -> None:
    model, batch = tiny.build("mpnet"), tiny.inputs("mpnet")
    with attending.looking(model) as looks, torch.no_grad():
        model(**batch)
        looks.collect()
        layer = model.get_submodule("encoder.layer.0.attention")
        layer.attn = copy.deepcopy(layer.attn)
        looks.attachment.renew()
        assert looks.attachment.reattached == 1
        model(**batch)
        assert len(looks.collect()) == 2


def test_attention_is_looked_at_in_few_steps_the_first_among_them() -> None:
    model, batch = tiny.build("gpt2-lm").train(), tiny.inputs("gpt2-lm")
    with attending.looking(model, every=2, attention_every=5) as looks:
        seen = []
        for step in range(12):
            model(**batch)
            seen += [step] if looks.collect() else []
            looks.pulse.tick("manual")
        assert seen == [0, 6]  # of the steps 0, 2, 4 … those at least five apart


def test_parts_of_a_batch_are_one_step() -> None:
    model, batch = tiny.build("gpt2-lm").train(), tiny.inputs("gpt2-lm")
    with attending.looking(model) as looks:
        looks.pulse.tick("manual")
        for _ in range(3):
            model(**batch)
        assert {len(each) for each in looks.collect().values()} == {1}


def test_a_model_that_is_dropped_while_it_is_watched_is_gone_and_functions_stand_in_their_places() -> None:
    before = functions()
    model = tiny.build("mpnet")
    pulse = Pulse(every=1)
    pulse.attention_every = 1
    attachment = Attachment(model, None, pulse, Boundary(), rows=4, seed=0, attention=16)
    attachment.attach()
    assert functional.softmax is not before[1]
    gone = weakref.ref(model)
    del model, pulse, attachment
    gc.collect()
    assert gone() is None
    assert all(now is then for now, then in zip(functions(), before, strict=True))
