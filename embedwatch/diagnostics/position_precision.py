"""Whether positions are what the configuration says: frequencies, cosines and sines, and the numbers of positions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.position_rounding import distinct_positions, rounding_phase
from embedwatch.geometry.position_truth import (
    FrequencyMatch,
    Rendering,
    frequencies_of,
    match_frequencies,
    probe_positions,
    rendered,
    shared,
)
from embedwatch.geometry.rope import fitted_base
from embedwatch.geometry.sinusoid_tables import read_waves
from embedwatch.inquiry import Inquiry
from embedwatch.loading.position_parts import FixedTable, PositionParts, Turned, read_parts

DISTINCT = Metric(
    "position_distinct_in_dtype",
    "Positions of the asked length that stay distinct where their numbers are kept in the model's own type.",
    "positions",
    digits=6,
)
CAST = Metric(
    "position_cast_phase_error",
    "Radians that the worst wave would be off at the asked length if frequencies were cast to bfloat16.",
    headline=False,
)
BASE = Metric("position_base", "θ, by the configuration.", digits=6)
BASE_FOUND = Metric("position_base_found", "θ that the frequencies in the model were made with.", digits=6)
STRETCH = Metric("position_stretch_found", "How many times slower pairs turn than the configuration says.")
MISMATCH = Metric(
    "position_frequency_error_ratio",
    "Largest relative difference of a frequency in the model from what the configuration gives.",
    healthy="< 0.01",
)
PHASE = Metric(
    "position_phase_error",
    "Radians that the worst wave is off at the asked length, since frequencies in the model are rounded.",
    healthy="< 0.1",
)
TEMPERATURE = Metric(
    "position_temperature_ratio",
    "Length of (cosine, sine) in the model over what the configuration gives.",
    healthy="1",
)
ANGLE = Metric(
    "position_angle_error",
    "Largest difference of a cosine or sine of the model from that of float64, in its own type.",
    healthy="< 0.05",
)
AUTOCAST = Metric("position_autocast_error", "The same under autocast to bfloat16.", healthy="< 0.05")
SHARED = Metric("position_shared_ratio", "Share of positions that have the code of the next one.", healthy="0")
FIRST_SHARED = Metric("position_first_shared", "The first of them.", "positions", digits=6, headline=False)
ROUNDED = Metric(
    "position_numbers_bits",
    "Significant bits that the numbers of positions must have been rounded to: 8 for bfloat16, 11 for float16.",
    "bits",
    headline=False,
)
BITS = {"bfloat16": 8, "float16": 11}
LONGEST = 1 << 17
"""Positions beyond are not tried."""
ROUNDING = 0.01
"""Frequencies that differ by less were rounded; those that differ by more are others."""
EXACT = 1e-5
"""Frequencies that differ by less are the same, but for float32."""
USUAL_LENGTH = 2_048


@dataclass
class _Found:
    """What was found in the parts of one model; each number is the worst."""

    base: float | None = None
    base_found: float | None = None
    match: FrequencyMatch | None = None
    phase: float | None = None
    temperature: float | None = None
    renderings: list[Rendering] = field(default_factory=list)
    autocast: list[float] = field(default_factory=list)
    rows: list[tuple[str, float | None, float | None, float | None, float | None]] = field(default_factory=list)


class PositionPrecision(Diagnostic):
    """Frequencies, cosines, sines and numbers of positions in a model, beside float64 of its configuration.

    What turns queries and keys is asked for cosines and sines, in the model's own type and under autocast, and compared
    with those of float64; frequencies that it holds, with those that its configuration gives. So a wrong θ, a scaling
    that was lost, frequencies that `model.bfloat16()` rounded, and positions whose numbers were rounded each look
    their own way. Rounding cosines and sines themselves does no harm. No text is run; only what holds positions is.

    Shape: frequencies (d/2,), cosines (T, d/2).
    Empty: `None` for what a model does not hold.
    References: Wang et al. 2024, "When precision meets position" (https://arxiv.org/abs/2411.13476).
    """

    name = "position_precision"
    title = "precision of positions"
    place = "positions"
    metrics = (
        DISTINCT,
        CAST,
        BASE,
        BASE_FOUND,
        STRETCH,
        MISMATCH,
        PHASE,
        TEMPERATURE,
        ANGLE,
        AUTOCAST,
        SHARED,
        FIRST_SHARED,
        ROUNDED,
    )

    def applies(self, inquiry: Inquiry) -> bool:
        """Return whether positions have numbers that could be rounded."""
        return any(kind != "none" for kind in read_parts(inquiry.subject).scheme.kinds)

    def examine(self, subject: Any) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return how positions of an Inquiry's model compare with exact ones."""
        inquiry: Inquiry = subject
        parts = read_parts(inquiry.subject)
        length = inquiry.length or parts.scheme.usable or parts.scheme.claimed or USUAL_LENGTH
        found = _Found()
        for turned in parts.turned:
            _examine_turned(turned, parts, min(length, LONGEST), found)
        for table in parts.fixed:
            _examine_table(table, min(length, LONGEST), found)
        for name, numbers in parts.numbers:
            share, first = shared(numbers[:, None], torch.arange(len(numbers)))
            found.renderings.append(Rendering(0.0, share, _type_of(numbers), first))
            found.rows.append((name, None, None, None, share))
        measured = [DISTINCT.measure(distinct_positions(length, parts.dtype)), *_measured(found, parts, length)]
        columns = ("part", "frequency_error", "angle_error", "autocast_error", "shared")
        caption = "What holds positions, and how far it is from exact ones."
        return measured, [Exhibit.build("position_parts", "table", caption, columns, found.rows)]

    @classmethod
    def examples(cls) -> Iterable[Inquiry]:
        """Yield a model that turns, and one that has a table of waves."""
        from embedwatch.loading.tiny import tiny_subject

        yield Inquiry(tiny_subject("llama"))
        yield Inquiry(tiny_subject("sinusoidal"))


def _examine_turned(turned: Turned, parts: PositionParts, length: int, found: _Found) -> None:
    scheme = turned.scheme
    reach = min(length, scheme.usable or length)
    positions = probe_positions(max(2, min(reach, turned.cached or reach)))
    made = None if turned.turn is None else turned.turn(positions, parts.dtype)
    if made is not None and made[0].shape != made[1].shape:
        made = None
    held = turned.frequencies
    if held is None and made is not None:
        held = frequencies_of(*made)
    if held is None:
        return
    held = held.double().cpu()
    wanted = list(_expected(turned, reach))
    match = min((match_frequencies(held, each) for each in wanted), key=lambda each: each.error, default=None)
    if match is not None:
        if found.match is None or match.error > found.match.error:
            found.match, found.base, found.base_found = match, scheme.base, fitted_base(held)
        if turned.frequencies is not None and EXACT < match.error <= ROUNDING:
            found.phase = max(found.phase or 0.0, match.phase * length)
        elif turned.frequencies is not None:
            found.phase = found.phase or 0.0
    rendering, apart, temperature = None, None, 1.0
    if made is not None:
        used = _in_use(turned, held, made, wanted)
        norm = float(torch.hypot(made[0][0].double(), made[1][0].double()).median())
        expected = scheme.turning(reach).temperature if scheme.known else norm
        temperature = norm / expected if expected else math.nan
        if found.temperature is None or abs(temperature - 1) > abs(found.temperature - 1):
            found.temperature = temperature
        rendering = rendered(*made, used, positions[: len(made[0])], norm)
        if turned.frequencies is None and match is not None and match.error > ROUNDING:
            rendering = replace(rendering, error=0.0)  # of other waves: what those are is told, not how exact they are
        found.renderings.append(rendering)
        apart = _autocast(turned, used, positions, norm)
        found.autocast += [] if apart is None else [apart]
    found.rows.append(
        (
            turned.path,
            None if match is None or not math.isfinite(match.error) else match.error,
            None if rendering is None else rendering.error,
            apart,
            None if rendering is None else rendering.shared,
        )
    )


def _expected(turned: Turned, length: int) -> Iterator[Tensor]:
    """Yield the frequencies that the configuration gives: by formula, at each length that it may be for, and anew."""
    if turned.scheme.known:
        lengths = {length, turned.scheme.trained, turned.scheme.trained + 1, turned.length}
        yield from (turned.scheme.turning(each).frequencies for each in sorted(lengths) if each > 0)
    if turned.fresh is not None:
        yield turned.fresh


def _in_use(turned: Turned, held: Tensor, made: tuple[Tensor, Tensor], wanted: Sequence[Tensor]) -> Tensor:
    """Return the frequencies that cosines and sines come from: those held, or, where a module changes them, those."""
    if not turned.scheme.depends_on_length:
        return held if turned.frequencies is not None else _nearest(held, wanted)
    read = frequencies_of(*made)
    return held if read is None else _nearest(read, [held, *wanted])


def _nearest(found: Tensor, wanted: Sequence[Tensor]) -> Tensor:
    """Return exact frequencies where they are the ones that were read off, else what was read."""
    best = min(wanted, key=lambda each: match_frequencies(found, each).error, default=found)
    return best.double().cpu() if match_frequencies(found, best).error <= ROUNDING else found


def _autocast(turned: Turned, frequencies: Tensor, positions: Tensor, temperature: float) -> float | None:
    """Return the error under autocast, as training and serving in mixed precision run it."""
    if turned.turn is None or turned.cached is not None:
        return None
    with torch.autocast("cpu", torch.bfloat16):
        made = turned.turn(positions, torch.float32)
    return None if made is None else rendered(*made, frequencies, positions, temperature).error


def _examine_table(table: FixedTable, length: int, found: _Found) -> None:
    rows = table.rows.read(0, len(table.rows)).float()
    waves = read_waves(rows, table.base)
    if waves is None:
        return
    pairs = rows.shape[1] // 2
    sin, cos = (rows[:, :pairs], rows[:, pairs:]) if waves.halves else (rows[:, ::2], rows[:, 1::2])
    kept = (rows.norm(dim=1) > 0) & (torch.arange(len(rows)) < max(length, 2))  # a row of zeros is for padding
    positions = kept.nonzero()[:, 0]
    expected = waves.base == table.base
    error = 0.0 if expected else abs(math.log(waves.base / table.base)) / math.log(table.base)
    match = FrequencyMatch(error, 1.0, 0.0)
    if found.match is None or match.error > found.match.error:
        found.match, found.base, found.base_found = match, table.base, waves.base
    rendering = rendered(cos[kept], sin[kept], waves.frequencies, positions)
    found.renderings.append(rendering)
    found.rows.append((table.path, error, rendering.error, None, rendering.shared))


def _measured(found: _Found, parts: PositionParts, length: int) -> list[Measurement]:
    measured = []
    if found.match is not None and found.base is not None:
        plain = all(each.kind in ("default", "linear") for each in parts.scheme.rotary)
        measured += [
            BASE.measure(found.base),
            BASE_FOUND.measure(found.base_found if plain else None),
            STRETCH.measure(found.match.stretch),
            MISMATCH.measure(min(found.match.error, 1e9)),
        ]
    if found.phase is not None:
        measured.append(PHASE.measure(found.phase))
    if found.temperature is not None:
        measured.append(TEMPERATURE.measure(found.temperature))
    known = [each for each in parts.scheme.rotary if each.known]
    if known:
        measured.append(
            CAST.measure(
                max(rounding_phase(each.turning(length).frequencies, torch.bfloat16, length) for each in known)
            )
        )
    if found.renderings:
        worst = max(found.renderings, key=lambda each: (each.shared, each.error))
        bits = next((BITS[each.rounded] for each in found.renderings if each.rounded), None)
        measured += [
            ANGLE.measure(max(each.error for each in found.renderings)),
            SHARED.measure(worst.shared),
            FIRST_SHARED.measure(worst.first),
            ROUNDED.measure(bits),
        ]
    if found.autocast:
        measured.append(AUTOCAST.measure(max(found.autocast)))
    return measured


def _type_of(numbers: Tensor) -> str:
    """Return the type to which numbers of positions were rounded, where they were."""
    exact = torch.arange(len(numbers), dtype=torch.float64)
    for name, dtype in (("bfloat16", torch.bfloat16), ("float16", torch.float16)):
        rounded = exact.to(dtype).double()
        if torch.equal(rounded, numbers.double()) and not torch.equal(rounded, exact):
            return name
    return ""
