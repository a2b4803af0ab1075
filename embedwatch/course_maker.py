"""The course maker: what only and skip leave for each role of a place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from embedwatch.core.boundary import Boundary
from embedwatch.core.check import Check
from embedwatch.core.registry import registered
from embedwatch.core.snapshot import Space
from embedwatch.core.statistic import Statistic
from embedwatch.course import Course, Names
from embedwatch.judging import Judge
from embedwatch.selection import Selection

__all__ = ["CourseMaker"]

KINDS = {"attention": "attention", "tokens": "tokens", "training": "steps"}
"""Role of a place to the kind of batch that its statistics are fed; else vectors."""


class CourseMaker:
    """Makes Courses of one choice of statistics and checks.

    Args:
        only, skip: what to measure and ask.

    Raises:
        UsageError: for a name that is no statistic, measurement or check.
    """

    def __init__(self, *, only: Sequence[str] = (), skip: Sequence[str] = ()) -> None:
        kinds = ("vectors", *KINDS.values())
        self._selections = {kind: Selection.live(kind, only=only, skip=skip) for kind in kinds}
        self._checks = [check for name, check in registered(Check).items() if name not in skip]

    def judge(self, boundary: Boundary) -> Judge:
        """Return what asks the checks."""
        return Judge([check() for check in self._checks], boundary=boundary)

    def make(
        self, space: Space, role: str, boundary: Boundary, *, judge: Judge | None = None, names: Names | None = None
    ) -> Course:
        """Return the Course of a Space that has nothing yet, with a judge of its own unless one is given."""
        statistics = self._selection(role).made(boundary)
        return Course(space, role, statistics, judge or self.judge(boundary), boundary, names)

    def classes(self, role: str) -> tuple[type[Statistic[Any]], ...]:
        """Return the classes of a role's statistics."""
        return self._selection(role).statistics

    def statistics(self, role: str) -> list[Statistic[Any]]:
        """Return fresh statistics of a role."""
        return self._selection(role).made(Boundary())()

    def parts(self) -> Iterator[tuple[str, str]]:
        """Yield what may fail, by (stage, name)."""
        for selection in self._selections.values():
            for statistic in selection.statistics:
                yield from (("statistic", statistic.name), ("compute", statistic.name))
        yield from (("check", check.name) for check in self._checks)

    def _selection(self, role: str) -> Selection:
        return self._selections[KINDS.get(role, "vectors")]
