"""What is read of the weights without loading them: sizes, samples, fingerprints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from embedwatch.loading import Subject, load_subject
from embedwatch.loading.tables import Table
from embedwatch.loading.weights import BLOCK, BLOCKS, Weights
from tests.loading import tiny

Get = Callable[[str], Path]
WEIGHTS = "model.safetensors"


@pytest.mark.parametrize("kind", ["bert", "gpt2", "t5-lm", "llama-lm", "clip"])
def test_parameters_are_counted_in_the_headers(kind: str, model: Get) -> None:
    """A tensor that input and output share counts once, as in transformers."""
    assert load_subject(model(kind)).parameters == tiny.build(kind).num_parameters()


def test_integers_are_no_parameters(tmp_path: Path) -> None:
    save_file({"a": torch.ones(3, 2), "position_ids": torch.arange(512), "step": torch.tensor(1.0)}, tmp_path / WEIGHTS)
    weights = Weights(tmp_path)
    assert weights.parameters == 7
    assert weights["step"].shape == ()
    assert torch.equal(weights.tensor("position_ids"), torch.arange(512))


def test_describes_the_model(model: Get) -> None:
    subject = load_subject(model("bert-mlm"))
    assert subject.architecture == "BertForMaskedLM"
    assert (subject.vocabulary, subject.dimension) == (60, 16)
    assert subject.label == "tiny-bert-mlm"
    assert subject.notes == ()
    assert subject.config["model_type"] == "bert"
    assert repr(subject) == f"Subject('tiny-bert-mlm', BertForMaskedLM, {subject.parameters:,} parameters)"


def test_the_dimension_of_the_table_may_be_smaller_than_the_hidden_size(model: Get) -> None:
    subject = load_subject(model("albert"))
    assert subject.dimension == 8
    assert subject.encoder().dimension == 16
    assert subject.notes == ()


def fingerprints(subject: Subject) -> tuple[str, str]:
    return subject.fingerprint(), subject.token_table().fingerprint()


def test_fingerprints_are_those_of_a_copy(model: Get, copy: Get) -> None:
    first, second = fingerprints(load_subject(model("bert"))), fingerprints(load_subject(copy("bert")))
    assert first == second
    assert all(len(text) == 16 and int(text, 16) >= 0 for text in first)


def test_fingerprints_survive_another_save(copy: Get, tmp_path: Path) -> None:
    """What changes in config.json when a model is only saved again is left out."""
    path = copy("bert")
    before = fingerprints(load_subject(path))
    config = json.loads((path / "config.json").read_text())
    config |= {"transformers_version": "4.0.0", "_name_or_path": "elsewhere", "use_cache": False}
    (path / "config.json").write_text(json.dumps(config, indent=7))
    assert fingerprints(load_subject(path)) == before


def test_fingerprints_are_the_same_in_shards(tmp_path: Path) -> None:
    whole = tiny.save("llama-lm-untied", tmp_path / "whole")
    parts = tiny.save("llama-lm-untied", tmp_path / "parts", max_shard_size="5KB")
    assert fingerprints(load_subject(whole)) == fingerprints(load_subject(parts))


def test_fingerprints_change_with_the_configuration(copy: Get) -> None:
    path = copy("bert")
    before = load_subject(path).fingerprint()
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "hidden_act": "relu"}))
    assert load_subject(path).fingerprint() != before


@pytest.mark.parametrize("name", ["embeddings.word_embeddings.weight", "encoder.layer.1.output.dense.bias"])
def test_fingerprints_change_with_one_number_of_a_small_model(name: str, copy: Get) -> None:
    path = copy("bert")
    before = fingerprints(load_subject(path))
    tensors = load_file(path / WEIGHTS)
    tensors[name].view(-1)[-1] += 1e-3
    save_file(tensors, path / WEIGHTS)
    after = fingerprints(load_subject(path))
    assert after[0] != before[0]
    assert (after[1] != before[1]) == ("word" in name)


def test_a_large_tensor_is_sampled_a_table_is_read_whole(tmp_path: Path) -> None:
    rows = torch.zeros(4 * BLOCKS, BLOCK)
    save_file({"a": rows}, tmp_path / WEIGHTS)
    first = Weights(tmp_path)
    assert len(first.sample("a")) < BLOCK * BLOCKS + 100
    sample, table = first.sample("a"), Table(first, "a").fingerprint()
    for place, seen in (((0, 0), True), ((5, 77), False), ((-1, -1), True)):
        changed = rows.clone()
        changed[place] = 1.0
        save_file({"a": changed}, tmp_path / WEIGHTS)
        again = Weights(tmp_path)
        assert (again.sample("a") != sample) == seen
        assert Table(again, "a").fingerprint() != table


def test_the_tokenizer_is_that_of_transformers(model: Get) -> None:
    theirs = transformers.AutoTokenizer.from_pretrained(model("bert"))
    assert load_subject(model("bert")).tokenizer.get_vocab() == theirs.get_vocab()


def test_a_mistral_whose_layers_differ_is_read_as_transformers_reads_it(tmp_path: Path) -> None:
    config = transformers.MistralConfig(**tiny.HALVES)
    transformers.MistralModel(config).save_pretrained(tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    raw |= {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    theirs = type(transformers.AutoModel.from_pretrained(tmp_path)).__name__
    assert load_subject(tmp_path).blueprint.model_class.__name__ == theirs == "MinistralModel"
