"""Joining: what the ranks of one training saw in a window, put together at the first of them, as if one had seen all.

Rows travel as the states of statistics, which merge. Steps and tables are the same on all ranks, or parts of one thing:
scalars of a step become their mean, tokens that were seen are summed, rows of a table that lie apart are laid together.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from embedwatch.core.boundary import Boundary
from embedwatch.course import Course
from embedwatch.integrations.distributed import Ranks
from embedwatch.large_bytes import tensors_to_bytes
from embedwatch.observe.gradient_parts import OF_PARTS, norms_of_parts
from embedwatch.observe.tables import TableState, joined_states
from embedwatch.parcels import Parcel, open_window
from embedwatch.window import Window
from embedwatch.window_states import read_metadata, read_tensors, window_to_bytes

__all__ = ["Joining", "StepMeans"]

LENGTH = struct.Struct("<Q")
SHARE = "share"
OF_ROWS = ("norms", "drift")
OF_TOKENS = ("counts", "moved", "by")
APART = ("training", "tokens", "watching")
"""Roles of Spaces whose windows do not travel: what they are fed is put together before."""

CourseOf = Callable[[str, str, str], Course]


@dataclass
class StepMeans:
    """Scalars of steps, each as sum and number over the ranks that have it; parts of a norm as squares.

    Example:
        >>> means = StepMeans()
        >>> means.add(7, {"loss": 2.0, "lr": 0.1})
        >>> means.add(7, {"loss": 4.0, "lr": 0.1})
        >>> list(means.steps())
        [(7, {'loss': 3.0, 'lr': 0.1})]
    """

    sums: dict[int, dict[str, tuple[float, int]]] = field(default_factory=dict)

    def add(self, step: int, scalars: Mapping[str, float], number: int = 1) -> None:
        """Add scalars of a step: of one rank, or sums over several."""
        known = self.sums.setdefault(step, {})
        for name, value in scalars.items():
            total, count = known.get(name, (0.0, 0))
            known[name] = total + value, count + number

    def steps(self, ranks: int = 1) -> Iterator[tuple[int, dict[str, float]]]:
        """Yield each step with the means of its scalars, and with the norms of which all ranks gave their part."""
        for step, scalars in self.sums.items():
            parts = {name: total for name, (total, count) in scalars.items() if _is_part(name) and count == ranks}
            means = {name: total / count for name, (total, count) in scalars.items() if not _is_part(name)}
            yield step, {**means, **norms_of_parts(parts)}

    def tensors(self) -> dict[str, Tensor]:
        """Return all as four columns: step, which name, sum, number."""
        names = self.names
        entries = [
            (step, names.index(name), total, count)
            for step, scalars in self.sums.items()
            for name, (total, count) in scalars.items()
        ]
        columns = list(zip(*entries, strict=True)) or [()] * 4
        kinds = (torch.int64, torch.int64, torch.float64, torch.int64)
        return {
            f"steps.{key}": torch.tensor(column, dtype=kind, device="cpu")
            for key, column, kind in zip(("step", "name", "sum", "number"), columns, kinds, strict=True)
        }

    @property
    def names(self) -> list[str]:
        """Names of all scalars."""
        return sorted({name for scalars in self.sums.values() for name in scalars})

    def merge(self, tensors: Mapping[str, Tensor], names: Sequence[str]) -> None:
        """Add what `tensors` of another rank gave."""
        columns = [tensors[f"steps.{key}"].tolist() for key in ("step", "name", "sum", "number")]
        for step, name, total, count in zip(*columns, strict=True):
            self.add(step, {names[name]: total}, count)


class Joining:
    """Puts together what ranks saw. The first rank has it all; the others have nothing left then.

    Args:
        ranks: of the training.
        boundary: where exceptions of ours end.
    """

    def __init__(self, ranks: Ranks, boundary: Boundary) -> None:
        self.ranks, self._boundary = ranks, boundary
        self.steps = StepMeans()
        """Steps of the open window."""
        self.seen = 1
        """Ranks whose rows are in the last window."""

    def take_steps(self) -> Iterator[tuple[int, dict[str, float]]]:
        """Hand over the steps, and begin anew."""
        means, self.steps = self.steps, StepMeans()
        return means.steps(self.ranks.size)

    def join(
        self, courses: Mapping[str, Course], course_of: CourseOf, states: Sequence[TableState], step: int
    ) -> list[TableState]:
        """Bring open windows, steps and tables of all ranks to the first; return the tables there.

        A table of which rows are missing is left out. What is left of windows on other ranks than the first is nothing.

        Args:
            courses: the Spaces of this rank.
            course_of: returns the Course of a place, role and segment.
            states: the tables of this rank.
            step: of all ranks.
        """
        share = _Share(self.ranks, courses, course_of, self.steps, {state.name: [state] for state in states})
        with self._boundary.guard("ranks", "join"):
            self.ranks.combine(step, pack=share.pack, add=share.add)
        self.seen = share.seen
        if not self.ranks.first:
            self.steps = StepMeans()
            for course in courses.values():
                course.restart()
        joined = [joined_states(parts) for parts in share.tables.values()]
        whole = [state for state in joined if state.whole]
        if len(whole) < len(joined):
            for course in list(courses.values()):
                if course.role == "table":
                    course.restart()
        return whole


class _Share:
    """What one rank has, and those whose shares it has taken."""

    def __init__(
        self,
        ranks: Ranks,
        courses: Mapping[str, Course],
        course_of: CourseOf,
        steps: StepMeans,
        tables: dict[str, list[TableState]],
    ) -> None:
        self._ranks, self._courses, self._course_of = ranks, courses, course_of
        self._steps = steps
        self.tables = tables
        self.seen = 1

    def pack(self) -> bytes:
        """Return it as bytes: what describes it first, then a parcel of each window; each with its length before."""
        windows = [
            self._parcel(course).to_bytes()
            for course in list(self._courses.values())
            if course.role not in APART and course.window.rows
        ]
        return b"".join(LENGTH.pack(len(part)) + part for part in (self._described(), *windows))

    def _described(self) -> bytes:
        tensors, tables = self._steps.tensors(), []
        for number, parts in enumerate(self.tables.values()):
            state = joined_states(parts)
            tables.append({"name": state.name, "first": state.first})
            for name in OF_TOKENS if state.whole else (*OF_TOKENS, *OF_ROWS):  # copies are the same on all ranks
                tensors[f"tables.{number}.{name}"] = getattr(state, name).contiguous()
        about = {"seen": self.seen, "scalars": self._steps.names, "tables": tables}
        return tensors_to_bytes(tensors, {SHARE: json.dumps(about)})

    def _parcel(self, course: Course) -> Parcel:
        window, space = course.window, replace(course.space, model="")  # ranks may have counted models differently
        sender, payload = f"rank-{self._ranks.rank}", window_to_bytes(window)
        about = course.role, "state", window.rows, window.dimension, sender, 0, window.started
        return Parcel(space, *about, payload=payload)  # type: ignore[arg-type]

    def add(self, data: bytes) -> None:
        """Add the share of another rank."""
        described, *parcels = _parts(data)
        about, tensors = read_metadata(described, SHARE), read_tensors(described)
        for part in parcels:
            parcel = Parcel.from_bytes(part)
            other = open_window(parcel)
            course = self._course_of(parcel.space.place, parcel.role, parcel.space.segment)
            _even_out(course.window, other)
            course.window.merge(other)
        self._steps.merge(tensors, about["scalars"])
        for number, table in enumerate(about["tables"]):
            self._add_table(table, {name: tensors.get(f"tables.{number}.{name}") for name in (*OF_TOKENS, *OF_ROWS)})
        self.seen += about["seen"]

    def _add_table(self, about: Mapping[str, object], tensors: Mapping[str, Tensor | None]) -> None:
        parts = self.tables.get(str(about["name"]), [])
        if parts:
            given = {name: torch.zeros(0, device="cpu") if value is None else value for name, value in tensors.items()}
            parts.append(TableState(str(about["name"]), parts[0].decay, first=int(str(about["first"])), **given))


def _is_part(name: str) -> bool:
    return name.endswith(OF_PARTS)


def _even_out(window: Window, other: Window) -> None:
    """Let both have the same statistics: those whose settings do not travel have seen the rows of one rank only."""
    for name, statistic in window.statistics.items():
        other.statistics.setdefault(name, statistic.fresh())
    for name in set(other.statistics) - set(window.statistics):
        del other.statistics[name]


def _parts(data: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        (length,) = LENGTH.unpack_from(data, start)
        start += LENGTH.size
        yield data[start : start + length]
        start += length
