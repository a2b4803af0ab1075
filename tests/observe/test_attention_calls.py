"""From one call to sampled rows: which queries are chosen, and what every form of mask comes to."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

from embedwatch.observe.attention.calls import KEYS, QueryKeyCall, ScoresCall
from embedwatch.observe.attention.masks import Masking
from embedwatch.observe.attention.queries import choose_queries
from embedwatch.observe.attention.rows import Real, sample_attention
from embedwatch.observe.attention.sites import find_sites, is_cross
from tests.observe import attending, tiny

CPU = torch.device("cpu")
EXACT = 1e-5
B, H, G, T, S, K = 3, 4, 2, 5, 9, 8


def tensors(*, queries: int = S, seed: int = 0) -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(seed)
    return torch.randn(B, H, queries, K, generator=made), torch.randn(B, G, S, K, generator=made)


def expected(query: Tensor, key: Tensor, allowed: Tensor, bias: Tensor | float = 0.0) -> Tensor:
    scores = query @ key.repeat_interleave(H // G, 1).transpose(2, 3) / math.sqrt(K) + bias
    return scores.masked_fill(~allowed, -torch.inf).softmax(3).nan_to_num(0.0)


def error(call: Any, weights: Tensor, real: Real | None = None) -> float:
    rows = sample_attention(call, 256, forward=3, seed=1, real=real).finished()
    assert len(rows)
    return attending.errors(rows, weights)


@pytest.mark.parametrize("queries", [1, 2, S], ids=["decoding", "a stretch", "whole"])
@pytest.mark.parametrize("corner", ["first", "last"])
def test_triangles_stand_where_they_are_said_to(queries: int, corner: Any) -> None:
    query, key = tensors(queries=queries)
    allowed = torch.ones(queries, S, dtype=torch.bool).tril(0 if corner == "first" else S - queries)
    call = QueryKeyCall(query, key, K**-0.5, masking=Masking(causal=corner))
    assert error(call, expected(query, key, allowed)) < EXACT


def test_a_window_hides_what_lies_too_far_back() -> None:
    query, key = tensors()
    allowed = torch.ones(S, S, dtype=torch.bool).tril() & torch.ones(S, S, dtype=torch.bool).triu(-2)
    call = QueryKeyCall(query, key, K**-0.5, masking=Masking(causal="last", window=3))
    assert error(call, expected(query, key, allowed)) < EXACT


@pytest.mark.parametrize("lowest", [-math.inf, torch.finfo(torch.float32).min, -1e9, -1e4])
def test_what_is_added_hides_or_shifts(lowest: float) -> None:
    query, key = tensors()
    allowed = torch.ones(S, S, dtype=torch.bool).tril()
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])[:, None, None]
    distances = -(torch.arange(S)[:, None] - torch.arange(S)).abs() * slopes  # (H, S, S)
    mask = torch.where(allowed, distances, lowest)
    call = QueryKeyCall(query, key, K**-0.5, masking=Masking((mask,)))
    assert error(call, expected(query, key, allowed, distances)) < EXACT
    rows = sample_attention(call, 16, forward=0, seed=0).finished()
    assert torch.equal(rows.visible.sum(1), rows.positions + 1)
    assert rows.bounds is not None
    assert bool((rows.logits.masked_fill(~rows.visible, -torch.inf).amax(1) <= rows.bounds + EXACT).all())


def test_padding_of_keys_is_read_from_two_dimensions_too() -> None:
    query, key = tensors()
    real = torch.arange(S) < torch.tensor([[9], [4], [1]])
    call = QueryKeyCall(query, key, K**-0.5, masking=Masking(padding=real.long()))
    assert error(call, expected(query, key, real[:, None, None])) < EXACT
    rows = sample_attention(call, 64, forward=0, seed=0).finished()
    assert len(rows) == H * int(real.sum())


def test_scores_are_capped_before_they_are_masked() -> None:
    query, key = tensors()
    allowed = torch.ones(S, S, dtype=torch.bool).tril()
    raw = query @ key.repeat_interleave(H // G, 1).transpose(2, 3) / math.sqrt(K)
    weights = (0.5 * torch.tanh(raw / 0.5)).masked_fill(~allowed, -torch.inf).softmax(3)
    assert error(QueryKeyCall(query, key, K**-0.5, masking=Masking((allowed,)), softcap=0.5), weights) < EXACT


def test_a_rule_of_flex_attention_is_asked_at_the_chosen_queries_only() -> None:
    query, key = tensors()
    real = torch.arange(S) >= torch.tensor([[0], [4], [8]])
    asked: list[int] = []

    def rule(batch: Tensor, head: Tensor, at: Tensor, other: Tensor) -> Tensor:
        found = (at >= other) & real[batch, other]
        asked.append(found.numel())
        return found

    allowed = torch.ones(S, S, dtype=torch.bool).tril() & real[:, None, None]
    call = QueryKeyCall(query, key, K**-0.5, masking=Masking(rule=rule))
    assert error(call, expected(query, key, allowed)) < EXACT
    asked.clear()
    sample_attention(call, 3, forward=0, seed=0)
    assert max(asked) == B * S  # one query of each, or the keys of each: never queries by keys


def test_scores_that_are_given_are_rows_as_they_are() -> None:
    query, key = tensors()
    allowed = torch.ones(S, S, dtype=torch.bool).tril()
    scores = (query @ key.repeat_interleave(2, 1).transpose(2, 3)).masked_fill(~allowed, torch.finfo(torch.float32).min)
    call = ScoresCall(scores, K)
    assert error(call, scores.softmax(3)) < EXACT
    bounds = call.bounds()
    assert bounds is not None
    assert torch.equal(bounds, scores.amax((0, 2, 3)))


@pytest.mark.parametrize("make", [causal_upper_left, causal_lower_right])
def test_triangles_of_torch_itself_are_understood(make: Any) -> None:
    query, key = tensors(queries=T)
    wide = key.repeat_interleave(2, 1)
    outputs = []

    def attend() -> None:
        found = torch.nn.functional.scaled_dot_product_attention(query, wide, wide, attn_mask=make(T, S))
        outputs.append(found)

    attend()
    model = Explicit(attend)
    allowed = torch.ones(T, S, dtype=torch.bool).tril(0 if make is causal_upper_left else S - T)
    with attending.looking(model) as looks, torch.no_grad():
        model(tiny.numbers(1, 2))
        rows = looks.first()["attention"]
    assert torch.equal(*outputs)
    assert attending.errors(rows, expected(query, key, allowed)) < EXACT


class Explicit(torch.nn.Module):
    """Attends as it is told to, to what has nothing to do with its input."""

    def __init__(self, attend: Any) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(tiny.VOCABULARY, tiny.D)
        self.attention = Attention(attend)

    def forward(self, ids: Tensor) -> Tensor:
        self.attention()
        output: Tensor = self.tokens(ids)
        return output


class Attention(torch.nn.Module):
    def __init__(self, attend: Any) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.attend = attend

    def forward(self) -> Any:
        return self.attend()


@pytest.mark.parametrize(
    ("shapes", "heads"), [(((2, 6, 8),) * 3, 1), (((2, 3, 6, 8), (2, 1, 6, 8), (2, 1, 6, 8)), 3)], ids=["3-D", "shared"]
)
def test_queries_without_heads_and_keys_that_heads_share_are_seen(shapes: Any, heads: int) -> None:
    query, key, value = (torch.randn(shape) for shape in shapes)
    model = Explicit(lambda: torch.nn.functional.scaled_dot_product_attention(query, key, value))
    with attending.looking(model) as looks:
        model(tiny.numbers(1, 2))
        rows = looks.first()["attention"]
    weights = (query @ key.transpose(-2, -1) / 8**0.5).softmax(-1).reshape(2, heads, 6, 6)
    assert attending.errors(rows, weights) < EXACT


def test_queries_of_more_dimensions_are_not_seen_and_that_is_said() -> None:
    rows = torch.randn(2, 2, 2, 6, 8)
    model = Explicit(lambda: torch.nn.functional.scaled_dot_product_attention(rows, rows, rows))
    with attending.looking(model) as looks:
        model(tiny.numbers(1, 2))
        assert looks.collect() == {}
        assert "dimensions" in looks.attachment.blind()["attention"]


@pytest.mark.parametrize(("batch", "length"), [(1, 100), (3, 7), (4, 512), (64, 3), (64, 1), (2, 1), (1, 1)])
@pytest.mark.parametrize("padded", [False, True])
def test_as_many_queries_as_were_asked_for_and_none_twice(batch: int, length: int, padded: bool) -> None:
    real = torch.arange(length) < torch.arange(1, batch + 1)[:, None] if padded else None
    for forward in range(5):
        chosen = choose_queries(batch, length, 16, forward=forward, seed=2, real=real, device=CPU)
        assert chosen.index.shape[0] * chosen.index.shape[1] <= 16
        for item, index, kept in zip(chosen.items, chosen.index, chosen.kept, strict=True):
            assert len(set(index[kept].tolist())) == int(kept.sum())
            available = length if real is None else int(real[item].sum())
            assert int(kept.sum()) == min(len(index), available)
            assert real is None or bool(real[item, index[kept]].all())


def test_each_query_has_the_same_chance_and_a_sample_is_spread() -> None:
    counts: Counter[int] = Counter()
    draws = 4000
    for forward in range(draws):
        index = choose_queries(1, 40, 8, forward=forward, seed=0, real=None, device=CPU).index[0]
        assert (index // 5).tolist() == list(range(8))
        counts.update(index.tolist())
    mean = draws * 8 / 40
    assert max(abs(count - mean) for count in counts.values()) < 5 * mean**0.5
    assert len(counts) == 40


def test_sequences_of_a_large_batch_take_turns() -> None:
    met = {
        item
        for forward in range(200)
        for item in choose_queries(64, 30, 16, forward=forward, seed=0, real=None, device=CPU).items
    }
    assert met == set(range(64))


def test_what_attends_is_found_by_what_it_calls_or_is_called() -> None:
    for kind, number in {"bert": 2, "own-encoder_decoder": 6, "torch-pair": 6, "vit": 2, "t5-lm": 6}.items():
        sites = find_sites(dict(tiny.shared(kind).named_modules()))
        assert len(sites) == number
        crossing = [site.path for site in sites if is_cross(site)]
        assert len(crossing) == (2 if number == 6 else 0)


LOOK = """
import resource, torch
from embedwatch.observe.attention.calls import QueryKeyCall
from embedwatch.observe.attention.masks import Masking
from embedwatch.observe.attention.rows import sample_attention

def look(keys):
    query = torch.randn(1, 16, 64, 128).bfloat16()
    call = QueryKeyCall(query, torch.ones(1, 4, keys, 128, dtype=torch.bfloat16), 0.1, masking=Masking(causal="last"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sample_attention(call, 1, forward=0, seed=0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

look(256)
print(look(100_000))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the peak of memory is told by the operating system")
def test_a_look_at_a_long_context_holds_no_copy_of_all_keys() -> None:
    """Keys of 102 MB would be 205 MB in single precision; rows of 16 heads are 8 MB."""
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, timeout=120, check=True)
    kilobytes = int(done.stdout) / (1024 if sys.platform == "darwin" else 1)
    assert kilobytes < 60_000


@pytest.mark.parametrize("length", [KEYS - 1, KEYS, 2 * KEYS + 3])
@pytest.mark.parametrize("shared", [False, True])
def test_keys_that_are_taken_in_parts_give_the_same_scores(length: int, shared: bool) -> None:
    made = torch.Generator().manual_seed(0)
    query = torch.randn(2, 4, 3, K, generator=made)
    key = torch.randn(1 if shared else 2, 2, length, K, generator=made)
    rows = sample_attention(QueryKeyCall(query, key, 0.5), 256, forward=0, seed=0)
    wide = key.repeat_interleave(2, 1).expand(2, -1, -1, -1)
    torch.testing.assert_close(rows.batch.logits.view(2, 4, 3, length), 0.5 * query @ wide.mT)
    longest = torch.linalg.vector_norm(query, dim=3).amax((0, 2)) * torch.linalg.vector_norm(wide, dim=3).amax((0, 2))
    half = QueryKeyCall(query.bfloat16(), key.bfloat16(), 0.5).bounds()
    assert half is not None
    torch.testing.assert_close(half, 0.5 * longest, rtol=0.02, atol=0.0)
