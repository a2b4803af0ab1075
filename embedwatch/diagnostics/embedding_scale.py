"""How large tokens and positions are where they are summed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.scale import factors_of_root, root_mean_square

MOST = 1e6
"""Tokens beside positions that are all zero count as so many times as large."""

TOKENS = Metric("token_scale_rms", "Root mean square entry of the tokens' vectors, scaled as they enter the model.")
POSITIONS = Metric("position_scale_rms", "Root mean square entry of the vectors of positions that are added to tokens.")
BALANCE = Metric(
    "token_position_ratio",
    "Root mean square entry of tokens over that of positions, where they are summed.",
    healthy="0.2 to 6",
)
ENTERING = Metric("input_scale_rms", "Root mean square entry of what enters the first layer.")
POWER = Metric(
    "input_scale_power",
    "How many factors √D lie between the rows of the table and what enters the first layer.",
    healthy="0, or 1 where the model scales",
)
DECAY = Metric("token_table_weight_decay", "Weight decay that the optimizer applies to the embedding table.")


@dataclass(frozen=True)
class InputParts:
    """What a model adds up before its first layer.

    Args:
        tokens: (V, D) rows of the embedding table, times the factor that the model applies to them.
        positions: (P, D) vectors that are added to them, with their factor; `None` where none are.
        from_table: whether positions come from a table: then zeros are what it holds, and not that none are added.
        decay: weight decay of the table in the optimizer; `None` where it is not known.
        entering: (N, D) what enters the first layer; `None` where it is not known.
        table: root mean square entry of the table's rows; `None` where it is not known.
    """

    tokens: Tensor
    positions: Tensor | None = None
    decay: float | None = None
    entering: Tensor | None = None
    table: float | None = None
    from_table: bool = False


class EmbeddingScale(Diagnostic):
    """Size of tokens and of positions where they are summed, and the weight decay of the table.

    `√(Σ x² / (n D))` over the n rows that are finite and not zero: rows of padding say nothing. With tokens from
    N(0, 1/D), the factor √D brings them to 1, beside 0.71 of sinusoidal positions; left out, positions drown the
    tokens, and applied twice, tokens drown the positions. Neither crashes.

    `ln(r / t) / ln √D`, with r of what enters the first layer and t of the table, counts the factors √D between them.

    Shape: tokens (V, D), positions (P, D).
    Empty: `None` where no row is left, or there are no positions. A table of positions that is all zero has the size 0,
    and tokens count as a million times as large.
    References: Vaswani et al. 2017, "Attention is all you need", section 3.4.

    Example:
        >>> parts = InputParts(torch.full((5, 4), 2.0), torch.full((3, 4), 0.5), decay=0.1)
        >>> measurements, _ = EmbeddingScale().examine(parts)
        >>> [m.value for m in measurements]
        [2.0, 0.5, 4.0, None, None, 0.1]
    """

    name = "embedding_scale"
    title = "size of tokens and positions"
    examines = "InputParts"
    metrics = (TOKENS, POSITIONS, BALANCE, ENTERING, POWER, DECAY)

    def examine(self, subject: Any) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return the measurements of an `InputParts`."""
        parts: InputParts = subject
        tokens = root_mean_square(parts.tokens)
        positions = None if parts.positions is None else root_mean_square(parts.positions)
        entering = None if parts.entering is None else root_mean_square(parts.entering)
        if positions is None and parts.from_table and _is_zero(parts.positions):
            positions = 0.0
        balance = tokens / max(positions, tokens / MOST) if tokens is not None and positions is not None else None
        return [
            TOKENS.measure(tokens),
            POSITIONS.measure(positions),
            BALANCE.measure(balance),
            ENTERING.measure(entering),
            POWER.measure(_power(entering, parts)),
            DECAY.measure(parts.decay),
        ], []

    @classmethod
    def examples(cls) -> Iterable[InputParts]:
        """Yield a model with added positions, one with rotary ones, and one whose rows are no numbers."""
        rows = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
        yield InputParts(rows, rows[:12] * 0.5, 0.0, entering=rows, table=8**-0.5)
        yield InputParts(rows.bfloat16())
        yield InputParts(rows, entering=rows, table=math.inf)
        yield InputParts(torch.full((3, 8), torch.nan), torch.zeros(3, 8), 0.1)
        yield InputParts(rows, torch.zeros(3, 8), from_table=True)


def _power(entering: float | None, parts: InputParts) -> float | None:
    if not entering or not parts.table or not math.isfinite(parts.table) or parts.entering is None:
        return None
    return factors_of_root(entering / parts.table, parts.entering.shape[1])


def _is_zero(rows: Tensor | None) -> bool:
    return rows is not None and len(rows) > 0 and not bool(rows.any())
