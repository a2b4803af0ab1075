"""Figures of sinusoidal and rotary positions that were worked out apart from this code, and what rounding does."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from embedwatch.core.errors import UsageError
from embedwatch.geometry.position_figures import Seen, wave_figures
from embedwatch.geometry.position_probe import attention_ends, hidden_ends
from embedwatch.geometry.position_rounding import (
    code_distance,
    distinct_positions,
    first_shared_position,
    frozen_pairs,
    rounding_phase,
)
from embedwatch.geometry.position_tables import dominant_period, twins, untrained_tail
from embedwatch.geometry.position_truth import frequencies_of, match_frequencies, probe_positions, rendered
from embedwatch.geometry.positions import alias_beyond, coverage, kernel, sinusoids, unseen_pairs, wavelengths
from embedwatch.geometry.relative_bias import alibi_reach, alibi_slopes, open_bucket
from embedwatch.geometry.rope import base_frequencies, fitted_base, turning
from embedwatch.geometry.sinusoid_tables import read_waves

FAR = 100_001


@pytest.fixture(scope="module")
def kernels() -> dict[int, torch.Tensor]:
    return {d: kernel(base_frequencies(d, 10_000.0), FAR) for d in (64, 128, 512)}


@pytest.mark.parametrize(
    ("d", "cosine", "distance", "longest"),
    [(64, 0.049, 7.80, 47_117), (128, -0.028, 11.47, 54_410), (512, -0.064, 23.35, 60_611)],
)
def test_position_10000_is_not_position_0(
    kernels: dict[int, torch.Tensor], d: int, cosine: float, distance: float, longest: int
) -> None:
    assert math.sin(10_000) == pytest.approx(-0.30561, abs=1e-5)  # and not 0: the base is no period
    g = float(kernels[d][10_000])
    assert g == pytest.approx(cosine, abs=6e-4)
    codes = sinusoids(torch.tensor([0, 10_000]), base_frequencies(d, 10_000.0))
    assert float((codes[0] - codes[1]).norm()) == pytest.approx(distance, abs=6e-3)
    assert float((codes[0] - codes[1]).norm()) == pytest.approx(math.sqrt(d * (1 - g)), rel=1e-9)
    assert float(wavelengths(base_frequencies(d, 10_000.0)).max()) == pytest.approx(longest, abs=1)


def test_products_depend_on_the_offset_and_differences_do_not() -> None:
    codes = sinusoids(torch.tensor([0, 5, 1_000, 1_005, 5_000, 5_005]), base_frequencies(512, 10_000.0))
    pairs = [(codes[0], codes[1]), (codes[2], codes[3]), (codes[4], codes[5])]
    for first, second in pairs:
        assert float(first @ second) == pytest.approx(189.596668, abs=1e-6)
        assert float((second - first).norm()) == pytest.approx(11.524177, abs=1e-6)
    differences = [second - first for first, second in pairs]
    turned = [float(torch.cosine_similarity(differences[0], each, dim=0)) for each in differences[1:]]
    assert turned == pytest.approx([0.00, -0.21], abs=0.01)


@pytest.mark.parametrize(
    ("d", "neighbour", "aliases", "lowest"),
    [
        (64, 1.4718, [(101, 0.579), (99_363, 0.418), (99_363, 0.418)], -0.420),
        (128, 1.9526, [(101, 0.497), (1_030, 0.321), (50_272, 0.266)], -0.283),
        (512, 3.7143, [(100, 0.437), (1_016, 0.226), (47_764, 0.122)], -0.148),
    ],
)
def test_nearest_far_places(
    kernels: dict[int, torch.Tensor], d: int, neighbour: float, aliases: list[tuple[int, float]], lowest: float
) -> None:
    g = kernels[d]
    assert math.sqrt(d * (1 - float(g[1]))) == pytest.approx(neighbour, abs=1e-4)
    assert float(g.min()) == pytest.approx(lowest, abs=1e-3)
    for beyond, (lag, cosine) in zip((100, 1_000, 10_000), aliases, strict=True):
        found = alias_beyond(g, beyond)
        assert found is not None
        assert found.lag == lag
        assert found.cosine == pytest.approx(cosine, abs=6e-4)


def test_rounding_codes_moves_them_little() -> None:
    waves, places = base_frequencies(512, 10_000.0), torch.arange(0, 100_000, 97)
    exact = code_distance(waves, 1, torch.float64, places)
    assert code_distance(waves, 1, torch.bfloat16, places) == pytest.approx(exact, rel=3e-3)
    assert code_distance(waves, 1, torch.float16, places) == pytest.approx(exact, rel=4e-4)


@pytest.mark.parametrize(
    ("dtype", "length", "distinct"),
    [
        (torch.bfloat16, 512, 385),
        (torch.bfloat16, 2_048, 641),
        (torch.bfloat16, 4_096, 769),
        (torch.bfloat16, 32_768, 1_153),
        (torch.bfloat16, 100_001, 1_348),
        (torch.float16, 4_096, 3_073),
        (torch.float16, 32_768, 6_145),
        (torch.float16, 100_001, 7_168),
        (torch.float32, 100_001, 100_001),
        (torch.float16, 65_520, 7_168),
        (torch.float8_e4m3fn, 1_000, 55),
        (torch.bfloat16, 0, 0),
    ],
)
def test_positions_that_stay_distinct(dtype: torch.dtype, length: int, distinct: int) -> None:
    assert distinct_positions(length, dtype) == distinct
    assert distinct_positions(10**30, torch.float16) == 7_168, "in no time"
    rounded = torch.arange(length).to(dtype).double()
    assert len(torch.unique(rounded[rounded.isfinite()])) == distinct


def test_types_count_exactly_up_to() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        first = first_shared_position(dtype)
        assert float(torch.tensor(float(first + 1)).to(dtype)) == first
        assert float(torch.tensor(float(first)).to(dtype)) != float(torch.tensor(float(first - 1)).to(dtype))


def test_rounded_frequencies() -> None:
    waves = base_frequencies(128, 10_000.0)
    assert rounding_phase(waves, torch.bfloat16, 512) == pytest.approx(0.63, abs=0.01)
    assert rounding_phase(waves, torch.bfloat16, 4_096) == pytest.approx(5.0, abs=0.02)
    off = (waves - waves.bfloat16().double()).abs() * 4_096
    assert int((off > 0.1).sum()) == 28
    assert frozen_pairs(waves, torch.bfloat16, 4_096) < frozen_pairs(base_frequencies(128, 5e5), torch.bfloat16, 4_096)


@pytest.mark.parametrize(
    ("d", "base", "covered"),
    [
        (64, 1e4, (16, 21, 23, 25, 30, 32)),
        (64, 5e5, (11, 15, 16, 18, 21, 25)),
        (128, 1e4, (31, 41, 46, 50, 60, 64)),
        (128, 5e5, (22, 29, 32, 35, 42, 49)),
        (128, 1e6, (21, 27, 31, 34, 40, 47)),
        (128, 1e7, (18, 23, 26, 29, 34, 40)),
    ],
)
def test_covered_pairs(d: int, base: float, covered: tuple[int, ...]) -> None:
    waves = base_frequencies(d, base)
    for length, count in zip((512, 2_048, 4_096, 8_192, 32_768, 131_072), covered, strict=True):
        assert coverage(waves, length) == count
        assert count == min(d // 2, math.floor(d / 2 * math.log(length / (2 * math.pi)) / math.log(base)) + 1)


@pytest.mark.parametrize(
    ("kind", "base", "trained", "factor", "longest", "resolution", "covered", "unseen", "alias", "temperature"),
    [
        ("default", 1e4, 4_096, 1, 54_410, 0.0298, 60, 18, (1_030, 0.321), 1.0),
        ("linear", 1e4, 4_096, 8, 435_281, 0.00049, 46, 0, (1_095, 0.446), 1.0),
        ("ntk", 1e4, 4_096, 8, 435_281, 0.0250, 49, 17, (1_057, 0.482), 1.0),
        ("yarn", 1e4, 4_096, 8, 435_281, 0.0298, 46, 0, (5_228, 0.468), 1.208),
        ("yarn", 1e4, 4_096, 16, 870_562, 0.0298, 45, 0, (2_011, 0.493), 1.277),
        ("default", 5e5, 8_192, 1, 2_559_196, 0.0221, 42, 29, (1_032, 0.524), 1.0),
        ("llama3", 5e5, 8_192, 8, 20_473_564, 0.0221, 34, 0, (23_386, 0.662), 1.0),
    ],
)
def test_scalings_at_32768(
    kind: str,
    base: float,
    trained: int,
    factor: float,
    longest: float,
    resolution: float,
    covered: int,
    unseen: int,
    alias: tuple[int, float],
    temperature: float,
) -> None:
    length = 32_768
    found = turning(kind, 128, base, {"factor": float(factor)}, trained=trained, length=length)
    plain = base_frequencies(128, base)
    assert float(wavelengths(found.frequencies).max()) == pytest.approx(longest, rel=1e-5)
    assert coverage(found.frequencies, length) == covered
    assert unseen_pairs(plain, found.frequencies, trained, length) == unseen
    assert found.temperature == pytest.approx(temperature, abs=1e-3)
    figures = wave_figures(found.frequencies, Seen(plain, trained), length)
    assert figures.resolution == pytest.approx(resolution, abs=6e-5)
    assert figures.unseen == pytest.approx(unseen / 64)
    worst = alias_beyond(figures.kernel, 1_024)
    assert worst is not None
    assert (worst.lag, worst.cosine) == (alias[0], pytest.approx(alias[1], abs=6e-4))


@pytest.mark.parametrize("head", [32, 128])
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("linear", {"factor": 8.0}),
        ("dynamic", {"factor": 4.0}),
        ("yarn", {"factor": 8.0, "original_max_position_embeddings": 4_096}),
        ("yarn", {"factor": 40.0, "original_max_position_embeddings": 4_096, "mscale": 1.0, "mscale_all_dim": 0.7}),
        ("yarn", {"factor": 8.0, "original_max_position_embeddings": 4_096, "truncate": False, "beta_fast": 16}),
        (
            "llama3",
            {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8_192},
        ),
        ("longrope", {"factor": 8.0, "original_max_position_embeddings": 4_096}),
        ("proportional", {"partial_rotary_factor": 0.25}),
    ],
)
def test_scalings_agree_with_transformers(head: int, kind: str, values: dict[str, float]) -> None:
    if kind == "longrope":
        spread = torch.linspace(1, 8, head // 2).tolist()
        values = {**values, "short_factor": [1.0] * (head // 2), "long_factor": spread}
    parameters = {"rope_type": kind, "rope_theta": 500_000.0, **values}
    config = LlamaConfig(
        hidden_size=2 * head,
        num_attention_heads=2,
        head_dim=head,
        max_position_embeddings=32_768,
        rope_parameters=parameters,
    )
    trained = int(values.get("original_max_position_embeddings", 32_768))
    for length in (1_024, 65_536):
        theirs, temperature = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), seq_len=length)
        ours = turning(kind, head, 500_000.0, dict(config.rope_parameters), trained=trained, length=length)
        assert ours.temperature == pytest.approx(temperature, rel=1e-6)
        torch.testing.assert_close(ours.frequencies, theirs.double(), rtol=1e-6, atol=0.0)


def test_wrong_scalings_are_refused() -> None:
    with pytest.raises(UsageError, match="`kind` must be one of"):
        turning("magic", 64, 10_000.0, {"factor": 2.0})
    with pytest.raises(UsageError, match="`factor` must be a positive number for linear scaling, got None"):
        turning("linear", 64, 10_000.0)
    with pytest.raises(UsageError, match="`long_factor` must hold 32 numbers"):
        turning("longrope", 64, 10_000.0, {"long_factor": [1.0]}, trained=8, length=9)
    with pytest.raises(UsageError, match="`dimensions` must be even"):
        base_frequencies(5, 10_000.0)


@pytest.mark.parametrize("base", [1_000.0, 10_000.0, 500_000.0, 1e7])
def test_a_base_is_read_off_frequencies_and_off_angles(base: float) -> None:
    waves = base_frequencies(64, base)
    assert fitted_base(waves.float()) == pytest.approx(base, rel=1e-5)
    angles = torch.outer(torch.arange(4_096.0).double(), waves)
    read = frequencies_of(angles.cos().float(), angles.sin().float())
    assert read is not None
    assert match_frequencies(read, waves).error < 1e-3
    assert match_frequencies(read / 8, waves).stretch == pytest.approx(8, rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_positions_that_were_rounded_are_told_from_codes_that_were(dtype: torch.dtype) -> None:
    waves, places = base_frequencies(64, 10_000.0), probe_positions(20_000)
    angles = torch.outer(places.double(), waves)
    harmless = rendered(angles.cos().to(dtype), angles.sin().to(dtype), waves, places)
    assert (harmless.shared, harmless.rounded) == (0.0, "")
    assert harmless.error < 5e-3
    angles = torch.outer(places.to(dtype).double(), waves)
    harmful = rendered(angles.cos(), angles.sin(), waves, places)
    assert harmful.error > 1.0
    assert harmful.rounded == str(dtype).removeprefix("torch.")
    assert harmful.first == first_shared_position(dtype)


@pytest.mark.parametrize("halves", [True, False])
def test_waves_are_read_off_tables(halves: bool) -> None:
    table = sinusoids(torch.arange(128), base_frequencies(32, 10_000.0), halves=halves)
    waves = read_waves(table, 10_000.0)
    assert waves is not None
    assert (waves.halves, waves.base) == (halves, 10_000.0)
    assert read_waves(torch.randn(128, 32), 10_000.0) is None


def test_buckets_and_slopes() -> None:
    assert open_bucket(buckets=32, most=128, bidirectional=True) == 91
    assert open_bucket(buckets=32, most=128, bidirectional=False) == 113
    slopes = alibi_slopes(8)
    assert (slopes[0], slopes[-1]) == (1 / 2, 1 / 256)
    assert [round(alibi_reach(slope, 2**-24)) for slope in (slopes[0], slopes[-1])] == [33, 4_259]
    assert [round(alibi_reach(slope)) for slope in (slopes[0], slopes[-1])] == [14, 1_768]


def test_tables_of_chance_hold_nothing() -> None:
    rows = torch.randn(256, 32, generator=torch.Generator().manual_seed(0))
    period = dominant_period(rows)
    assert period is not None
    assert period.share < 1.5 * period.chance
    assert twins(rows) == []
    assert untrained_tail(rows) == 0
    assert dominant_period(torch.ones(64, 4)) is None
    assert len(twins(torch.ones(64, 4))) == 63


def test_a_period_stands_out_from_chance() -> None:
    generator = torch.Generator().manual_seed(0)
    wave = torch.outer((2 * torch.pi * torch.arange(511) / 127.75).sin(), torch.randn(32, generator=generator))
    period = dominant_period(wave + torch.randn(511, 32, generator=generator))
    assert period is not None
    assert period.rows == 127.75
    assert period.share > 5 * period.chance


def test_attention_that_comes_round_is_told_from_a_sink() -> None:
    length = 128
    places = torch.arange(length)
    apart = (places[:, None] - places).abs()
    round_about = torch.minimum(apart, length - apart)
    near = torch.softmax(-0.05 * apart.double(), 1)
    circle = torch.softmax(-0.05 * round_about.double(), 1)
    sink = 0.5 * near
    sink[:, 0] += 0.5
    assert attention_ends(near, causal=False).over_middle < 1
    assert attention_ends(sink, causal=False).over_middle < 1
    assert attention_ends(circle, causal=False).over_middle > 3
    assert attention_ends(circle, causal=False).over_neighbour > 0.5
    causal = torch.softmax((-0.05 * round_about.double()).masked_fill(apart.new_ones(apart.shape).triu(1) > 0, -1e9), 1)
    assert attention_ends(causal, causal=True).over_middle > 3


def test_hidden_states_by_place() -> None:
    generator = torch.Generator().manual_seed(0)
    turn = 2 * torch.pi * torch.arange(96) / 96
    circle = torch.stack([turn.cos(), turn.sin()], 1) @ torch.randn(2, 24, generator=generator)
    words = torch.randn(96, 24, generator=generator)
    found = hidden_ends(torch.stack([circle + words.roll(12 * roll, 0) for roll in range(8)]))
    assert found.ends > 0.8
    assert found.background < 0
    assert abs(found.chance) < 0.2
