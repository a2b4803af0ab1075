"""Layers of loaded models: gains, biases, empty and silent units, massive entries, tokens that grow alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from embedwatch.core.boundary import Boundary
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.verdict import Verdict
from embedwatch.diagnosing import diagnose
from embedwatch.inquiry import Inquiry
from embedwatch.loading.live import LiveSubject
from embedwatch.observe.normalisations import normalisations
from embedwatch.observe.passes import leaving, stack_of
from embedwatch_model import ModelConfig, Transformer
from tests.loading import tiny
from tests.quiet import quiet_transformers

TEXTS = tuple(" ".join(f"w{(i * 7 + j * 3) % 50}" for j in range(30)) for i in range(10))


def own(**settings: Any) -> Transformer:
    torch.manual_seed(0)
    config = {"vocabulary": tiny.VOCABULARY, "d_model": 32, "layers": 3, "heads": 2, "length": 64, **settings}
    return Transformer(ModelConfig(**config))


def examined(model: nn.Module, **asked: Any) -> tuple[dict[str, float | None], dict[str, Verdict], dict[str, Exhibit]]:
    inquiry = Inquiry(LiveSubject(model, tokenizer=tiny.tokenizer()), **asked)
    (judged,) = diagnose(inquiry, places=("layers",), exhibits=True, boundary=Boundary(on_error="raise"))
    numbers = {measurement.name: measurement.number for measurement in judged.snapshot}
    exhibits = {exhibit.name: exhibit for exhibit in judged.exhibits}
    return numbers, {verdict.check: verdict for verdict in judged.verdicts}, exhibits


def wrong(verdicts: dict[str, Verdict]) -> dict[str, str]:
    return {name: verdict.status for name, verdict in verdicts.items() if verdict.status in ("warn", "fail")}


@pytest.mark.parametrize(
    "settings", [{}, {"norm_kind": "rms", "positions": "rope"}, {"kind": "encoder", "norm": "post"}]
)
def test_our_models_have_healthy_layers(settings: dict[str, Any]) -> None:
    numbers, verdicts, _ = examined(own(**settings), texts=TEXTS)
    assert not wrong(verdicts)
    assert {"tokens_alike", "silent_units", "norm_gains", "empty_units"} <= set(verdicts)
    assert numbers["tokens_read"] == sum(len(tiny.tokenizer()(text)["input_ids"]) for text in TEXTS)


@pytest.mark.parametrize(
    "kind", ["bert", "mpnet", "albert", "gpt2-lm", "bloom", "llama-lm", "gemma3_text", "mamba", "t5-lm"]
)
def test_random_models_of_transformers_have_healthy_layers(kind: str) -> None:
    with quiet_transformers():
        _, verdicts, _ = examined(tiny.build(kind), texts=TEXTS)
    assert not wrong(verdicts)


def test_the_gain_of_gemma_is_what_it_does_and_not_what_it_keeps() -> None:
    with quiet_transformers():
        model = tiny.build("gemma3_text")
    norms = {norm.name: norm for norm in normalisations(model)}
    assert torch.allclose(norms["norm"].gain, torch.ones(16, dtype=torch.float64), atol=1e-5)
    assert not bool(model.norm.weight.any())


def test_gains_and_biases_are_read_back() -> None:
    norm = nn.LayerNorm(8)
    nn.init.normal_(norm.weight, generator=torch.Generator().manual_seed(0))
    nn.init.normal_(norm.bias, generator=torch.Generator().manual_seed(1))
    found = next(normalisations(nn.ModuleDict({"a": norm})))
    assert torch.allclose(found.gain.float(), norm.weight, atol=1e-5)
    assert torch.allclose(found.bias.float(), norm.bias, atol=1e-5)


Change = Callable[[Transformer], None]


def gain_peak(model: Transformer) -> None:
    model.layers[1].attention_norm.weight[3] = 1000


def bias_peak(model: Transformer) -> None:
    model.norm.bias[3] = 500


def dead_gains(model: Transformer) -> None:
    model.norm.weight[:12] = 0


def broken(model: Transformer) -> None:
    model.norm.weight[2] = torch.nan


def empty_rows(model: Transformer) -> None:
    model.layers[2].feed_forward.widen.weight[:40] = 0


@pytest.mark.parametrize(
    ("change", "check", "status", "named"),
    [
        (gain_peak, "norm_gains", "warn", "layers.1.attention_norm"),
        (bias_peak, "norm_biases", "warn", "norm"),
        (dead_gains, "norm_dead_dimensions", "warn", "norm"),
        (broken, "nonfinite_norms", "fail", "norm"),
        (empty_rows, "empty_units", "warn", "layers.2"),
    ],
)
def test_planted_faults_are_found_and_named(change: Change, check: str, status: str, named: str) -> None:
    model = own()
    with torch.no_grad():
        change(model)
    _, verdicts, exhibits = examined(model)
    further = {"nonfinite_weights": "fail"} if check == "nonfinite_norms" else {}
    assert wrong(verdicts) == {check: status, **further}
    (cited,) = verdicts[check].evidence.exhibits
    worst = max(exhibits[cited].rows, key=lambda row: _worth(check, row))
    assert worst[0] == named


def _worth(check: str, row: tuple[Any, ...]) -> float:
    column = {"norm_gains": 2, "norm_biases": 3, "norm_dead_dimensions": 4, "nonfinite_norms": 0, "empty_units": 1}[
        check
    ]
    return float(row[0] == "norm") if column == 0 else float(row[column] or 0)


def test_layers_that_add_the_same_to_all_tokens_make_them_alike() -> None:
    model = own(layers=4)
    with torch.no_grad():
        for layer in model.layers:
            layer.feed_forward.narrow.bias.fill_(20.0)
    numbers, verdicts, exhibits = examined(model, texts=TEXTS)
    assert wrong(verdicts).get("tokens_alike") in ("warn", "fail")
    distances = [row[2] for row in exhibits["residual_depths"].rows]
    assert distances[0] > 0.8 > 0.2 > distances[-1]
    assert numbers["alike_distance_first"] == distances[0]


def test_a_massive_entry_is_information_with_its_token_and_dimension() -> None:
    model = own()
    with torch.no_grad():
        model.embedding.tokens.weight[tiny.tokenizer().convert_tokens_to_ids("w7"), 5] = 3000
    numbers, verdicts, exhibits = examined(model, texts=TEXTS)
    assert (numbers["massive_entry_max"] or 0) > 1000
    assert numbers["massive_layers"] == 4
    assert not wrong(verdicts)
    assert {row[5:] for row in exhibits["residual_depths"].rows} == {("w7", 5)}


def test_units_that_never_wake_are_counted_on_texts_alone() -> None:
    model = own(activation="relu")
    with torch.no_grad():
        for layer in model.layers:
            layer.feed_forward.widen.bias[: 128 * 3 // 4] = -100
    numbers, verdicts, _ = examined(model, texts=TEXTS)
    assert numbers["silent_unit_ratio"] == pytest.approx(0.75, abs=0.02)
    assert verdicts["silent_units"].status == "warn"
    assert examined(model, deep=True)[0]["silent_unit_ratio"] is None


def test_what_leaves_each_layer_is_what_the_model_computes() -> None:
    model = own().eval()
    ids = torch.arange(12).reshape(2, 6)
    found = leaving(model, ids)
    assert len(found) == 1 + len(stack_of(model)) == 4
    with torch.no_grad():
        expected = model.embedding(ids)
        assert torch.allclose(found[0], expected)
        hidden: Tensor = model(ids).hidden
    assert torch.allclose(model.norm(found[-1]), hidden, atol=1e-5)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
