"""Recordings for tests: written by the real sink, from real statistics of small random rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.checks.collapse import Collapse
from embedwatch.checks.nonfinite_rows import NonfiniteRows
from embedwatch.core import Metric, Provenance, Snapshot, Space
from embedwatch.judging import Judge
from embedwatch.recording import RECORDING_FILE
from embedwatch.sinks.jsonl import JsonLines
from embedwatch.stats.mean_cosine import MeanCosine
from embedwatch.stats.norms import Norms
from embedwatch.stats.validity import Validity
from embedwatch.window import Window

ROWS, DIMENSION = 40, 8
TABLE = Space("tiny", "token_table")
LOSS = Metric("loss", "Loss of the window.")
JUDGE = Judge([Collapse(), NonfiniteRows()])


def healthy(step: int) -> Tensor:
    """Rows that differ with the step."""
    return torch.randn(ROWS, DIMENSION, generator=torch.Generator().manual_seed(step))


def collapsed(step: int) -> Tensor:
    """Rows that nearly all point the same way."""
    return healthy(step) + 100


def broken(step: int) -> Tensor:
    """Rows of which one holds a NaN."""
    rows = healthy(step)
    rows[step % ROWS, 0] = float("nan")
    return rows


def measured(step: int, rows: Tensor, space: Space = TABLE) -> Snapshot:
    """What a window of these rows measures, closed a minute a step after the epoch."""
    window = Window([Norms(), MeanCosine(), Validity()], started=0.0)
    window.update(VectorBatch(rows))
    window.close(60.0 * step)
    return window.snapshot(space, step=step, coverage={"places_expected": 2, "places_seen": 1})


def record(
    run: Path,
    steps: Iterable[int],
    rows: Callable[[int], Tensor] = healthy,
    *,
    space: Space = TABLE,
) -> list[Snapshot]:
    """Append windows to the recording of a run, and return what was written."""
    run.mkdir(exist_ok=True)
    written = []
    with JsonLines(run / RECORDING_FILE) as sink:
        for step in steps:
            snapshot = measured(step, rows(step), space)
            sink.write(snapshot, JUDGE.judge(snapshot))
            written.append(snapshot)
    return written


def scalar(step: int | None, value: float | None, space: Space = TABLE, *, time: float = 0.0) -> Snapshot:
    """One number at a step: as small as a Snapshot gets."""
    return Snapshot(space, (LOSS.measure(value),), Provenance(time=time, rows=1, step=step))


def record_scalars(run: Path, snapshots: Iterable[Snapshot]) -> Path:
    """Append small Snapshots to the recording of a run, and return the file."""
    run.mkdir(exist_ok=True)
    file = run / RECORDING_FILE
    with JsonLines(file) as sink:
        for snapshot in snapshots:
            sink.write(snapshot, [])
    return file
