"""Reference: a saved healthy state that later rows are compared with."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from embedwatch.batch import VectorBatch
from embedwatch.core.boundary import Boundary
from embedwatch.core.errors import InputError, MergeError
from embedwatch.core.registry import registered
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.statistic import Statistic
from embedwatch.references.kept_rows import KeptRows
from embedwatch.references.origin import Origin
from embedwatch.selection import Selection
from embedwatch.sketches import ComparedStatistic, Frozen
from embedwatch.window import Window

__all__ = ["Reference"]


@dataclass(eq=False)
class Reference:
    """What was fitted on healthy rows, what healthy rows look like under it, and a sample of them.

    Args:
        origin: where the rows come from.
        maps: by statistic, what was fitted on the first rows.
        calibrating: by statistic, the one that saw the other rows.
        whole: plain statistics of all rows.
        kept: a sample of the rows, or `None` where none may be kept.
        left_out: statistics in the file that are not registered here.
    """

    origin: Origin
    maps: Mapping[str, Frozen]
    calibrating: Mapping[str, ComparedStatistic]
    whole: Window
    kept: KeptRows | None = None
    left_out: tuple[str, ...] = ()
    _frozen: dict[str, Frozen] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits that change with anything that windows are compared with."""
        marks = {name: torch.tensor(list(bytes.fromhex(self.frozen(name).fingerprint))) for name in self.maps}
        return Frozen(marks).fingerprint

    def frozen(self, name: str) -> Frozen:
        """Return the arrays with which windows are compared, for one Statistic."""
        if name not in self._frozen:
            self._frozen[name] = self.calibrating[name].as_reference(self.origin.fitted)
        return self._frozen[name]

    def kinds(self) -> dict[str, type[ComparedStatistic]]:
        """Return the statistics that compare with it, by name."""
        return {name: type(statistic) for name, statistic in self.calibrating.items()}

    def statistics(
        self,
        *,
        only: Collection[str] | None = None,
        live: bool = False,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Iterator[ComparedStatistic]:
        """Yield an empty Statistic of each sort, for one window of rows that are compared.

        Args:
            only: names of those that are wanted; all by default.
            live: whether for a model at work, without what is dear.
            settings: by name of the Statistic, further settings of it.
        """
        for name, kind in self.kinds().items():
            if only is None or name in only:
                usual = kind.live_settings if live else {}
                yield kind(frozen=self.frozen(name), **{**usual, **(settings or {}).get(name, {})})

    def snapshot(self) -> Snapshot:
        """Return what plain statistics say of all rows."""
        return self.whole.snapshot(self.origin.space, fingerprint=self.fingerprint, role=self.origin.role)

    def check_dimension(self, dimension: int | None, label: str) -> None:
        """Refuse rows of another dimension.

        Raises:
            InputError: in one line with the reason.
        """
        if dimension is not None and dimension != self.origin.dimension:
            raise InputError(
                f"{label} must have {self.origin.dimension} dimensions like the reference, got {dimension}; "
                "vectors of two models do not compare"
            )

    def merge(self, other: Reference) -> Reference:
        """Return the reference of all rows of both: the numbers of one pass, since both have the same maps.

        Raises:
            InputError: if they cannot be of one state.
            MergeError: if their maps were fitted apart.
        """
        origin = self.origin.merged(other.origin)
        if (self.kept is None) != (other.kept is None):
            raise InputError(
                "references must both keep rows or both not, got one of each; create both with --no-rows, or neither"
            )
        maps = {
            name: arrays for name, arrays in self.maps.items() if name in other.maps or not _compared(name).maps_rows
        }
        for name, arrays in maps.items():
            if name not in other.maps or other.maps[name] != arrays:
                raise MergeError(
                    f"references must share their maps to merge, got two fits of {name}; create the second one with "
                    "--like the first"
                )
        boundary = Boundary(on_error="raise")
        calibrating = {
            name: _together(statistic, other.calibrating[name]) for name, statistic in self.calibrating.items()
        }
        whole = Window([statistic.fresh() for statistic in self.whole.statistics.values()], boundary=boundary)
        for window in (self.whole, other.whole):
            whole.merge(window)
        kept = None if self.kept is None or other.kept is None else self.kept.merged(other.kept)
        return Reference(origin, self.maps, calibrating, whole, kept, self.left_out)

    def kept_batch(self) -> VectorBatch | None:
        """Return the kept rows as a batch with their numbers."""
        if self.kept is None:
            return None
        return VectorBatch(self.kept.rows, self.kept.numbers, source=self.origin.space.model)

    def names(self, numbers: list[int]) -> list[str]:
        """Return what people call rows of the reference: their name, or source and row where there are several."""
        known = {} if self.kept is None else self.kept.names
        several = len(self.origin.parts) > 1
        found = []
        for number in numbers:
            label, place = self.origin.row_label(number)
            found.append(known.get(number) or (f"{label}:{place}" if several else str(place)))
        return found

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types: what it is made of, not the arrays."""
        return {
            "fingerprint": self.fingerprint,
            **self.origin.to_json(),
            "statistics": sorted(self.maps),
            "kept_rows": 0 if self.kept is None else len(self.kept),
            "unknown_without_rows": self.unknown_without_rows(),
            "left_out": list(self.left_out),
        }

    def unknown_without_rows(self) -> list[str]:
        """Return the measurements that need kept rows and have none."""
        if self.kept is not None:
            return []
        there = {metric.name for statistic in self.whole.statistics.values() for metric in statistic.metrics}
        plain = {metric.name for statistic in Selection.choose().statistics for metric in statistic.metrics}
        known = [name for name in registered(Statistic) if name in self.calibrating or _compared(name).maps_rows]
        return sorted((plain - there).union(*(_compared(name).row_metrics for name in known)))


def _compared(name: str) -> type[ComparedStatistic]:
    """Return what compares by this name, the plain base class where nothing does."""
    kind: type = registered(Statistic).get(name, ComparedStatistic)
    return kind if issubclass(kind, ComparedStatistic) else ComparedStatistic


def _together(one: ComparedStatistic, other: ComparedStatistic) -> ComparedStatistic:
    whole = type(one)(**one.settings())
    for each in (one, other):
        whole.merge(each)
    return whole
