"""Beside: one reference beside the windows of one Space: what they are compared by, and why where they are not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from embedwatch.core.snapshot import Snapshot, Space
from embedwatch.core.statistic import Statistic
from embedwatch.diagnostics.reference_age import ReferenceAge
from embedwatch.references.reference import Reference
from embedwatch.window import Window

__all__ = ["Beside", "ReferenceOf", "beside_of"]

COMPARED_ROLES = ("vectors", "table", "token", "embedding", "hidden", "pooled")
"""Roles of places whose rows are vectors of one space."""
ReferenceOf = Callable[[Space], "Reference | None"]
"""What the rows of a Space are compared with; asked each time that a window is opened."""
WITHOUT_ROWS = (
    "Not compared with the reference: part of the window came as states or numbers, or from before a restart, without "
    "its rows. Send rows, or give the reference to the Monitor that sees them."
)


@dataclass(frozen=True)
class Beside:
    """One reference beside the windows of one Space.

    Args:
        reference: what their rows are compared with.
        skip: names of statistics that are left out.
    """

    reference: Reference
    skip: Collection[str] = ()

    def statistics(self) -> list[Statistic[Any]]:
        """Return what compares the rows of one window, empty."""
        return list(self.reference.statistics(only=self.names, live=True))

    @property
    def names(self) -> list[str]:
        """Names of these statistics."""
        return [name for name, kind in self.reference.kinds().items() if kind.live and name not in self.skip]

    @property
    def metrics(self) -> list[str]:
        """Names of the measurements that comparing gives."""
        return [metric.name for name in self.names for metric in self.reference.calibrating[name].metrics]

    def fits(self, dimension: int | None) -> bool:
        """Return whether rows of this dimension can be compared."""
        return dimension in (None, self.reference.origin.dimension)

    def leave(self, window: Window) -> None:
        """Take out of a window what cannot compare its rows."""
        for name in self.names:
            window.statistics.pop(name, None)

    def completed(self, snapshot: Snapshot) -> tuple[Snapshot, Mapping[str, str]]:
        """Return a Snapshot with what is missing named as missing, and the reason by name of the measurement.

        What was measured beside another reference stays as it is: its provenance says which.
        """
        there = {measurement.name for measurement in snapshot}
        kinds = (kind for name, kind in self.reference.kinds().items() if name in self.names)
        absent = [metric for kind in kinds for metric in kind.metrics if metric.name not in there]
        mark = self.reference.fingerprint
        by = snapshot.provenance.reference or mark
        age: Sequence[Any] = ReferenceAge().examine(self.reference.origin)[0] if by == mark else ()
        found = Snapshot(
            snapshot.space,
            (*snapshot.measurements, *(metric.missing() for metric in absent), *age),
            replace(snapshot.provenance, reference=by),
        )
        why = self._why(snapshot.provenance.dimension)
        return found, {metric.name: why for metric in absent}

    def _why(self, dimension: int | None) -> str:
        if self.fits(dimension):
            return WITHOUT_ROWS
        return (
            f"The reference has {self.reference.origin.dimension} dimensions, these rows have {dimension}: vectors of "
            "two models do not compare. Create a reference of this model."
        )


def beside_of(reference_of: ReferenceOf | None, space: Space, role: str, skip: Collection[str] = ()) -> Beside | None:
    """Return what the rows of a Space are compared with; `None` where nothing compares them."""
    if reference_of is None or (role or "vectors") not in COMPARED_ROLES:
        return None
    reference = reference_of(space)
    return None if reference is None else Beside(reference, skip)
