"""Selection: which statistics run, which measurements are shown, which checks are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from embedwatch.core.boundary import Boundary
from embedwatch.core.check import Check
from embedwatch.core.errors import UsageError, did_you_mean
from embedwatch.core.registry import registered
from embedwatch.core.statistic import Statistic

__all__ = ["Selection"]

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


def _metrics(
    names: Iterable[str], statistics: dict[str, type[AnyStatistic]], checks: dict[str, type[Check]]
) -> set[str]:
    """Return the measurements that some names stand for."""
    every = {metric.name for statistic in statistics.values() for metric in statistic.metrics}
    others = registered(Statistic).values()  # of other kinds of batches: known, and nothing here
    known = [*(o.name for o in others), *(metric.name for o in others for metric in o.metrics), *registered(Check)]
    found: set[str] = set()
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            words = f'no statistic, measurement or check "{name}";', hint, "`embedwatch list` shows all."
            raise UsageError(" ".join(filter(None, words)))
        if name in statistics:
            found |= {metric.name for metric in statistics[name].metrics}
        if name in every:
            found.add(name)
        if name in checks:
            found |= {*checks[name].reads, *checks[name].weighs}
    return found
