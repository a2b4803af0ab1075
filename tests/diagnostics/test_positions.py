"""Faults in the positions of a model are found and named; healthy models of many kinds are left alone."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaModel
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from embedwatch.core.boundary import Boundary
from embedwatch.core.verdict import Verdict
from embedwatch.diagnosing import diagnose
from embedwatch.geometry.positions import sinusoids
from embedwatch.inquiry import Inquiry
from embedwatch.judged import Judged
from embedwatch.loading.live import LiveSubject
from embedwatch_model import ModelConfig, Transformer
from tests.loading import tiny
from tests.quiet import quiet_transformers

LENGTH = 4_096


@pytest.fixture(scope="module", autouse=True)
def _silent() -> Iterator[None]:
    with quiet_transformers():
        yield


def judged(model: torch.nn.Module, **asked: Any) -> Judged:
    boundary = Boundary(on_error="raise")
    (found,) = diagnose(Inquiry(LiveSubject(model), **asked), places=("positions",), exhibits=True, boundary=boundary)
    return found


def accused(model: torch.nn.Module, **asked: Any) -> dict[str, Verdict]:
    """Return what is not ok, by the name of the check."""
    return {verdict.check: verdict for verdict in judged(model, **asked).verdicts if verdict.status != "ok"}


def own(positions: str, length: int = 256, **settings: Any) -> Transformer:
    torch.manual_seed(0)
    config = ModelConfig(
        vocabulary=50, d_model=64, layers=1, heads=1, d_ff=64, length=length, positions=positions, **settings
    )
    return Transformer(config).eval()


def llama(length: int = LENGTH, **settings: Any) -> LlamaModel:
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 50,
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "head_dim": 64,
        "intermediate_size": 32,
        "max_position_embeddings": length,
    }
    return LlamaModel(LlamaConfig(**{**sizes, **settings})).eval()


def smooth_table(rows: int, dimension: int = 64) -> torch.Tensor:
    """Return rows that resemble their neighbours, as trained ones do."""
    steps = torch.randn(rows, dimension, generator=torch.Generator().manual_seed(1))
    kernel = torch.exp(-0.5 * (torch.arange(-12, 13) / 4.0) ** 2)
    padded = torch.nn.functional.pad(steps.T[:, None], (12, 12), mode="reflect")
    return torch.nn.functional.conv1d(padded, kernel[None, None] / kernel.norm())[:, 0].T * 0.1


def learned(table: torch.Tensor) -> Transformer:
    model = own("learned", len(table))
    with torch.no_grad():
        model.embedding.positions.table.weight.copy_(table)
    return model


def rotary_of(model: Transformer) -> Any:
    return next(module for module in model.modules() if hasattr(module, "cos"))


HEALTHY = [*tiny.TEXT, "clip", "siglip", "llava", "encoder-decoder"]


@pytest.mark.parametrize("kind", [kind for kind in HEALTHY if kind not in ("mamba",)])
def test_healthy_random_models_are_not_accused(kind: str) -> None:
    model = tiny.build(kind)
    before = {name: value.clone() for name, value in [*model.named_parameters(), *model.named_buffers()]}
    assert accused(model, deep=True) == {}
    after = dict([*model.named_parameters(), *model.named_buffers()])
    assert all(torch.equal(value, after[name]) for name, value in before.items())


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rope", "alibi", "relative", "none"])
def test_our_own_healthy_models_are_not_accused(positions: str) -> None:
    assert accused(own(positions), deep=True) == {}


def test_a_smooth_table_is_healthy() -> None:
    found = judged(learned(smooth_table(512)))
    assert [verdict.check for verdict in found.verdicts if verdict.status != "ok"] == []
    assert found.snapshot.number("position_adjacent_cosine") == pytest.approx(0.97, abs=0.02)


def test_a_copied_row_is_named() -> None:
    table = smooth_table(512)
    table[300] = table[41]
    found = judged(learned(table))
    (verdict,) = (verdict for verdict in found.verdicts if verdict.status != "ok")
    assert (verdict.check, verdict.evidence.value) == ("position_copies", 1)
    (exhibit,) = (exhibit for exhibit in found.exhibits if exhibit.name == "position_copies")
    assert exhibit.rows == ((300, 41, 0.0),)


def test_a_table_with_the_period_128_is_named() -> None:
    found = accused(learned(smooth_table(128).repeat(4, 1)))
    assert found["position_repeats"].status == "fail"
    assert "Rows 128 apart" in found["position_repeats"].reason
    assert "RoPE" in found["position_repeats"].remedy
    assert "chunks with separators" in found["position_repeats"].remedy


def test_an_untrained_tail_is_counted() -> None:
    table = smooth_table(512)
    table[400:] = torch.randn(112, 64, generator=torch.Generator().manual_seed(2)) * 0.02
    (verdict,) = accused(learned(table)).values()
    assert verdict.check == "position_untrained"
    assert verdict.evidence.value == pytest.approx(112, abs=3)


def test_dead_rows_are_counted() -> None:
    table = smooth_table(512)
    table[500:] = 0
    found = accused(learned(table))
    assert found["position_dead"].evidence.value == 12


def test_a_wrong_theta_in_a_loaded_model_is_named() -> None:
    model = llama(rope_theta=500_000.0)
    assert accused(model) == {}
    model.rotary_emb.inv_freq.copy_(llama(rope_theta=10_000.0).rotary_emb.inv_freq)
    (verdict,) = accused(model).values()
    assert (verdict.check, verdict.status) == ("position_frequencies", "fail")
    assert verdict.reason == "Positions turn with θ = 10,000, where the configuration states 500,000."


def test_a_scaling_that_was_lost_is_named() -> None:
    model = llama(rope_parameters={"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0})
    assert "position_frequencies" not in accused(model)
    model.rotary_emb.inv_freq.mul_(4.0)
    assert "0.25 times slower" in accused(model)["position_frequencies"].reason


def test_a_wrong_theta_in_cosines_and_sines_is_named() -> None:
    model, other = own("rope"), own("rope", rope_base=1_000_000.0)
    rotary, wrong = rotary_of(model), rotary_of(other)
    rotary.cos, rotary.sin = wrong.cos, wrong.sin
    (verdict,) = accused(model).values()
    assert verdict.reason == "Positions turn with θ = 1,000,000, where the configuration states 10,000."


@pytest.mark.parametrize("kind", ["yarn", "llama3", "dynamic", "longrope"])
def test_scalings_agree_with_their_configuration(kind: str) -> None:
    values: dict[str, Any] = {"rope_type": kind, "rope_theta": 10_000.0, "factor": 4.0}
    if kind != "dynamic":
        values["original_max_position_embeddings"] = 1_024
    if kind == "llama3":
        values |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    if kind == "longrope":
        values |= {"short_factor": [1.0] * 32, "long_factor": [4.0] * 32}
    model = llama(rope_parameters=values)
    assert accused(model) == {}
    model.rotary_emb.inv_freq.mul_(1.05)
    assert set(accused(model)) == {"position_frequencies"}


def test_layers_of_two_kinds_are_each_compared() -> None:
    model = tiny.build("modernbert")
    module = next(module for module in model.modules() if hasattr(module, "sliding_attention_inv_freq"))
    module.sliding_attention_inv_freq.copy_(module.full_attention_inv_freq)
    (verdict,) = accused(model).values()
    assert verdict.reason == "Positions turn with θ = 160,000, where the configuration states 10,000."


def test_frequencies_that_a_cast_rounded_are_named() -> None:
    model = llama(head_dim=128)
    right = copy.deepcopy(model)
    model.bfloat16()
    (verdict,) = accused(model).values()
    assert (verdict.check, verdict.status) == ("position_frequency_rounding", "fail")
    assert verdict.evidence.value == pytest.approx(5.0, abs=0.6)  # radians at 4,096 tokens
    for name, weight in right.named_parameters():
        weight.data = dict(model.named_parameters())[name].data
    assert accused(right) == {}  # weights in bfloat16, frequencies in float32: as `from_pretrained(dtype=…)` loads


class Rounded(LlamaRotaryEmbedding):
    """Keeps numbers of positions in the type of the model."""

    def forward(self, x: torch.Tensor, position_ids: torch.Tensor) -> Any:
        return super().forward(x, position_ids.to(torch.bfloat16))


class Multiplied(LlamaRotaryEmbedding):
    """Makes angles by a matrix product, which autocast lowers."""

    def forward(self, x: torch.Tensor, position_ids: torch.Tensor) -> Any:
        angles = position_ids[..., None].float() @ self.inv_freq[None].float()
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def test_positions_rounded_in_a_rotary_module_are_named() -> None:
    model = llama()
    model.rotary_emb = Rounded(model.config)
    found = accused(model)
    assert set(found) == {"position_numbers", "position_angles", "position_autocast"}
    assert "from position 256 on" in found["position_numbers"].reason
    assert "bfloat16" in found["position_numbers"].reason
    assert found["position_numbers"].evidence.value == pytest.approx(1 - 769 / 4_096, abs=1e-3)


def test_a_matrix_product_under_autocast_is_named() -> None:
    model = llama()
    model.rotary_emb = Multiplied(model.config)
    assert set(accused(model)) == {"position_autocast"}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_positions_rounded_in_a_table_are_named(dtype: torch.dtype) -> None:
    model = own("sinusoidal", LENGTH)
    assert accused(model) == {}
    positions = model.embedding.positions
    frequencies = 10_000.0 ** -(torch.arange(0, 64, 2, dtype=torch.float64) / 64)
    positions.table = sinusoids(torch.arange(LENGTH).to(dtype), frequencies).float()
    found = accused(model)
    assert found["position_numbers"].status == "fail"
    assert str(dtype).removeprefix("torch.") in found["position_numbers"].reason
    assert set(found) == {"position_numbers", "position_angles"}


def test_rounded_numbers_of_positions_are_named() -> None:
    model = tiny.build("distilbert")
    ids = torch.arange(512).to(torch.bfloat16).long()
    model.embeddings.position_ids = ids[None]
    (verdict,) = accused(model).values()
    assert verdict.check == "position_numbers"
    assert verdict.evidence.value == pytest.approx(1 - 385 / 512, abs=2e-3)


def test_bfloat16_tables_are_healthy() -> None:
    assert accused(own("sinusoidal", LENGTH).bfloat16()) == {}
    assert accused(own("rope", LENGTH).bfloat16()) == {}


def test_a_cache_shorter_than_claimed_is_named() -> None:
    model = own("rope")
    rotary = rotary_of(model)
    rotary.cos, rotary.sin = rotary.cos[:100], rotary.sin[:100]
    (verdict,) = accused(model).values()
    assert (verdict.check, verdict.evidence.value) == ("position_cache", 156)
    bert = tiny.build("bert")
    bert.embeddings.position_embeddings = torch.nn.Embedding(48, 16)
    assert "16 positions that the configuration states" in accused(bert)["position_cache"].reason


def test_more_than_the_table_holds_is_a_failure_and_names_remedies() -> None:
    found = accused(own("learned"), length=300)
    assert found["position_table_end"].evidence.value == 44
    for words in ("RoPE", "ALiBi", "chunks with separators"):
        assert words in found["position_table_end"].remedy
    assert accused(own("learned"), length=256) == {}
    assert "position_table_end" in accused(tiny.build("roberta"), length=63)  # of its 64 rows two are for padding
    assert accused(tiny.build("roberta"), length=62) == {}


def test_phases_that_training_never_saw() -> None:
    found = accused(llama(), length=32_768)
    assert found["position_unseen"].status == "fail"
    assert {"position_range", "position_unseen"} == set(found)
    yarn = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 8.0, "original_max_position_embeddings": LENGTH}
    assert accused(llama(8 * LENGTH, rope_parameters=yarn), length=8 * LENGTH) == {}


def test_linear_scaling_costs_resolution() -> None:
    linear = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 8.0}
    found = accused(llama(rope_parameters=linear))
    assert set(found) == {"position_resolution"}
    assert found["position_resolution"].status == "warn"


def test_a_length_that_changes_frequencies_is_told() -> None:
    dynamic = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 8.0}
    found = accused(llama(rope_parameters=dynamic), length=2 * LENGTH)
    assert "position_length_shift" in found
    assert accused(llama(rope_parameters=dynamic), length=LENGTH) == {}


def test_whole_periods_collide() -> None:
    model = own("rope", 2_048, rope_base=1.5)
    rotary = rotary_of(model)
    frequencies = torch.full((32,), 2 * torch.pi / 200, dtype=torch.float64)  # all waves come round after 200 places
    angles = torch.outer(torch.arange(2_048), frequencies)
    rotary.cos, rotary.sin = angles.cos().float(), angles.sin().float()
    assert "position_frequencies" in accused(model)


def test_exhibits_are_delivered() -> None:
    names = {exhibit.name for exhibit in judged(own("rope"), deep=True).exhibits}
    assert {"position_kernel", "position_waves", "position_parts", "position_attention"} <= names
    names = {exhibit.name for exhibit in judged(own("learned")).exhibits}
    assert {"position_copies", "position_lags", "position_dead"} <= names


def circle(length: int) -> Transformer:
    """Return an encoder that attends by the distance along a circle: the end of a text is next to its start."""
    torch.manual_seed(0)
    config = ModelConfig(
        vocabulary=50, kind="encoder", d_model=16, layers=1, heads=1, length=length, positions="learned", scaled=False
    )
    model = Transformer(config).eval()
    turn = 2 * torch.pi * torch.arange(length) / length
    with torch.no_grad():
        model.embedding.tokens.weight.mul_(0.01)
        table = torch.zeros(length, 16)
        table[:, 0], table[:, 1] = turn.cos(), turn.sin()
        model.embedding.positions.table.weight.copy_(table)
        for name, module in model.named_modules():
            if name.endswith(("to_query", "to_key")):
                module.weight.copy_(torch.eye(16))
                module.bias.zero_()
    return model


def test_ends_that_are_one_place_are_named() -> None:
    found = judged(circle(64), deep=True)
    verdict = next(verdict for verdict in found.verdicts if verdict.check == "position_ends")
    assert verdict.status == "warn"
    assert found.snapshot.number("position_hidden_ends_cosine") is not None
    curve = next(exhibit for exhibit in found.exhibits if exhibit.name == "position_attention")
    attention = dict(curve.rows)
    assert attention[63] > 3 * attention[32]


def test_half_a_circle_has_two_ends() -> None:
    model = circle(128)
    found = judged(model, deep=True, length=64)
    assert next(verdict for verdict in found.verdicts if verdict.check == "position_ends").status == "ok"
