"""`embedwatch align check`: the same items in two spaces: may vectors of both meet?"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from embedwatch.align.pair_inputs import Given, Recipe, open_pair, recipe_notes
from embedwatch.checks.compatibility import TOWERS, Finding, finding_of
from embedwatch.checks.compatibility import Compatibility as CompatibilityCheck
from embedwatch.core.boundary import Boundary, OnError
from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot, Space
from embedwatch.core.verdict import STATUSES, Status, Verdict, worst
from embedwatch.diagnostics.pair_alignment import PairAlignment, PairedRows
from embedwatch.diagnostics.pair_order import PairOrder
from embedwatch.geometry.recall_curve import Foretold, foretell
from embedwatch.judging import Judge
from embedwatch.reading import Progress, silent
from embedwatch.sources.paired import Join, PairedSource
from embedwatch.stats.pair_similarity import MOST_PAIRS, PairSimilarity
from embedwatch.window import Window

__all__ = ["Compatibility", "check_pair"]

SCHEMA = 1
"""Version of the JSON that a Compatibility writes."""
LEAST_SAMPLE = 200
MOST_SAMPLE = 20_000
ORDERED = 2_000
"""Rows at the beginning whose order is looked at."""
PREDICTED = ("none", "rotation")


@dataclass(frozen=True)
class Compatibility:
    """What two spaces of the same items are to one another.

    Args:
        snapshot: all measurements.
        verdicts: whether they may meet.
        finding: what they are to one another, with what shows it and what to do.
        gallery: number of rows for which recall is foretold.
        expected: share of queries that keep the natively best item among their first 10 there, as the spaces stand
            (`none`) and with a map (`rotation`); derived beyond what was measured.
        exhibits: recall curves, neighbours by region, what a map misses, and the items that are served worst.
        seconds: that it took.
        errors: exceptions of ours that were counted: (stage, name, number).
        towers: whether both sides are towers of one model.
    """

    snapshot: Snapshot
    verdicts: tuple[Verdict, ...]
    finding: Finding
    gallery: int
    expected: dict[str, Foretold]
    exhibits: tuple[Exhibit, ...]
    seconds: float
    errors: tuple[tuple[str, str, int], ...] = ()
    towers: bool = False

    @property
    def verdict(self) -> str:
        """`identical`, `degraded`, `mismatch`, `alignable`, `weak`, `unrelated`, `mispaired` or `invalid`."""
        return self.finding.name

    @property
    def cause(self) -> str:
        """What differs where it is one model: `precision`, `pooling`, `prefix`, `truncation`, …; else empty."""
        return self.finding.cause

    @property
    def status(self) -> Status:
        """The gravest verdict; `unknown` where nothing could be judged."""
        return worst([verdict.status for verdict in self.verdicts])

    def number(self, name: str, /, **labels: str) -> float | None:
        """Return a measurement by its name without `pair_`."""
        return self.snapshot.number(f"pair_{name}", **labels)

    def counts(self) -> dict[str, int]:
        """Return the number of verdicts by status."""
        found = Counter(verdict.status for verdict in self.verdicts)
        return {status: found[status] for status in reversed(STATUSES)}

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "cause": self.cause,
            "status": self.status,
            "told": self.finding.told,
            "remedy": self.finding.remedy,
            "towers": self.towers,
            "gallery": self.gallery,
            "expected": {name: found._asdict() for name, found in self.expected.items()},
            "counts": self.counts(),
            "snapshot": self.snapshot.to_json(),
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
            "exhibits": [exhibit.to_json() for exhibit in self.exhibits],
            "errors": [{"stage": stage, "name": name, "count": count} for stage, name, count in self.errors],
            "seconds": self.seconds,
        }


def check_pair(
    left: Given,
    right: Given,
    *,
    text: str | os.PathLike[str] | None = None,
    left_pooling: str | None = None,
    right_pooling: str | None = None,
    left_prefix: str | None = None,
    right_prefix: str | None = None,
    left_select: str | None = None,
    right_select: str | None = None,
    kind: str | None = None,
    join: Join = "auto",
    pairs: int = MOST_PAIRS,
    gallery: int | None = None,
    towers: bool = False,
    progress: Progress | None = None,
    on_error: OnError = "count",
) -> Compatibility:
    """Say what two spaces of the same items are to one another, and what a map between them would keep.

    Args:
        left: a file of vectors or a Source; with `text` a model too.
        right: the same items in the other space; dimensions may differ.
        text: file with one text a line, which models encode.
        left_pooling: how the left model's token vectors become one; by default as it says.
        right_pooling: the same of the right one.
        left_prefix: stands before each text for the left model.
        right_prefix: the same for the right one.
        left_select: array, tensor or column of the left file.
        right_select: the same of the right one.
        kind: kind of both files, where it is ambiguous.
        join: `number`: row i with row i; `name`: rows of one name; `auto`: by name where both have names.
        pairs: that are searched, a sample of all; CKA is taken from all.
        gallery: number of rows for which recall is foretold; by default as many as there are pairs.
        towers: both sides are towers of one model (images and texts, queries and documents): they are judged by whether
            pairs find one another, not by whether both are one space.
        progress: shows the rows done.
        on_error: what happens to exceptions of our own statistics and checks.

    Raises:
        InputError: if a side cannot be read, or both have no item in common.
        UsageError: if an argument does not fit.

    Example:
        >>> import numpy, tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     old, new = Path(folder, "old.npy"), Path(folder, "new.npy")
        ...     rows = numpy.random.default_rng(0).normal(size=(400, 8)).astype("float32")
        ...     numpy.save(old, rows)
        ...     numpy.save(new, rows[:, ::-1])
        ...     found = check_pair(old, new)
        >>> found.verdict, found.cause, found.status
        ('alignable', 'rotation', 'fail')
    """
    if isinstance(pairs, bool) or not isinstance(pairs, int) or not LEAST_SAMPLE <= pairs <= MOST_SAMPLE:
        raise UsageError(
            f"`pairs` must be from {LEAST_SAMPLE} to {MOST_SAMPLE:,}, got {pairs!r}; {MOST_PAIRS:,} is usual"
        )
    if gallery is not None and (isinstance(gallery, bool) or gallery < 1):
        raise UsageError(f"`gallery` must be at least 1, got {gallery!r}; give the rows of your index")
    began = time.perf_counter()
    recipes = (
        Recipe(left_pooling, left_prefix, kind, left_select),
        Recipe(right_pooling, right_prefix, kind, right_select),
    )
    pair = open_pair(left, right, text=text, recipes=recipes, join=join)
    boundary = Boundary(on_error=on_error)
    statistic = PairSimilarity(most=pairs)
    window = Window([statistic], boundary=boundary)
    ordered = _read(pair, window, progress or silent)
    if not window.rows:
        raise InputError(f"{pair.label} must hold pairs, got none; give files with rows")
    extra, exhibits = _examined(statistic, ordered, boundary)
    window.close(time.time())
    snapshot = window.snapshot(
        Space(pair.label, pair.place),
        fingerprint=pair.fingerprint(),
        coverage={"rows_expected": pair.rows or window.rows, "rows_read": window.rows},
        notes=(*([TOWERS] if towers else []), *recipe_notes(pair, recipes), *pair.notes),
        role=pair.role,
    )
    snapshot = Snapshot(snapshot.space, (*snapshot.measurements, *extra), snapshot.provenance)
    verdicts = Judge([CompatibilityCheck()], boundary=boundary).judge(snapshot)
    size = window.rows if gallery is None else gallery
    shown = [*window.exhibits(), *exhibits]
    return Compatibility(
        snapshot,
        tuple(verdicts),
        finding_of(snapshot),
        size,
        expected_at(snapshot, size),
        tuple(exhibit.with_names(pair.names) for exhibit in shown),
        time.perf_counter() - began,
        tuple((stage, name, count) for (stage, name), count in boundary.errors.items()),
        towers,
    )


def _read(pair: PairedSource, window: Window, progress: Progress) -> tuple[Tensor, Tensor]:
    """Feed all pairs, and return the first ones in their order, without those that have no direction."""
    held: list[tuple[Tensor, Tensor]] = []
    kept = done = 0
    with progress(pair.label, pair.rows) as advance:
        for batch in pair.batches(pair.batch_rows):
            window.update(batch)
            if kept < ORDERED:
                held.append((batch.left[: ORDERED - kept].float(), batch.right[: ORDERED - kept].float()))
                kept += len(held[-1][0])
            done += len(batch)
            advance(done)
    if not held:
        return torch.zeros(0, 1), torch.zeros(0, 1)
    left, right = (torch.cat([part[side] for part in held]) for side in (0, 1))
    sound = left.isfinite().all(1) & right.isfinite().all(1) & (left != 0).any(1) & (right != 0).any(1)
    return left[sound], right[sound]


def _examined(
    statistic: PairSimilarity, ordered: tuple[Tensor, Tensor], boundary: Boundary
) -> tuple[list[Measurement], list[Exhibit]]:
    """Return what a map would keep, and whether pairs are pairs."""
    left, right, numbers = statistic.pairs()
    found: list[Measurement] = []
    exhibits: list[Exhibit] = []
    examined: Sequence[tuple[Any, Any]] = (
        (PairAlignment(), PairedRows(left, right, numbers)),
        (PairOrder(), ordered),
    )
    for diagnostic, subject in examined:
        if len(left) < LEAST_ROWS:
            found += [metric.missing() for metric in diagnostic.metrics]
            continue
        with boundary.guard("diagnostic", diagnostic.name):
            measured, shown = diagnostic.examine(subject)
            found += measured
            exhibits += shown
    return found, exhibits


LEAST_ROWS = 24
"""Pairs below which nothing is fitted."""


def expected_at(snapshot: Snapshot, gallery: int) -> dict[str, Foretold]:
    """Return what is kept at a gallery size, without a map and with one, from the curves that were measured."""
    found = {}
    for name in PREDICTED:
        points = sorted(
            (int(m.labels["rows"]), m.number)
            for m in snapshot
            if m.name == "pair_best_kept_ratio" and m.labels.get("map") == name and m.number is not None
        )
        sizes, shares = [size for size, _ in points], [share for _, share in points]
        asked = [int(snapshot.number("pair_asked_queries", map=name, rows=str(size)) or 0) for size in sizes]
        foretold = foretell(sizes, shares, asked, gallery)
        if foretold is not None:
            found[name] = foretold
    return found
