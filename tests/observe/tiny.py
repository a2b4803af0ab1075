"""Tiny random models of many kinds, inputs for them, and ways to look on: at their results, and through our hooks."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
import transformers as hf
from torch import Tensor, nn

from embedwatch.core.boundary import Boundary
from embedwatch.observe.attachment import Attachment
from embedwatch.observe.places import unwrapped
from embedwatch.observe.pulse import Pulse
from embedwatch_model import ModelConfig, Transformer
from tests.loading import tiny as saved

VOCABULARY, D, BATCH, LENGTH = saved.VOCABULARY, 16, 3, 7
LENGTHS = (7, 5, 2)
PAD, START = 0, 2
TARGETS = (7, 3, 6)
"""Lengths of the decoder's sequences: as long as those of the encoder at most, and not the same."""
SAMPLES = 112
IMAGE, PATCHES = 4, 4
"""The token that stands for a patch of an image, and how many an image has."""
ALL = 1 << 20
"""More rows than any of these models has."""

MORE: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma": ("GemmaModel", saved.HALVES),
    "gemma2": ("Gemma2Model", saved.HALVES),
    "mixtral": ("MixtralModel", {**saved.HALVES, "num_local_experts": 2}),
    "falcon": ("FalconModel", {"vocab_size": VOCABULARY, **saved.TOWER}),
    "wav2vec2": (
        "Wav2Vec2Model",
        {**saved.TOWER, "conv_dim": (8, 8), "conv_stride": (4, 4), "conv_kernel": (4, 4), "mask_time_length": 2},
    ),
}
ENCODERS = ("bert", "mpnet", "distilbert", "modernbert", "albert", "deberta-v2", "roberta", "mt5")
DECODERS = (
    "gpt2-lm",
    "llama-lm",
    "qwen3",
    "gemma",
    "gemma2",
    "gemma3_text",
    "mixtral",
    "bloom",
    "falcon",
    "opt",
)
PAIRS = ("t5-lm", "bart-lm", "marian", "encoder-decoder")
OTHERS = ("vit", "clip", "llava", "whisper", "wav2vec2")
HUGGING_FACE = (*ENCODERS, *DECODERS, *PAIRS, *OTHERS)
OWN = ("own-decoder", "own-encoder", "own-encoder_decoder")
TORCH = ("torch-encoder", "torch-encoder-positions-first", "torch-pair")
KINDS = (*HUGGING_FACE, *OWN, *TORCH)

Batch = dict[str, Tensor]


class TorchEncoder(nn.Module):
    """Token embedding and torch's own encoder."""

    def __init__(self, *, batch_first: bool = True) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.tokens = nn.Embedding(VOCABULARY, D)
        layer = nn.TransformerEncoderLayer(D, 2, 2 * D, batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids: Tensor, src_key_padding_mask: Tensor | None = None) -> Tensor:
        embedded = self.tokens(ids if self.batch_first else ids.T)
        output: Tensor = self.encoder(embedded, src_key_padding_mask=src_key_padding_mask)
        return output


class TorchPair(nn.Module):
    """Token embedding and torch's own pair of stacks."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, D)
        self.pair = nn.Transformer(D, 2, 2, 2, 2 * D, batch_first=True)
        self.pair.encoder.use_nested_tensor = False  # nested tensors warn

    def forward(
        self, src: Tensor, tgt: Tensor, src_key_padding_mask: Tensor, tgt_key_padding_mask: Tensor
    ) -> tuple[Tensor]:
        masks = {"src_key_padding_mask": src_key_padding_mask, "tgt_key_padding_mask": tgt_key_padding_mask}
        return (self.pair(self.tokens(src), self.tokens(tgt), **masks),)


def _made(kind: str) -> Any:
    if kind in MORE:
        model_class, settings = MORE[kind]
        cls = getattr(hf, model_class)
        return cls(cls.config_class(**settings))
    if kind in OWN:
        config = ModelConfig(
            vocabulary=VOCABULARY, kind=kind.removeprefix("own-"), d_model=D, layers=2, heads=2, length=32, padding=PAD
        )
        return Transformer(config)
    if kind == "torch-pair":
        return TorchPair()
    if kind in TORCH:
        return TorchEncoder(batch_first=kind == "torch-encoder")
    return saved.build(kind)


@cache
def shared(kind: str) -> Any:
    """Return a random model in evaluation, made once for all tests: leave it as you found it."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return _made(kind).eval()


def build(kind: str) -> Any:
    """Return a random model of one's own, the same every time."""
    return copy.deepcopy(shared(kind))


def numbers(rows: int, length: int, seed: int = 0) -> Tensor:
    """Return tokens that are not special."""
    return torch.randint(5, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def mask(lengths: tuple[int, ...], *, left: bool = False) -> Tensor:
    """Return which of `LENGTH` positions are real. Shape: (B, T) bool."""
    at = torch.arange(LENGTH)
    return torch.stack([at >= LENGTH - length if left else at < length for length in lengths])


def tokens(*, left: bool = False, lengths: tuple[int, ...] = LENGTHS, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return tokens, with padding where the mask says so, and the mask."""
    real = mask(lengths, left=left)
    return numbers(BATCH, LENGTH, seed).masked_fill(~real, PAD), real


def inputs(kind: str, *, left: bool = False, seed: int = 0) -> Batch:
    """Return a padded batch for a kind of model."""
    made = torch.Generator().manual_seed(seed)
    ids, real = tokens(left=left, seed=seed)
    text = {"input_ids": ids, "attention_mask": real.long()}
    if kind == "vit":
        return {"pixel_values": torch.randn(BATCH, 3, 8, 8, generator=made)}
    if kind == "clip":
        return {**text, "pixel_values": torch.randn(BATCH, 3, 8, 8, generator=made)}
    if kind == "llava":
        ids, real = tokens(left=left, lengths=(7, 5, 6), seed=seed)
        ids[:, slice(-PATCHES, None) if left else slice(PATCHES)] = IMAGE
        pictures = torch.randn(BATCH, 3, 8, 8, generator=made)
        return {"input_ids": ids, "attention_mask": real.long(), "pixel_values": pictures}
    if kind == "whisper":
        return {
            "input_features": torch.randn(BATCH, 8, 32, generator=made),
            "decoder_input_ids": numbers(BATCH, LENGTH, seed + 1),
        }
    if kind == "wav2vec2":
        return {"input_values": torch.randn(BATCH, SAMPLES, generator=made), "attention_mask": samples()}
    if kind in PAIRS:
        targets, kept = tokens(lengths=TARGETS, seed=seed + 1)
        return {**text, "decoder_input_ids": targets, "decoder_attention_mask": kept.long()}
    if kind in OWN:
        pair = {"source": numbers(BATCH, LENGTH, seed + 1), "source_mask": mask(TARGETS)}
        return {"ids": ids, "mask": real, **(pair if kind.endswith("_decoder") else {})}
    if kind == "torch-pair":
        targets, kept = tokens(lengths=TARGETS, seed=seed + 1)
        return {"src": ids, "tgt": targets, "src_key_padding_mask": ~real, "tgt_key_padding_mask": ~kept}
    if kind in TORCH:
        return {"ids": ids, "src_key_padding_mask": ~real}
    return text


def samples() -> Tensor:
    """Return which of `SAMPLES` samples of sound are real."""
    return (torch.arange(SAMPLES) < torch.tensor([[SAMPLES], [80], [40]])).long()


def tensors(value: Any) -> list[Tensor]:
    """Return the tensors that an output holds, however nested, caches left out."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [tensor for part in value.values() for tensor in tensors(part)]
    if isinstance(value, (tuple, list)):
        return [tensor for part in value for tensor in tensors(part)]
    if is_dataclass(value) and not isinstance(value, type):
        return [tensor for field in fields(value) for tensor in tensors(getattr(value, field.name))]
    return []


@dataclass
class Trace:
    """What a pass leaves behind: results, gradients, and the state of every random generator."""

    outputs: list[Tensor]
    gradients: dict[str, Tensor]
    generators: list[Tensor]

    def differences(self, other: Trace) -> list[str]:
        """Return what is not the same bit for bit."""
        found = []
        for what in ("outputs", "generators"):
            mine, theirs = getattr(self, what), getattr(other, what)
            if len(mine) != len(theirs) or not all(map(identical, mine, theirs)):
                found.append(what)
        if self.gradients.keys() != other.gradients.keys():
            return [*found, "which parameters have gradients"]
        wrong = (name for name, each in self.gradients.items() if not identical(each, other.gradients[name]))
        return [*found, *(f"gradient of {name}" for name in wrong)]


def identical(mine: Tensor, theirs: Tensor) -> bool:
    """Return whether two tensors have the same bits, NaN among them."""
    if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
        return False
    return torch.equal(bits(mine), bits(theirs))


def bits(tensor: Tensor) -> Tensor:
    """Return a tensor as whole numbers of the same bits."""
    return tensor.detach().contiguous().view(torch.uint8) if tensor.dim() else tensor.detach().reshape(1)


def generators() -> list[Tensor]:
    """Return the states of the global generators of torch, numpy and Python."""
    state = np.random.get_state(legacy=False)["state"]  # noqa: NPY002
    assert isinstance(state, dict)
    return [torch.get_rng_state(), torch.tensor(state["key"].astype("int64")), torch.tensor(random.getstate()[1])]


def checkpoint(model: Any, *, reentrant: bool) -> None:
    """Let a model of transformers compute its layers again in the backward pass."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # its name since version 5 is not known to older ones
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})


Mode = Callable[[], AbstractContextManager[Any]]
EVALUATIONS: dict[str, Mode] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}
TRAININGS: dict[str, Mode] = {"plain": nullcontext, "autocast": EVALUATIONS["autocast"]}


def run(model: nn.Module, batch: Batch, mode: Mode = nullcontext, *, train: bool = False, seed: int = 0) -> Trace:
    """Run a model once, forward, and in training backward."""
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    model.train(train)
    model.zero_grad()
    with mode():
        outputs = tensors(model(**batch))
    if train:
        sum(output.float().square().mean() for output in outputs if output.requires_grad).backward()  # type: ignore[union-attr]
    gradients = {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}
    model.zero_grad()
    model.eval()
    return Trace([output.detach().clone() for output in outputs], gradients, generators())


class Eyes:
    """What our hooks saw, without all that comes after them."""

    def __init__(self, attachment: Attachment, pulse: Pulse) -> None:
        self.attachment, self.pulse = attachment, pulse
        self._kept: dict[str, list[tuple[Tensor, Tensor]]] = {}

    def _collect(self) -> None:
        for observer in [*self.attachment.observers, *self.attachment.unplaced]:
            for look in observer.collect():
                rows, numbers, valid, _ = look.sample
                real = slice(None) if valid is None else valid
                name = observer.place.name + (f"#{look.call}" if look.call else "")
                self._kept.setdefault(name, []).append((rows[real], numbers[real]))

    def looks(self, place: str) -> list[Tensor]:
        """Return the real rows of each look at a place so far."""
        self._collect()
        return [rows for rows, _ in self._kept.get(place, [])]

    def numbers(self, place: str) -> list[Tensor]:
        """Return their numbers."""
        self._collect()
        return [numbers for _, numbers in self._kept.get(place, [])]

    def seen(self) -> list[str]:
        """Return the names of the places that were seen."""
        self._collect()
        return list(self._kept)


@contextmanager
def eyes(model: nn.Module, places: Any = None, *, every: int = 1, rows: int = ALL, seed: int = 0) -> Iterator[Eyes]:
    """Attach our hooks to a model for a while; what they raise is raised."""
    pulse = Pulse(every=every)
    attachment = Attachment(unwrapped(model), places, pulse, Boundary(on_error="raise"), rows=rows, seed=seed)
    attachment.attach()
    try:
        yield Eyes(attachment, pulse)
    finally:
        attachment.remove()


@contextmanager
def captured(model: nn.Module, places: list[str]) -> Iterator[dict[str, list[Tensor]]]:
    """Keep what plain hooks see at places, whole: an independent witness."""
    found: dict[str, list[Tensor]] = {place: [] for place in places}
    handles = []
    for place in places:
        handles.append(_witness(model, place, found[place]))
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _witness(model: nn.Module, place: str, kept: list[Tensor]) -> Any:
    def entered(module: nn.Module, args: Any, kwargs: Any) -> None:
        kept.append(kwargs["hidden_states"] if "hidden_states" in kwargs else args[0])

    def left(module: nn.Module, args: Any, output: Any) -> None:
        kept.append(tensors(output)[0].detach().clone())

    modules = dict(model.named_modules())
    if place not in modules and place.rpartition(".")[2] == "input":
        return modules[place.rpartition(".")[0]].register_forward_pre_hook(entered, with_kwargs=True)
    return modules["" if place == "output" else place].register_forward_hook(left)
