"""What a table of learned positions holds: rows that repeat, are dead or never trained, and its periods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.position_tables import (
    Twin,
    adjacent_cosines,
    dead_rows,
    dominant_period,
    far_pair,
    lag_cosines,
    toeplitz_share,
    twins,
    untrained_tail,
)
from embedwatch.inquiry import Inquiry
from embedwatch.loading.position_parts import read_parts

ROWS = Metric("position_rows", "Rows of the table for tokens, without those before the first.", "rows", digits=6)
COPIES = Metric("position_copied_rows", "Rows that are another row again.", "rows", healthy="0")
DEAD = Metric("position_dead_rows", "Rows that are zero, or as good as.", "rows", healthy="0")
TAIL = Metric("position_untrained_rows", "Rows at the end that no training reached.", "rows", healthy="0")
ADJACENT = Metric("position_adjacent_cosine", "Median cosine of a row with the next, after centring.")
REPEAT = Metric(
    "position_repeat_cosine", "Mean cosine of rows one period apart, after centring, at the worst.", healthy="< 0.9"
)
REPEAT_ROWS = Metric("position_repeat_rows", "That period.", "rows")
FAR = Metric("position_far_cosine", "Highest cosine of two rows at least 32 apart, after centring.")
PERIOD = Metric("position_period_rows", "Length of the strongest wave along the table.", "rows", digits=4)
SHARE = Metric("position_period_ratio", "Share of the energy of all waves that the strongest has.")
CHANCE = Metric("position_period_chance_ratio", "The share that it has in rows in another order.", headline=False)
RELATIVE = Metric("position_relative_ratio", "Share of the resemblance of rows that their offset explains.")
APART = 32
"""Rows so far apart are no neighbours."""
LEAST_LAG = 8
"""Shorter repeats are smoothness."""
LEAST_PAIRS = 16
"""A lag with fewer pairs of rows says nothing."""
OUTLIER = 2.0
"""A first row that is so many times longer than usual is of its own kind."""
SHOWN = 512


class PositionTable(Diagnostic):
    """Rows of learned positions: copies, dead rows, a tail that was never trained, repeats, and the strongest wave.

    Rows before that of the first token (padding) are left out, and a first row that is far longer than the others:
    models give it to a special token. All is measured after the mean is taken away, without which healthy rows far
    apart have a cosine of 0.97. A strong wave is normal: of a trained model it may hold 31 % of the energy.

    Shape: (N, D).
    Empty: `None` where the table is too short.
    References: Wang et al. 2021, "On position embeddings in BERT"; a period by FFT beside rows in random order.
    """

    name = "position_table"
    title = "table of positions"
    place = "positions"
    metrics = (ROWS, COPIES, DEAD, TAIL, ADJACENT, REPEAT, REPEAT_ROWS, FAR, PERIOD, SHARE, CHANCE, RELATIVE)

    def applies(self, inquiry: Inquiry) -> bool:
        """Return whether the model has a table of positions."""
        return read_parts(inquiry.subject).table is not None

    def examine(self, subject: Any) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return what the table of an Inquiry's model holds."""
        inquiry: Inquiry = subject
        parts = read_parts(inquiry.subject)
        if parts.table is None:
            return [], []
        rows = parts.table.read(parts.scheme.offset, len(parts.table)).float()
        first = _first_ordinary(rows)
        ordinary = rows[first:]
        shift = parts.scheme.offset + first
        copies, dead = twins(ordinary), dead_rows(ordinary)
        lag, repeat, lags = _repeat(ordinary)
        pair = far_pair(ordinary, APART) if len(ordinary) > APART else None
        period = dominant_period(ordinary, seed=inquiry.seed)
        adjacent = adjacent_cosines(ordinary)
        measured = [
            ROWS.measure(len(rows)),
            COPIES.measure(len(copies)),
            DEAD.measure(len(dead)),
            TAIL.measure(untrained_tail(ordinary)),
            ADJACENT.measure(float(adjacent.median()) if len(adjacent) else None),
            REPEAT.measure(repeat),
            REPEAT_ROWS.measure(lag),
            FAR.measure(None if pair is None else pair.distance),
            PERIOD.measure(None if period is None else period.rows),
            SHARE.measure(None if period is None else period.share),
            CHANCE.measure(None if period is None else period.chance),
            RELATIVE.measure(toeplitz_share(ordinary)),
        ]
        return measured, _exhibits(copies, dead, lags, shift)

    @classmethod
    def examples(cls) -> Iterable[Inquiry]:
        """Yield a model with a table of positions."""
        from embedwatch.loading.tiny import tiny_subject

        yield Inquiry(tiny_subject("bert"))


def _first_ordinary(rows: Tensor) -> int:
    norms = rows.double().norm(dim=1)
    return int(len(norms) > 2 and float(norms[0]) > OUTLIER * float(norms.median()))


def _repeat(rows: Tensor) -> tuple[int | None, float | None, Tensor]:
    """Return the lag at which rows resemble each other most, their mean cosine there, and the cosines of all lags.

    A lag counts where cosines rise towards it: what only has not fallen yet is smoothness.
    """
    cosines = lag_cosines(rows)
    last = len(cosines) - LEAST_PAIRS
    peaks = [
        lag
        for lag in range(LEAST_LAG, last)
        if cosines[lag] >= cosines[lag - 1] and cosines[lag] >= cosines[lag + 1] - 1e-9
    ]
    if not peaks:
        return None, None, cosines
    best = max(peaks, key=lambda lag: (round(float(cosines[lag]), 6), -lag))
    return best, float(cosines[best]), cosines


def _exhibits(copies: Sequence[Twin], dead: Tensor, lags: Tensor, shift: int) -> list[Exhibit]:
    table = Exhibit.build(
        "position_copies",
        "table",
        "Rows of the table that are another row again; the distance is a share of that of neighbours.",
        ("table_row", "equals_row", "distance"),
        [(twin.other + shift, twin.row + shift, round(twin.distance, 6)) for twin in copies],
    )
    zeros = Exhibit.build(
        "position_dead", "table", "Rows of the table that are zero.", ("table_row",), [(int(p) + shift,) for p in dead]
    )
    places = torch.unique(torch.linspace(0, max(len(lags) - 1, 0), min(SHOWN, len(lags))).round().long())
    curve = Exhibit.build(
        "position_lags",
        "curve",
        "Mean cosine of two rows of the table by how far they are apart, after centring.",
        ("offset", "cosine"),
        [(int(place), round(float(lags[place]), 6)) for place in places],
    )
    return [table, zeros, curve]
