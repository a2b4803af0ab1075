"""Checkpoints of our own training are opened like models of transformers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from embedwatch.auditing import audit
from embedwatch.core.errors import InputError
from embedwatch.loading import load_subject
from embedwatch_model.config import ModelConfig
from embedwatch_model.storage import load_weights
from embedwatch_model.text import encode, open_tokenizer
from embedwatch_model.transformer import Transformer
from tests.model import training as tiny

OBJECTIVES = {"causal": "decoder", "masked": "encoder", "translation": "encoder_decoder"}
TEXTS = ["number 7", "the cat sat on the mat", "a dog ran"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    paths = {name: folder / name for name in OBJECTIVES}
    for name, path in paths.items():
        text = (tiny.table if name == "translation" else tiny.corpus)(folder)
        tiny.trainer(path, tiny.settings(text, steps=2, objective=name)).fit()
    return paths


def built(run: Path) -> Transformer:
    model = Transformer(ModelConfig.from_json(json.loads((run / "config.json").read_text()))).eval()
    load_weights(model, run / "model.safetensors")
    return model


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_token_table_has_the_bits_of_the_model_and_names_for_its_rows(
    objective: str, runs: dict[str, Path]
) -> None:
    subject = load_subject(runs[objective])
    table = subject.token_table()
    assert table.name == "embedding.tokens.weight"
    assert torch.equal(table.read(0, len(table)), built(runs[objective]).embedding.tokens.weight)
    assert subject.positions == "RoPE θ = 10,000"
    assert subject.notes == ()
    assert subject.tokenizer.convert_ids_to_tokens(0) == "<pad>"


@pytest.mark.parametrize("objective", OBJECTIVES)
@torch.no_grad()
def test_texts_are_encoded_by_the_mean_of_the_final_hidden_states(objective: str, runs: dict[str, Path]) -> None:
    model, tokenizer = built(runs[objective]), open_tokenizer(runs[objective])
    for text, vector in zip(TEXTS, load_subject(runs[objective]).encode(TEXTS), strict=True):
        ids = torch.tensor([encode(tokenizer, text)])
        hidden = model.encode(ids) if objective == "translation" else model(ids).hidden
        torch.testing.assert_close(vector, hidden[0].mean(0), rtol=1e-4, atol=1e-5)


def test_a_run_and_each_of_its_checkpoints_can_be_audited(runs: dict[str, Path], tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(f"number {n} and {n * n}" for n in range(40)))
    for path in (runs["causal"], *(runs["causal"] / "checkpoints").iterdir()):
        assert audit(str(path)).counts()["ok"] > 0
        assert audit(str(path), text=str(texts)).counts()["ok"] > 0


def test_texts_are_cut_at_the_trained_length(runs: dict[str, Path]) -> None:
    encoder = load_subject(runs["causal"]).encoder()
    assert encoder.limit == 24
    assert encoder.encode(["the cat sat on the mat " * 20]).cut == 1


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rope", "alibi", "relative", "none"])
def test_positions_are_named(positions: str, tmp_path: Path) -> None:
    from embedwatch_model.storage import save_weights

    config = ModelConfig(vocabulary=20, d_model=8, layers=1, heads=2, length=16, positions=positions)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "embedwatch", **config.to_json()}))
    save_weights(Transformer(config), tmp_path / "model.safetensors")
    subject = load_subject(tmp_path)
    words = {"rope": "RoPE", "alibi": "ALiBi", "learned": "learned positions 16", "none": "no positions"}.get(
        positions, positions
    )
    assert words in subject.positions
    assert (subject.position_table() is not None) == (positions == "learned")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"heads": 3}, "must be a whole embedwatch configuration"),
        ({"strange": 1}, "must have known fields only, got strange"),
        ({"layers": 10**9}, "must have at most"),
    ],
)
def test_a_damaged_configuration_is_told_in_one_line(
    change: dict[str, int], words: str, runs: dict[str, Path], tmp_path: Path
) -> None:
    config = json.loads((runs["causal"] / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
    (tmp_path / "model.safetensors").write_bytes((runs["causal"] / "model.safetensors").read_bytes())
    with pytest.raises(InputError, match=words):
        load_subject(tmp_path)


def test_missing_weights_are_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    config = json.loads((runs["causal"] / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "layers": 2}))
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((runs["causal"] / name).read_bytes())
    with pytest.raises(InputError, match="must hold all weights of EmbedwatchModel, got none for layers"):
        load_subject(tmp_path).encode(["text"])
