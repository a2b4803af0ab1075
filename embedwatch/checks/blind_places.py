"""What should be watched must be seen."""

from __future__ import annotations

from embedwatch.core.check import Check
from embedwatch.core.history import History
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit


class BlindPlaces(Check):
    """Every place that a Monitor should see was seen.

    Where looking pauses to keep to the budget, places that were not looked at yet are not judged.
    """

    name = "blind_places"
    title = "places not seen"
    reads = ("places_expected", "places_seen")
    limit = Limit(warn=1)
    exhibits = ("blind_places",)
    meaning = "Nothing was seen at places of the model that should be watched: what is silent there may be blind."
    impact = "No fault at these places can be found."
    diagnosis = (
        "The exhibit names each place with the likely cause: compiled before watching began, replaced, never called."
    )
    mitigation = (
        "Call `embedwatch.watch` before the first compiled call, or `torch.compiler.reset()` after it; or name other "
        "places."
    )

    def evaluate(self, snapshot: Snapshot, reference: object = None, history: History | None = None) -> Evidence:
        """Return how many places were not seen, and why not."""
        del reference, history
        expected, seen = snapshot.number("places_expected"), snapshot.number("places_seen")
        missing = None if expected is None or seen is None else expected - seen
        if not missing and snapshot.number("places_waiting"):
            missing = None
        return Evidence(
            missing,
            self.limit,
            snapshot.provenance.rows,
            " ".join(snapshot.provenance.notes),
            measurement="places_seen",
            unit="places",
            exhibits=self.exhibits,
        )
