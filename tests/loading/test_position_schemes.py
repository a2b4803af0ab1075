"""How models of many kinds tell places apart is recognised, live and from files, and the two agree."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import FalconConfig, FalconModel, LlamaConfig, LlamaModel, MptConfig, MptModel

from embedwatch.core.boundary import Boundary
from embedwatch.diagnosing import diagnose
from embedwatch.inquiry import Inquiry
from embedwatch.loading.live import LiveSubject
from embedwatch.loading.position_parts import read_parts
from embedwatch.loading.position_schemes import PositionScheme, scheme_of
from embedwatch.loading.probing import prose, reader_of, shadow, stream
from embedwatch.loading.subject import load_subject
from embedwatch_model import ModelConfig, Transformer
from tests.loading import tiny

LEARNED = ("bert", "roberta", "distilbert", "albert", "electra", "gpt2", "opt", "bart", "fnet", "clip", "siglip")
TURNED = ("llama", "mistral", "qwen3", "gemma3_text", "modernbert", "gpt_neox", "llava")


def scheme(kind: str) -> PositionScheme:
    model = tiny.build(kind)
    return scheme_of(model, model.config)


@pytest.mark.parametrize("kind", LEARNED)
def test_learned(kind: str) -> None:
    found = scheme(kind)
    assert found.kinds == ("learned",)
    assert found.usable == found.rows


@pytest.mark.parametrize(
    ("kind", "rows", "offset"), [("roberta", 62, 2), ("opt", 64, 2), ("bart", 64, 2), ("bert", 64, 0)]
)
def test_rows_before_the_first_token(kind: str, rows: int, offset: int) -> None:
    found = scheme(kind)
    assert (found.rows, found.offset) == (rows, offset)


@pytest.mark.parametrize("kind", TURNED)
def test_turned(kind: str) -> None:
    found = scheme(kind)
    assert found.kinds == ("rope",)
    assert all(each.known for each in found.rotary)
    assert found.rows is None


def test_parameters_by_kind_of_layer() -> None:
    found = {each.part: each for each in scheme("modernbert").rotary}
    assert set(found) == {"full_attention", "sliding_attention"}
    assert (found["full_attention"].base, found["sliding_attention"].base) == (160_000.0, 10_000.0)
    assert (found["full_attention"].window, found["sliding_attention"].window) == (None, 64)


def test_a_part_of_each_head_turns() -> None:
    assert scheme("gpt_neox").rotary[0].dimensions == 2  # a quarter of heads of 8


@pytest.mark.parametrize(
    ("kind", "kinds"),
    [
        ("marian", ("sinusoidal",)),
        ("bloom", ("alibi",)),
        ("t5", ("relative",)),
        ("mpnet", ("learned", "relative")),
        ("deberta-v2", ("learned", "disentangled")),
        ("xlnet", ("relative",)),
        ("mamba", ()),
    ],
)
def test_others(kind: str, kinds: tuple[str, ...]) -> None:
    assert scheme(kind).kinds == kinds


def test_biases() -> None:
    assert scheme("mpnet").told_apart == 91
    assert scheme("t5").told_apart == 91
    assert scheme("bloom").slopes == (2**-4, 2**-8)
    sizes: dict[str, Any] = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    falcon = FalconModel(FalconConfig(**sizes, alibi=True))
    assert scheme_of(falcon, falcon.config).kinds == ("alibi",)
    falcon = FalconModel(FalconConfig(**sizes, alibi=False))
    assert scheme_of(falcon, falcon.config).kinds == ("rope",)
    mpt = MptModel(MptConfig(vocab_size=60, d_model=16, n_heads=2, n_layers=1))
    assert scheme_of(mpt, mpt.config).kinds == ("alibi",)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rope", "alibi", "relative", "none"])
def test_our_own(positions: str) -> None:
    model = Transformer(ModelConfig(vocabulary=9, d_model=16, heads=2, layers=1, length=32, positions=positions))
    found = scheme_of(model)
    assert found.kinds == (positions,)
    assert found.usable == 32
    assert found.causal
    parts = read_parts(LiveSubject(model))
    assert (len(parts.turned), len(parts.fixed)) == (int(positions == "rope"), int(positions == "sinusoidal"))
    assert (parts.table is not None) == (positions == "learned")


def test_scaling_and_what_was_trained_with_it() -> None:
    sizes: dict[str, Any] = {"hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 9}
    yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 1_024}
    model = LlamaModel(LlamaConfig(**sizes, max_position_embeddings=4_096, rope_parameters=yarn))
    (found,) = scheme_of(model, model.config).rotary
    assert (found.kind, found.trained, found.usable, found.finished) == ("yarn", 1_024, 4_096, True)
    linear = {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}
    model = LlamaModel(LlamaConfig(**sizes, max_position_embeddings=1_024, rope_parameters=linear))
    (found,) = scheme_of(model, model.config).rotary
    assert (found.trained, found.usable, found.finished) == (1_024, 4_096, False)


FILES = ("bert", "roberta", "llama-lm", "modernbert", "marian", "t5", "gpt2-lm", "bloom", "mpnet")


@pytest.mark.parametrize("kind", FILES)
def test_files_and_modules_say_the_same(kind: str, model: Callable[[str], Path]) -> None:
    subject = load_subject(model(kind))
    stored = read_parts(subject)
    live = read_parts(LiveSubject(subject.module()))
    assert stored.scheme.kinds == live.scheme.kinds
    assert (stored.scheme.rows, stored.scheme.offset) == (live.scheme.rows, live.scheme.offset)
    assert len(stored.turned) == len(live.turned)
    assert (stored.table is None) == (live.table is None)
    assert len(stored.fixed) == len(live.fixed)
    assert read_parts(subject) is stored
    assert subject._backbones  # by `module` here: reading parts alone builds nothing


def test_reading_parts_builds_no_model(model: Callable[[str], Path]) -> None:
    subject = load_subject(model("llama"))
    read_parts(subject)
    assert subject._backbones == {}


def accused(folder: Path) -> dict[str, str]:
    found = diagnose(Inquiry(load_subject(folder)), places=("positions",), boundary=Boundary(on_error="raise"))
    return {verdict.check: verdict.reason for judged in found for verdict in judged.verdicts if verdict.status != "ok"}


def test_frequencies_in_files_that_disagree_with_the_configuration(copy: Callable[[str], Path]) -> None:
    folder = copy("llama-lm")
    assert accused(folder) == {}
    tensors = load_file(folder / "model.safetensors")
    exponents = torch.arange(0, 8, 2) / 8
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = 10_000.0**-exponents
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert accused(folder) == {}
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"]["rope_theta"] = 500_000.0
    (folder / "config.json").write_text(json.dumps(config))
    assert accused(folder) == {
        "position_frequencies": "Positions turn with θ = 10,000, where the configuration states 500,000."
    }


def test_a_table_in_files_that_is_shorter_than_stated(copy: Callable[[str], Path]) -> None:
    folder = copy("bert")
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if name.endswith("position_embeddings.weight"))
    tensors[name] = tensors[name][:40].clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert "24 positions that the configuration states" in accused(folder)["position_cache"]


def test_a_shadow_shares_weights_and_nothing_else() -> None:
    model = tiny.build("llama").train()
    hook = model.register_forward_hook(lambda *_: None)
    made = shadow(model)
    assert all(first is second for first, second in zip(model.parameters(), made.parameters(), strict=True))
    assert made.rotary_emb.inv_freq is not model.rotary_emb.inv_freq
    assert made.config is not model.config
    assert not made._forward_hooks
    assert model.training
    hook.remove()
    assert reader_of(tiny.build("t5")).is_decoder is False


def test_texts_to_run() -> None:
    assert len(prose()) > 50_000
    subject = LiveSubject(tiny.build("bert"), tokenizer=tiny.tokenizer())
    ids, real = stream(subject, 40, texts=["w1 w2 w3"] * 20)
    assert real
    assert ids[:3].tolist() == [6, 7, 8]
    ids, real = stream(subject, 40, texts=["w1 w2"])
    assert not real
    assert int(ids.min()) >= len(tiny.SPECIAL)
    assert int(ids.max()) < tiny.TOKENS
