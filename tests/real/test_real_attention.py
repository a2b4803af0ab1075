"""Attention of real models is sound in every layer, and what is planted in it is found."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from embedwatch.batch import AttentionBatch
from tests.attention_of_models import attention_batches
from tests.checks.test_attention_checks import TRAINED, found, judged, window
from tests.real.test_hidden_places import texts

pytestmark = pytest.mark.real
LENGTH, QUERIES = 256, 16


@lru_cache
def layers(folder: Path, *, causal: bool = False) -> list[AttentionBatch]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    family: Any = transformers.AutoModelForCausalLM if causal else transformers.AutoModel
    model = family.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    encoded = [torch.tensor(tokenizer(text)["input_ids"][:LENGTH]) for text in texts(30, 10)]
    return attention_batches(model, encoded, queries=QUERIES)


@pytest.fixture(params=["minilm", *(pytest.param(name, marks=pytest.mark.slow) for name in ("e5", "smollm2"))])
def real(request: pytest.FixtureRequest) -> list[AttentionBatch]:
    folder: Path = request.getfixturevalue(request.param)
    return layers(folder, causal=request.param == "smollm2")


def test_every_layer_is_sound(real: list[AttentionBatch]) -> None:
    for number, batch in enumerate(real):
        verdicts = judged(window([batch], TRAINED))
        assert {check: each.reason for check, each in verdicts.items() if each.status != "ok"} == {}, number
        assert len(verdicts) >= 8


def test_saturated_logits_are_a_collapse_in_every_layer(real: list[AttentionBatch]) -> None:
    for batch in real:
        assert found(window([replace(batch, logits=10 * batch.logits)], TRAINED))["attention_collapse"] in (
            "warn",
            "fail",
        )


def test_logits_that_are_scaled_away_make_heads_uniform(real: list[AttentionBatch]) -> None:
    for batch in real:
        faded = window([replace(batch, logits=batch.logits / batch.head_size)], TRAINED)
        assert found(faded) == {"attention_uniform": "fail"}


def test_a_layer_of_copied_heads_is_found(real: list[AttentionBatch]) -> None:
    for batch in real:
        heads = int(batch.heads.max()) + 1
        order = torch.argsort(batch.queries * heads + batch.heads)
        batch = batch.take(order)
        logits = batch.logits.view(-1, heads, batch.logits.shape[1])
        copied = logits[:, torch.arange(heads) // 2 * 2].reshape(batch.logits.shape)
        assert "attention_twin_heads" in found(window([replace(batch, logits=copied)], TRAINED))
