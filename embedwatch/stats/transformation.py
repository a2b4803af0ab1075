"""Transformation: numbers that tell what was done to rows, beside a reference."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import MergeError
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.precision import exact_values, on_levels
from embedwatch.geometry.transformation import Changes, Directions, Spectrum, Sums, changes, spectrum_of
from embedwatch.geometry.unit_length import have_unit_length
from embedwatch.sketches import (
    Additive,
    ComparedStatistic,
    DirectionFitter,
    DirectionMap,
    Frozen,
    Moments,
    SketchStatistic,
    example_batches,
)
from embedwatch.sketches.compared import REFERENCE

KNOWN = 4
"""References whose spectra are remembered."""
MOST_LOG = 700.0
"""Logarithm of the largest quotient that is told."""
ROUNDING = 1e-12
CHUNK = 1024
"""Rows that are looked at together."""
SIDES = ("reference", "window")
FORMATS = {"float16": torch.float16, "bfloat16": torch.bfloat16}
LEVELS = "int8"
PRECISIONS = (*FORMATS, LEVELS)

EXACT = Metric(
    "transformation_exact_ratio",
    "Share of numbers that a coarser format holds exactly; for int8, of rows on 256 equal levels.",
    labels=("precision", "side"),
    headline=False,
)
UNIT = Metric("transformation_unit_ratio", "Share of rows of length 1.", labels=("side",), headline=False)
NORM = Metric("transformation_norm_ratio", "Geometric mean of the norms over that of the reference.", headline=False)
SPREAD = Metric("transformation_norm_spread_ratio", "Standard deviation of the logarithm of norms.", headline=False)
ROWS = Metric("transformation_rows", "Rows that were compared.", "rows", headline=False)
EMPTY = Metric(
    "transformation_empty_dimensions",
    "Directions in which rows do not vary.",
    "dimensions",
    labels=("side",),
    headline=False,
)


def _metric(name: str, text: str, unit: str = "") -> Metric:
    return Metric(f"transformation_{name}", text, unit, headline=False)


CHANGES = {
    "offset": _metric("offset_ratio", "Distance of the mean direction from that of the reference, in deviations."),
    "aside": _metric("aside_ratio", "The part of that distance which is not along the mean itself."),
    "common": _metric("common_ratio", "Share of the shift within regions that all regions have in common."),
    "concentration": _metric("concentration_ratio", "Squared mean over variance, over that of the reference."),
    "overlap": _metric("overlap_ratio", "Overlap of leading directions, over that of two halves of the reference."),
    "spectrum": _metric("spectrum_distance", "Root mean square of the log ratios of the leading eigenvalues."),
    "lead": _metric("lead_ratio", "Share of variance in the reference's leading directions, over what it was."),
    "tail": _metric("tail_ratio", "Share of variance in the reference's last quarter of directions, over what it was."),
    "filled": _metric("filled_ratio", "Variance in directions that were empty in the reference, over what it was."),
    "trailing": _metric("trailing_dimensions", "Last coordinates that became zeros.", "dimensions"),
    "moved": _metric("moved_ratio", "Share of rows that went to other regions."),
    "lost": _metric("lost_ratio", "Share that the regions had in which less than 3 rows in 10 are left."),
    "gone": _metric("gone_ratio", "Share that the regions had in which less than 3 rows in 20 are left."),
    "within": _metric("within_ratio", "Variance within regions over that of the reference."),
}
Numbers = Mapping[str, "float | None"]


class Transformation(ComparedStatistic):
    """What was done to rows, in numbers that each kind of change moves in its own way.

    Directions of rows and their lengths are told apart: moments of `x / ‖x‖` in the main directions of the reference,
    and in its cells; norms; how many numbers a coarser format holds exactly; which last coordinates are zero. The
    check `what_changed` reads them beside those of `drift`, which says whether there is a change at all.

    Directions of the reference in which its rows do not vary are what a trained model leaves empty: another model, a
    rotation and noise fill them, other content does not.

    Shape: batches (N, D); rows with NaN or Inf are left out, and zero rows.
    State: K² + (C + 1) K + D numbers with K = min(D, 1,024) directions and C <= 32 cells; merge exact to rounding.
    Error: sampling error of independent rows is taken off; streams that keep to a topic have more.
    Empty: `None`.

    References:
        Lawley 1956 for the bias of eigenvalues; Bai & Saranadasa 1996 for the distance of means.

    Example:
        >>> rows = torch.randn(2_000, 4, generator=torch.Generator().manual_seed(0)) + 1
        >>> statistic = Transformation(frozen=Transformation.fit([VectorBatch(rows, torch.arange(2_000))], rows=2_000))
        >>> statistic.update(VectorBatch(rows.bfloat16().float(), torch.arange(2_000)))
        >>> {m.key: m.number for m in statistic.compute()}["transformation_exact_ratio{precision=bfloat16,side=window}"]
        1.0
    """

    name = "transformation"
    title = "what was done to rows"
    live = True
    metrics = (*CHANGES.values(), EXACT, UNIT, NORM, SPREAD, ROWS, EMPTY)

    def __init__(self, *, frozen: Mapping[str, Tensor]) -> None:
        super().__init__(frozen=frozen)
        self._map = DirectionMap(self.frozen)
        width, cells = self._map.directions, len(self._map.centres)
        self._moments = self.keep("moments", Moments(scatter="matrix", columns=width))
        self._totals = self.keep(
            "totals",
            Additive(
                sums={
                    "cell_squares": (cells,),
                    "cell_sums": (cells, width),
                    "energy": ("D",),
                    "log_squares": (),
                    "logs": (),
                    "outside": (),
                },
                counts={"cells": (cells,), "numbers": (), "rows": (), "unit": (), **dict.fromkeys(PRECISIONS, ())},
            ),
        )

    @classmethod
    def fitter(cls, **options: Any) -> DirectionFitter:
        """Return what fits the directions and the cells; options are those of `DirectionFitter`."""
        return DirectionFitter(**options)

    @property
    def space_dimension(self) -> int:
        """D of the rows that fitted the map."""
        return self._map.dimension

    def calibrated(self, start: int) -> dict[str, Tensor]:
        """Return the sums of the rows seen."""
        del start
        moments, totals = self._moments.state(), self._totals.state()
        return {**moments, **totals} if moments else {"count": torch.tensor(0)}

    def add(self, batch: VectorBatch) -> None:
        """Add a batch whose dimension fits."""
        for part in batch.clean.directed.chunks(CHUNK):
            self._add(part.rows, part.norms, part.unit)

    def _add(self, rows: Tensor, norms: Tensor, unit: Tensor) -> None:
        """Add rows that have a direction: (N, D), (N,) and (N, D)."""
        white, cells = self._map.coordinates(unit), self._map.cells(unit)
        squares = white.square().sum(1)  # (N,)
        mean = white.mean(0)
        centred = white - mean
        self._moments.combine(len(rows), mean.cpu(), (centred.T @ centred).cpu())
        outside = (unit - self._map.mean.to(unit)).double().square().sum(1) - squares
        totals, count = self._totals, len(self._map.centres)
        totals.add("rows", len(rows))
        totals.add("outside", outside.clamp(min=0).sum() if self._map.directions < self._map.dimension else 0.0)
        totals.add("energy", unit.double().square().sum(0))
        logs = norms.double().log()
        totals.add("logs", logs.sum())
        totals.add("log_squares", logs.square().sum())
        totals.add("unit", have_unit_length(norms).sum())
        totals.add("cells", torch.bincount(cells, minlength=count))
        totals.add("cell_sums", white.new_zeros(count, white.shape[1]).index_add_(0, cells, white))
        totals.add("cell_squares", squares.new_zeros(count).index_add_(0, cells, squares))
        totals.add("numbers", (rows != 0).sum())
        for name, dtype in FORMATS.items():
            totals.add(name, exact_values(rows, dtype).sum())
        totals.add(LEVELS, on_levels(rows).sum())

    def check_state(self) -> None:
        """Refuse a state whose parts did not see the same rows."""
        rows = int(self._totals["rows"])
        seen = {rows, self._moments.count, int(self._totals["cells"].sum())}
        parts = [int(self._totals[name]) <= rows for name in ("unit", LEVELS)]
        parts += [int(self._totals[name]) <= int(self._totals["numbers"]) for name in FORMATS]
        if len(seen) > 1 or not self._totals.whole or not all(parts):
            raise MergeError(f"state of {self.name} must come from the same rows in all parts; it is damaged")

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        return self._measured({**self._moments.state(), **self._totals.state()})

    def _measured(self, seen: Mapping[str, Tensor]) -> list[Measurement]:
        """Return the measurements of these sums beside those of the reference."""
        numbers = self._numbers(seen)
        return [
            *(metric.measure(numbers.get(metric.name)) for metric in self.metrics if not metric.labels),
            *(metric.measure(numbers.get(_key(metric, side)), side=side) for metric in (UNIT, EMPTY) for side in SIDES),
            *(
                EXACT.measure(numbers.get(_key(EXACT, side, name)), precision=name, side=side)
                for name in PRECISIONS
                for side in SIDES
            ),
        ]

    def _numbers(self, seen: Mapping[str, Tensor]) -> Numbers:
        """Return the value of each measurement by its key."""
        numbers: dict[str, float | None] = {ROWS.name: int(seen.get("rows", 0))}
        held = self.reference or {}
        if not int(seen.get("rows", 0)) or not int(held.get("count", 0)):
            return numbers
        by = Directions(self._map.mean, self._map.basis, self._map.variances, self._map.fitted)
        found = changes(_sums(held), _sums(seen), by, known=_spectrum(self.frozen))
        numbers |= {metric.name: getattr(found, name) for name, metric in CHANGES.items()}
        numbers |= _empty(found)
        for side, sums in zip(SIDES, (held, seen), strict=True):
            rows = int(sums["rows"])
            numbers[_key(UNIT, side)] = int(sums["unit"]) / rows
            numbers |= {_key(EXACT, side, name): int(sums[name]) / int(sums["numbers"]) for name in FORMATS}
            numbers[_key(EXACT, side, LEVELS)] = int(sums[LEVELS]) / rows
        logs = [float(sums["logs"]) / int(sums["rows"]) for sums in (held, seen)]
        spread = float(seen["log_squares"]) / int(seen["rows"]) - logs[1] ** 2
        return numbers | {
            NORM.name: math.exp(min(MOST_LOG, logs[1] - logs[0])),
            SPREAD.name: spread**0.5 if spread > ROUNDING * (1 + logs[1] ** 2) else 0.0,
        }

    def tolerance(self, metric: str) -> float:
        """Return the error bound of one metric against the oracle: what rounding does to ratios of small numbers."""
        return 0.0 if metric.startswith((ROWS.name, EXACT.name)) else 1e-3

    def merge_tolerance(self, metric: str) -> float:
        """Return the error within which any split and merge gives the same."""
        return self.tolerance(metric)

    def oracle(self, batch: VectorBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on all rows at once."""
        rows = batch.rows.double()
        rows = rows[rows.isfinite().all(1) & (rows != 0).any(1)]
        norms = rows.norm(dim=1)
        unit = rows / norms[:, None]
        white = (unit - self._map.mean) @ self._map.basis
        centred = white - white.mean(0)
        cells = (unit[:, None] - self._map.centres.double()).norm(dim=2).argmin(1)
        member = torch.nn.functional.one_hot(cells, len(self._map.centres)).double()  # (N, C)
        seen = {
            "count": torch.tensor(len(rows)),
            "rows": torch.tensor(len(rows)),
            "mean": white.mean(0),
            "scatter": centred.T @ centred,
            "outside": (unit - self._map.mean - white @ self._map.basis.T).square().sum(),
            "energy": unit.square().sum(0),
            "logs": norms.log().sum(),
            "log_squares": norms.log().square().sum(),
            "unit": have_unit_length(norms).sum(),
            "cells": member.sum(0).long(),
            "cell_sums": member.T @ white,
            "cell_squares": member.T @ white.square().sum(1),
            "numbers": (rows != 0).sum(),
            LEVELS: on_levels(rows).sum(),
            **{name: exact_values(rows, dtype).sum() for name, dtype in FORMATS.items()},
        }
        return {m.key: m.number for m in self._measured(seen if len(rows) else {})}

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[SketchStatistic, Sequence[VectorBatch]]]:
        """Yield narrow rows, fewer directions than dimensions, and rows wide enough for levels."""
        for dimension, directions, cells in ((7, 7, 3), (7, 3, 2), (12, 12, 1)):
            reference = example_batches(seed + 1, dimension=dimension)
            frozen = cls.fit(reference, rows=sum(map(len, reference)), cells=cells, directions=directions)
            yield cls(frozen=frozen), example_batches(seed, dimension=dimension)


@lru_cache(maxsize=KNOWN)
def _spectrum(frozen: Frozen) -> Spectrum:
    """Return the spectrum of a reference's calibrating rows, which every window is compared with."""
    return spectrum_of(_sums(frozen.under(REFERENCE)))


def _key(metric: Metric, side: str, precision: str = "") -> str:
    labels = f"precision={precision},side={side}" if precision else f"side={side}"
    return f"{metric.name}{{{labels}}}"


def _empty(found: Changes) -> Numbers:
    return {_key(EMPTY, SIDES[0]): found.empty_before, _key(EMPTY, SIDES[1]): found.empty_now}


def _sums(arrays: Mapping[str, Tensor]) -> Sums:
    """Return the sums over directions among all that was gathered."""
    return Sums(
        rows=int(arrays["count"]),
        outside=float(arrays["outside"]),
        **{name: arrays[name].cpu() for name in Sums._fields if name not in ("rows", "outside")},
    )
