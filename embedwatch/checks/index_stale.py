"""An index should hold what the present model writes."""

from __future__ import annotations

from typing import Any

from embedwatch.core.check import Check
from embedwatch.core.history import History
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

LEAST_ROWS = 20
HOUR = 3600.0


class IndexStale(Check):
    """The index holds what the present model writes.

    A sample of ids decides where vectors of the present model were given; else whether the model was written after the
    index, which only warns.
    """

    name = "index_stale"
    title = "index beside the present model"
    reads = ("index_stale_ratio", "index_behind_seconds")
    weighs = ("index_missing_ratio", "index_row_cosine", "index_sampled_rows")
    roles = ("index",)
    limit = Limit(warn=0.01, fail=0.1)
    exhibits = ("index_stale",)
    severity = "critical"
    meaning = "The index holds other vectors than the model writes now for the same documents."
    impact = (
        "New queries meet old vectors: a search finds the wrong things, without any error, until all is embedded again."
    )
    diagnosis = (
        "The exhibit names the ids that differ most. All of them: the model, its pooling, prefix or normalisation "
        "changed since the index was built. Some: those documents changed, or a job that embeds them stopped half way."
    )
    mitigation = (
        "Embed the documents again with the present model and build a new index; until then ask the old index with the "
        "old model, or through a map (`embedwatch align index --mode bake`)."
    )

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the share of sampled ids with another vector, or say which of the two is younger."""
        del reference, history
        share, rows = snapshot.number("index_stale_ratio"), int(snapshot.number("index_sampled_rows") or 0)
        if share is not None and rows >= LEAST_ROWS:
            cosine = snapshot.number("index_row_cosine")
            middle = "" if cosine is None else f", median cosine {cosine:.3f}"
            reason = f"{share:.1%} of {rows:,} sampled ids hold another vector{middle}."
            return Evidence(share, self.limit, rows, reason, measurement="index_stale_ratio", exhibits=self.exhibits)
        behind = snapshot.number("index_behind_seconds")
        if behind is None:
            short = f"{rows:,} sampled ids are too few, needs {LEAST_ROWS}." if share is not None else ""
            return Evidence(None, self.limit, rows, short or "No vectors of the present model were given.")
        younger = f"The model was written {behind / HOUR:,.1f} h after the index; compare a sample of ids."
        return Evidence(
            behind,
            Limit(warn=1.0),
            snapshot.provenance.rows,
            younger if behind >= 1 else "The index was written after the model.",
            measurement="index_behind_seconds",
            unit="seconds",
        )
