"""Rotary positions against complex numbers, and their scalings against Hugging Face."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import transformers as hf
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from embedwatch_model import ModelError, RotaryPositions

K, LENGTH, BASE = 64, 512, 10_000.0
AT = torch.arange(20)[None]


def heads(seed: int = 0, size: int = K) -> torch.Tensor:
    return torch.randn(2, 3, 20, size, generator=torch.Generator().manual_seed(seed))


def hugging_face(rope: dict[str, Any], seq_len: int | None = None) -> tuple[torch.Tensor, float]:
    """Return frequencies and attention factor as transformers computes them."""
    config = hf.LlamaConfig(
        hidden_size=K,
        num_attention_heads=1,
        max_position_embeddings=LENGTH,
        rope_parameters={"rope_theta": BASE, **rope},
    )
    frequencies, factor = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, None, seq_len=seq_len)
    return frequencies.double(), factor


class TestRotation:
    def test_multiplies_pairs_as_complex_numbers(self) -> None:
        x = heads()
        turned = RotaryPositions(K, LENGTH).rotate(x, AT)
        frequencies = BASE ** (-2 * torch.arange(K // 2, dtype=torch.float64) / K)
        turn = torch.polar(torch.ones(20, K // 2, dtype=torch.float64), AT[0][:, None] * frequencies)
        expected = torch.complex(x[..., : K // 2].double(), x[..., K // 2 :].double()) * turn
        assert torch.allclose(turned.double(), torch.cat([expected.real, expected.imag], dim=-1), atol=1e-5)

    def test_keeps_lengths(self) -> None:
        x = heads()
        assert torch.allclose(RotaryPositions(K, LENGTH).rotate(x, AT).norm(dim=-1), x.norm(dim=-1), atol=1e-4)

    def test_scores_depend_on_the_offset_alone(self) -> None:
        rope = RotaryPositions(K, LENGTH)
        q, k = heads(0), heads(1)

        def scores(shift: int) -> torch.Tensor:
            return rope.rotate(q, AT + shift) @ rope.rotate(k, AT + shift).transpose(-1, -2)

        assert torch.allclose(scores(0), scores(300), atol=1e-3)
        assert not torch.allclose(scores(0), q @ k.transpose(-1, -2), atol=1e-1)

    def test_rows_may_stand_elsewhere(self) -> None:
        rope = RotaryPositions(K, LENGTH)
        x = heads()
        both = rope.rotate(x, torch.cat([AT, AT + 5]))
        assert torch.equal(both[0], rope.rotate(x, AT)[0])
        assert torch.equal(both[1], rope.rotate(x, AT + 5)[1])

    def test_goes_on_beyond_its_length(self) -> None:
        short, long = RotaryPositions(8, 10), RotaryPositions(8, 100)
        short.reserve(58)
        assert torch.equal(short.rotate(heads(size=8), AT + 30), long.rotate(heads(size=8), AT + 30))

    def test_keeps_the_dtype_and_saves_nothing(self) -> None:
        rope = RotaryPositions(8, 32)
        assert rope.rotate(heads(size=8).bfloat16(), AT).dtype == torch.bfloat16
        assert not rope.state_dict()

    def test_refuses_odd_heads(self) -> None:
        with pytest.raises(ModelError, match="`head_size` must be even, got 7"):
            RotaryPositions(7, 8)


class TestScaling:
    def test_linear_is_that_of_hugging_face(self) -> None:
        frequencies, factor = hugging_face({"rope_type": "linear", "factor": 4.0})
        rope = RotaryPositions(K, LENGTH, scaling={"kind": "linear", "factor": 4.0})
        assert torch.allclose(rope.frequencies, frequencies, rtol=1e-6)
        assert rope.temperature == factor == 1.0

    def test_linear_reads_position_p_as_p_over_the_factor(self) -> None:
        x = heads(size=8)
        scaled = RotaryPositions(8, 80, scaling={"kind": "linear", "factor": 4.0})
        assert torch.allclose(scaled.rotate(x, AT * 4), RotaryPositions(8, 32).rotate(x, AT), atol=1e-5)

    @pytest.mark.parametrize(("dynamic", "times"), [(1.0, 4), (3.0, 2), (2.0, 3)])
    def test_ntk_is_the_dynamic_one_of_hugging_face_at_one_length(self, dynamic: float, times: int) -> None:
        """Its factor at s times the trained length is f·s - (f - 1); ours is fixed, so that cached keys stay right."""
        frequencies, _ = hugging_face({"rope_type": "dynamic", "factor": dynamic}, seq_len=times * LENGTH)
        fixed = dynamic * times - (dynamic - 1)
        rope = RotaryPositions(K, LENGTH, scaling={"kind": "ntk", "factor": fixed})
        assert torch.allclose(rope.frequencies, frequencies, rtol=1e-5)

    def test_ntk_leaves_the_fastest_pair_and_stretches_the_slowest_by_the_factor(self) -> None:
        scaled = RotaryPositions(K, LENGTH, scaling={"kind": "ntk", "factor": 4.0}).frequencies
        plain = RotaryPositions(K, LENGTH).frequencies
        assert scaled[0] == plain[0] == 1
        assert float(plain[-1] / scaled[-1]) == pytest.approx(4.0)

    @pytest.mark.parametrize("factor", [1.0, 2.0, 16.0])
    def test_yarn_is_that_of_hugging_face(self, factor: float) -> None:
        frequencies, temperature = hugging_face(
            {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": LENGTH}
        )
        rope = RotaryPositions(K, LENGTH, scaling={"kind": "yarn", "factor": factor})
        assert torch.allclose(rope.frequencies, frequencies, rtol=1e-5)
        assert rope.temperature == pytest.approx(temperature)
        assert rope.temperature == pytest.approx(0.1 * math.log(factor) + 1)

    def test_yarn_keeps_fast_pairs_and_stretches_slow_ones(self) -> None:
        plain = RotaryPositions(K, LENGTH).frequencies
        ratio = plain / RotaryPositions(K, LENGTH, scaling={"kind": "yarn", "factor": 8.0}).frequencies
        turns = LENGTH * plain / (2 * math.pi)
        assert torch.allclose(ratio[turns > 64], torch.ones(int((turns > 64).sum()), dtype=torch.float64))
        assert torch.allclose(ratio[turns < 0.5], torch.full((int((turns < 0.5).sum()),), 8.0, dtype=torch.float64))
        assert bool((ratio.diff() >= 0).all())

    def test_the_temperature_scales_scores_by_its_square(self) -> None:
        rope = RotaryPositions(K, LENGTH, scaling={"kind": "yarn", "factor": 8.0})
        q = heads()[:, :, :1]
        turned = rope.rotate(q, torch.zeros(1, 1, dtype=torch.long))
        ratio = (turned * turned).sum(-1) / (q * q).sum(-1)
        assert torch.allclose(ratio, torch.full_like(ratio, rope.temperature**2), rtol=1e-4)

    def test_ntk_refuses_heads_of_one_pair(self) -> None:
        with pytest.raises(ModelError, match="at least 4 for NTK"):
            RotaryPositions(2, 8, scaling={"kind": "ntk", "factor": 2.0})
