"""Texts become what the model itself makes of each of them, one at a time and without padding."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from embedwatch.core.errors import InputError, UsageError
from embedwatch.loading import load_subject
from tests.loading import tiny

Get = Callable[[str], Path]
TEXTS = tiny.texts()


def states(path: Path, text: str) -> Tensor:
    """Return the hidden states of one text by transformers alone."""
    auto = transformers.AutoModelForTextEncoding if "mt5" in path.name else transformers.AutoModel
    model: Any = auto.from_pretrained(path, dtype=torch.float32).eval()
    part = model.get_encoder() if model.config.is_encoder_decoder else model
    inputs = transformers.AutoTokenizer.from_pretrained(path)(text, return_tensors="pt")
    takes = inspect.signature(part.forward).parameters
    with torch.inference_mode():
        hidden: Tensor = part(**{name: value for name, value in inputs.items() if name in takes}).last_hidden_state
    return hidden[0]


def close(left: Tensor, right: Tensor, tolerance: float = 1e-5) -> bool:
    """Whether two sets of vectors agree, relative to the largest entry: tiny random models have large ones."""
    return bool((left - right).abs().max() <= tolerance * max(1.0, float(right.abs().max())))


@pytest.mark.parametrize("kind", tiny.TEXT)
def test_is_the_mean_of_the_hidden_states(kind: str, model: Get) -> None:
    vectors = load_subject(model(kind)).encode(TEXTS)
    assert vectors.dtype == torch.float32
    assert close(vectors[:4], torch.stack([states(model(kind), text).mean(0) for text in TEXTS[:4]]))


@pytest.mark.parametrize("kind", [*tiny.TEXT, "clip", "siglip", "llava"])
def test_does_not_depend_on_the_other_texts(kind: str, model: Get) -> None:
    encoder = load_subject(model(kind)).encoder()
    together = encoder.encode(TEXTS).vectors
    assert close(encoder.encode(TEXTS[::-1]).vectors.flip(0), together)
    assert close(torch.cat([encoder.encode([text]).vectors for text in TEXTS]), together)
    assert close(encoder.encode(TEXTS, size=5).vectors, together)


def test_padding_that_leaks_is_not_used(model: Get) -> None:
    """Convolutions see the padding: such a model is given texts of one length at a time, others are not."""
    leaky, tight = (load_subject(model(kind)).encoder() for kind in ("convbert", "bert"))
    for encoder in (leaky, tight):
        encoder.encode(TEXTS)
    assert leaky._leaky
    assert not tight._leaky


POOLED: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda hidden: hidden.mean(0),
    "cls": lambda hidden: hidden[0],
    "last": lambda hidden: hidden[-1],
    "max": lambda hidden: hidden.amax(0),
}


@pytest.mark.parametrize("pooling", POOLED)
@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_pools_as_asked(kind: str, pooling: str, model: Get) -> None:
    encoder = load_subject(model(kind)).encoder(pooling=pooling)
    expected = torch.stack([POOLED[pooling](states(model(kind), text)) for text in TEXTS])
    assert close(encoder.encode(TEXTS).vectors, expected)
    assert encoder.notes == (f"{pooling} pooling, as asked for",)


def test_an_unknown_pooling_is_refused(model: Get) -> None:
    with pytest.raises(UsageError, match="`pooling` must be one of mean, cls, last, max, got 'sum'"):
        load_subject(model("bert")).encode(TEXTS, pooling="sum")


def test_says_that_the_mean_is_a_guess(model: Get) -> None:
    encoder = load_subject(model("bert")).encoder()
    assert encoder.notes == ("mean pooling, because there is no modules.json",)
    assert encoder.dimension == 16


def test_a_prefix_stands_before_every_text(model: Get) -> None:
    subject = load_subject(model("bert"))
    encoder = subject.encoder(prefix="w1 w2 ")
    assert close(encoder.encode(["w3"]).vectors, subject.encode(["w1 w2 w3"]))
    assert encoder.notes[1] == 'every text begins with "w1 w2 ", as asked for'


def test_a_decoder_without_padding_token_is_padded(copy: Get) -> None:
    """Decoders often have no padding token. Any will do behind the text; nothing is written to the directory."""
    path = copy("llama-lm")
    tiny.tokenizer(pad_token=None, eos_token="[SEP]").save_pretrained(path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "pad_token_id": None}))
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    encoder = load_subject(path).encoder()
    assert encoder.pad == 3
    assert close(encoder.encode(TEXTS).vectors, torch.cat([encoder.encode([text]).vectors for text in TEXTS]))
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


@pytest.mark.parametrize("kind", ["bert", "roberta", "gpt2", "bart", "opt"])
def test_texts_are_cut_at_the_learned_positions(kind: str, model: Get) -> None:
    encoder = load_subject(model(kind)).encoder()
    assert encoder.limit == (62 if kind == "roberta" else 64)
    encoding = encoder.encode(["w1 " * 500, "w1", "w2 " * 500])
    assert encoding.cut == 2
    assert torch.isfinite(encoding.vectors).all()


def test_texts_are_cut_where_the_tokenizer_says(copy: Get) -> None:
    path = copy("t5")
    tiny.tokenizer(model_max_length=10).save_pretrained(path)
    encoder = load_subject(path).encoder()
    assert encoder.limit == 10
    long, short = encoder.encode(["w1 " * 50, "w1 " * 8]).vectors
    assert close(long, short)


def test_nothing_cuts_a_text_where_nothing_sets_a_limit(model: Get) -> None:
    encoder = load_subject(model("t5")).encoder()
    assert encoder.limit is None
    assert encoder.encode(["w1 " * 700]).cut == 0


def test_a_text_without_tokens_becomes_zero(copy: Get) -> None:
    path = copy("gpt2")
    words = tiny.tokenizer()
    words.backend_tokenizer.post_processor = None
    words.save_pretrained(path)
    encoder = load_subject(path).encoder()
    encoding = encoder.encode(["w1", "", "w2 w3"])
    assert encoding.empty == 1
    assert encoding.vectors[1].abs().sum() == 0
    assert close(encoding.vectors[::2], encoder.encode(["w1", "w2 w3"]).vectors)
    nothing = encoder.encode(["", " "])
    assert nothing.empty == 2
    assert torch.equal(nothing.vectors, torch.zeros(2, 16))


def test_no_texts_are_refused(model: Get) -> None:
    with pytest.raises(InputError, match="at least one text"):
        load_subject(model("bert")).encode([])


def test_half_precision_is_computed_in_float32(tmp_path: Path) -> None:
    path = tiny.save("llama", tmp_path, dtype=torch.bfloat16)
    vectors = load_subject(path).encode(TEXTS[:3])
    assert vectors.dtype == torch.float32
    assert close(vectors, torch.stack([states(path, text).mean(0) for text in TEXTS[:3]]))


def test_two_towers_give_their_own_text_features(model: Get) -> None:
    encoder = load_subject(model("clip")).encoder()
    clip = transformers.CLIPModel.from_pretrained(model("clip")).eval()
    words = transformers.AutoTokenizer.from_pretrained(model("clip"))
    with torch.inference_mode():
        expected = [clip.get_text_features(**_clip_inputs(words, text)).pooler_output[0] for text in TEXTS]
    assert close(encoder.encode(TEXTS).vectors, torch.stack(expected))
    assert encoder.notes == ("the model's own text features",)
    assert encoder.dimension == 12


def _clip_inputs(words: Any, text: str) -> dict[str, Tensor]:
    inputs = words(text, return_tensors="pt", truncation=True, max_length=20)
    return {name: inputs[name] for name in ("input_ids", "attention_mask")}


def test_a_tower_is_pooled_when_asked(model: Get) -> None:
    encoder = load_subject(model("clip")).encoder(pooling="mean")
    clip = transformers.CLIPModel.from_pretrained(model("clip")).eval()
    words = transformers.AutoTokenizer.from_pretrained(model("clip"))
    with torch.inference_mode():
        expected = clip.text_model(**_clip_inputs(words, TEXTS[0])).last_hidden_state[0].mean(0)
    assert close(encoder.encode(TEXTS[:1]).vectors[0], expected)


def test_a_model_that_knows_no_padding_is_filled_up(model: Get) -> None:
    """SigLIP was trained on texts filled up to the last position, without a mask."""
    encoder = load_subject(model("siglip")).encoder()
    siglip = transformers.SiglipModel.from_pretrained(model("siglip")).eval()
    words = transformers.AutoTokenizer.from_pretrained(model("siglip"))
    ids = words(TEXTS[:3], return_tensors="pt", padding="max_length", truncation=True, max_length=20)["input_ids"]
    with torch.inference_mode():
        expected = siglip.get_text_features(input_ids=ids).pooler_output
    assert close(encoder.encode(TEXTS[:3]).vectors, expected)


@pytest.mark.parametrize(("kind", "why"), [("vit", "which has none"), ("whisper", "which reads other inputs")])
def test_a_model_that_reads_no_texts_is_refused(kind: str, why: str, model: Get) -> None:
    with pytest.raises(InputError, match=why) as error:
        load_subject(model(kind)).encode(TEXTS)
    assert "\n" not in str(error.value)


def test_a_tokenizer_of_another_model_is_refused(copy: Get) -> None:
    path = copy("bert")
    words = tiny.tokenizer()
    words.add_tokens([f"x{i}" for i in range(20)])
    words.save_pretrained(path)
    with pytest.raises(InputError, match="got token 74 and 60 rows; the tokenizer is another model's"):
        load_subject(path).encode(["x19"])


def test_a_damaged_model_gives_no_random_vectors(copy: Get) -> None:
    """A missing pooler is harmless, a missing layer is not: it would be drawn at random."""
    from safetensors.torch import load_file, save_file

    path = copy("bert")
    expected = load_subject(path).encode(TEXTS)
    tensors = load_file(path / "model.safetensors")
    save_file({name: tensor for name, tensor in tensors.items() if "pooler" not in name}, path / "model.safetensors")
    assert torch.equal(load_subject(path).encode(TEXTS), expected)
    save_file({name: tensor for name, tensor in tensors.items() if "layer.1." not in name}, path / "model.safetensors")
    with pytest.raises(
        InputError, match=r"got none for encoder\.layer\.1\.\S+ and 15 more; download or save the whole"
    ):
        load_subject(path).encode(TEXTS)


def test_a_decoder_that_is_not_used_may_be_missing(copy: Get) -> None:
    from safetensors.torch import load_file, save_file

    path = copy("bart")
    expected = load_subject(path).encode(TEXTS)
    tensors = load_file(path / "model.safetensors")
    save_file({name: tensor for name, tensor in tensors.items() if "decoder" not in name}, path / "model.safetensors")
    assert torch.equal(load_subject(path).encode(TEXTS), expected)


def test_weights_of_another_shape_are_refused(copy: Get) -> None:
    path = copy("bert")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "intermediate_size": 24}))
    with pytest.raises(
        InputError, match=r"must have encoder\.layer\.0\.\S+ of shape \(24,\) by its config\.json, got \(32,\)"
    ):
        load_subject(path).encode(TEXTS)


def test_weights_without_a_place_are_a_note(copy: Get) -> None:
    path = copy("bert")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))
    notes = load_subject(path).encoder().notes
    assert notes[1].startswith("BertModel has no place for encoder.layer.1.")


def test_nothing_is_printed(model: Get, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    transformers.logging.set_verbosity_info()
    transformers.logging.enable_progress_bar()
    try:
        load_subject(model("bert-mlm")).encode(["w1 " * 900])  # heads without a place, a text that is too long
        assert transformers.logging.is_progress_bar_enabled()
        assert transformers.logging.get_verbosity() == transformers.logging.INFO
    finally:
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
