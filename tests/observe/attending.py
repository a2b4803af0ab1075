"""Attention of tiny models: what our seams see, and what the models themselves say of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn

from embedwatch.batch import AttentionBatch
from embedwatch.core.boundary import Boundary
from embedwatch.observe.attachment import Attachment
from embedwatch.observe.places import unwrapped
from embedwatch.observe.pulse import Pulse
from embedwatch.observe.sampling import ROW_BITS
from tests.loading import tiny as saved
from tests.observe import tiny

ROWS = 16
MORE: dict[str, tuple[str, dict[str, Any]]] = {
    "mistral-window": ("MistralModel", {**saved.HALVES, "sliding_window": 3}),
    "qwen2": ("Qwen2Model", saved.HALVES),
    "gpt-oss": ("GptOssModel", {**saved.HALVES, "num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 4}),
    "gpt-neox": ("GPTNeoXModel", saved.SIZES),
    "gpt-neo": ("GPTNeoModel", {**saved.SIZES, "num_layers": 2, "num_heads": 2, "attention_types": [[["global"], 2]]}),
    "phi": ("PhiModel", saved.SIZES),
}
BLIND_TO_ATTENTIONS = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")


def build(kind: str, *, implementation: str | None = None) -> Any:
    """Return a random model of one's own, in evaluation."""
    if kind in MORE:
        name, settings = MORE[kind]
        cls = getattr(hf, name)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = cls(cls.config_class(**settings)).eval()
    else:
        model = tiny.build(kind)
    if implementation is not None:
        model.set_attn_implementation(implementation)
    spread(model)
    return model


def spread(model: nn.Module) -> None:
    """Make weights larger: a fresh model attends to everything nearly alike, which would hide a mistake."""
    for name, weight in model.named_parameters():
        if weight.dim() > 1 and "embed" not in name:
            weight.data *= 4.0


class Looks:
    """What was seen of attention."""

    def __init__(self, attachment: Attachment, pulse: Pulse) -> None:
        self.attachment, self.pulse = attachment, pulse

    @property
    def attention(self) -> Any:
        return self.attachment.attention

    def collect(self) -> dict[str, list[AttentionBatch]]:
        """Return the rows that were seen since the last time, by place and by look."""
        found: dict[str, list[AttentionBatch]] = {}
        for site in self.attention.sites:
            for look in site.collect():
                name = site.name + (f"#{look.call}" if look.call else "")
                found.setdefault(name, []).append(look.rows.finished())
        return found

    def first(self) -> dict[str, AttentionBatch]:
        """Return the first look at each place."""
        return {name: looks[0] for name, looks in self.collect().items()}


@contextmanager
def looking(
    model: nn.Module, *, rows: int = ROWS, every: int = 1, attention_every: int = 1, on_error: Any = "raise"
) -> Iterator[Looks]:
    """Look at the attention of a model for a while; what our side raises is raised."""
    pulse = Pulse(every=every)
    pulse.attention_every = attention_every
    boundary = Boundary(on_error=on_error)
    attachment = Attachment(unwrapped(model), None, pulse, boundary, rows=4, seed=0, attention=rows)
    attachment.attach()
    try:
        yield Looks(attachment, pulse)
    finally:
        attachment.remove()


def places_of(batch: AttentionBatch, queries: int) -> tuple[Tensor, Tensor]:
    """Return which sequence and which of its queries each row is, where each has so many."""
    numbers = batch.queries & ((1 << ROW_BITS) - 1)
    return numbers // queries, numbers % queries


def errors(batch: AttentionBatch, weights: Tensor) -> float:
    """Return how far rows are from the weights of all queries, at most. Shape: (B, H, T, S)."""
    sequence, query = places_of(batch, weights.shape[2])
    expected = weights[sequence, batch.heads, query].float()  # (N, S)
    return float((batch.weights[:, : expected.shape[1]] - expected).abs().max())


def told(model: Any, batch: Mapping[str, Tensor]) -> dict[str, list[Tensor]]:
    """Return what a model of transformers itself says that its attention is, by the sort of attention."""
    with torch.no_grad():
        output = model(**batch, output_attentions=True)
    found = {name: getattr(output, name, None) for name in BLIND_TO_ATTENTIONS}
    return {name: [each for each in value if each is not None] for name, value in found.items() if value}


def sorts(names: list[str]) -> dict[str, list[str]]:
    """Return places by the sort of attention that they are."""
    found: dict[str, list[str]] = {}
    for name in names:
        cross = any(part in name for part in ("encoder_attn", "EncDec", "crossattention"))
        parts = name.split(".")[:2]
        sort = "cross" if cross else "encoder" if "encoder" in parts else "decoder" if "decoder" in parts else ""
        found.setdefault(sort, []).append(name)
    return found
