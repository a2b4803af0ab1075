"""How often a model multiplies its tokens by √D, and how large they are beside positions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.errors import InputError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.norms import row_norms
from embedwatch.geometry.scale import factor_between, factors_of_root, root_mean_square
from embedwatch.inquiry import Inquiry
from embedwatch.loading.examinable import Examinable, Rows
from embedwatch.loading.settings import table_factor
from embedwatch.observe.passes import entering

PROBES, LENGTH = 24, 16
"""So many tokens are looked up at so many positions."""
SAMPLE = 8192
"""So many rows of a table, evenly spaced, give its size."""
LINEAR = 0.01
"""Less than this share unexplained: nothing but a factor and something added lies between table and first layer."""
MOST = 1e6
"""Tokens beside positions that are all zero count as so many times as large."""

TABLE = Metric("table_rms", "Root mean square entry of the token table.")
FACTOR = Metric("lookup_factor", "By what a row of the table is multiplied on its way to the first layer.")
POWER = Metric(
    "lookup_scale_power",
    "How many factors √D lie between a row of the table and the first layer.",
    healthy="0 or 1, as the configuration says",
)
EXPECTED = Metric("lookup_scale_power_configured", "How many factors √D the configuration promises.")
GAP = Metric(
    "lookup_scale_gap", "Factors √D that are applied, less those that the configuration promises.", healthy="0"
)
POSITIONS = Metric("position_rms", "Root mean square entry of what positions add to tokens.")
BALANCE = Metric(
    "lookup_position_ratio",
    "Root mean square entry of tokens, with their factor, over that of positions.",
    healthy="0.2 to 6",
)
ENTERING = Metric("entering_rms", "Root mean square entry of what enters the first layer.")


@dataclass(frozen=True)
class _Seen:
    """What a pass to the first layer showed: the factor, what positions add (P, D), and what enters (N, D)."""

    factor: float | None = None
    added: Tensor | None = None
    entering: Tensor | None = None


class InputScale(Diagnostic):
    """By how many factors √D tokens are multiplied before the first layer, and how large positions are beside them.

    A few tokens are looked up at a few positions, and the pass is stopped before the first layer. Of tokens that stand
    at one position the differences come from the table alone: `x_i - x_j = f (E_i - E_j)`, so f is found by least
    squares, and `x - f E` is what positions add. `ln f / ln √D` counts the factors: 1 where √D is applied once, 2 where
    twice. Behind a normalisation no factor is left to see; then the one that the configuration names is taken.

    Range: the factor any number; powers about 0, 1 or 2.
    NaN, Inf, empty: `None` where the model has no stack of layers, or its numbers are not finite.
    References: Vaswani et al. 2017, "Attention is all you need", section 3.4.
    """

    name = "input_scale"
    title = "factor √D before the first layer"
    place = "scale"
    metrics = (TABLE, FACTOR, POWER, EXPECTED, GAP, POSITIONS, BALANCE, ENTERING)

    def applies(self, inquiry: Inquiry) -> bool:
        """Return whether the model has a token table."""
        return inquiry.subject.vocabulary > 1

    def examine(self, subject: Any) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return the measurements of an Inquiry."""
        model: Examinable = subject.subject
        table = model.token_table()
        sample = _sample(table)
        size = root_mean_square(sample)
        promised = table_factor(model.settings)
        seen = _seen(model, table)
        factor = seen.factor if seen.factor is not None else promised
        positions = _positions(model, seen)
        zero = positions is not None and not bool(positions.any())
        tokens = None if size is None or factor is None else size * abs(factor)
        beside = 0.0 if zero else None if positions is None else root_mean_square(positions)
        balance = None if tokens is None or beside is None else tokens / max(beside, tokens / MOST)
        power = factors_of_root(seen.factor, model.dimension)
        expected = factors_of_root(promised, model.dimension)
        enters = None if seen.entering is None else root_mean_square(seen.entering)
        found = (size, seen.factor, power, expected, _gap(power, expected), beside, balance, enters)
        sizes = [("rows of the table", size), ("tokens, with their factor", tokens)]
        sizes += [("positions", beside), ("what enters the first layer", enters)]
        exhibit = Exhibit.build(
            "input_sizes", "table", "Root mean square entries on the way to the first layer.", ("what", "rms"), sizes
        )
        return [metric.measure(value) for metric, value in zip(self.metrics, found, strict=True)], [exhibit]

    @classmethod
    def examples(cls) -> Iterable[Inquiry]:
        """Yield a model that scales its tokens, and one that normalises their sum."""
        from embedwatch.loading.tiny import tiny_subject

        yield Inquiry(tiny_subject("sinusoidal"))
        yield Inquiry(tiny_subject("bert"))


def _gap(power: float | None, expected: float | None) -> float | None:
    return None if power is None or expected is None else power - expected


def _sample(table: Rows) -> Tensor:
    """Return some rows of a table, in even blocks. Shape: (N, D)."""
    number = len(table)
    if number <= SAMPLE:
        return table.read(0, number).float()
    block = SAMPLE // 64
    starts = [round(at * (number - block) / 63) for at in range(64)]
    return torch.cat([table.read(start, start + block).float() for start in starts])


def _seen(model: Examinable, table: Rows) -> _Seen:
    """Look some tokens up at some positions, and see what comes to the first layer."""
    ids, rows = _probes(model, table)
    if len(ids) < 2:
        return _Seen()
    try:
        found = entering(model.module(), ids[:, None].expand(-1, LENGTH).contiguous())  # (N, T, D)
    except InputError:
        return _Seen()
    if found is None:
        return _Seen()
    plain = _Seen(entering=found.flatten(0, 1))
    if found.shape[2] != rows.shape[1]:
        return plain
    factors = [factor_between(found[:, at], rows) for at in range(LENGTH)]
    linear = [factor.value for factor in factors if factor is not None and factor.residual < LINEAR]
    if len(linear) < LENGTH:
        return plain
    value = sum(linear) / LENGTH
    added = (found - value * rows[:, None]).mean(0)  # (T, D)
    noise = torch.finfo(torch.bfloat16).eps * abs(value) * (root_mean_square(rows) or 0.0)
    return _Seen(value, added if float(added.square().mean().sqrt()) > noise else None, plain.entering)


def _probes(model: Examinable, table: Rows) -> tuple[Tensor, Tensor]:
    """Return some tokens with rows that are finite, distinct and not zero, and those rows, without that of padding."""
    number = len(table)
    asked = torch.linspace(0, number - 1, min(number, 2 * PROBES)).long().unique()
    rows = torch.cat([table.read(int(at), int(at) + 1).float() for at in asked])
    norms = row_norms(rows)
    sound = norms.isfinite() & (norms > 0)
    padding = getattr(model.settings, "pad_token_id", None)
    if isinstance(padding, int):
        sound &= asked != padding
    return asked[sound][:PROBES], rows[sound][:PROBES]


def _positions(model: Examinable, seen: _Seen) -> Tensor | None:
    """Return what positions add: the rows of their table, or what was seen. Shape: (P, D)."""
    table = model.position_table()
    if table is not None and table.dimension == model.dimension:
        return table.read(0, min(len(table), SAMPLE)).float()
    return seen.added
