"""How far the logits of a model spread, and how sure they make it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.errors import InputError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.inquiry import Inquiry
from embedwatch.loading.examinable import Examinable, Rows
from embedwatch.loading.settings import logit_factor
from embedwatch.observe.normalisations import final_normalisation
from embedwatch.observe.passes import logits_of
from embedwatch.observe.resting import resting

PROBES = 32
"""So many random directions."""
APART = 0x10617
"""Far from seeds that people draw a model with: directions must not be rows of its table."""
CHUNK = 8192
TEXTS, LENGTH = 8, 64
"""So many texts of so many tokens are run."""

UNIT = Metric(
    "logit_unit_std", "Standard deviation of logits over the vocabulary, for random directions of entries of size 1."
)
BEHIND = Metric(
    "logit_norm_std",
    "The same for random directions behind the model's last normalisation.",
    healthy="about 1 before training",
)
ENTROPY = Metric(
    "logit_entropy_ratio",
    "Entropy of what follows from these, over that of a blind guess.",
    healthy="near 1 before training",
)
TEXT_STD = Metric("logit_text_std", "Standard deviation of logits over the vocabulary on texts that the model read.")
TEXT_ENTROPY = Metric(
    "logit_text_entropy_ratio", "Entropy of what the model predicts on texts, over that of a blind guess."
)


class LogitScale(Diagnostic):
    """Spread of the logits that the output table makes of random directions, and of texts where the model is run.

    A direction with D entries of size 1 gives logits of deviation `√D` times the table's root mean square entry: 1 for
    a table from N(0, 1/D), √D for one from N(0, 1). Logits of deviation σ that say nothing cost `ln V + σ² / 2` instead
    of `ln V`, and their entropy is `ln V - σ² / 2` while σ is small: a table that is drawn too large makes an untrained
    model sure of wrong answers. The last normalisation has its own say, by its gains.

    Shape: output table (V, D); 32 directions.
    NaN, Inf, empty: `None` where nothing makes logits of the hidden states, or numbers are not finite.
    References: Press & Wolf 2016 (tying), https://arxiv.org/abs/1608.05859
    """

    name = "logit_scale"
    title = "spread of logits"
    place = "scale"
    metrics = (UNIT, BEHIND, ENTROPY, TEXT_STD, TEXT_ENTROPY)

    def applies(self, inquiry: Inquiry) -> bool:
        """Return whether logits of tokens are made."""
        return inquiry.subject.tied or inquiry.subject.output_table() is not None

    def examine(self, subject: Any) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return the measurements of an Inquiry."""
        inquiry: Inquiry = subject
        model = inquiry.subject
        table: Rows = model.output_table() or model.token_table()
        factor = logit_factor(model.settings, tied=model.tied)
        generator = torch.Generator().manual_seed(inquiry.seed + APART)
        directions = torch.randn(PROBES, table.dimension, generator=generator)
        unit = directions / directions.square().mean(1, keepdim=True).sqrt()
        behind = _normalised(model, unit)
        plain, _ = _told(_logits(table, unit) * factor)
        std, entropy = (None, None) if behind is None else _told(_logits(table, behind) * factor)
        read = _read(inquiry) if inquiry.runs else None
        text_std, text_entropy = (None, None) if read is None else _told(read)
        found = (plain, std, entropy, text_std, text_entropy)
        return [metric.measure(value) for metric, value in zip(self.metrics, found, strict=True)], []

    @classmethod
    def examples(cls) -> Iterable[Inquiry]:
        """Yield a model with a tied table, asked with and without a pass."""
        from embedwatch.loading.tiny import tiny_subject

        yield Inquiry(tiny_subject("sinusoidal"))
        yield Inquiry(tiny_subject("sinusoidal"), deep=True)


def _normalised(model: Examinable, rows: Tensor) -> Tensor | None:
    """Return rows as they leave the last normalisation; as they are where there is none."""
    try:
        module = model.module()
    except InputError:
        return None
    norm = final_normalisation(module, rows.shape[1])
    if norm is None:
        return rows
    weight: Any = norm.weight
    with resting([norm]):
        found: Tensor = norm(rows.to(weight.device, weight.dtype)[None])[0]
    return found.detach().float().cpu()


def _logits(table: Rows, rows: Tensor) -> Tensor:
    """Return the logits that a table makes of rows. Shape: (N, D) -> (N, V)."""
    starts = range(0, len(table), CHUNK)
    return torch.cat([rows @ table.read(start, min(start + CHUNK, len(table))).float().T for start in starts], dim=1)


def _told(logits: Tensor) -> tuple[float | None, float | None]:
    """Return the mean deviation over the vocabulary, and the mean entropy over ln V. Shape: (N, V)."""
    if logits.shape[1] < 2 or not bool(logits.isfinite().all()):
        return None, None
    entropy = torch.special.entr(logits.double().softmax(1)).sum(1).mean()
    return float(logits.double().std(1).mean()), float(entropy) / math.log(logits.shape[1])


def _read(inquiry: Inquiry) -> Tensor | None:
    """Return logits on texts, or on random tokens where none were given. Shape: (N, V)."""
    writer = inquiry.subject.writer()
    if writer is None:
        return None
    texts = list(inquiry.texts or inquiry.prompts)[:TEXTS]
    if texts:
        tokenizer = inquiry.subject.tokenizer
        found = [tokenizer(text, add_special_tokens=True)["input_ids"][:LENGTH] for text in texts]
        ids = [torch.tensor(part)[None] for part in found if len(part) > 1]
    else:
        generator = torch.Generator().manual_seed(inquiry.seed)
        ids = [torch.randint(inquiry.subject.vocabulary, (1, LENGTH // 4), generator=generator)]
    parts = [logits for part in ids if (logits := logits_of(writer, part)) is not None]
    return torch.cat([part[0] for part in parts]) if parts else None
