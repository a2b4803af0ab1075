"""What a running model makes of places: whether the ends of a text are one place to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.errors import InputError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.position_probe import attention_ends, by_offset, hidden_ends
from embedwatch.inquiry import Inquiry
from embedwatch.loading.position_parts import read_parts
from embedwatch.loading.probing import attention_of, hidden_of, is_causal, reader_of, shadow, stream

TOKENS = Metric("position_probe_tokens", "Tokens of the texts that were run.", "tokens", digits=5, headline=False)
OVER_MIDDLE = Metric(
    "position_ends_over_middle_ratio", "Attention between end and start over that at middle distances.", healthy="< 3"
)
OVER_NEIGHBOUR = Metric(
    "position_ends_over_neighbour_ratio", "Attention between end and start over that between neighbours."
)
ENDS = Metric("position_ends_attention_ratio", "Attention between end and start over uniform attention.")
HIDDEN = Metric("position_hidden_ends_cosine", "Resemblance of hidden states at the start and at the end, by place.")
HIDDEN_NEXT = Metric("position_hidden_next_cosine", "Resemblance of hidden states side by side, by place.")
HIDDEN_FAR = Metric("position_hidden_far_cosine", "Resemblance of hidden states half a text apart, by place.")
HIDDEN_CHANCE = Metric(
    "position_hidden_chance_cosine", "Resemblance side by side where places are shuffled.", headline=False
)
USUAL, LEAST = 256, 32
"""Tokens that are run, and below which nothing is told."""
MOST = 1_024
ROLLS = 8
SHOWN = 256


class PositionBehaviour(Diagnostic):
    """Whether a running model takes the start and the end of a text for one place.

    One text is run at 8 rolls, shifted round by an eighth each, so that what is left in the mean belongs to places.
    Told are attention between the last and the first places, beside neighbours and middle distances, and the
    resemblance of hidden states. That of the start with everything (a sink) is taken out; it is normal. Shuffled
    places are the control.

    Shape: attention (T, T), hidden states (8, T, D).
    Empty: no attention where the model tells none.
    References: Xiao et al. 2023, "Efficient streaming language models with attention sinks"; Press et al. 2021.
    """

    name = "position_behaviour"
    title = "places in a running model"
    place = "positions"
    runs_model = True
    metrics = (TOKENS, ENDS, OVER_MIDDLE, OVER_NEIGHBOUR, HIDDEN, HIDDEN_NEXT, HIDDEN_FAR, HIDDEN_CHANCE)

    def applies(self, inquiry: Inquiry) -> bool:
        """Return whether the model reads tokens and has positions."""
        return inquiry.subject.vocabulary > 1 and bool(read_parts(inquiry.subject).scheme.kinds)

    def examine(self, subject: Any) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return what a running model makes of places."""
        inquiry: Inquiry = subject
        scheme = read_parts(inquiry.subject).scheme
        length = min(inquiry.length or USUAL, scheme.rows or MOST, MOST)
        length = min(length, scheme.usable) if inquiry.length is None and scheme.usable else length
        if length < LEAST:
            raise InputError(f"`length` must be at least {LEAST} to tell ends from the middle, got {length}; give more")
        model = shadow(reader_of(inquiry.subject.module()))
        ids, _ = stream(inquiry.subject, length, texts=inquiry.texts, seed=inquiry.seed)
        rolls = [ids.roll(index * length // ROLLS) for index in range(ROLLS)]
        causal = is_causal(model, ids)
        states = torch.stack([hidden_of(model, each[None])[0] for each in rolls])
        places = hidden_ends(states, seed=inquiry.seed)
        measured = [
            TOKENS.measure(ROLLS * length),
            HIDDEN.measure(places.ends),
            HIDDEN_NEXT.measure(places.neighbour),
            HIDDEN_FAR.measure(places.background),
            HIDDEN_CHANCE.measure(places.chance),
        ]
        attention = _attention(model, rolls)
        if attention is None:
            return measured, []
        ends = attention_ends(attention, causal=causal)
        measured += [
            ENDS.measure(ends.ends),
            OVER_MIDDLE.measure(ends.over_middle),
            OVER_NEIGHBOUR.measure(ends.over_neighbour),
        ]
        return measured, [_curve(by_offset(attention, causal=causal))]

    @classmethod
    def examples(cls) -> Iterable[Inquiry]:
        """Yield a model that is run."""
        from embedwatch.loading.tiny import tiny_subject

        yield Inquiry(tiny_subject("bert"), deep=True)


def _attention(model: nn.Module, rolls: Sequence[Tensor]) -> Tensor | None:
    total: Tensor | None = None
    for each in rolls:
        found = attention_of(model, each)
        if found is None:
            return None
        total = found if total is None else total + found
    return None if total is None else total / len(rolls)


def _curve(offsets: Tensor) -> Exhibit:
    places = torch.unique(torch.linspace(0, len(offsets) - 1, min(SHOWN, len(offsets))).round().long())
    return Exhibit.build(
        "position_attention",
        "curve",
        "Attention by distance, as multiples of uniform attention, medians over places, mean over layers and heads.",
        ("offset", "attention"),
        [(int(place), round(float(offsets[place]), 6)) for place in places],
    )
