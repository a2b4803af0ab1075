"""Cached = uncached, for every kind and scheme, with padding, windows and changed rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from embedwatch_model import Cache, ModelError, Transformer
from tests.model import tiny
from tests.model.tiny import POSITIONS, difference

LENGTH = 12
CLOSE = 1e-5


def in_parts(model: Transformer, ids: Tensor, parts: list[int], cache: Cache, **more: Any) -> Tensor:
    """Return the logits of passes over so many tokens each; the mask is cut as well."""
    mask, logits, start = more.pop("mask", None), [], 0
    for count in parts:
        end = start + count
        cut = None if mask is None else mask[:, start:end]
        logits.append(model(ids[:, start:end], mask=cut, cache=cache, **more).logits)
        start = end
    return torch.cat(logits, dim=1)


@pytest.mark.parametrize("kind", ["decoder", "encoder_decoder"])
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("window", [None, 1, 4])
@pytest.mark.parametrize("padded", [False, True])
def test_cached_is_uncached(kind: str, positions: str, window: int | None, padded: bool) -> None:
    model = tiny.model(kind=kind, positions=positions, window=window)
    ids, more = tiny.ids(2, LENGTH), tiny.inputs(kind, 2)
    mask = torch.arange(LENGTH) >= torch.tensor([[0], [3]]) if padded else None
    expected = model(ids, mask=mask, **more).logits
    cache = model.cache(2)
    found = in_parts(model, ids, [5, 1, 1, 3, 1, 1], cache, mask=mask, **more)
    real = torch.ones(2, LENGTH, dtype=torch.bool) if mask is None else mask
    assert difference(found[real], expected[real]) < CLOSE
    assert cache.length == LENGTH


@pytest.mark.parametrize("scaling", ["linear", "ntk", "yarn"])
@pytest.mark.parametrize("groups", [1, 4])
def test_beyond_the_trained_length_with_scaled_rope(scaling: str, groups: int) -> None:
    model = tiny.model(
        positions="rope", rope_scaling={"kind": scaling, "factor": 4.0}, length=6, kv_heads=groups, d_model=32
    )
    ids = tiny.ids(2, LENGTH)
    assert difference(in_parts(model, ids, [4, 4, 1, 1, 1, 1], model.cache(2)), model(ids).logits) < CLOSE


@settings(max_examples=15)
@given(
    parts=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    positions=st.sampled_from(POSITIONS),
    window=st.sampled_from([None, 2, 5]),
    padding=st.integers(0, 5),
)
def test_in_any_parts(parts: list[int], positions: str, window: int | None, padding: int) -> None:
    length = sum(parts)
    model = tiny.model(positions=positions, window=window, length=64)
    ids = tiny.ids(2, length)
    mask = torch.arange(length) >= torch.tensor([[0], [min(padding, length - 1)]])
    expected = model(ids, mask=mask).logits[mask]
    assert difference(in_parts(model, ids, parts, model.cache(2), mask=mask)[mask], expected) < CLOSE


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_left_padded_prompt_goes_on_without_a_mask(positions: str) -> None:
    """As in generation: the prompt has a mask, the tokens that follow are real."""
    model = tiny.model(positions=positions)
    prompt, new = tiny.ids(1, 5), tiny.ids(1, 3, seed=1)
    padded = torch.cat([torch.zeros(1, 4, dtype=torch.long), prompt], dim=1)
    cache = model.cache(1)
    model(padded, mask=torch.arange(9)[None] >= 4, cache=cache)
    found = [model(new[:, i : i + 1], cache=cache).logits for i in range(3)]
    expected = model(torch.cat([prompt, new], dim=1)).logits[:, 5:]
    assert difference(torch.cat(found, dim=1), expected) < CLOSE


@pytest.mark.parametrize("kind", ["decoder", "encoder_decoder"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("index", [[1, 0], [1, 1, 0], [0], [0, 1, 0, 1]])
def test_rows_can_be_reordered(kind: str, padded: bool, index: list[int]) -> None:
    model = tiny.model(kind=kind, positions="rope", window=6)
    ids, more, chosen = tiny.ids(2, 8), tiny.inputs(kind, 2), torch.tensor(index)
    mask = torch.arange(8) >= torch.tensor([[0], [3]]) if padded else None
    cache = model.cache(2)
    model(ids, mask=mask, cache=cache, **more)
    cache.reorder(chosen)
    new = tiny.ids(len(index), 1, seed=3)
    found = model(new, cache=cache).logits
    whole = torch.cat([ids[chosen], new], dim=1)
    if mask is not None:
        mask = torch.cat([mask[chosen], torch.ones(len(index), 1, dtype=torch.bool)], dim=1)
    expected = model(whole, mask=mask, **{name: tensor[chosen] for name, tensor in more.items()}).logits[:, -1:]
    assert difference(found, expected) < CLOSE


def test_one_row_becomes_many_beams() -> None:
    model = tiny.model()
    cache = model.cache(1)
    ids = tiny.ids(1, 5)
    model(ids, cache=cache)
    cache.reorder(torch.zeros(3, dtype=torch.long))
    new = tiny.ids(3, 2, seed=1)
    expected = model(torch.cat([ids.expand(3, -1), new], dim=1)).logits[:, 5:]
    assert difference(model(new, cache=cache).logits, expected) < CLOSE


def test_a_window_bounds_what_is_kept() -> None:
    model = tiny.model(window=4)
    cache = model.cache(1)
    for token in tiny.ids(1, 20).T:
        model(token[None], cache=cache)
    keys = cache.layers[0].keys
    assert keys is not None
    assert keys.shape[2] == 3
    assert cache.length == 20


def test_the_source_is_encoded_once() -> None:
    model = tiny.model(kind="encoder_decoder")
    assert model.encoder is not None
    calls: list[int] = []
    model.encoder.register_forward_hook(lambda module, inputs, output: calls.append(1))
    model.layers[0].cross_attention.key.register_forward_hook(lambda module, inputs, output: calls.append(2))
    cache, given, ids = model.cache(2), tiny.source(2), tiny.ids(2, 3)
    model(ids, cache=cache, **given)
    model(ids, cache=cache, **given)
    model(ids, cache=cache)
    assert calls == [1, 2]


def test_a_refused_pass_leaves_the_cache_as_it_was() -> None:
    model = tiny.model(positions="learned", length=8)
    cache, ids = model.cache(1), tiny.ids(1, 9)
    first = model(ids[:, :6], cache=cache).logits
    with pytest.raises(ModelError, match="at most 8 positions"):
        model(ids[:, 6:], cache=cache)
    assert cache.length == 6
    rest = model(ids[:, 6:8], cache=cache).logits
    assert difference(torch.cat([first, rest], dim=1), model(ids[:, :8]).logits) < CLOSE


def test_an_empty_cache_says_so() -> None:
    cache = tiny.model().cache(1)
    assert not cache.has_source
    with pytest.raises(ModelError, match="got an empty one"):
        cache.layers[0].together()
    cache.reorder(torch.tensor([0, 0]))
    assert cache.batch == 2
