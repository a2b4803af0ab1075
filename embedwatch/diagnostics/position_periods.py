"""How far positions reach: their waves, what is covered of each, and where one place is taken for another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.position_figures import Seen, WaveFigures, wave_figures
from embedwatch.geometry.relative_bias import alibi_reach
from embedwatch.geometry.sinusoid_tables import read_waves
from embedwatch.inquiry import Inquiry
from embedwatch.loading.position_parts import PositionParts, read_parts
from embedwatch.loading.position_schemes import PositionScheme

LENGTH = Metric("position_length", "Tokens that the model is judged for.", "positions", digits=6)
USABLE = Metric("position_usable_length", "Tokens that its positions are made for.", "positions", digits=6)
BEYOND = Metric("position_beyond_usable", "Positions asked for that it is not made for.", "positions", healthy="0")
BEYOND_TABLE = Metric(
    "position_beyond_table", "Positions asked for that have no row in the table.", "positions", healthy="0"
)
MISSING = Metric(
    "position_missing_rows", "Positions that the configuration states and no table holds.", "positions", healthy="0"
)
LONGEST = Metric("position_longest_wavelength", "Longest wavelength of its waves.", "positions", digits=6)
COVERED = Metric("position_covered_ratio", "Share of waves that complete a period within the trained length.")
COVERED_ASKED = Metric("position_covered_asked_ratio", "Share of waves that complete a period within the asked length.")
RESOLUTION = Metric("position_resolution", "How unlike neighbours are: 1 - g(1).", healthy="> 0.001")
ALIAS_LAG = Metric("position_alias_lag", "The far offset that looks most like none.", "positions", digits=6)
ALIAS = Metric("position_alias_cosine", "Resemblance at that offset, g.")
APART = Metric(
    "position_alias_neighbours",
    "How many times as far apart codes are at that offset as neighbours are, in float32.",
    healthy="> 1",
)
APART_ROUNDED = Metric(
    "position_alias_neighbours_rounded", "The same with codes kept in the model's own type.", healthy="> 1"
)
UNSEEN = Metric(
    "position_unseen_ratio", "Share of waves that meet phases at the asked length that they never saw.", healthy="0"
)
ENDS = Metric("position_ends_cosine", "Resemblance of the first and the last position, g.")
SHIFT = Metric(
    "position_length_shift_ratio",
    "Share of waves that turn otherwise at the asked length than in short texts.",
    healthy="0",
)
TOLD_APART = Metric(
    "position_bias_reach", "Distance from which on the relative bias tells places no more apart.", "positions"
)
NEAREST_HEAD = Metric("position_alibi_shortest_reach", "Distance at which the steepest head sees as good as nothing.")
FARTHEST_HEAD = Metric("position_alibi_longest_reach", "Distance at which the flattest head sees as good as nothing.")
USUAL_LENGTH = 2_048
"""Where nothing states a length."""
SHIFTED = 0.01
"""A wave whose frequency changes by more than this share turns otherwise."""
SHOWN = 512
"""Points of the curve of the kernel."""


@dataclass(frozen=True)
class _Waves:
    """Waves of one part of the model, at the length at which they are judged."""

    part: str
    kind: str
    base: float
    length: int
    figures: WaveFigures


class PositionPeriods(Diagnostic):
    """Waves of positions: wavelengths, what is covered of them, the nearest collision, phases that training never saw.

    Sinusoidal codes and rotary scores share the kernel `g(k) = (2/d) Σ_i cos(ω_i k)`. Judged are the asked length, or
    the one that the model is made for: whether neighbours are told apart (1 - g(1)), whether a far place is nearer
    than the neighbour, in float32 and in the model's own type, and how many waves meet phases at the end of a longer
    text that they never saw. Of a bias on scores it says how far it tells places apart. Nothing is run.

    Shape: frequencies (d/2,) for each kind of layer.
    Empty: figures of waves only where there are any; `None` for an alias in texts with no far offsets.
    References: Vaswani et al. 2017, section 3.5; Su et al. 2021; Peng et al. 2023 (YaRN); Press et al. 2021 (ALiBi).
    """

    name = "position_periods"
    title = "reach and periods of positions"
    place = "positions"
    metrics = (
        LENGTH,
        USABLE,
        BEYOND,
        BEYOND_TABLE,
        MISSING,
        LONGEST,
        COVERED,
        COVERED_ASKED,
        RESOLUTION,
        ALIAS_LAG,
        ALIAS,
        APART,
        APART_ROUNDED,
        UNSEEN,
        ENDS,
        SHIFT,
        TOLD_APART,
        NEAREST_HEAD,
        FARTHEST_HEAD,
    )

    def applies(self, inquiry: Inquiry) -> bool:
        """Return whether the scheme is known, and there is one."""
        return any(kind != "none" for kind in read_parts(inquiry.subject).scheme.kinds)

    def examine(self, subject: Any) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return the figures of an Inquiry's model at the length that it asks for."""
        inquiry: Inquiry = subject
        parts = read_parts(inquiry.subject)
        scheme = parts.scheme
        length = inquiry.length or scheme.usable or scheme.claimed or USUAL_LENGTH
        waves = [*_rotary(parts, length), *_sinusoidal(parts, length)]
        measured = _range(parts, length) + _of_waves(waves) + _of_bias(scheme)
        if inquiry.length is not None and scheme.rotary:
            measured.append(SHIFT.measure(_shift(scheme, length)))
        return measured, _exhibits(waves)

    @classmethod
    def examples(cls) -> Iterable[Inquiry]:
        """Yield one model of each scheme, and one that is used beyond what it is made for."""
        from embedwatch.loading.tiny import tiny_subject

        for kind in ("bert", "sinusoidal", "llama", "alibi", "relative"):
            yield Inquiry(tiny_subject(kind))
        yield Inquiry(tiny_subject("llama"), length=4_096)


def _range(parts: PositionParts, length: int) -> list[Measurement]:
    scheme = parts.scheme
    found = [LENGTH.measure(length)]
    rows = None if parts.table is None else len(parts.table) - scheme.offset
    if scheme.usable:
        found.append(USABLE.measure(scheme.usable))
    if scheme.usable and rows is None:  # a table has an end, which says more
        found.append(BEYOND.measure(max(0, length - scheme.usable)))
    if rows is not None:
        found.append(BEYOND_TABLE.measure(max(0, length - rows)))
    missing = _missing(parts, rows)
    return found if missing is None else [*found, MISSING.measure(missing)]


def _missing(parts: PositionParts, rows: int | None) -> int | None:
    """Return how many positions that the configuration states are in no table; `None` where there is none."""
    claimed = parts.scheme.claimed
    if claimed is None:
        return None
    held = [each.cached for each in parts.turned if each.cached is not None]
    held += [len(each.rows) for each in parts.fixed]
    if rows is not None:
        held.append(rows + parts.scheme.offset)  # a configuration may count the rows before the first token, or not
    return max(0, claimed - min(held)) if held else None


def _rotary(parts: PositionParts, length: int) -> list[_Waves]:
    found = []
    for scheme in parts.scheme.rotary:
        if not scheme.known:
            continue
        seen, trained = scheme.seen()
        reach = min(length, scheme.window or length)
        frequencies = scheme.turning(length).frequencies
        before = Seen(seen.frequencies, min(trained, scheme.window or trained) or reach)
        figures = wave_figures(frequencies, before, reach, dtype=parts.dtype)
        found.append(_Waves(scheme.part, f"rope, {scheme.kind}", scheme.base, reach, figures))
    return sorted(found, key=lambda each: -each.length)


def _sinusoidal(parts: PositionParts, length: int) -> list[_Waves]:
    found = []
    for table in parts.fixed:
        waves = read_waves(table.rows.read(0, min(len(table.rows), 64)).float(), table.base)
        if waves is not None:
            trained = parts.scheme.usable or length
            figures = wave_figures(waves.frequencies, Seen(waves.frequencies, trained), length, dtype=parts.dtype)
            found.append(_Waves(table.path, "sinusoidal", waves.base, length, figures))
    return found


def _of_waves(waves: Sequence[_Waves]) -> list[Measurement]:
    """Return the figures of the layers that see farthest, and of aliases, resolution and phases the worst."""
    if not waves:
        return []
    every = [each.figures for each in waves]
    first = every[0]
    found = [
        LONGEST.measure(first.longest),
        COVERED.measure(first.covered),
        COVERED_ASKED.measure(first.covered_asked),
        RESOLUTION.measure(min(each.resolution for each in every)),
        UNSEEN.measure(max(each.unseen for each in every)),
        ENDS.measure(first.ends),
    ]
    far = [each for each in every if each.alias is not None and each.alias_float32 is not None]
    if not far:
        return [*found, *(metric.missing() for metric in (ALIAS_LAG, ALIAS, APART, APART_ROUNDED))]
    worst = min(far, key=lambda each: each.alias_float32 or 0.0)
    alias = worst.alias
    return [
        *found,
        ALIAS_LAG.measure(None if alias is None else alias.lag),
        ALIAS.measure(None if alias is None else alias.cosine),
        APART.measure(worst.alias_float32),
        APART_ROUNDED.measure(min(each.alias_rounded or 0.0 for each in far)),
    ]


def _of_bias(scheme: PositionScheme) -> list[Measurement]:
    found = []
    if scheme.told_apart:
        found.append(TOLD_APART.measure(scheme.told_apart))
    if scheme.slopes:
        found.append(NEAREST_HEAD.measure(alibi_reach(scheme.slopes[0])))
        found.append(FARTHEST_HEAD.measure(alibi_reach(scheme.slopes[-1])))
    return found


def _shift(scheme: PositionScheme, length: int) -> float:
    """Return the share of waves that turn otherwise at a length than in texts of the trained one."""
    shares = [0.0]
    for each in scheme.rotary:
        if each.known and each.depends_on_length and length > each.trained > 0:
            short, long = each.turning(each.trained).frequencies, each.turning(length).frequencies
            shares.append(float(((long - short).abs() > SHIFTED * short).double().mean()))
    return max(shares)


def _exhibits(waves: Sequence[_Waves]) -> list[Exhibit]:
    if not waves:
        return []
    first = waves[0]
    g = first.figures.kernel
    places = torch.unique(torch.logspace(0, torch.log10(torch.tensor(float(max(len(g) - 1, 1)))), SHOWN).long())
    places = places[places < len(g)]
    curve = Exhibit.build(
        "position_kernel",
        "curve",
        f"Resemblance of two positions by their offset, g, in {first.part} ({first.kind}).",
        ("offset", "resemblance"),
        [(int(place), round(float(g[place]), 6)) for place in places],
    )
    columns = ("part", "offset", "resemblance", "times_neighbours", "wavelength", "covered", "unseen", "base")
    rows = [
        (
            each.part,
            None if each.figures.alias is None else each.figures.alias.lag,
            None if each.figures.alias is None else round(each.figures.alias.cosine, 4),
            None if each.figures.alias_float32 is None else round(each.figures.alias_float32, 3),
            None if each.figures.pairs == 0 else round(each.figures.longest, 1),
            round(each.figures.covered, 4),
            round(each.figures.unseen, 4),
            each.base,
        )
        for each in waves
    ]
    table = Exhibit.build(
        "position_waves",
        "table",
        "Waves by kind of layer: the far offset that looks most like none, how far apart codes are there as multiples "
        "of neighbours, the longest wavelength, shares covered and unseen.",
        columns,
        rows,
    )
    return [curve, table]
