"""The factor √D, positions, logits and freshness of loaded models: known answers, and faults that are named."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from embedwatch.core.boundary import Boundary
from embedwatch.core.verdict import Verdict
from embedwatch.diagnosing import diagnose
from embedwatch.inquiry import Inquiry
from embedwatch.loading import load_subject
from embedwatch.loading.live import LiveSubject
from embedwatch.loading.settings import table_factor
from embedwatch_model import ModelConfig, Transformer
from embedwatch_model.storage import save_weights
from tests.loading import tiny
from tests.quiet import quiet_transformers

D = 64
PLACES = ("scale",)


def own(**settings: Any) -> Transformer:
    torch.manual_seed(0)
    return Transformer(ModelConfig(vocabulary=200, d_model=D, layers=2, heads=2, length=64, **settings))


def examined(subject: Any, **asked: Any) -> tuple[dict[str, float | None], dict[str, Verdict]]:
    boundary = Boundary(on_error="raise")
    (judged,) = diagnose(Inquiry(subject, **asked), places=PLACES, boundary=boundary)
    numbers = {measurement.name: measurement.number for measurement in judged.snapshot}
    return numbers, {verdict.check: verdict for verdict in judged.verdicts}


def wrong(verdicts: dict[str, Verdict]) -> set[str]:
    return {name for name, verdict in verdicts.items() if verdict.status in ("warn", "fail")}


@pytest.mark.parametrize(
    ("settings", "power"),
    [
        ({}, 1),
        ({"positions": "learned"}, 1),
        ({"positions": "rope", "tied": False, "scaled": False}, 0),
        ({"kind": "encoder_decoder"}, 1),
    ],
)
def test_our_models_scale_once_or_not_at_all_as_they_say(settings: dict[str, Any], power: int) -> None:
    numbers, verdicts = examined(LiveSubject(own(**settings)))
    assert numbers["lookup_scale_power"] == pytest.approx(power, abs=1e-3)
    assert numbers["lookup_scale_gap"] == pytest.approx(0, abs=1e-3)
    assert wrong(verdicts) == {"fresh_model"}


def test_sinusoidal_positions_are_seen_without_a_table() -> None:
    numbers, _ = examined(LiveSubject(own()))
    assert numbers["position_rms"] == pytest.approx(math.sqrt(0.5), rel=1e-3)
    assert numbers["lookup_position_ratio"] == pytest.approx(math.sqrt(2), rel=0.02)


@pytest.mark.parametrize(
    ("factor", "words", "found"),
    [
        (1.0, "√D is left out", {"scale_as_configured", "lookup_balance", "fresh_model"}),
        (
            float(D),
            "√D is applied once too often",
            {"scale_as_configured", "lookup_balance", "lookup_twice", "fresh_model"},
        ),
    ],
)
def test_a_root_that_is_left_out_or_applied_twice_is_named(factor: float, words: str, found: set[str]) -> None:
    model = own()
    model.embedding.tokens.scale = factor
    _, verdicts = examined(LiveSubject(model))
    assert wrong(verdicts) == found
    assert words in verdicts["scale_as_configured"].reason
    expected = "left out" if factor == 1 else "applied twice"
    assert f"√D seems to be {expected}" in verdicts["lookup_balance"].reason


def saved(folder: Path, change: Callable[[Transformer], None], **settings: Any) -> Path:
    """A model on a disk, changed before it was saved, with other settings where asked."""
    model = own()
    change(model)
    folder.mkdir()
    save_weights(model, folder / "model.safetensors")
    config = {"model_type": "embedwatch", **model.config.to_json(), **settings}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def multiply(factor: float) -> Callable[[Transformer], None]:
    def change(model: Transformer) -> None:
        with torch.no_grad():
            model.embedding.tokens.weight.mul_(factor)

    return change


def test_a_checkpoint_whose_configuration_lost_the_factor_is_found(tmp_path: Path) -> None:
    _, verdicts = examined(load_subject(saved(tmp_path / "m", multiply(1), scaled=False)))
    assert wrong(verdicts) == {"lookup_balance", "fresh_model"}
    assert "√D seems to be left out" in verdicts["lookup_balance"].reason


def test_a_checkpoint_whose_table_has_the_factor_already_is_found(tmp_path: Path) -> None:
    numbers, verdicts = examined(load_subject(saved(tmp_path / "m", multiply(D**0.5))))
    assert "lookup_balance" in wrong(verdicts)
    assert "√D seems to be applied twice" in verdicts["lookup_balance"].reason
    assert numbers["entering_rms"] == pytest.approx(D**0.5, rel=0.05)


def test_a_whole_checkpoint_is_only_fresh(tmp_path: Path) -> None:
    _, verdicts = examined(load_subject(saved(tmp_path / "m", multiply(1))))
    assert wrong(verdicts) == {"fresh_model"}
    assert verdicts["fresh_model"].status == "warn"


HEALTHY = (
    "bert", "roberta", "mpnet", "distilbert", "albert", "deberta-v2", "modernbert", "xlnet", "gpt2-lm", "gpt_neox",
    "bloom", "llama-lm", "llama-lm-untied", "qwen3", "gemma3_text", "mamba", "t5-lm", "bart-lm",
)  # fmt: skip


@pytest.mark.parametrize("kind", HEALTHY)
def test_random_models_of_transformers_are_fresh_and_nothing_else(kind: str) -> None:
    with quiet_transformers():
        subject = LiveSubject(tiny.build(kind), tokenizer=tiny.tokenizer())
        numbers, verdicts = examined(subject, deep=True)
    assert wrong(verdicts) == {"fresh_model"}
    assert numbers["lookup_scale_gap"] in (None, pytest.approx(0, abs=1e-3))


def test_gemma_is_known_to_scale() -> None:
    with quiet_transformers():
        numbers, _ = examined(LiveSubject(tiny.build("gemma3_text")))
    assert (numbers["lookup_scale_power"], numbers["lookup_scale_power_configured"]) == (pytest.approx(1), 1)


def test_factors_of_configurations() -> None:
    from transformers import GraniteConfig, LlamaConfig, MarianConfig

    assert table_factor(MarianConfig(d_model=64, scale_embedding=True)) == 8
    assert table_factor(LlamaConfig()) == 1
    assert table_factor(GraniteConfig(embedding_multiplier=12.0)) == 12
    assert table_factor(None) is None


def trained(model: nn.Module, *, layers: int | None = None) -> nn.Module:
    """What training leaves behind: directions that rows and matrices share, norms that differ, gains and biases."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if layers is not None and f"layers.{layers}." in name:
                continue
            if weight.ndim == 2:
                one, other = (torch.randn(size, generator=generator) for size in weight.shape)
                weight.add_(2 * float(weight.square().mean().sqrt()) * torch.outer(one, other))
                weight.mul_(torch.rand(len(weight), 1, generator=generator) + 0.5)
            else:
                weight.add_(0.1 * torch.randn(weight.shape, generator=generator))
    return model


def test_a_model_with_traces_of_training_is_not_fresh() -> None:
    numbers, verdicts = examined(LiveSubject(trained(own())))
    assert numbers["fresh_signs_ratio"] == 0
    assert "fresh_model" not in wrong(verdicts)
    assert verdicts["fresh_layers"].status == "ok"


def test_layers_that_were_not_loaded_are_found() -> None:
    _, verdicts = examined(LiveSubject(trained(own(), layers=1)))
    assert verdicts["fresh_layers"].status == "warn"
    assert "50%" in verdicts["fresh_layers"].reason


def test_logits_of_a_table_that_is_drawn_too_large() -> None:
    model = own(scaled=False)
    nn.init.normal_(model.embedding.tokens.weight)
    numbers, verdicts = examined(LiveSubject(model))
    assert numbers["logit_unit_std"] == pytest.approx(D**0.5, rel=0.05)
    assert verdicts["initial_logits"].status == "warn"
    sound, verdicts = examined(LiveSubject(own()))
    assert sound["logit_norm_std"] == pytest.approx(1, rel=0.05)
    assert sound["logit_entropy_ratio"] == pytest.approx(1 - 0.5 / math.log(200), abs=0.02)
    assert verdicts["initial_logits"].status == "ok"


def test_logits_on_texts_are_those_of_the_model() -> None:
    with quiet_transformers():
        model = tiny.build("llama-lm")
        numbers, _ = examined(LiveSubject(model, tokenizer=tiny.tokenizer()), texts=tiny.texts(2))
        ids = [tiny.tokenizer()(text)["input_ids"] for text in tiny.texts(2)]
        logits = torch.cat([model(torch.tensor([part])).logits[0].detach() for part in ids if len(part) > 1])
    assert numbers["logit_text_std"] == pytest.approx(float(logits.std(1).mean()), rel=1e-4)


def test_a_pass_to_the_first_layer_leaves_no_trace_and_keeps_the_mode() -> None:
    model = own(dropout=0.5).train()
    before = torch.get_rng_state()
    numbers, _ = examined(LiveSubject(model))
    assert numbers["lookup_factor"] == pytest.approx(D**0.5, rel=1e-4)  # dropout was at rest
    assert model.training
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(module._forward_pre_hooks for module in model.modules())
