"""Whether a model that writes can repeat the tokens that look untrained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.errors import InputError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.inquiry import Inquiry
from embedwatch.loading.suspects import IN_USE, Suspects, find_suspects
from embedwatch.loading.tokens import token_name
from embedwatch.observe.passes import logits_of, reader_of

ASKED = 16
"""So many suspicious tokens are asked for, and as many ordinary ones."""
BATCH = 8
TRIALS, TIMES = 3, 16
"""Examples in the first prompt, and repeats in the second."""
PREAMBLE = "This device repeats its input exactly, as shown in these identical trials.\n"
BEFORE, BETWEEN, AFTER = "Input: «", "»\nOutput: «", "»\n"
REPEATS = "The same phrase again and again:"
FORGOTTEN = 0.01
"""A token that is given a lower probability than this in every prompt cannot be repeated."""

ASKED_FOR = Metric("repeat_asked_tokens", "Suspicious tokens that the model was asked to repeat.", "tokens")
VERIFIED = Metric(
    "unrepeatable_tokens", "Suspicious tokens that the model cannot repeat: untrained beyond doubt.", "tokens"
)
PROBABILITY = Metric("suspect_repeat_probability", "Median probability of a suspicious token where it should repeat.")
USUAL = Metric(
    "ordinary_repeat_probability", "Median probability of an ordinary token where it should repeat.", healthy="near 1"
)


class TokenRepeat(Diagnostic):
    """Asks a model that writes to repeat suspicious tokens, and ordinary ones beside them.

    Two prompts are made of ids, so that tokens that no text leads to can be asked for too: three trials of a device
    that repeats its input, then the input again; and the token sixteen times. The probability is the larger of both;
    below 0.01 the token counts as one that the model cannot repeat.

    Range: probabilities in [0, 1].
    NaN, Inf, empty: `None` where no token is suspicious; models with an encoder are not asked.
    References: Land & Bartolo 2024, "Fishing for Magikarp", https://arxiv.org/abs/2405.05417, section 2.3.
    """

    name = "token_repeat"
    title = "suspicious tokens, repeated"
    place = "vocabulary"
    runs_model = True
    metrics = (ASKED_FOR, VERIFIED, PROBABILITY, USUAL)

    def applies(self, inquiry: Inquiry) -> bool:
        """Return whether the model writes by itself."""
        writer = inquiry.subject.writer()
        return writer is not None and reader_of(writer) is writer and inquiry.subject.vocabulary > 2 * ASKED

    def examine(self, subject: Any) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return the measurements of an Inquiry, and each token with its probability."""
        inquiry: Inquiry = subject
        writer = inquiry.subject.writer()
        if writer is None:
            raise InputError(f"`{inquiry.subject.label}` must write texts to repeat tokens, got a model without a head")
        tokenizer = inquiry.subject.tokenizer
        suspects = find_suspects(inquiry.subject)
        asked, usual = _chosen(suspects)
        found = _probabilities(writer, tokenizer, [*asked, *usual])
        of_asked, of_usual = found[: len(asked)], found[len(asked) :]
        rows = [
            (row, token_name(tokenizer, row), sort, suspects.signs_of(row), _plain(probability))
            for sort, part, of_part in (("suspicious", asked, of_asked), ("ordinary", usual, of_usual))
            for row, probability in zip(part, of_part.tolist(), strict=True)
        ]
        exhibit = Exhibit.build(
            "repeated_tokens",
            "table",
            "Probability that the model repeats a token that it is shown again and again.",
            ("row", "token", "sort", "signs", "probability"),
            rows,
        )
        return [
            ASKED_FOR.measure(len(asked)),
            VERIFIED.measure(int((of_asked < FORGOTTEN).sum())),
            PROBABILITY.measure(_median(of_asked)),
            USUAL.measure(_median(of_usual)),
        ], [exhibit]

    @classmethod
    def examples(cls) -> Iterable[Inquiry]:
        """Yield a small model that writes."""
        from embedwatch.loading.tiny import tiny_subject

        yield Inquiry(tiny_subject("llama"), deep=True)


def _plain(probability: float) -> float | None:
    return float(f"{probability:.3g}") if probability == probability else None  # noqa: PLR0124 - NaN is not itself


def _median(values: Tensor) -> float | None:
    sound = values[values.isfinite()]
    return float(sound.median()) if len(sound) else None


def _chosen(suspects: Suspects) -> tuple[list[int], list[int]]:
    """Return the most suspicious tokens that texts may hold, and ordinary ones from the middle of the order."""
    ranked = suspects.ranked()
    signed, in_use = suspects.signed, suspects.of_kind(*IN_USE)
    asked = [row for row in ranked if bool(signed[row]) and bool(in_use[row])][:ASKED]
    plain = [row for row in ranked if not bool(signed[row]) and bool(in_use[row])]
    return asked, plain[:: max(1, len(plain) // ASKED)][:ASKED] if asked else []


def _probabilities(writer: nn.Module, tokenizer: Any, rows: Sequence[int]) -> Tensor:
    """Return the probability of each token at the end of the better of two prompts. Shape: (N,)."""
    parts = [_ids(tokenizer, text) for text in (PREAMBLE, BEFORE, BETWEEN, AFTER, REPEATS)]
    best = torch.zeros(len(rows))
    for start in range(0, len(rows), BATCH):
        part = torch.tensor(rows[start : start + BATCH])
        for prompt in _prompts(part, parts):
            logits = logits_of(writer, prompt)
            if logits is None:
                return torch.full((len(rows),), torch.nan)
            found = logits[:, -1].double().softmax(1)[torch.arange(len(part)), part].float()
            best[start : start + BATCH] = torch.maximum(best[start : start + BATCH], found)
    return best


def _ids(tokenizer: Any, text: str) -> Tensor:
    return torch.tensor(tokenizer(text, add_special_tokens=False)["input_ids"], dtype=torch.int64)


def _prompts(rows: Tensor, parts: Sequence[Tensor]) -> Iterable[Tensor]:
    """Return two prompts for each token. Shape: (N,) -> (N, T) each."""
    preamble, before, between, after, repeats = (part.expand(len(rows), -1) for part in parts)
    token = rows[:, None]
    trial = [before, token, between, token, after]
    yield torch.cat([preamble, *(trial * TRIALS), before, token, between], dim=1)
    yield torch.cat([repeats, token.expand(-1, TIMES)], dim=1)
