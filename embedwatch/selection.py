"""Selection: which statistics run, which measurements are shown, which checks are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from embedwatch.core.boundary import Boundary
from embedwatch.core.check import Check
from embedwatch.core.diagnostic import SUBJECT, Diagnostic
from embedwatch.core.errors import UsageError, did_you_mean
from embedwatch.core.registry import registered
from embedwatch.core.statistic import Statistic

__all__ = ["DiagnosticSelection", "NothingLeft", "Selection"]

AnyStatistic = Statistic[Any]


class NothingLeft(UsageError):
    """Nothing is left to measure."""


@dataclass(frozen=True)
class Selection:
    """What `only` and `skip` leave: both take names of statistics, of single measurements and of checks.

    Args:
        statistics: classes to run.
        metrics: names of the measurements to show.
        checks: classes to ask.
    """

    statistics: tuple[type[AnyStatistic], ...]
    metrics: frozenset[str]
    checks: tuple[type[Check], ...]

    @classmethod
    def choose(
        cls, *, only: Sequence[str] = (), skip: Sequence[str] = (), consumes: str = "vectors", labelled: bool = False
    ) -> Selection:
        """Choose among everything registered.

        Args:
            only: keep these; a check keeps what it reads, a measurement the statistic that delivers it.
            skip: leave these out.
            consumes: what the statistics are fed.
            labelled: whether rows have groups; without, statistics about groups are left out.

        Raises:
            UsageError: for a name that is no statistic, measurement or check, or if nothing is left.
        """
        statistics: dict[str, type[AnyStatistic]] = {
            name: statistic
            for name, statistic in registered(Statistic).items()
            if statistic.consumes == consumes and not statistic.needs_reference
        }
        checks = registered(Check)
        wanted = _metrics(only, statistics, checks) if only else _metrics(statistics, statistics, checks)
        unwanted = _metrics(skip, statistics, {name: check for name, check in checks.items() if name not in skip})
        shown = frozenset(wanted - unwanted)
        running = [
            statistic
            for statistic in statistics.values()
            if shown & {metric.name for metric in statistic.metrics} and (labelled or not statistic.needs_labels)
        ]
        if not running:
            reason = " about labelled groups, which need labels" if shown and not labelled else ""
            raise NothingLeft(f"`only` and `skip` leave nothing to measure{reason}; name something else")
        asked = [check for name, check in checks.items() if name not in skip and shown.issuperset(check.reads)]
        return cls(tuple(running), shown, tuple(asked))

    @classmethod
    def live(cls, consumes: str, *, only: Sequence[str] = (), skip: Sequence[str] = ()) -> Selection:
        """Choose for a model at work: what is not meant for it runs only if it is named; nothing may be left."""
        try:
            chosen = cls.choose(only=only, skip=skip, consumes=consumes)
        except NothingLeft:
            return cls((), frozenset(), ())
        named = [statistic for statistic in chosen.statistics if statistic.live or only]
        return replace(chosen, statistics=tuple(named))

    def made(self, boundary: Boundary) -> Callable[[], list[AnyStatistic]]:
        """Return a function that makes fresh statistics; one that cannot be made is counted and left out."""

        def make() -> list[AnyStatistic]:
            found = []
            for statistic in self.statistics:
                with boundary.guard("statistic", statistic.name):
                    found.append(statistic())
            return found

        return make


@dataclass(frozen=True)
class DiagnosticSelection:
    """What `only` and `skip` leave of the diagnostics of models; they may name those of statistics as well.

    Args:
        diagnostics: classes to ask.
        metrics: names of the measurements to show.
        checks: classes to ask of what they measure.
    """

    diagnostics: tuple[type[Diagnostic], ...]
    metrics: frozenset[str]
    checks: tuple[type[Check], ...]

    @classmethod
    def choose(
        cls, *, only: Sequence[str] = (), skip: Sequence[str] = (), examines: str = SUBJECT
    ) -> DiagnosticSelection:
        """Choose among everything registered that examines the same; nothing may be left.

        Raises:
            UsageError: for a name that is no statistic, diagnostic, measurement or check.
        """
        diagnostics = {name: one for name, one in registered(Diagnostic).items() if one.examines == examines}
        checks = registered(Check)
        wanted = _metrics(only or diagnostics, diagnostics, checks)
        unwanted = _metrics(skip, diagnostics, {name: check for name, check in checks.items() if name not in skip})
        every = {metric.name for diagnostic in diagnostics.values() for metric in diagnostic.metrics}
        shown = frozenset((wanted - unwanted) & every)
        asked = [one for one in diagnostics.values() if shown.intersection(metric.name for metric in one.metrics)]
        of_models = [check for name, check in checks.items() if name not in skip and shown.issuperset(check.reads)]
        return cls(tuple(asked), shown, tuple(check for check in of_models if check.reads))


def _metrics(
    names: Iterable[str], measuring: Mapping[str, type[AnyStatistic] | type[Diagnostic]], checks: dict[str, type[Check]]
) -> set[str]:
    """Return the measurements that some names stand for."""
    every = {metric.name for one in measuring.values() for metric in one.metrics}
    others: list[type[AnyStatistic] | type[Diagnostic]] = []  # known, and nothing here
    others += [*registered(Statistic).values(), *registered(Diagnostic).values()]
    known = [*(o.name for o in others), *(metric.name for o in others for metric in o.metrics), *registered(Check)]
    found: set[str] = set()
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            words = f'no statistic, diagnostic, measurement or check "{name}";', hint, "`embedwatch list` shows all."
            raise UsageError(" ".join(filter(None, words)))
        if name in measuring:
            found |= {metric.name for metric in measuring[name].metrics}
        if name in every:
            found.add(name)
        if name in checks:
            found |= {*checks[name].reads, *checks[name].weighs}
    return found
