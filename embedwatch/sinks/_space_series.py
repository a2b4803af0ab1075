"""What is exposed of one Space: its last window, its verdicts, and what its windows counted together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from embedwatch.core.boundary import Boundary
from embedwatch.core.errors import UsageError
from embedwatch.core.measurement import Histogram, Measurement
from embedwatch.core.snapshot import Snapshot, Space
from embedwatch.core.verdict import STATUSES, Verdict
from embedwatch.exposition import (
    CHECK_FAILED_TIME,
    CHECK_FAILING,
    CHECK_UNKNOWN,
    SEVERITIES,
    THRESHOLD,
    WINDOW_ROWS,
    WINDOW_TIME,
    Family,
    clash,
    family_of,
)
from embedwatch.sinks._encoding import Block, encode
from embedwatch.sinks._label_values import LabelValues
from embedwatch.sinks._series import Labels, Series, Value

__all__ = ["STAGE", "VERDICTS", "SpaceSeries"]

STAGE = "collector"
VERDICTS = "verdicts"
"""Name of the collector of all verdicts."""


class SpaceSeries:
    """Series of one Space, or of all that share its labels since theirs were folded.

    Where they share them, the first to come has the gauges and the verdicts, and all add to the counters.

    Args:
        space: the first Space.
        labels: its labels, folded.
        values: the label values of the whole exposition.
        boundary: where exceptions end.
    """

    def __init__(self, space: Space, labels: Labels, values: LabelValues, boundary: Boundary) -> None:
        self.space = space
        self.labels = labels
        self.collector = values.fold("collector", str(space))
        self.heard = -math.inf
        self.step: int | None = None
        self.whole = {self.collector: True, VERDICTS: True}
        """Collector to whether it delivered all that it should."""
        self.blocks: list[Block] = []
        self._values = values
        self._boundary = boundary
        self._window: dict[str, Series] = {}
        self._judged: dict[str, Series] = {}
        self._failed: dict[str, Series] = {}
        self._measured: dict[str, Series] = {}
        self._counted: dict[str, Series] = {}

    def expect(self, snapshot: Snapshot) -> None:
        """Begin its counters at zero, and say that no rows came yet."""
        if WINDOW_ROWS.name not in self._window:
            self._try(self.collector, _of(self._window, WINDOW_ROWS).put, self.labels, 0)
        for measurement in snapshot:
            if measurement.value is not None and measurement.metric.kind != "gauge":
                self._try(self.collector, self._begin, measurement)
        self._encode()

    def remember(self, closed: float) -> None:
        """Say when its last window closed, and nothing else of it."""
        self._try(self.collector, _of(self._window, WINDOW_TIME).renew, self.labels, closed)
        self._encode()

    def write(self, snapshot: Snapshot, verdicts: Sequence[Verdict]) -> None:
        """Take over a window: gauges and verdicts anew, counters and histograms added."""
        self.whole = {self.collector: True, VERDICTS: True}
        first = snapshot.space == self.space
        if first:
            self._window, self._judged, self._measured = {}, {}, {}
            self.step = snapshot.provenance.step
            self._try(self.collector, _of(self._window, WINDOW_ROWS).put, self.labels, snapshot.provenance.rows)
            self._try(self.collector, _of(self._window, WINDOW_TIME).put, self.labels, snapshot.provenance.time)
            for verdict in verdicts:
                self._try(VERDICTS, self._verdict, verdict, snapshot.provenance.time)
        for measurement in snapshot:
            if measurement.value is not None and (first or measurement.metric.kind != "gauge"):
                self._try(self.collector, self._measurement, measurement)
        self._encode()
        if self.whole[self.collector]:
            self._boundary.recover(STAGE, self.collector)

    def _try(self, collector: str, act: Callable[..., None], *arguments: object) -> None:
        """Do a part of a collector's work; if it fails, the rest is exposed without it."""
        done = False
        with self._boundary.guard(STAGE, collector):
            act(*arguments)
            done = True
        self.whole[collector] &= done

    def _begin(self, measurement: Measurement) -> None:
        series, labels, value = self._placed(measurement)
        if value is not None:
            series.begin(labels, value)

    def _measurement(self, measurement: Measurement) -> None:
        series, labels, value = self._placed(measurement)
        if value is not None:
            (series.put if measurement.metric.kind == "gauge" else series.add)(labels, value)

    def _placed(self, measurement: Measurement) -> tuple[Series, Labels, Value | None]:
        """Return where a measurement belongs, under which labels, and its value, `None` for what is not finite."""
        family = family_of(measurement.metric)
        if set(measurement.labels) != set(measurement.metric.labels):
            raise UsageError(
                f"{measurement.name} takes the labels {measurement.metric.labels}, got {tuple(measurement.labels)}; "
                "declare what you deliver"
            )
        own = tuple((name, self._values.fold(name, measurement.labels[name])) for name in measurement.metric.labels)
        value = measurement.value if isinstance(measurement.value, Histogram) else measurement.number
        series = _of(self._measured if family.kind == "gauge" else self._counted, family)
        return series, (*self.labels, *own), value

    def _verdict(self, verdict: Verdict, time: float) -> None:
        """Show a verdict; that it failed is remembered, for windows may be shorter than what lies between scrapes."""
        labels = (*self.labels, ("check", self._values.fold("check", verdict.check)))
        limit = verdict.evidence.limit
        grave = STATUSES.index(verdict.status)
        _of(self._judged, CHECK_UNKNOWN).put(labels, int(verdict.status == "unknown"))
        if verdict.status == "fail":
            _of(self._failed, CHECK_FAILED_TIME).renew(labels, time)
        for severity in SEVERITIES:
            severe = (*labels, ("severity", severity))
            _of(self._judged, CHECK_FAILING).put(severe, int(grave >= STATUSES.index(severity)))
            threshold = getattr(limit, severity, None)
            if threshold is not None and math.isfinite(threshold):
                _of(self._judged, THRESHOLD).put(severe, threshold)

    def _encode(self) -> None:
        self.blocks = []
        self._try(self.collector, self._fill)

    def _fill(self) -> None:
        groups = (self._window, self._judged, self._failed, self._measured, self._counted)
        self.blocks = encode(series for group in groups for series in group.values())


def _of(where: dict[str, Series], family: Family) -> Series:
    """Return the series of a family.

    Raises:
        RegistrationError: if its name has other labels here.
    """
    series = where.setdefault(family.name, Series(family))
    if series.family.labels != family.labels:
        raise clash(family, series.family)
    return series
