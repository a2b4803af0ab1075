"""Generation of models whose texts are known: each token leads to the next on a circle, more or less surely."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import embedwatch
from embedwatch.core.boundary import Boundary
from embedwatch.core.errors import InputError
from embedwatch.diagnosing import diagnose
from embedwatch.diagnostics import generation
from embedwatch.inquiry import Inquiry
from embedwatch.judged import Judged
from embedwatch.loading.live import LiveSubject
from embedwatch.loading.own import EmbedwatchConfig, EmbedwatchModel
from embedwatch.loading.writing_on import Pen
from embedwatch.observe.attention.looking import looking
from embedwatch.observe.attention.recency import recency_of
from embedwatch.observe.resting import beside_work
from embedwatch_model import ModelConfig, Transformer
from tests.loading import tiny
from tests.quiet import quiet_transformers

CIRCLE = (20, 21, 22, 23, 24)
"""Tokens that lead to one another; all others lead to the first."""
WIDTH = 64
PROMPTS = ("w1 w2 w3", "w30 w31", "w7")


TOKENS = 48


@pytest.fixture(scope="module", autouse=True)
def _silent() -> Iterator[None]:
    with quiet_transformers(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(generation, "TOKENS", TOKENS)  # less than usual: what is tested does not hang on it
        yield


def _next(token: int) -> int:
    return CIRCLE[(CIRCLE.index(token) + 1) % len(CIRCLE)] if token in CIRCLE else CIRCLE[0]


def _circle(table: nn.Embedding, head: Any, sureness: float) -> None:
    """Let a model whose layers add nothing write the circle."""
    with torch.no_grad():
        table.weight.zero_()
        head.weight.zero_()
        for token in range(tiny.VOCABULARY):
            table.weight[token, token] = 1.0
            head.weight[_next(token), token] = sureness


def circling(kind: str, sureness: float) -> LiveSubject:
    torch.manual_seed(0)
    if kind == "own":
        config = ModelConfig(
            vocabulary=tiny.VOCABULARY, d_model=WIDTH, layers=2, heads=2, tied=False, positions="rope", norm_kind="rms"
        )
        model: Any = Transformer(config)
        for name, weight in model.named_parameters():
            if "layers" in name and weight.ndim == 2:
                nn.init.zeros_(weight)
        _circle(model.embedding.tokens, model.head, sureness)
    else:
        settings = {**tiny.HALVES, "hidden_size": WIDTH, "tie_word_embeddings": False, "max_position_embeddings": 256}
        model = tiny._of("LlamaForCausalLM", **settings)
        for layer in model.model.layers:
            for part in (layer.self_attn.o_proj, layer.self_attn.q_proj, layer.mlp.down_proj):
                nn.init.zeros_(part.weight)
        _circle(model.model.embed_tokens, model.lm_head, sureness)
    return LiveSubject(model, tokenizer=tiny.tokenizer(), label=kind)


def judged(subject: LiveSubject, **asked: Any) -> Judged:
    inquiry = Inquiry(subject, **{"prompts": PROMPTS, **asked})
    (found,) = diagnose(inquiry, places=("generation",), exhibits=True, boundary=Boundary(on_error="raise"))
    return found


@pytest.fixture(scope="module", params=["own", "llama"])
def sure(request: pytest.FixtureRequest) -> Judged:
    return judged(circling(request.param, 8.0))


def test_a_model_that_is_too_sure_loops_and_is_told_so(sure: Judged) -> None:
    number = sure.snapshot.number
    for decoding in ("greedy", "sampled"):
        assert number("generation_loops_ratio", decoding=decoding) == 1
        assert number("generation_loop_period", decoding=decoding) == len(CIRCLE)
        assert number("generation_loop_length", decoding=decoding) == TOKENS
        repeated = number("generation_repetition_ratio", decoding=decoding, n="4")
        assert repeated == pytest.approx((TOKENS - 3 - len(CIRCLE)) / (TOKENS - 3))
        assert number("generation_self_cosine", decoding=decoding) > 0.95  # type: ignore[operator]
        assert number("generation_probability", decoding=decoding, depth="late") == pytest.approx(1.0)
        assert number("generation_distinct_ratio", decoding=decoding, n="1") == pytest.approx(5 / (3 * TOKENS))
    found = {verdict.check: verdict for verdict in sure.verdicts}
    assert {name: verdict.status for name, verdict in found.items()} == {
        "generation_greedy": "warn",
        "generation_loops": "fail",
        "generation_repetition": "fail",
    }
    assert f"of 5 tokens again and again over {TOKENS}" in found["generation_loops"].reason
    for words in ("repetition penalty", "top-p", "temperature"):
        assert words in found["generation_loops"].remedy
    texts = next(exhibit for exhibit in sure.exhibits if exhibit.name == "generated_texts")
    assert texts.rows[0][2].startswith("w15 w16 w17 w18 w19 w15")  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["own", pytest.param("llama", marks=pytest.mark.slow)])
def test_a_model_that_is_not_sure_loops_only_where_nothing_is_drawn(kind: str) -> None:
    found = judged(circling(kind, 0.35))
    number = found.snapshot.number
    assert number("generation_loops_ratio", decoding="greedy") == 1
    assert number("generation_loops_ratio", decoding="sampled") == 0
    assert {verdict.check: verdict.status for verdict in found.verdicts} == {
        "generation_greedy": "warn",
        "generation_loops": "ok",
        "generation_repetition": "ok",
    }


def test_the_same_seed_writes_the_same_and_the_model_is_left_alone() -> None:
    subject = circling("own", 0.35)
    state = torch.get_rng_state()
    first, second, third = (judged(subject, seed=seed).snapshot for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert [m.value for m in first.measurements] == [m.value for m in second.measurements]
    assert [m.value for m in first.measurements] != [m.value for m in third.measurements]
    with beside_work(), pytest.raises(InputError, match="must be at rest"), looking(subject.model, rows=4):
        pass


def test_even_attention_gives_the_latest_tokens_their_share() -> None:
    subject = circling("llama", 8.0)  # without queries all keys are alike
    pen = Pen(subject)
    (written,) = pen.write(pen.prompts(["w1 w2 w3"], 60), tokens=60, drawn=False)
    start = pen.start(written)
    with torch.no_grad(), looking(pen.model, rows=128) as eyes:
        logits, seen = eyes.look(lambda: pen.read(written))
    assert logits.shape == (60, tiny.VOCABULARY)
    assert logits.argmax(1).tolist() == list(written.ids)  # each from the logits that it was chosen by
    for batch in seen.values():
        found = recency_of(batch, start=start, reach=8)
        assert len(found.depths) == 60 * 2
        inner = found.depths + start  # keys but the first
        assert torch.allclose(found.recent, torch.where(inner > 8, 8 / inner, 1.0).double(), atol=1e-5)
        assert torch.allclose(found.prompt, ((start - 1) / inner).double(), atol=1e-5)


@pytest.mark.parametrize("kind", [pytest.param("t5-lm", marks=pytest.mark.slow), "bart-lm", "own-pair"])
def test_models_with_an_encoder_write_from_what_it_read(kind: str) -> None:
    if kind == "own-pair":
        torch.manual_seed(0)
        sizes = {"vocabulary": tiny.VOCABULARY, "d_model": 16, "layers": 1, "heads": 2, "length": 64}
        model: Any = EmbedwatchModel(EmbedwatchConfig.from_json({**sizes, "kind": "encoder_decoder"}))
    else:
        model = tiny.build(kind)
    found = judged(LiveSubject(model, tokenizer=tiny.tokenizer()))
    assert found.snapshot.provenance.notes == ()
    number = found.snapshot.number
    for decoding in ("greedy", "sampled"):
        assert number("generation_tokens", decoding=decoding)
        late = number("generation_recent_attention_ratio", decoding=decoding, depth="late")
        assert late is None or 0 <= late <= 1
        assert number("generation_prompt_attention_ratio", decoding=decoding, depth="late") is None
    assert number("generation_probability", decoding="sampled", depth="early") is not None


def test_padding_on_the_left_changes_no_text() -> None:
    pen = Pen(LiveSubject(tiny.build("gpt2-lm"), tokenizer=tiny.tokenizer()))
    prompts = pen.prompts(["w1 w2 w3 w4 w5 w6 w7", "w9"], 20)
    together = pen.write(prompts, tokens=20, drawn=False)
    alone = [pen.write([prompt], tokens=20, drawn=False)[0] for prompt in prompts]
    assert together == alone
    assert [each.prompt[0] for each in together] == [2, 2]
    assert all(3 not in each.prompt for each in together)  # the token that closes a text does not stand before it


def test_a_watched_model_writes_when_it_is_asked_and_that_is_not_watched() -> None:
    subject = circling("own", 8.0)
    with embedwatch.watch(subject.model, every=1, window=2, sinks=[], tokenizer=subject.tokenizer) as monitor:
        found = monitor.diagnose(prompts=PROMPTS)
        assert "generation" in {judged.snapshot.space.place for judged in found}
        assert monitor.snapshots["generation"].number("generation_loops_ratio", decoding="sampled") == 1
        assert not any(place.startswith("layers.") for place in monitor.snapshots)  # no rows of what was written


def test_what_cannot_write_is_said() -> None:
    broken = tiny.build("gpt2-lm")
    with torch.no_grad():
        broken.transformer.wte.weight.fill_(float("nan"))
    found = judged(LiveSubject(broken, tokenizer=tiny.tokenizer()))
    (note,) = found.snapshot.provenance.notes
    assert "must go on from prompts" in note
    assert found.verdicts == ()
    subject = LiveSubject(tiny.build("bert"), tokenizer=tiny.tokenizer())
    assert diagnose(Inquiry(subject, prompts=PROMPTS), places=("generation",)) == []
    with pytest.raises(InputError, match="must have a head that writes texts"):
        Pen(subject)
