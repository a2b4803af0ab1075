"""The course maker: what only and skip leave for each role of a place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from embedwatch.calibration import USUAL_BUDGET
from embedwatch.core.boundary import Boundary
from embedwatch.core.check import Check
from embedwatch.core.registry import registered
from embedwatch.core.snapshot import Space
from embedwatch.core.statistic import Statistic
from embedwatch.course import Course, Names
from embedwatch.judging import Judge
from embedwatch.references.beside import Beside, ReferenceOf, beside_of
from embedwatch.selection import Selection

__all__ = ["CourseMaker"]

KINDS = {"attention": "attention", "tokens": "tokens", "training": "steps"}
"""Role of a place to the kind of batch that its statistics are fed; else vectors."""


class CourseMaker:
    """Makes Courses of one choice of statistics and checks.

    Args:
        only, skip: what to measure and ask.
        reference_of: what the rows of a Space are compared with.
        alarms: false alarms that are accepted over time.
        compared: returns how many Spaces share them now, those that are compared with a reference.

    Raises:
        UsageError: for a name that is no statistic, measurement or check.
    """

    def __init__(
        self,
        *,
        only: Sequence[str] = (),
        skip: Sequence[str] = (),
        reference_of: ReferenceOf | None = None,
        alarms: str = USUAL_BUDGET,
        compared: Callable[[], int] = lambda: 1,
    ) -> None:
        kinds = ("vectors", *KINDS.values())
        self._selections = {kind: Selection.live(kind, only=only, skip=skip) for kind in kinds}
        self._reference_of, self._skip = reference_of, tuple(skip)
        self._alarms, self._compared = alarms, compared
        self._checks = [check for name, check in registered(Check).items() if name not in skip]

    def judge(self, boundary: Boundary) -> Judge:
        """Return what asks the checks."""
        asked = [check.over_time(alarms=self._alarms, spaces=self._compared) for check in self._checks]
        return Judge(asked, boundary=boundary)

    def make(
        self, space: Space, role: str, boundary: Boundary, *, judge: Judge | None = None, names: Names | None = None
    ) -> Course:
        """Return the Course of a Space that has nothing yet, with a judge of its own unless one is given."""
        made, asked = self._selection(role).made(boundary), partial(self.beside, space, role)
        return Course(space, role, made, judge or self.judge(boundary), boundary, names, asked)

    def beside(self, space: Space, role: str) -> Beside | None:
        """Return what the next window of a Space is compared with; `None` where nothing compares it."""
        return beside_of(self._reference_of, space, role, self._skip)

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
