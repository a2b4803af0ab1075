"""The token table is found without building the model, and is bit for bit the one that transformers loads."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from embedwatch.core.errors import InputError
from embedwatch.loading import load_subject
from tests.loading import tiny

Get = Callable[[str], Path]


def whole(path: Path) -> Tensor:
    table = load_subject(path).token_table()
    return table.read(0, len(table))


def loaded(path: Path, kind: str) -> Tensor:
    """Return the table as transformers loads it, by its own classes."""
    model_class: Any = {"encoder-decoder": "EncoderDecoderModel"}.get(kind, "AutoModel")
    model = getattr(transformers, model_class).from_pretrained(path, dtype="auto")
    part = model.text_model if kind == "clip" else model
    weight: Tensor = part.get_input_embeddings().weight
    return weight.detach()


@pytest.mark.parametrize("kind", [*tiny.TEXT, *tiny.COMPOSITE])
def test_is_what_transformers_loads(kind: str, model: Get) -> None:
    mine, theirs = whole(model(kind)), loaded(model(kind), kind)
    assert mine.dtype == theirs.dtype
    assert torch.equal(mine, theirs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_keeps_the_type_of_the_file(dtype: torch.dtype, tmp_path: Path) -> None:
    path = tiny.save("llama-lm", tmp_path, dtype=dtype)
    assert whole(path).dtype == dtype
    assert torch.equal(whole(path), loaded(path, "llama-lm"))


def test_is_read_from_shards(tmp_path: Path) -> None:
    path = tiny.save("llama-lm-untied", tmp_path, max_shard_size="5KB")
    assert len(list(path.glob("*.safetensors"))) > 2
    assert torch.equal(whole(path), loaded(path, "llama-lm-untied"))


def test_is_read_by_slices(model: Get) -> None:
    table = load_subject(model("bert")).token_table()
    assert (len(table), table.dimension) == (tiny.VOCABULARY, 16)
    assert torch.equal(table.read(7, 9), table.read(0, 60)[7:9])


def test_rows_are_a_copy(copy: Get) -> None:
    path = copy("bert")
    before = (path / "model.safetensors").read_bytes()
    table = load_subject(path).token_table()
    table.read(0, 60).fill_(7.0)
    assert (path / "model.safetensors").read_bytes() == before
    assert not (table.read(0, 60) == 7.0).any()


def renamed(path: Path, change: Callable[[str], str | None]) -> None:
    tensors = load_file(path / "model.safetensors")
    save_file({new: tensor for name, tensor in tensors.items() if (new := change(name))}, path / "model.safetensors")


@pytest.mark.parametrize("prefix", ["bert.", "0.auto_model.", "module.encoder.bert.", "model."])
def test_is_found_behind_a_prefix(prefix: str, copy: Get) -> None:
    path = copy("bert")
    expected = whole(path)
    renamed(path, lambda name: prefix + name)
    assert torch.equal(whole(path), expected)


def test_is_found_where_the_file_lacks_the_prefix(copy: Get) -> None:
    path = copy("llava")
    expected = whole(path)
    renamed(path, lambda name: name.replace("language_model.model.", "language_model.", 1).removeprefix("model."))
    assert torch.equal(whole(path), expected)


def test_a_shared_table_is_found_under_its_other_name(copy: Get) -> None:
    path = copy("bart")
    expected = whole(path)
    renamed(path, lambda name: name.replace("shared.", "encoder.embed_tokens."))
    assert torch.equal(whole(path), expected)


def test_a_table_shared_with_the_output_is_found_there(copy: Get) -> None:
    path = copy("llama-lm")
    expected = whole(path)
    renamed(path, lambda name: "lm_head.weight" if "embed_tokens" in name else name)
    assert torch.equal(whole(path), expected)


def test_an_output_of_its_own_is_no_token_table(copy: Get) -> None:
    path = copy("llama-lm-untied")
    renamed(path, lambda name: None if "embed_tokens" in name else name)
    subject = load_subject(path)
    with pytest.raises(InputError, match=r"must hold embed_tokens\.weight, got \d+ other tensors"):
        subject.token_table()


def test_a_strange_name_is_found_by_shape(copy: Get) -> None:
    path = copy("mistral")
    expected = whole(path)
    renamed(path, lambda name: name.replace("embed_tokens.weight", "tok_embeddings"))
    assert torch.equal(whole(path), expected)
    assert load_subject(path).notes == ("the token table was known by its shape, as tok_embeddings",)


def test_a_padded_vocabulary_is_a_note(copy: Get) -> None:
    path = copy("bert")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "vocab_size": 55}))
    subject = load_subject(path)
    assert subject.vocabulary == len(subject.token_table()) == 60
    assert subject.notes == ("the token table is 60 × 16, where config.json says 55 × 16",)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.float8_e4m3fn])
def test_a_quantised_table_is_refused(dtype: torch.dtype, copy: Get) -> None:
    path = copy("bert")
    tensors = load_file(path / "model.safetensors")
    tensors["embeddings.word_embeddings.weight"] = tensors["embeddings.word_embeddings.weight"].to(dtype)
    save_file(tensors, path / "model.safetensors")
    with pytest.raises(InputError, match="it is quantised; open the unquantised model"):
        load_subject(path).token_table()


def test_a_model_of_images_has_none(model: Get) -> None:
    subject = load_subject(model("vit"))
    assert subject.vocabulary == 0
    with pytest.raises(InputError, match="got a ViTModel, which has none") as error:
        subject.token_table()
    assert "\n" not in str(error.value)


def test_a_large_model_is_not_built(tmp_path: Path) -> None:
    """The table of a model of 7 billion parameters is found: only it lies in the file."""
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=4096, num_hidden_layers=32, architectures=["LlamaModel"]
    )
    config.save_pretrained(tmp_path)
    save_file({"model.embed_tokens.weight": torch.ones(64, 4096)}, tmp_path / "model.safetensors")
    assert load_subject(tmp_path).token_table().read(0, 1).sum() == 4096


POSITIONS = {
    "bert": "learned positions 64",
    "roberta": "learned positions 62",
    "mpnet": "learned positions 62, relative positions",
    "gpt2": "learned positions 64",
    "opt": "learned positions 64",
    "bart": "learned positions 64",
    "clip": "learned positions 20",
    "marian": "sinusoidal positions",
    "llama": "RoPE θ = 10,000",
    "gemma3_text": "RoPE θ = 1,000,000",
    "t5": "relative positions",
    "xlnet": "relative positions",
    "bloom": "ALiBi",
    "mamba": "",
    "vit": "",
}


@pytest.mark.parametrize("kind", POSITIONS)
def test_says_how_positions_are_known(kind: str, model: Get) -> None:
    assert load_subject(model(kind)).positions == POSITIONS[kind]


@pytest.mark.parametrize(("kind", "name"), [("bert", "embeddings.position_embeddings"), ("gpt2", "wpe")])
def test_learned_positions_are_a_table(kind: str, name: str, model: Get) -> None:
    table = load_subject(model(kind)).position_table()
    assert table is not None
    theirs = transformers.AutoModel.from_pretrained(model(kind)).get_submodule(name)
    assert torch.equal(table.read(0, len(table)), theirs.weight)


def test_positions_that_are_not_learned_are_no_table(model: Get) -> None:
    assert load_subject(model("llama")).position_table() is None


def test_transformers_is_imported_when_a_model_is_opened(model: Get) -> None:
    """Importing the package costs no second of import time."""
    import subprocess

    code = "import sys, embedwatch.loading, embedwatch.sources.subject; print('transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
