"""Which tokens were never trained, which no text leads to, and how norms go with frequency."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.errors import InputError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.frequency import frequent_norms, rank_correlation
from embedwatch.inquiry import Inquiry
from embedwatch.loading.corpus import count_tokens
from embedwatch.loading.suspects import IN_USE, Suspects, find_suspects
from embedwatch.loading.tokens import token_name

SHOWN = 200
"""So many rows are shown in a table for people."""

KNOWN = Metric("known_unused_tokens", "Rows that are surely unused, which others are measured against.", "tokens")
BELOW = Metric(
    "unused_separation",
    "Share of rows in use that look more unused than a surely unused one does; 0.5 where they are not told apart.",
    headline=False,
)
UNTRAINED = Metric("untrained_tokens", "Tokens in use whose rows look untrained and that texts lead to.", "tokens")
SHARE = Metric(
    "untrained_tokens_ratio", "The same as a share of the tokens in use that texts lead to.", healthy="< 0.02"
)
HIDDEN = Metric("untrained_unreachable_tokens", "Tokens that look untrained, and that no text leads to.", "tokens")
SPECIAL = Metric("untrained_special_tokens", "Special tokens whose rows look untrained.", "tokens")
ADDED = Metric("untrained_added_tokens", "Tokens that were added and whose rows look untrained.", "tokens", healthy="0")
UNREACHABLE = Metric("unreachable_tokens_ratio", "Share of the tokens in use that no text leads to.", healthy="< 0.05")
TWINS = Metric("twin_tokens", "Tokens in use whose row is a copy of another token's.", "tokens", healthy="0")
COUNTED = Metric("corpus_tokens", "Tokens of the corpus that were counted.", "tokens", headline=False)
CAME = Metric("corpus_vocabulary_ratio", "Share of the tokens in use that come in the corpus.")
CORRELATION = Metric("norm_frequency_correlation", "Spearman's correlation of norm and frequency in the corpus.")
FREQUENT = Metric(
    "frequent_norm_ratio", "Mean norm of the tokens that make half of the corpus over that of the others in it."
)
USE = Metric("untrained_use_ratio", "Share of the corpus's tokens whose rows look untrained.", healthy="< 0.001")


class UntrainedTokens(Diagnostic):
    """Tokens whose rows look untrained, measured against rows that are surely unused, and named; what texts lead to.

    Rows that are surely unused: those of no token, tokens that their names hold free, bytes that no text holds, special
    tokens with the same row. Whatever tells these best from rows in use (cosine or distance to their mean, with or
    without the first principal direction, or the norm; input or output table), each measured without itself, is the
    indicator; its limit is what nine in ten of them lie below. Other signs need no such rows: a norm below half the
    median, a copy of another row, a row on the table's mean, and for added tokens the norm of a row as it is drawn.

    A token is reachable where its text, or its text behind another letter, is cut into it. Unreachable ones do no harm.

    Shape: tables (V, D).
    Range: counts of tokens, shares in [0, 1], correlation in [-1, 1].
    NaN, Inf, empty: rows that are not finite have no sign; without a tokenizer all rows count as in use and reachable.
    References: Land & Bartolo 2024, "Fishing for Magikarp", https://arxiv.org/abs/2405.05417; Oyama, Yokoi & Shimodaira
        2023 (norms and frequency).
    """

    name = "untrained_tokens"
    title = "tokens that were never trained"
    place = "vocabulary"
    metrics = (
        KNOWN,
        BELOW,
        UNTRAINED,
        SHARE,
        HIDDEN,
        SPECIAL,
        ADDED,
        UNREACHABLE,
        TWINS,
        COUNTED,
        CAME,
        CORRELATION,
        FREQUENT,
        USE,
    )

    def applies(self, inquiry: Inquiry) -> bool:
        """Return whether the model has a token table."""
        return inquiry.subject.vocabulary > 1

    def examine(self, subject: Any) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return the measurements of an Inquiry, and the suspicious tokens by name."""
        inquiry: Inquiry = subject
        suspects = find_suspects(inquiry.subject)
        in_use, signed = suspects.of_kind(*IN_USE), suspects.signed
        reached = in_use.clone()
        reached[[row for row, hit in suspects.reached.items() if not hit]] = False
        untrained, number = int((signed & reached).sum()), int(reached.sum())
        known = suspects.reached
        found = [
            KNOWN.measure(len(suspects.known)),
            BELOW.measure(suspects.separation.below),
            UNTRAINED.measure(untrained),
            SHARE.measure(untrained / number if number else None),
            HIDDEN.measure(int((signed & in_use & ~reached).sum())),
            SPECIAL.measure(int((signed & suspects.of_kind("special")).sum())),
            ADDED.measure(int((signed & suspects.of_kind("added")).sum())),
            UNREACHABLE.measure(sum(not hit for hit in known.values()) / len(known) if known else None),
            TWINS.measure(int((suspects.signs["copy"] & in_use).sum())),
        ]
        counts = _counts(inquiry, len(suspects.norms))
        found += _frequencies(counts, suspects, in_use)
        return found, [_suspicious(inquiry, suspects, counts), _unreachable(inquiry, suspects)]

    @classmethod
    def examples(cls) -> Iterable[Inquiry]:
        """Yield models with a tied table and with one of their own for the output."""
        from embedwatch.loading.tiny import tiny_subject

        yield Inquiry(tiny_subject("bert"))
        yield Inquiry(tiny_subject("sinusoidal"))


def _counts(inquiry: Inquiry, rows: int) -> Tensor | None:
    return None if inquiry.corpus is None else count_tokens(inquiry.corpus, inquiry.subject.tokenizer, rows)


def _frequencies(counts: Tensor | None, suspects: Suspects, in_use: Tensor) -> list[Measurement]:
    if counts is None or not int(counts.sum()):
        return [metric.measure(None) for metric in (COUNTED, CAME, CORRELATION, FREQUENT, USE)]
    came = in_use & (counts > 0) & suspects.norms.isfinite()
    return [
        COUNTED.measure(int(counts.sum())),
        CAME.measure(int((in_use & (counts > 0)).sum()) / max(1, int(in_use.sum()))),
        CORRELATION.measure(rank_correlation(suspects.norms[came], counts[came])),
        FREQUENT.measure(frequent_norms(suspects.norms[in_use], counts[in_use])),
        USE.measure(int(counts[suspects.signed & in_use].sum()) / int(counts.sum())),
    ]


def _suspicious(inquiry: Inquiry, suspects: Suspects, counts: Tensor | None) -> Exhibit:
    indicator = suspects.separation.name
    columns = ["row", "token", "kind", "reachable", "signs", "norm", indicator if indicator != "norm" else "indicator"]
    names = _names(inquiry)
    rows: list[list[Any]] = []
    for row in suspects.ranked()[:SHOWN]:
        hit = suspects.reached.get(row)
        numbers = [_number(suspects.norms[row]), _number(suspects.indicator[row])]
        shown = "" if hit is None else "yes" if hit else "no"
        rows.append([row, names(row), suspects.kinds[row], shown, suspects.signs_of(row), *numbers])
        if counts is not None:
            rows[-1].append(int(counts[row]))
    if counts is not None:
        columns.append("times_in_corpus")
    return Exhibit.build(
        "untrained_tokens", "table", "Tokens whose rows look untrained, the most suspicious first.", columns, rows
    )


def _unreachable(inquiry: Inquiry, suspects: Suspects) -> Exhibit:
    names = _names(inquiry)
    missed = [row for row, hit in suspects.reached.items() if not hit][:SHOWN]
    return Exhibit.build(
        "unreachable_tokens",
        "table",
        "Tokens that no text was found to lead to.",
        ("row", "token", "norm"),
        [(row, names(row), _number(suspects.norms[row])) for row in missed],
    )


def _names(inquiry: Inquiry) -> Any:
    try:
        tokenizer = inquiry.subject.tokenizer
    except InputError:
        return str
    return (lambda row: token_name(tokenizer, row)) if hasattr(tokenizer, "convert_ids_to_tokens") else str


def _number(value: Tensor) -> float | None:
    return float(f"{float(value):.4g}") if bool(torch.isfinite(value)) else None
