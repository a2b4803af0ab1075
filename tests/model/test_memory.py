"""Recurrence: a memory stands for a longer context, and no gradient enters it."""

from __future__ import annotations

import pytest
import torch

from embedwatch_model import Memory
from tests.model import tiny
from tests.model.tiny import difference

OFFSETS_ONLY = ("rope", "alibi", "relative", "none")
T = 6


@pytest.mark.parametrize("positions", OFFSETS_ONLY)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_one_layer_with_a_covering_memory_is_one_long_context(positions: str, norm: str) -> None:
    model = tiny.model(positions=positions, norm=norm, layers=1, memory=2 * T)
    ids = tiny.ids(2, 3 * T)
    expected = model(ids).logits
    memory, found = None, []
    for segment in ids.split(T, dim=1):
        output = model(segment, memory=memory)
        memory = output.memory
        found.append(output.logits)
    assert memory is not None
    assert memory.length == 2 * T
    assert difference(torch.cat(found, dim=1), expected) < 1e-5


@pytest.mark.parametrize("positions", OFFSETS_ONLY)
def test_deeper_layers_remember_too(positions: str) -> None:
    """Layer inputs in memory are those of the time, which a causal model would compute again the same."""
    model = tiny.model(positions=positions, layers=3, memory=2 * T)
    ids = tiny.ids(2, 2 * T)
    second = model(ids[:, T:], memory=model(ids[:, :T]).memory).logits
    assert difference(second, model(ids).logits[:, T:]) < 1e-5


def test_reaches_further_than_the_memory_by_one_memory_a_layer() -> None:
    """With M = T and L layers, the last segment hears of the segments up to L before it, and of none earlier."""
    ids = tiny.ids(1, 4 * T)

    def last(layers: int, changed: int) -> torch.Tensor:
        model = tiny.model(positions="relative", layers=layers, memory=T)
        mine = ids.clone()
        mine[:, changed * T] = (mine[:, changed * T] + 1) % tiny.VOCABULARY
        memory = None
        for segment in mine.split(T, dim=1):
            output = model(segment, memory=memory)
            memory = output.memory
        logits: torch.Tensor = output.logits
        return logits

    assert difference(last(1, 0), last(1, 1)) == 0  # both beyond reach
    assert difference(last(1, 1), last(1, 2)) > 1e-6
    assert difference(last(2, 0), last(2, 1)) > 1e-6
    assert difference(last(3, 0), last(3, 1)) > 1e-6


def test_keeps_the_last_positions_only() -> None:
    model = tiny.model(positions="relative", memory=4)
    first = model(tiny.ids(1, 3)).memory
    assert first.length == 3
    second = model(tiny.ids(1, 3, seed=1), memory=first).memory
    assert second.length == 4
    assert torch.equal(second.states[0][:, :1], first.states[0][:, -1:])


def test_no_gradient_enters_it() -> None:
    model = tiny.model(positions="relative", memory=T)
    first = model(tiny.ids(1, T))
    assert all(not state.requires_grad for state in first.memory.states)
    model.zero_grad()
    ids = torch.full((1, T), 3)
    model(ids, memory=first.memory).hidden.sum().backward()
    grad = model.embedding.tokens.weight.grad
    assert grad is not None
    assert grad.abs().sum(dim=1).nonzero().flatten().tolist() == [3]


@pytest.mark.parametrize("positions", OFFSETS_ONLY)
def test_padding_in_the_memory_is_not_seen(positions: str) -> None:
    model = tiny.model(positions=positions, layers=1, memory=2 * T)
    ids = tiny.ids(1, 2 * T)
    padded = torch.cat([tiny.ids(1, 3, seed=7), ids[:, :T]], dim=1)
    first = model(padded, mask=torch.arange(T + 3)[None] >= 3)
    second = model(ids[:, T:], memory=first.memory)
    assert difference(second.logits, model(ids).logits[:, T:]) < 1e-5
    assert second.memory.mask.shape == (1, 2 * T)


def test_without_memory_in_the_configuration_there_is_none() -> None:
    assert tiny.model(positions="relative")(tiny.ids(1, 3)).memory is None
    model = tiny.model(positions="relative", memory=3)
    assert model(tiny.ids(1, 3), cache=model.cache(1)).memory is None


def test_an_empty_memory_is_none() -> None:
    model, ids = tiny.model(positions="relative", memory=3), tiny.ids(1, 3)
    empty = Memory.empty([torch.zeros(1, 3, 16)] * 2)
    assert empty.length == 0
    assert difference(model(ids, memory=empty).logits, model(ids).logits) < 1e-6
