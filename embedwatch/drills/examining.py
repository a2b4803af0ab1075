"""An examiner knows the reference, and asks every check about windows that grow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from embedwatch.batch import PairBatch, VectorBatch
from embedwatch.checks.what_changed import NOTHING, OTHER, WhatChanged
from embedwatch.core.boundary import Boundary
from embedwatch.core.check import Check, ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.registry import registered
from embedwatch.core.snapshot import Provenance, Snapshot, Space
from embedwatch.core.statistic import Statistic
from embedwatch.core.verdict import Verdict
from embedwatch.geometry.comparison import WEIGHTS
from embedwatch.judging import Judge
from embedwatch.references.fitting import Fitting
from embedwatch.references.origin import Part
from embedwatch.window import Window

__all__ = ["LEAST_LEVEL", "Examiner", "Look", "Subject", "looks_at"]

STEPS = (100, 200, 500)
"""Rows at which is looked first; then at ten times these, and so on."""
QUICK = 999
"""Permutations that tell whether a difference is anywhere near the level."""
NEAR = 0.05
"""A p-value of 999 permutations above this is above any level below a tenth of it."""
FINE = ((0.005, QUICK), (0.001, 5_999), (0.0005, 11_999))
"""From this level on so many permutations suffice: six times their inverse must lie below it."""
LEAST_LEVEL = FINE[-1][0]
CANARIES = 100
"""Rows of a window that are taken for items that are encoded again and again."""
FIRED = ("warn", "fail")
P_VALUE, LOCAL = "drift_p_value", "local"
"""The measurement that weighs families, and the dearest of these."""
NAMELESS = (None, NOTHING, OTHER)
AnyStatistic = Statistic[Any]


@dataclass(frozen=True)
class Subject:
    """What the rows are: the same for the reference and every window.

    Args:
        space: that they belong to.
        role: what sort of place that is.
        fingerprint: of the source.
    """

    space: Space
    role: str
    fingerprint: str


@dataclass(frozen=True)
class Look:
    """What the checks said of a window.

    Args:
        rows: that it had.
        verdicts: of all checks that apply.
        level: at which p-values count.
        named: what `what_changed` calls the difference, whether or not it alarms; empty where it names none.
    """

    rows: int
    verdicts: tuple[Verdict, ...]
    level: float
    named: str = ""

    @property
    def fired(self) -> tuple[str, ...]:
        """Names of the checks that warn or fail."""
        return tuple(verdict.check for verdict in self.verdicts if verdict.status in FIRED)

    @property
    def p_values(self) -> tuple[float | None, ...]:
        """P-value of each verdict; `None` where it has none."""
        return tuple(verdict.evidence.p_value for verdict in self.verdicts)

    @property
    def sure(self) -> tuple[str, ...]:
        """Names of the checks whose p-value counts."""
        found = zip(self.verdicts, self.p_values, strict=True)
        return tuple(verdict.check for verdict, value in found if value is not None and value <= self.level)

    @property
    def noticed(self) -> tuple[str, ...]:
        """Names of the checks that tell of a difference, and call it harmless or too small to matter."""
        told = (WhatChanged.name,) if self.named else ()
        return tuple(name for name in dict.fromkeys((*self.sure, *told)) if name not in self.fired)

    def verdict(self, check: str) -> Verdict | None:
        """Return the verdict of one check."""
        return next((verdict for verdict in self.verdicts if verdict.check == check), None)


def looks_at(window: int) -> list[int]:
    """Return after how many rows is looked, up to the whole window.

    Example:
        >>> looks_at(1_500)
        [100, 200, 500, 1000, 1500]
    """
    found, scale = [], 1
    while STEPS[0] * scale < window:
        found += [step * scale for step in STEPS if step * scale < window]
        scale *= 10
    return [*found, window]


class Examiner:
    """Fits every Statistic that compares on one reference, once, and asks every Check about windows.

    Args:
        rows: the reference, (N, D).
        subject: what the rows are.
        level: share of healthy looks at which a check may fire, for checks that take a level.
        seed: of the permutations.
        boundary: where exceptions of statistics and checks end.
    """

    def __init__(self, rows: Tensor, subject: Subject, *, level: float, seed: int, boundary: Boundary) -> None:
        self.subject, self.boundary = subject, boundary
        self._seed, self._permutations = seed, next(count for least, count in FINE if level >= least)
        fitting = Fitting(rows=len(rows), boundary=boundary)
        fitting.update(_numbered(rows, subject))
        part = Part(subject.space.model, len(rows), subject.fingerprint)
        self._reference = fitting.reference(subject.space, [part], role=subject.role)
        self._plain, self._paired = (
            [kind for kind in registered(Statistic).values() if _is_plain(kind) and kind.consumes == consumes]
            for consumes in ("vectors", "pairs")
        )
        compared = {metric.name for each in self._reference.calibrating.values() for metric in each.metrics}
        delivered = compared | {metric.name for kind in (*self._plain, *self._paired) for metric in kind.metrics}
        checks = [
            kind
            for kind in registered(Check).values()
            if kind.reads and delivered.issuperset(kind.reads) and (not kind.roles or subject.role in kind.roles)
        ]
        wanted = {name for kind in checks for name in (*kind.reads, *kind.weighs)}
        self._plain, self._paired = (
            [kind for kind in kinds if wanted & {metric.name for metric in kind.metrics}]
            for kinds in (self._plain, self._paired)
        )
        self._level = level
        self._judge = Judge([_made(kind, level) for kind in checks], boundary=boundary)
        levelled = [kind for kind in checks if "level" in signature(kind).parameters]
        self._lenient = Judge([_made(kind, max(NEAR, level)) for kind in levelled], boundary=boundary)
        self.checks = tuple(kind.name for kind in checks)
        self.comparing = tuple(kind.name for kind in checks if compared.intersection(kind.reads))
        """Names of the checks that look at the reference."""
        paired = {metric.name for kind in self._paired for metric in kind.metrics}
        self.pairing = tuple(kind.name for kind in checks if paired.intersection(kind.reads))
        """Names of the checks that compare items with themselves."""

    def looks(
        self,
        rows: Tensor,
        before: Tensor | None,
        sizes: Sequence[int],
        *,
        enough: Callable[[Look], bool] = lambda look: False,
    ) -> Iterator[Look]:
        """Yield what the checks say of the first rows, of more and more of them.

        Args:
            rows: of the window, (N, D).
            before: the same items as they should be, (N, D), of which the first are canaries; `None` where rows are of
                other items.
            sizes: after how many rows is looked.
            enough: whether nothing more is to be found than a name: after that only the whole window is looked at.
        """
        compared = self._compared({})
        permuted, plain, paired = (
            Window(statistics, boundary=self.boundary)
            for statistics in (
                [statistic for statistic in compared if _permutes(statistic)],
                [*(statistic for statistic in compared if not _permutes(statistic)), *_empty(self._plain)],
                _empty(self._paired),
            )
        )
        numbers, seen, canaries = torch.arange(len(rows)), 0, 0
        told: tuple[Measurement, ...] = ()
        look = Look(0, (), self._level)
        done = False
        for size in sizes:
            if done and size != sizes[-1]:
                continue
            part = slice(seen, min(size, len(rows)))
            if seen < len(rows):
                batch = VectorBatch(rows[part], numbers[part], source=self.subject.space.model)
                permuted.update(batch)
                plain.update(batch)
            if before is not None and self._paired and canaries < CANARIES:
                some = slice(canaries, min(size, CANARIES, len(rows)))
                paired.update(PairBatch(before[some], rows[some], numbers[some], source=self.subject.space.model))
                canaries, told = some.stop, tuple(paired.measurements())
            seen = size
            look = self._judged(permuted, plain, told, asked=not look.noticed)
            done = done or enough(look)
            yield look

    def _judged(self, permuted: Window, plain: Window, told: Sequence[Measurement], *, asked: bool) -> Look:
        """Return what the checks say in the cheapest stage that settles it.

        Regions, the dearest family, are not asked where another family is sure without them; and many
        permutations only where an alarm is near, or a p-value is `asked` for.
        """
        snapshot = self._worth(plain).snapshot(
            self.subject.space, fingerprint=self.subject.fingerprint, role=self.subject.role
        )
        same = (*snapshot.measurements, *told)
        look = Look(plain.rows, (), self._level)
        for local in (False, True):
            quick = replace(snapshot, measurements=(*self._measured(permuted, QUICK, local), *same))
            look = self._look(quick)
            if not any(value is not None and value <= NEAR for value in look.p_values):
                continue
            if not asked and not any(verdict.status in FIRED for verdict in self._lenient.judge(quick)):
                continue  # sizes do not depend on permutations
            finer = self._measured(permuted, self._permutations, local)
            look = self._look(replace(snapshot, measurements=(*finer, *same)))
            if set(self.comparing) & set(look.sure) & set(look.fired):
                return look
        return look

    def _look(self, snapshot: Snapshot) -> Look:
        """Return what the checks say of a Snapshot."""
        namer = next((check for check in self._judge.checks if isinstance(check, WhatChanged)), None)
        named = None if namer is None or not namer.applies(snapshot) else namer.named(snapshot)
        verdicts = tuple(self._judge.judge(snapshot))
        return Look(snapshot.provenance.rows, verdicts, self._level, "" if named in NAMELESS else named or "")

    def _measured(self, permuted: Window, permutations: int, local: bool) -> list[Measurement]:  # noqa: FBT001
        """Return what the statistics that permute say: the same states, with so many permutations.

        Without regions the p-value is that which all families would give if those told nothing.
        """
        settings = {"permutations": permutations, "local": local}
        statistics = [statistic for statistic in self._compared(settings) if _permutes(statistic)]
        found = Window(statistics, boundary=self.boundary)
        for name, statistic in found.statistics.items():
            statistic.load_state_dict(permuted.statistics[name].state_dict())
        measured = _seen(found, permuted).measurements()
        return measured if local else [_without_local(each) for each in measured]

    def _worth(self, plain: Window) -> Window:
        """Return the window without what no check asks with so few rows: a spectrum of few rows is dear."""
        provenance = Provenance(time=0.0, rows=plain.rows, dimension=plain.dimension, role=self.subject.role)
        bare = Snapshot(self.subject.space, (), provenance)
        asked = [
            check
            for check in self._judge.checks
            if not (isinstance(check, ThresholdCheck) and plain.rows < check.minimum_rows(bare))
        ]
        wanted = {name for check in asked for name in (*check.reads, *check.weighs)}
        kept = [each for each in plain.statistics.values() if wanted & {metric.name for metric in each.metrics}]
        return _seen(Window(kept, boundary=self.boundary), plain)

    def _compared(self, settings: Mapping[str, Any]) -> list[AnyStatistic]:
        """Return empty statistics that compare with the reference, with those of the settings that each takes."""
        wanted = {"seed": self._seed, **settings}
        taken = {
            name: {key: value for key, value in wanted.items() if key in each.settings()}
            for name, each in self._reference.calibrating.items()
        }
        return list(self._reference.statistics(settings=taken))


def _seen(window: Window, other: Window) -> Window:
    """Return the window as one that saw the rows of the other."""
    window.rows, window.dimension, window.failed = other.rows, other.dimension, set(other.failed)
    return window


def _without_local(measurement: Measurement) -> Measurement:
    """Return the p-value of all families, were regions one of them with a p-value of 1."""
    if measurement.name != P_VALUE or measurement.number is None:
        return measurement
    whole = sum(WEIGHTS.values())
    return measurement.metric.measure(min(1.0, measurement.number * whole / (whole - WEIGHTS[LOCAL])))


def _permutes(statistic: AnyStatistic) -> bool:
    return "permutations" in statistic.settings()


def _empty(kinds: Sequence[type[AnyStatistic]]) -> list[AnyStatistic]:
    return [kind() for kind in kinds]


def _is_plain(kind: type[AnyStatistic]) -> bool:
    return not (kind.needs_reference or kind.needs_labels)


def _made(kind: type[Check], level: float) -> Check:
    """Return a check, at this level if it takes one."""
    return kind(level=level) if "level" in signature(kind).parameters else kind()  # type: ignore[call-arg]


def _numbered(rows: Tensor, subject: Subject) -> VectorBatch:
    return VectorBatch(rows, torch.arange(len(rows)), source=f"{subject.space.model} before")
