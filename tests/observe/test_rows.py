"""What is looked at are the rows of the module's output, all of them, and none that is padding."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import DynamicCache

from embedwatch.monitor import watch
from tests.observe import tiny

Rows = dict[str, list[Tensor]]


def real(kind: str, place: str, batch: tiny.Batch) -> Tensor | None:
    """Return which positions of a place are real, as whoever made the batch knows it."""
    decoder = "decoder" in place
    if kind == "wav2vec2":
        model = tiny.shared(kind)
        kept = model._get_feat_extract_output_lengths(batch["attention_mask"].sum(1))
        positions: Tensor = torch.arange(tiny.LENGTH) < kept[:, None]
        return positions
    if "vision" in place or kind in ("vit", "whisper"):
        return None
    if kind in tiny.PAIRS:
        return batch["decoder_attention_mask" if decoder else "attention_mask"].bool()
    if kind == "own-encoder_decoder":
        return batch["source_mask" if place.startswith("encoder.") else "mask"]
    if kind == "torch-pair":
        return None if place == "tokens" else ~batch["tgt_key_padding_mask" if decoder else "src_key_padding_mask"]
    if kind in tiny.TORCH:
        unpadded = ~batch["src_key_padding_mask"]
        return unpadded.T if kind.endswith("positions-first") else unpadded
    return batch["mask" if kind in tiny.OWN else "attention_mask"].bool()


def chosen(output: Tensor, positions: Tensor | None) -> Tensor:
    """Return the rows of an output at these positions, all of it where it has none of them. Shape: (N, D)."""
    fits = positions is not None and output.shape[:-1] == positions.shape
    return output[positions] if fits else output.reshape(-1, output.shape[-1])


def compare(looks: list[Tensor], outputs: list[Tensor], positions: Tensor | None) -> None:
    assert len(looks) == len(outputs)
    for seen, output in zip(looks, outputs, strict=True):
        assert tiny.identical(seen, chosen(output, positions))


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("kind", tiny.KINDS)
def test_the_rows_of_each_place_are_those_of_its_module_without_padding(kind: str, left: bool) -> None:
    model, batch = tiny.shared(kind), tiny.inputs(kind, left=left)
    with tiny.eyes(model) as eyes:
        names = [observer.place.name for observer in eyes.attachment.observers]
        with tiny.captured(model, names) as outputs, torch.inference_mode():
            model(**batch)
        for name in names:
            for call, output in enumerate(outputs[name]):
                looks = eyes.looks(f"{name}#{call}" if call else name)
                compare(looks, [output], real(kind, name, batch))
    assert any(outputs.values())
    told = (real(kind, name, batch) for name in names if outputs[name])
    assert kind in ("vit", "whisper") or any(each is not None and not each.all() for each in told)


class Told(nn.Module):
    """An embedding and a stack, told of padding under a name of one's own choice."""

    def __init__(self, forward: Any) -> None:
        super().__init__()
        self.tokens = nn.Embedding(tiny.VOCABULARY, tiny.D)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(tiny.D, tiny.D), nn.GELU()) for _ in range(2))
        self.forward = forward.__get__(self)

    def run(self, ids: Tensor) -> Tensor:
        rows: Tensor = self.tokens(ids)
        for layer in self.layers:
            rows = rows + layer(rows)
        return rows


def by_attention_mask(self: Told, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
    return self.run(input_ids)


def by_mask(self: Told, ids: Tensor, *, mask: Tensor | None = None) -> Tensor:
    return self.run(ids)


def by_padding_mask(self: Told, src: Tensor, src_key_padding_mask: Tensor | None = None) -> Tensor:
    return self.run(src)


def by_mapping(self: Told, batch: dict[str, Tensor]) -> Tensor:
    return self.run(batch["input_ids"])


KINDS_OF_MASK: dict[str, Callable[[Tensor], Tensor]] = {
    "bool": lambda mask: mask,
    "int": lambda mask: mask.long(),
    "float": lambda mask: mask.float(),
    "bfloat16": lambda mask: mask.bfloat16(),
}
CALLS: dict[str, tuple[Any, Callable[[Told, Tensor, Tensor], Tensor]]] = {
    "positional": (by_attention_mask, lambda model, ids, mask: model(ids, mask)),
    "keywords": (by_attention_mask, lambda model, ids, mask: model(attention_mask=mask, input_ids=ids)),
    "keyword only": (by_mask, lambda model, ids, mask: model(ids, mask=mask)),
    "mapping": (by_mapping, lambda model, ids, mask: model({"input_ids": ids, "attention_mask": mask})),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("sort", KINDS_OF_MASK)
def test_masks_of_any_sort_and_arguments_given_in_any_way(sort: str, call: str) -> None:
    forward, use = CALLS[call]
    model = Told(forward)
    ids, mask = tiny.tokens()
    with tiny.eyes(model) as eyes, tiny.captured(model, ["tokens", "layers.1"]) as outputs:
        use(model, ids, KINDS_OF_MASK[sort](mask))
        for place, found in outputs.items():
            compare(eyes.looks(place), found, mask)


@pytest.mark.parametrize("additive", [False, True], ids=["bool", "additive"])
def test_a_mask_of_torch_is_true_or_below_zero_where_a_position_is_padding(additive: bool) -> None:
    model = Told(by_padding_mask)
    ids, mask = tiny.tokens()
    given = torch.zeros(mask.shape).masked_fill(~mask, float("-inf")) if additive else ~mask
    with tiny.eyes(model) as eyes, tiny.captured(model, ["layers.0"]) as outputs:
        model(ids, given)
        compare(eyes.looks("layers.0"), outputs["layers.0"], mask)


def test_a_mask_between_queries_and_keys_is_none_of_padding() -> None:
    model = Told(by_mask)
    ids, _ = tiny.tokens()
    with tiny.eyes(model) as eyes:
        model(ids, mask=torch.ones(tiny.LENGTH, tiny.LENGTH).tril())
        model(ids, mask=torch.ones(tiny.BATCH, 1, tiny.LENGTH, tiny.LENGTH).tril())
        assert [len(rows) for rows in eyes.looks("layers.1")] == [ids.numel(), ids.numel()]


@pytest.mark.parametrize("kind", ["gpt2-lm", "llama-lm", "qwen3"])
def test_with_a_cache_the_mask_is_longer_than_what_is_new(kind: str) -> None:
    model = tiny.shared(kind)
    batch = tiny.inputs(kind, left=True)
    mask = torch.cat([batch["attention_mask"], torch.tensor([[1, 1], [1, 0], [0, 0]])], 1)
    new = mask[:, tiny.LENGTH :].bool()
    cache = DynamicCache(config=model.config)
    given: Any = {"cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values": cache}
    with torch.inference_mode():
        model(**batch, **given)
        with tiny.eyes(model) as eyes:
            names = [observer.place.name for observer in eyes.attachment.observers]
            with tiny.captured(model, names) as outputs:
                model(input_ids=tiny.numbers(tiny.BATCH, 2), attention_mask=mask, **given)
            for name in names:
                compare(eyes.looks(name), outputs[name], new)


def test_generation_looks_at_each_position_once() -> None:
    model, batch = tiny.shared("llama-lm"), tiny.inputs("llama-lm", left=True)
    new = 5
    with tiny.eyes(model) as eyes:
        model.generate(**batch, max_new_tokens=new, min_new_tokens=new, do_sample=False, pad_token_id=tiny.PAD)
        seen = [len(rows) for rows in eyes.looks("model.layers.1")]
    assert seen == [sum(tiny.LENGTHS), *[tiny.BATCH] * (new - 1)]


@pytest.mark.parametrize("kind", ["bert", "modernbert", "distilbert", "llama-lm", "own-encoder"])
def test_where_no_mask_is_given_the_padding_token_tells(kind: str) -> None:
    model = tiny.shared(kind)
    ids, mask = tiny.tokens()
    config: Any = model.config
    given = getattr(config, "pad_token_id", getattr(config, "padding", None))
    assert given == tiny.PAD
    with tiny.eyes(model) as eyes, torch.inference_mode():
        model(ids)
        for observer in eyes.attachment.observers:
            if observer.place.role == "hidden":
                assert [len(rows) for rows in eyes.looks(observer.place.name)] == [int(mask.sum())]


def test_a_padding_token_that_means_something_else_too_tells_nothing() -> None:
    model = tiny.build("llama-lm")
    ids, _ = tiny.tokens()
    for name, value in (("eos_token_id", tiny.PAD), ("eos_token_id", [9, tiny.PAD]), ("bos_token_id", tiny.PAD)):
        earlier = getattr(model.config, name)
        setattr(model.config, name, value)
        with tiny.eyes(model) as eyes, torch.inference_mode():
            model(ids)
            assert [len(rows) for rows in eyes.looks("model.norm")] == [ids.numel()]
        setattr(model.config, name, earlier)


def test_the_padding_token_at_the_start_of_the_decoder_is_a_start() -> None:
    model = tiny.build("t5-lm")
    model.config.decoder_start_token_id = tiny.PAD
    ids, mask = tiny.tokens()
    targets = tiny.numbers(tiny.BATCH, 4)
    targets[:, 0] = tiny.PAD
    targets[0, 3] = tiny.PAD
    with tiny.eyes(model) as eyes, torch.inference_mode():
        model(input_ids=ids, decoder_input_ids=targets)
        assert [len(rows) for rows in eyes.looks("encoder.block.1")] == [int(mask.sum())]
        assert [len(rows) for rows in eyes.looks("decoder.block.1")] == [targets.numel() - 1]


@pytest.mark.parametrize("kind", ["t5-lm", "bart-lm", "marian", "encoder-decoder"])
def test_the_mask_of_the_encoder_is_not_taken_for_the_decoders(kind: str) -> None:
    model, batch = tiny.shared(kind), tiny.inputs(kind)
    del batch["decoder_attention_mask"]
    batch["decoder_input_ids"] = tiny.numbers(tiny.BATCH, tiny.LENGTH)  # of the same shape, and without padding
    rows = {"tokens": batch, "vectors": {**batch}}
    table: Any = model.get_input_embeddings()
    rows["vectors"]["decoder_inputs_embeds"] = table(rows["vectors"].pop("decoder_input_ids")).detach()
    for given in rows.values():
        with tiny.eyes(model) as eyes, torch.inference_mode():
            model(**given)
            layers = ("decoder.layers", "decoder.block", "decoder.bert.encoder.layer")
            found = [name for name in eyes.seen() if any(layer in name for layer in layers)]
            assert found
            for name in found:
                assert [len(look) for look in eyes.looks(name)] == [tiny.BATCH * tiny.LENGTH]


def test_the_mask_of_a_source_is_not_taken_for_the_targets() -> None:
    model = tiny.shared("own-encoder_decoder")
    ids, mask = tiny.tokens(lengths=tiny.TARGETS)
    clean = tiny.numbers(tiny.BATCH, tiny.LENGTH)
    with tiny.eyes(model) as eyes, torch.inference_mode():
        model(clean, source=ids, source_mask=mask)
        model(ids, mask=mask, source=clean)
        assert [len(rows) for rows in eyes.looks("layers.1")] == [clean.numel(), int(mask.sum())]
        assert [len(rows) for rows in eyes.looks("encoder.layers.1")] == [int(mask.sum()), clean.numel()]


def test_the_mask_of_a_text_is_not_taken_for_that_of_an_image() -> None:
    model, batch = tiny.shared("clip"), tiny.inputs("clip")
    positions = tiny.PATCHES + 1
    text = {name: batch[name][:, :positions] for name in ("input_ids", "attention_mask")}
    with tiny.eyes(model) as eyes, torch.inference_mode():
        model(**text, pixel_values=batch["pixel_values"])
        assert [len(rows) for rows in eyes.looks("vision_model.encoder.layers.1")] == [tiny.BATCH * positions]
        assert [len(rows) for rows in eyes.looks("text_model.encoder.layers.1")] == [int(text["attention_mask"].sum())]


def test_texts_and_images_are_seen_as_one_vector_each() -> None:
    model, batch = tiny.shared("clip"), tiny.inputs("clip")
    with tiny.eyes(model) as eyes, torch.inference_mode():
        output = model(**batch)
        for name in ("text_embeds", "image_embeds"):
            assert torch.equal(eyes.looks(name)[0], output[name])


def test_a_mask_of_sound_that_fits_no_hidden_state_is_left_alone() -> None:
    model, batch = tiny.shared("whisper"), tiny.inputs("whisper")
    frames = batch["input_features"].shape[-1]
    with tiny.eyes(model) as eyes, torch.inference_mode():
        model(**batch, attention_mask=(torch.arange(frames) < frames // 4).expand(tiny.BATCH, -1).long())
        assert [len(rows) for rows in eyes.looks("encoder.layers.1")] == [tiny.BATCH * frames // 2]


def test_positions_first_with_as_many_positions_as_texts() -> None:
    """The shape does not tell (T, B) from (B, T) here; torch's own stack does."""
    model = tiny.shared("torch-encoder-positions-first")
    ids, mask = tiny.tokens()
    ids, mask = ids[:, : tiny.BATCH], mask[:, : tiny.BATCH].clone()
    mask[1, 1:] = False
    with tiny.eyes(model) as eyes, tiny.captured(model, ["encoder"]) as outputs, torch.inference_mode():
        model(ids, src_key_padding_mask=~mask)
        compare(eyes.looks("encoder"), outputs["encoder"], mask.T)
    assert not torch.equal(mask, mask.T)


def test_what_a_window_measures_is_what_a_plain_hook_sees() -> None:
    model, batch = tiny.shared("llama-lm"), tiny.inputs("llama-lm")
    batches = [tiny.inputs("llama-lm", seed=seed) for seed in range(3)]
    place = "model.layers.1"
    with (
        watch(model, every=1, rows=tiny.ALL, budget=None, sinks=[], on_error="raise") as monitor,
        tiny.captured(model, [place]) as outputs,
        torch.inference_mode(),
    ):
        model(**batch)
        monitor.flush()  # what is measured next are exactly these batches
        outputs[place].clear()
        for each in batches:
            model(**each)
        monitor.flush()
        snapshot = monitor.snapshots[place]
    expected = torch.cat(
        [chosen(out, each["attention_mask"].bool()) for out, each in zip(outputs[place], batches, strict=True)]
    )
    assert snapshot.provenance.rows == len(expected) == 3 * sum(tiny.LENGTHS)
    found = snapshot.get("norm_mean")
    assert found is not None
    assert found.value == pytest.approx(float(expected.double().norm(dim=1).mean()), rel=1e-6)
