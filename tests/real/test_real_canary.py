"""The canary on real models: healthy twice, and each change that a person makes to a provider named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from embedwatch.canary import Canary
from embedwatch.canary.inputs import model_embedder
from embedwatch.canary.probes import PROBES
from embedwatch.loading import Subject, load_subject

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def subject(minilm: Path) -> Subject:
    return load_subject(minilm)


@pytest.fixture(scope="module")
def recorded(minilm: Path) -> Canary:
    embedder = model_embedder(minilm)
    return Canary.record(embedder.embed, model=embedder.label, fingerprint=embedder.fingerprint, notes=embedder.notes)


def test_the_noise_of_a_real_model_is_measured_and_small(recorded: Canary) -> None:
    assert recorded.dimension == 384
    assert 0 < recorded.floor.largest < 1e-10
    assert recorded.floor.distance == 1e-9


@pytest.mark.parametrize("size", [64, 32, 5, 1])
def test_the_same_model_in_other_batches_is_silent(recorded: Canary, subject: Subject, size: int) -> None:
    def embed(texts: list[str]) -> Tensor:
        return torch.cat([subject.encode(texts[start : start + size]) for start in range(0, len(texts), size)])

    outcome = recorded.check(embed, fingerprint=recorded.fingerprint)
    assert (outcome.cause, outcome.status) == ("unchanged", "ok"), outcome.verdicts[0].reason
    assert outcome.snapshot.provenance.notes[-1] == "fingerprint of model and recipe is as it was"


@pytest.mark.parametrize(
    ("settings", "causes"),
    [
        ({"pooling": "cls"}, {"recipe"}),
        ({"pooling": "max"}, {"recipe"}),
        ({"pooling": "last"}, {"recipe", "altered"}),
        ({"prefix": "query: "}, {"recipe"}),
        ({"prefix": "passage: "}, {"recipe"}),
        ({"prefix": "Represent this sentence for searching relevant passages: "}, {"recipe"}),
    ],
)
def test_another_recipe_is_named(
    recorded: Canary, subject: Subject, settings: dict[str, str], causes: set[str]
) -> None:
    outcome = recorded.check(lambda texts: subject.encode(texts, **settings))
    assert outcome.status == "fail"
    assert outcome.cause in causes, outcome.verdicts[0].reason


def _int8(rows: Tensor) -> Tensor:
    step = rows.abs().amax(1, keepdim=True) / 127
    return (rows / step).round() * step


TURN = torch.linalg.qr(torch.randn(384, 384, generator=torch.Generator().manual_seed(0))).Q


@pytest.mark.parametrize(
    ("act", "cause", "status"),
    [
        (Tensor.bfloat16, "rounded", "warn"),
        (Tensor.half, "rounded", "warn"),
        (_int8, "rounded", "warn"),
        (torch.sign, "rounded", "fail"),
        (lambda rows: 5 * rows, "lengths", "warn"),
        (lambda rows: torch.nn.functional.normalize(rows[:, :256], dim=1), "truncated", "fail"),
        (lambda rows: rows[:, :256].bfloat16(), "truncated", "fail"),
        (lambda rows: rows @ TURN, "rotated", "fail"),
        (lambda rows: rows.flip(1), "rotated", "fail"),
        (lambda rows: rows.roll(1, 0), "order", "fail"),
    ],
)
def test_what_is_done_to_vectors_is_named(
    recorded: Canary, act: Callable[[Tensor], Tensor], cause: str, status: str
) -> None:
    outcome = recorded.compare(act(recorded.vectors))
    assert (outcome.cause, outcome.status) == (cause, status), outcome.verdicts[0].reason


def test_a_shorter_limit_of_tokens_is_some_texts(recorded: Canary, subject: Subject) -> None:
    outcome = recorded.check(lambda texts: subject.encode([" ".join(text.split()[:40]) for text in texts]))
    assert (outcome.cause, outcome.status) == ("some texts", "fail"), outcome.verdicts[0].reason
    assert all(len(PROBES[int(row[0] or 0)].split()) > 40 for row in outcome.exhibits[0].rows)


def test_the_model_in_half_precision_is_rounded(recorded: Canary, minilm: Path, silent: None) -> None:
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(minilm), AutoModel.from_pretrained(minilm).bfloat16().eval()

    def embed(texts: list[str]) -> Tensor:
        inputs = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
        with torch.inference_mode():
            states = model(**inputs).last_hidden_state.float()
        mask = inputs["attention_mask"][..., None]
        return torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=1)

    outcome = recorded.check(embed)
    assert (outcome.cause, outcome.status) == ("rounded", "warn"), outcome.verdicts[0].reason


def test_another_model_of_as_many_dimensions(recorded: Canary, e5: Path) -> None:
    other = model_embedder(e5, prefix="query: ")
    outcome = recorded.check(other.embed, model=other.label)
    assert (outcome.cause, outcome.status) == ("other model", "fail"), outcome.verdicts[0].reason
    assert abs(outcome.snapshot.number("canary_centred_cosine") or 1) < 0.05


def test_an_anisotropic_model_is_the_same_and_its_prompts_differ(e5: Path) -> None:
    subject = load_subject(e5)
    canary = Canary.record(lambda texts: subject.encode(texts, prefix="query: "))
    assert canary.check(lambda texts: subject.encode(texts, prefix="query: ")).cause == "unchanged"
    assert canary.check(lambda texts: subject.encode(texts, prefix="passage: ")).cause in ("recipe", "altered")
