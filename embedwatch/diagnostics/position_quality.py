"""How well a model predicts by depth in the text, and whether its weights were trained with the θ that it has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn

from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.errors import InputError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.position_probe import loss_bins
from embedwatch.inquiry import Inquiry
from embedwatch.loading.position_parts import read_parts
from embedwatch.loading.position_schemes import PositionScheme
from embedwatch.loading.probing import losses_of, shadow, stream, turned_with

LOSS = Metric("position_loss_nats", "Mean loss of a next token in the trained part of the text.", "nats")
GROWTH = Metric(
    "position_loss_growth_nats",
    "How much the loss grows towards, or beyond, the trained length.",
    "nats",
    healthy="< 0.3",
)
FALLOFF = Metric(
    "position_falloff", "First position from which on predictions are worse by half a nat.", "positions", digits=6
)
BEST_BASE = Metric(
    "position_base_of_weights", "θ with which the weights predict best, of those that were tried.", digits=6
)
GAIN = Metric(
    "position_base_gain_nats", "Loss that this θ saves, beside that of the configuration.", "nats", healthy="< 0.03"
)
NEEDLE = Metric("position_needle_ratio", "Recall of a run of tokens at the worst depth over that at the best.")
USUAL, LEAST, MOST = 512, 64, 4_096
"""Tokens that are run: usually, at least, at most."""
PROBED = 512
"""Tokens on which other θ are tried."""
CONFIRMED = 4
"""The best of them is tried again on so many times as many other tokens, where it is not plain at once."""
PLAIN = 8.0
"""Standard errors by which a saving is plain."""
HAY = 256
"""Tokens in which a run is hidden, where no length is asked for."""
BINS = 16
KNOWS = 0.8
"""A model whose loss is above this share of ln V has not learned this language: nothing is said of it."""
HALF = 0.5
TIMES = (0.01, 0.1, 0.5, 2.0, 10.0, 100.0)
"""Other θ that are tried."""
DEPTHS, REPEATS, SPAN = 8, 2, 8
"""A needle: a run of tokens by chance, at so many depths, so often, so long; the last half of it is to be recalled."""
RECALLED = 0.05
"""Below this probability a model recalls nothing at all."""


class PositionQuality(Diagnostic):
    """The loss of a model that writes, by depth in a text, and with other θ than its configuration states.

    Loss falls with depth where more text helps; beyond the trained length it rises where positions do not carry so far.
    Weights that were trained with one θ predict worse with any other: the one with which they predict best is theirs,
    whatever the configuration says. A run of tokens that comes again is recalled from each depth, or not.
    Texts are those that were given, else English prose that every Python brings.

    Shape: losses (T - 1,).
    Empty: `None` for a model without a tokenizer or without enough text in its vocabulary, and for one that predicts
    little better than by chance: it does not know the language.
    References: Press et al. 2021, "Train short, test long"; Kamradt 2023 (needle in a haystack).
    """

    name = "position_quality"
    title = "predictions by depth in the text"
    place = "positions"
    runs_model = True
    metrics = (LOSS, GROWTH, FALLOFF, BEST_BASE, GAIN, NEEDLE)

    def applies(self, inquiry: Inquiry) -> bool:
        """Return whether the model writes and reads tokens."""
        paired = getattr(inquiry.subject.settings, "is_encoder_decoder", False)
        return inquiry.subject.vocabulary > 1 and not paired and inquiry.subject.writer() is not None

    def examine(self, subject: Any) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return losses by depth, and what another θ would save."""
        inquiry: Inquiry = subject
        writer = inquiry.subject.writer()
        if writer is None:
            return [], []
        scheme = read_parts(inquiry.subject).scheme
        usable = scheme.usable or USUAL
        length = min(inquiry.length or min(usable, USUAL), scheme.rows or MOST, MOST)
        if length < LEAST:
            raise InputError(f"`length` must be at least {LEAST} to see quality by depth, got {length}; give more")
        model = shadow(writer)
        needed = max(2 * length, PROBED)
        ids, real = stream(inquiry.subject, needed + CONFIRMED * PROBED, texts=inquiry.texts, seed=inquiry.seed)
        if not real:
            ids, real = stream(inquiry.subject, needed, texts=inquiry.texts, seed=inquiry.seed)
        if not real:  # no tokenizer, or no texts that it knows
            return [metric.missing() for metric in self.metrics], []
        losses = torch.stack(
            [losses_of(model, ids[None, start : start + length])[0] for start in _starts(length)]
        ).mean(0)
        measured, exhibits = _by_depth(losses, usable, inquiry.subject.vocabulary)
        if measured:
            measured += _bases(model, ids, scheme)
            needle, curve = _needle(model, inquiry.subject.vocabulary, min(length, inquiry.length or HAY), inquiry.seed)
            measured, exhibits = [*measured, *needle], [*exhibits, *curve]
        told = {measurement.name for measurement in measured}
        return [*measured, *(metric.missing() for metric in self.metrics if metric.name not in told)], exhibits

    @classmethod
    def examples(cls) -> Iterable[Inquiry]:
        """Yield a model that writes."""
        from embedwatch.loading.tiny import tiny_subject

        yield Inquiry(tiny_subject("llama"), deep=True)


def _starts(length: int) -> list[int]:
    return [0, length // 2, length]


def _by_depth(losses: Tensor, usable: int, vocabulary: int) -> tuple[list[Measurement], list[Exhibit]]:
    length = len(losses) + 1
    within = min(length, usable)
    base = float(losses[within // 4 : max(within // 2, within // 4 + 1)].mean())
    if not math.isfinite(base) or base > KNOWS * math.log(vocabulary):
        return [], []  # it does not know the language
    later = losses[usable:] if length > usable + BINS else losses[3 * within // 4 :]
    bins = loss_bins(losses, BINS)
    fallen = list(takewhile(lambda each: each[1] > base + HALF, reversed(bins)))  # from there on to the end
    curve = Exhibit.build(
        "position_losses",
        "curve",
        "Mean loss of the next token by depth in the text.",
        ("position", "loss"),
        [(start, round(value, 4)) for start, value in bins],
    )
    return [
        LOSS.measure(base),
        GROWTH.measure(float(later.mean()) - base),
        FALLOFF.measure(fallen[-1][0] if fallen else None),
    ], [curve]


def _bases(model: nn.Module, ids: Tensor, scheme: PositionScheme) -> list[Measurement]:
    if len(scheme.rotary) != 1 or scheme.rotary[0].kind != "default" or not scheme.rotary[0].known:
        return []
    width = min(PROBED, scheme.usable or PROBED)
    text = ids[None, :width]
    stated = scheme.rotary[0].base
    tried = {stated: losses_of(model, text)[0].double()}
    for times in TIMES:
        if stated * times > 1:
            with turned_with(model, stated * times):
                tried[stated * times] = losses_of(model, text)[0].double()
    best = min(tried, key=lambda base: float(tried[base].mean()))
    saved = tried[stated] - tried[best]  # token by token: what a text is like falls out
    if best != stated and float(saved.mean()) < PLAIN * _error(saved) and len(ids) >= (1 + CONFIRMED) * width:
        saved = _confirmed(model, ids[-CONFIRMED * width :].view(CONFIRMED, width), best)
    return [BEST_BASE.measure(best), GAIN.measure(float(saved.mean()), error=_error(saved))]


def _confirmed(model: nn.Module, texts: Tensor, base: float) -> Tensor:
    """Return what a θ saves on texts by which it was not chosen. Shape: (S, T) -> (S (T - 1),)."""
    stated = torch.cat([losses_of(model, text[None])[0] for text in texts])
    with turned_with(model, base):
        other = torch.cat([losses_of(model, text[None])[0] for text in texts])
    return (stated - other).double()


def _error(values: Tensor) -> float:
    return float(values.std() / len(values) ** 0.5)


def _needle(model: nn.Module, vocabulary: int, length: int, seed: int) -> tuple[list[Measurement], list[Exhibit]]:
    """Let the model see a run of tokens at some depth among tokens by chance, and at the end again."""
    generator = torch.Generator().manual_seed(seed)
    curve = []
    for index in range(DEPTHS):
        depth = 1 + index * (length - 2 * SPAN - 2) // (DEPTHS - 1)
        ids = torch.randint(0, vocabulary, (REPEATS, length), generator=generator)
        needles = torch.randint(0, vocabulary, (REPEATS, SPAN), generator=generator)
        ids[:, depth : depth + SPAN] = needles
        ids[:, -SPAN:] = needles
        chances = (-losses_of(model, ids)[:, -SPAN // 2 :]).exp()
        curve.append((length - SPAN - depth, round(float(chances.mean()), 6)))
    best, worst = max(value for _, value in curve), min(value for _, value in curve)
    if best < RECALLED:
        return [], []
    exhibit = Exhibit.build(
        "position_needle",
        "curve",
        "Probability that a run of tokens is recalled, by how far back it stands.",
        ("distance", "probability"),
        sorted(curve),
    )
    return [NEEDLE.measure(worst / best)], [exhibit]
