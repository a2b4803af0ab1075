"""Watching itself must work."""

from __future__ import annotations

from embedwatch.core.check import Check
from embedwatch.core.history import History
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

NAMED = 3
"""So many failing parts are named in the reason."""


class OwnErrors(Check):
    """No part of embedwatch raised an exception since the last window, or is switched off after many."""

    name = "own_errors"
    title = "errors of embedwatch"
    reads = ("watch_seconds_total", "parts_off")
    limit = Limit(warn=1)
    exhibits = ("parts_off",)
    meaning = "A part of embedwatch failed; the model was not touched, and the other parts went on."
    impact = "What that part would have measured, judged or delivered is missing."
    diagnosis = "The log has the traceback of the first failure of each part."
    mitigation = "Mend what the traceback names, such as a full disk; report what looks like a fault of embedwatch."

    def evaluate(self, snapshot: Snapshot, reference: object = None, history: History | None = None) -> Evidence:
        """Return the number of exceptions, and the parts they came from."""
        del reference, history
        counts = {
            " ".join(measurement.labels.values()): measurement.number or 0.0
            for measurement in snapshot
            if measurement.name == "errors_total"
        }
        failed = [f"{name} ({count:,.0f})" for name, count in counts.items() if count]
        more = f" and {len(failed) - NAMED} more" if len(failed) > NAMED else ""
        off = snapshot.number("parts_off")
        words = [f"Failed: {', '.join(failed[:NAMED])}{more}."] if failed else []
        words += [f"Off after many failures: {off:,.0f} {'part' if off == 1 else 'parts'}."] if off else []
        return Evidence(
            None if off is None else sum(counts.values()) + off,
            self.limit,
            snapshot.provenance.rows,
            " ".join(words),
            measurement="errors_total",
            unit="errors",
            exhibits=self.exhibits,
        )
