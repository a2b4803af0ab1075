"""What rows are made of: a model that gives one vector for many inputs fails, one that is asked the same does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from embedwatch.core.verdict import Status
from embedwatch.monitor import Monitor, watch
from tests.observe import tiny

TEXTS = 200
BATCH, LENGTH = 20, 12
LATER = TEXTS - BATCH
"""The first pass is a window of its own."""
POOLED = "sentence_embedding"


class Towers(nn.Module):
    """Tokens, one layer, and their mean as a named output; either can be made to forget what went in."""

    def __init__(self, *, hidden: bool = False, pooled: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens = nn.Embedding(tiny.VOCABULARY, tiny.D)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(tiny.D, tiny.D), nn.Tanh()) for _ in range(2))
        self.forgets_hidden, self.forgets_pooled = hidden, pooled
        if hidden:
            nn.init.zeros_(self.layers[0].get_submodule("0").weight)  # type: ignore[arg-type]  # its bias is left

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        rows = self.tokens(input_ids)
        for layer in self.layers:
            rows = layer(rows)
        real = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        mean = (rows * real[..., None]).sum(1) / real.sum(1, keepdim=True)
        return {POOLED: mean * 0 + 1 if self.forgets_pooled else mean}


def serve(model: nn.Module, batches: list[Any], **options: Any) -> Monitor:
    """Watch a model while it answers; return the Monitor when all is judged."""
    with watch(model, every=1, rows=tiny.ALL, sinks=[], budget=None, on_error="raise", **options) as monitor:
        for batch in batches:
            with torch.inference_mode():
                model(**batch) if isinstance(batch, dict) else model(batch)
    return monitor


def status(monitor: Monitor, place: str, check: str) -> Status:
    (found,) = [each for each in monitor.verdicts if (each.space.place, each.check) == (place, check)]
    return found.status


def texts(seed: int = 0) -> list[tiny.Batch]:
    ids = tiny.numbers(TEXTS, LENGTH, seed)
    return [{"input_ids": part} for part in ids.split(BATCH)]


def one_text() -> list[tiny.Batch]:
    return [{"input_ids": tiny.numbers(1, LENGTH).expand(BATCH, -1)}] * (TEXTS // BATCH)


def number(monitor: Monitor, place: str, measurement: str = "distinct_inputs") -> float | None:
    return monitor.snapshots[place].number(measurement)


def test_a_healthy_model_is_well() -> None:
    monitor = serve(Towers(), texts())
    assert status(monitor, POOLED, "collapse") == "ok"
    assert status(monitor, "layers.0", "hidden_collapse") == "ok"
    assert number(monitor, POOLED) == number(monitor, POOLED, "distinct_rows") == LATER
    assert number(monitor, "layers.0") == len(torch.cat([batch["input_ids"] for batch in texts()[1:]]).unique())


def test_one_vector_for_all_texts_fails() -> None:
    monitor = serve(Towers(pooled=True), texts())
    assert number(monitor, POOLED, "distinct_rows") == 1
    assert status(monitor, POOLED, "collapse") == "fail"
    assert status(monitor, "layers.0", "hidden_collapse") == "ok"


def test_one_vector_for_all_tokens_fails() -> None:
    monitor = serve(Towers(hidden=True), texts())
    assert number(monitor, "layers.0", "distinct_rows") == 1
    assert status(monitor, "layers.0", "hidden_collapse") == "fail"
    assert status(monitor, POOLED, "collapse") == "fail"


@pytest.mark.parametrize("forgetful", [False, True])
def test_one_text_over_and_over_says_nothing_of_the_model(forgetful: bool) -> None:
    monitor = serve(Towers(pooled=forgetful), one_text())
    assert number(monitor, POOLED) == 1
    (found,) = [each for each in monitor.verdicts if (each.space.place, each.check) == (POOLED, "collapse")]
    assert found.status == "unknown"
    assert found.reason == f"Inputs are alike: {LATER} rows of 1 different ones, needs 10."


def test_padding_makes_no_other_text() -> None:
    batches = []
    for more, left in ((0, False), (3, False), (3, True)):
        ids = tiny.numbers(4, LENGTH)
        padding = torch.full((4, more), 1 + int(left))
        parts = [padding, ids] if left else [ids, padding]
        real = [torch.zeros_like(padding), torch.ones_like(ids)]
        mask = torch.cat(real if left else real[::-1], 1)
        batches.append({"input_ids": torch.cat(parts, 1), "attention_mask": mask})
    monitor = serve(Towers(), batches)
    assert number(monitor, POOLED) == 4
    assert number(monitor, "layers.0") == len(tiny.numbers(4, LENGTH).unique())


def test_words_in_another_order_are_another_text() -> None:
    ids = tiny.numbers(1, LENGTH)
    monitor = serve(Towers(), [{"input_ids": torch.cat([ids, ids.flip(1)])}])
    assert number(monitor, POOLED) == 2


def test_tokens_of_32_bits_count_as_those_of_64() -> None:
    monitor = serve(Towers(), [{"input_ids": batch["input_ids"].int()} for batch in texts()])
    again = serve(Towers(), texts())
    for place in (POOLED, "layers.0"):
        assert number(monitor, place) == number(again, place)


@pytest.mark.parametrize("rows", [8, 256])
def test_of_a_sample_the_rows_go_with_their_own_tokens(rows: int) -> None:
    model = Towers()
    ids = torch.cat([batch["input_ids"] for batch in texts()])
    for number_of, batch in enumerate([ids, ids.T.contiguous().T]):
        with tiny.eyes(model, ["tokens", "layers.0"], rows=rows) as eyes, torch.inference_mode():
            model(input_ids=batch)
            for observer in eyes.attachment.observers:
                (look,) = observer.collect()
                assert look.sample.inputs is not None
                rows_of = model.tokens(look.sample.inputs)
                made = rows_of if observer.place.name == "tokens" else model.layers[0](rows_of)
                assert torch.allclose(look.sample.rows, made, atol=1e-6), number_of


class Images(nn.Module):
    """Gives each image a vector, or all the same."""

    def __init__(self, *, forgets: bool, classes: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.flat = nn.Flatten()
        self.project = nn.Linear(3 * 8 * 8, tiny.D)
        self.forgets = forgets

    def forward(self, picture: Tensor) -> dict[str, Tensor]:
        rows: Tensor = self.project(self.flat(picture))
        return {"image_embeds": rows * 0 + 1 if self.forgets else rows}


@pytest.mark.parametrize(("forgets", "same", "expected"), [
    (False, False, "ok"), (True, False, "fail"), (True, True, "unknown"), (False, True, "unknown"),
])  # fmt: skip
def test_other_inputs_than_tokens_are_told_apart(forgets: bool, same: bool, expected: Status) -> None:
    pictures = torch.randn(64, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    pictures = pictures[:1].expand(64, -1, -1, -1) if same else pictures
    monitor = serve(Images(forgets=forgets), [pictures], places=["project"])
    assert number(monitor, "image_embeds") == (1 if same else 64)
    assert status(monitor, "image_embeds", "collapse") == expected


class Pair(nn.Module):
    """Two inputs: which of them a place is made of is not known."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.left, self.right = nn.Linear(4, tiny.D), nn.Linear(4, tiny.D)

    def forward(self, left: Tensor, right: Tensor) -> dict[str, Tensor]:
        return {POOLED: self.right(right), "left": self.left(left)}


def test_of_two_inputs_nobody_knows_and_rows_alike_say_nothing() -> None:
    left = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    monitor = serve(Pair(), [{"left": left, "right": torch.ones(64, 4)}], places=["right"])
    assert number(monitor, POOLED) is None
    (found,) = [each for each in monitor.verdicts if (each.space.place, each.check) == (POOLED, "collapse")]
    assert found.status == "unknown"
    assert found.reason.startswith("Inputs are alike, or one vector stands for many: 1 distinct rows of 64")


def observed(kind: str) -> dict[str, list[int]]:
    """Return how many inputs differ at each place of a model that is run once; nothing where that is not known."""
    with tiny.eyes(tiny.shared(kind)) as eyes, torch.inference_mode():
        tiny.shared(kind)(**tiny.inputs(kind))
        found: dict[str, list[int]] = {}
        for observer in [*eyes.attachment.observers, *eyes.attachment.unplaced]:
            for look in observer.collect():
                inputs, valid = look.sample.inputs, look.sample.valid
                real = slice(None) if valid is None else valid
                counts = [] if inputs is None else [len(inputs[real].unique())]
                found.setdefault(observer.place.role, []).extend(counts)
    return found


@pytest.mark.parametrize("kind", [kind for kind in tiny.KINDS if kind not in ("vit", "wav2vec2", "whisper")])
def test_hidden_places_of_all_sorts_of_models_know_their_tokens(kind: str) -> None:
    batch = tiny.inputs(kind)
    masked = {
        "input_ids": "attention_mask", "decoder_input_ids": "decoder_attention_mask", "ids": "mask",
        "source": "source_mask",
    }  # fmt: skip
    expected = {
        len(batch[name][batch[mask].bool()].unique())
        for name, mask in masked.items()
        if name in batch and mask in batch
    }
    if kind in ("torch-encoder", "torch-encoder-positions-first"):
        expected = {len(batch["ids"][~batch["src_key_padding_mask"]].unique())}
    found = observed(kind)
    if kind == "torch-pair":
        assert found["hidden"] == [], "each of its stacks is given vectors"
    elif kind in ("clip", "llava"):
        assert set(found["hidden"]) == expected | {tiny.BATCH}, "tokens, and images"
    else:
        assert set(found["hidden"]) == expected


@pytest.mark.parametrize("kind", ["vit", "wav2vec2"])
def test_where_there_are_no_tokens_each_input_counts_as_a_whole(kind: str) -> None:
    assert set(observed(kind)["hidden"]) == {tiny.BATCH}


def test_images_and_texts_of_one_model_are_not_mixed_up() -> None:
    batch = tiny.inputs("clip")
    batch["pixel_values"] = batch["pixel_values"][:1].expand(tiny.BATCH, -1, -1, -1)
    with tiny.eyes(tiny.shared("clip")) as eyes, torch.inference_mode():
        tiny.shared("clip")(**batch)
        found = {each.place.name: each.collect()[0].sample.inputs for each in eyes.attachment.unplaced if each.waiting}
    counts = {name: len(inputs.unique()) for name, inputs in found.items() if inputs is not None}
    assert counts == {"text_embeds": tiny.BATCH, "image_embeds": 1}
