"""Attention whose answers are known by hand, and by other libraries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import scipy.stats
import torch
import transformers
from torch import Tensor

from embedwatch.batch import AttentionBatch
from embedwatch.core import Statistic
from embedwatch.core.registry import get
from embedwatch.sketches import MOST_HEADS
from tests.attention_of_models import attention_batches

LENGTH = 64


def rows(
    logits: Sequence[Tensor],
    *,
    causal: bool = True,
    window: int | None = None,
    padding: int = 0,
    head_size: int = 16,
    **more: Any,
) -> AttentionBatch:
    """Return every query of one text; each head has its logits (T, T) without the padding, which stands on the left."""
    heads, length = len(logits), len(logits[0])
    places = torch.arange(length)
    visible = torch.ones(length, length, dtype=torch.bool)
    distance = places[:, None] - places[None]
    if causal:
        visible &= distance >= 0
    if window is not None:
        visible &= distance < window
    count = heads * length
    pad = torch.nn.functional.pad
    return AttentionBatch(
        pad(torch.cat(list(logits)), (padding, 0), value=77.0),  # what nobody sees must not matter
        pad(visible.repeat(heads, 1), (padding, 0)),
        positions=padding + places.repeat(heads),
        heads=torch.arange(heads).repeat_interleave(length),
        queries=places.repeat(heads),
        firsts=torch.full((count,), padding),
        lasts=torch.full((count,), padding + length - 1),
        head_size=head_size,
        **more,
    )


def even(length: int = LENGTH) -> Tensor:
    return torch.zeros(length, length)


def pointing(offset: int, length: int = LENGTH, strength: float = 60.0) -> Tensor:
    """Return logits of a head that looks at the key so many places on, and at the first where there is none."""
    logits = torch.zeros(length, length)
    logits[torch.arange(length), (torch.arange(length) + offset).clamp(0, length - 1)] = strength
    return logits


def sinking(length: int = LENGTH, strength: float = 60.0) -> Tensor:
    logits = torch.zeros(length, length)
    logits[:, 0] = strength
    return logits


def measured(name: str, *batches: AttentionBatch, **settings: Any) -> dict[str, float | None]:
    statistic: Statistic[Any] = get(Statistic, name)(**settings)
    for batch in batches:
        statistic.update(batch)
    return {measurement.key: measurement.number for measurement in statistic.compute()}


def error_of(name: str, key: str, batch: AttentionBatch) -> float | None:
    statistic: Statistic[Any] = get(Statistic, name)()
    statistic.update(batch)
    return next(measurement.error for measurement in statistic.compute() if measurement.key == key)


@pytest.mark.parametrize("padding", [0, 5])
def test_entropy_of_an_even_and_of_a_pointing_head(padding: int) -> None:
    found = measured("attention_entropy", rows([even(), pointing(0)], padding=padding), heads=True)
    assert found["attention_entropy_ratio{heads=0}"] == pytest.approx(1.0)
    assert found["attention_entropy_ratio{heads=1}"] == pytest.approx(0.0, abs=1e-6)
    assert found["attention_entropy_ratio{heads=mean}"] == pytest.approx(0.5)
    assert found["attention_uniform_heads_ratio"] == 0.5


def test_entropy_is_that_of_scipy() -> None:
    logits = 3 * torch.randn(LENGTH, LENGTH, generator=torch.Generator().manual_seed(0))
    batch = rows([logits])
    shares = torch.softmax(logits.double().masked_fill(~batch.visible, -torch.inf), 1).numpy()
    wanted = [scipy.stats.entropy(shares[n, : n + 1]) / math.log(n + 1) for n in range(1, LENGTH)]
    found = measured("attention_entropy", batch)
    assert found["attention_entropy_ratio{heads=mean}"] == pytest.approx(sum(wanted) / len(wanted), abs=1e-6)
    stated = error_of("attention_entropy", "attention_entropy_ratio{heads=mean}", batch)
    assert stated == pytest.approx(scipy.stats.sem(wanted), rel=1e-5)


def test_a_sink_hides_the_entropy_of_the_rest_and_inner_entropy_shows_it() -> None:
    found = measured("attention_entropy", rows([sinking(strength=12.0)]))
    assert found["attention_entropy_ratio{heads=mean}"] == pytest.approx(0.0, abs=0.01)
    assert found["attention_inner_entropy_ratio{heads=mean}"] == pytest.approx(1.0, abs=1e-5)


def test_a_learned_sink_takes_a_share_and_leaves_the_entropy_of_the_keys() -> None:
    batch = rows([even()], sinks=torch.full((LENGTH,), math.log(8.0)))
    wanted = [8 / (8 + n) for n in range(8, LENGTH + 1)]
    found = measured("attention_places", batch)
    assert found["attention_learned_sink_ratio{heads=mean}"] == pytest.approx(sum(wanted) / len(wanted))
    assert measured("attention_entropy", batch)["attention_entropy_ratio{heads=mean}"] == pytest.approx(1.0)


@pytest.mark.parametrize("padding", [0, 5])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("offset", "place"), [(0, "own"), (-1, "previous")])
def test_a_head_that_points_at_one_key(offset: int, place: str, causal: bool, padding: int) -> None:
    found = measured("attention_places", rows([pointing(offset)], causal=causal, padding=padding))
    for name in ("own", "previous", "first"):
        assert found[f"attention_{name}_ratio{{heads=mean}}"] == pytest.approx(float(name == place), abs=0.05), name
    assert found["attention_diagonal_heads_ratio"] == (place == "own")
    assert found["attention_sink_heads_ratio"] == 0


def test_next_and_last_are_known_only_where_they_are_seen() -> None:
    causal, both = (measured("attention_places", rows([pointing(1)], causal=causal)) for causal in (True, False))
    assert causal["attention_next_ratio{heads=mean}"] is causal["attention_last_ratio{heads=mean}"] is None
    assert both["attention_next_ratio{heads=mean}"] == pytest.approx(1.0)
    assert both["attention_last_ratio{heads=mean}"] == pytest.approx(1 / (LENGTH - 1))  # the last but one looks at it


@pytest.mark.parametrize("padding", [0, 5])
def test_the_first_real_token_is_the_sink_and_takes_nothing_where_a_window_hides_it(padding: int) -> None:
    whole = measured("attention_places", rows([sinking()], padding=padding))
    assert whole["attention_first_ratio{heads=mean}"] == pytest.approx(1.0)
    assert whole["attention_sink_heads_ratio"] == 1
    seen = measured("attention_places", rows([sinking()], padding=padding, window=16))
    assert seen["attention_first_ratio{heads=mean}"] == pytest.approx(9 / 57)  # 9 of 57 rows that see 8 keys see it


def test_an_even_look_at_a_short_text_is_no_sink() -> None:
    found = measured("attention_places", rows([even(12)]))
    assert found["attention_sink_heads_ratio"] == 0
    assert found["attention_first_ratio{heads=mean}"] == pytest.approx(sum(1 / n for n in range(8, 13)) / 5)
    assert measured("attention_places", rows([even(7)]))["attention_first_ratio{heads=mean}"] is None


def test_rows_without_a_key_of_their_own_have_no_place_and_no_distance() -> None:
    batch = rows([sinking()], causal=False)
    batch.positions.fill_(-1)
    found = measured("attention_places", batch)
    assert found["attention_own_ratio{heads=mean}"] is None
    assert found["attention_first_ratio{heads=mean}"] == pytest.approx(1.0)
    assert measured("attention_distances", batch)["attention_distance_mean{heads=mean}"] is None


def test_distances_by_hand() -> None:
    found = measured("attention_distances", rows([pointing(-5)]), heads=True)
    assert found["attention_distance_mean{heads=0}"] == pytest.approx(5.0)
    assert found["attention_band_ratio{tokens=4}"] == pytest.approx(1.0)
    assert sum(value or 0 for key, value in found.items() if "band" in key) == pytest.approx(1.0)
    even_head = measured("attention_distances", rows([even()]))
    assert even_head["attention_distance_ratio{heads=mean}"] == pytest.approx(0.5)
    assert even_head["attention_distance_mean{heads=mean}"] == pytest.approx(sum(range(7, 64)) / 57 / 2)


def test_bands_of_a_head_that_sees_both_sides() -> None:
    logits = torch.full((LENGTH, LENGTH), -200.0)
    for distance in (0, 2, -2):
        logits += 200 * torch.diag(torch.ones(LENGTH - abs(distance)), distance)
    batch = rows([logits], causal=False).take(slice(8, 56))
    found = measured("attention_distances", batch)
    assert found["attention_band_ratio{tokens=0}"] == pytest.approx(1 / 3)
    assert found["attention_band_ratio{tokens=2}"] == pytest.approx(2 / 3)


def test_long_range_leaves_out_sinks_short_texts_and_what_a_window_hides() -> None:
    def long_range(batch: AttentionBatch) -> float | None:
        return measured("attention_distances", batch)["attention_long_range_ratio{heads=mean}"]

    assert long_range(rows([sinking()])) == pytest.approx(0.0, abs=1e-9)
    assert long_range(rows([pointing(-17)])) == pytest.approx(46 / 46, abs=0.03)  # a row or two look at the first
    assert long_range(rows([pointing(-16)])) == pytest.approx(0.0, abs=1e-9)
    assert long_range(rows([even(63)])) is None
    assert long_range(rows([even()], window=17)) is None
    wanted = [(n - 17) / (n + 1) for n in range(18, LENGTH)]
    assert long_range(rows([even()])) == pytest.approx(sum(wanted) / len(wanted))


def test_start_over_middle_finds_positions_that_wrap_around() -> None:
    places = torch.arange(LENGTH)
    distance = places[:, None] - places[None]
    wrapped = torch.minimum(distance.abs(), LENGTH - distance.abs())

    def start(logits: Tensor, **more: Any) -> float | None:
        return measured("attention_distances", rows([logits], **more))["attention_start_over_middle_ratio"]

    assert start(even()) == pytest.approx(1.0)
    assert start(sinking(strength=9.0)) == pytest.approx(1.0)  # the first token does not count
    faded, conflated = start(-0.1 * distance.abs()), start(-0.1 * wrapped)
    assert (faded or 1) < 0.2
    assert (conflated or 0) > 3
    assert start(even(), window=50) is None
    assert start(even(63)) is None


def test_logits_by_hand() -> None:
    logits = torch.zeros(LENGTH, LENGTH)
    logits[:, 1::2] = 8.0
    batch = rows([logits, 2 * logits], causal=False, head_size=64, bounds=torch.arange(2.0).repeat_interleave(LENGTH))
    found = measured("attention_logits", batch, heads=True)
    assert found["attention_logit_spread{heads=0}"] == pytest.approx(4.0)
    assert found["attention_unscaled_spread_ratio{heads=0}"] == pytest.approx(0.5)
    assert found["attention_logit_max{heads=max}"] == 16.0
    assert found["attention_logit_max{heads=0}"] == 8.0
    assert found["attention_logit_bound{heads=max}"] == 1.0
    masked = rows([torch.full((LENGTH, LENGTH), 5.0)], padding=3)  # the padding holds 77
    assert measured("attention_logits", masked)["attention_logit_max{heads=max}"] == 5.0


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_spread_does_not_depend_on_the_level(offset: float) -> None:
    logits = torch.randn(LENGTH, LENGTH, generator=torch.Generator().manual_seed(0)) + offset
    found = measured("attention_logits", rows([logits], causal=False))
    wanted = logits.double().std(1, correction=0).mean()
    assert found["attention_logit_spread{heads=mean}"] == pytest.approx(float(wanted), rel=1e-3)


def test_unit_queries_and_keys_have_the_spread_that_the_scale_predicts() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 256, 64, generator=generator)
    scaled, plain = rows([query @ key.T / 8], causal=False, head_size=64), rows([query @ key.T], head_size=64)
    assert measured("attention_logits", scaled)["attention_logit_spread{heads=mean}"] == pytest.approx(1, abs=0.05)
    assert measured("attention_logits", plain)["attention_unscaled_spread_ratio{heads=mean}"] == pytest.approx(
        1, abs=0.05
    )


def test_dead_and_twin_heads() -> None:
    generator = torch.Generator().manual_seed(0)
    noise = [torch.randn(LENGTH, LENGTH, generator=generator) for _ in range(3)]
    norms = torch.tensor([1.0, 2.0, 1e-4, 3.0]).repeat_interleave(LENGTH)
    found = measured("attention_heads", rows([*noise, noise[1].clone()], outputs=norms))
    assert (found["attention_heads"], found["attention_dead_heads_ratio"]) == (4, 0.25)
    assert found["attention_faintest_head_ratio"] == pytest.approx(1e-4 / 1.5)
    assert found["attention_twin_heads_ratio"] == 0.5
    assert found["attention_head_cosine_max"] == pytest.approx(1.0)
    unknown = measured("attention_heads", rows(noise))
    assert unknown["attention_dead_heads_ratio"] is None
    assert unknown["attention_twin_heads_ratio"] == 0
    assert measured("attention_heads", rows(noise[:1]))["attention_head_cosine_max"] is None


def test_sinks_and_even_looks_make_no_twins() -> None:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(6, LENGTH, LENGTH, generator=generator)
    sinks = measured("attention_heads", rows([each + sinking(strength=7.0) for each in noise]))
    new = measured("attention_heads", rows([0.01 * each for each in noise]))
    for found in (sinks, new):
        assert found["attention_twin_heads_ratio"] == 0
        assert (found["attention_head_cosine_max"] or 1) < 0.4


def test_rows_of_two_heads_belong_together_by_query_across_batches() -> None:
    logits = torch.randn(LENGTH, LENGTH, generator=torch.Generator().manual_seed(0))
    batch = rows([logits, logits])
    shuffled = batch.take(torch.randperm(len(batch), generator=torch.Generator().manual_seed(1)))
    assert measured("attention_heads", *shuffled.split([1, 100, 27]))["attention_twin_heads_ratio"] == 1
    apart = batch.take(slice(None))
    apart.queries[LENGTH:] += LENGTH  # the second head looks from other tokens: nothing can be compared
    assert measured("attention_heads", apart)["attention_twin_heads_ratio"] == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_rows_that_are_no_numbers_are_counted_and_poison_nothing(bad: float) -> None:
    sound = rows([even(), sinking()])
    spoilt = rows([even(), sinking()])
    spoilt.logits[5, 2] = bad
    spoilt.logits[LENGTH + 9, 0] = bad
    assert measured("attention_validity", spoilt)["attention_nonfinite_rows_total"] == 2
    clean = sound.take(torch.tensor([n for n in range(2 * LENGTH) if n not in (5, LENGTH + 9)]))
    for name in ("attention_entropy", "attention_places", "attention_distances", "attention_logits", "attention_heads"):
        assert measured(name, spoilt) == measured(name, clean), name
    spoilt = rows([even()])
    spoilt.logits[0, 1] = bad  # the first query does not see the second key
    assert measured("attention_validity", spoilt)["attention_nonfinite_rows_total"] == 0


def test_a_mask_of_minus_infinity_is_no_defect_and_a_row_of_nothing_else_is() -> None:
    batch = rows([even()], causal=False)
    batch.logits[:, 3] = -math.inf
    found = measured("attention_validity", batch)
    assert found["attention_nonfinite_rows_total"] == 0
    assert measured("attention_entropy", batch)["attention_entropy_ratio{heads=mean}"] == pytest.approx(1.0)
    batch = rows([even()], causal=False)
    batch.logits[3], batch.visible[4] = -math.inf, False
    found = measured("attention_validity", batch)
    assert (found["attention_nonfinite_rows_total"], found["attention_unseeing_rows_total"]) == (1, 1)


def test_heads_beyond_the_bound_are_left_out() -> None:
    batch = rows([even(), sinking()])
    batch.heads[LENGTH:] = MOST_HEADS
    for name in ("attention_places", "attention_heads"):
        statistic: Statistic[Any] = get(Statistic, name)()
        statistic.update(batch)
        assert not any(f"={MOST_HEADS}" in measurement.key for measurement in statistic.compute())
    assert measured("attention_places", batch)["attention_sink_heads_ratio"] == 0


def test_the_map_shows_where_heads_look() -> None:
    statistic: Statistic[Any] = get(Statistic, "attention_places")()
    statistic.update(rows([pointing(0, 256), sinking(256), even(256)], padding=3))
    (exhibit,) = statistic.exhibits()
    assert exhibit.columns == ("head", "query", "key", "attention")
    assert not exhibit.truncated
    cells = {row[:3]: row[3] for row in exhibit.rows}
    assert {head for head, _, _ in cells} == {"all", "0", "1", "2"}
    assert cells["0", 20, 20] == pytest.approx(1.0)
    assert cells["1", 20, 0] == pytest.approx(1.0)
    assert cells["2", 20, 5] == pytest.approx(8 / 164.5, rel=0.01)
    assert cells["all", 20, 20] == pytest.approx((1 + 0.5 * 8 / 164.5) / 3, abs=0.01)


def test_entropy_by_head_is_shown() -> None:
    statistic: Statistic[Any] = get(Statistic, "attention_entropy")()
    statistic.update(rows([even(), pointing(0)]))
    (exhibit,) = statistic.exhibits()
    assert [row[0] for row in exhibit.rows] == [0, 1]
    assert [row[1] for row in exhibit.rows] == pytest.approx([1.0, 0.0], abs=1e-6)


@pytest.mark.parametrize("kind", ["gpt2", "bert", "llama"])
def test_weights_are_those_that_transformers_shows(kind: str) -> None:
    torch.manual_seed(0)
    shared: dict[str, Any] = {"vocab_size": 50, "attn_implementation": "eager"}
    models: dict[str, Any] = {
        "gpt2": lambda: transformers.GPT2Model(transformers.GPT2Config(n_layer=2, n_embd=32, n_head=4, **shared)),
        "bert": lambda: transformers.BertModel(
            transformers.BertConfig(
                num_hidden_layers=2, hidden_size=32, num_attention_heads=4, intermediate_size=32, **shared
            )
        ),
        "llama": lambda: transformers.LlamaModel(
            transformers.LlamaConfig(
                num_hidden_layers=2,
                hidden_size=32,
                num_attention_heads=4,
                num_key_value_heads=2,
                intermediate_size=32,
                **shared,
            )
        ),
    }
    model = models[kind]().eval()
    for parameter in model.parameters():
        parameter.data.mul_(3 if parameter.ndim > 1 else 1)
    ids = torch.randint(0, 50, (20,))
    batches = attention_batches(model, [ids], queries=20)
    with torch.no_grad():
        shown = model(ids[None], output_attentions=True).attentions
    assert len(batches) == len(shown) == 2
    for batch, weights in zip(batches, shown, strict=True):
        assert torch.allclose(batch.weights.view(4, 20, 20), weights[0], atol=1e-5)
