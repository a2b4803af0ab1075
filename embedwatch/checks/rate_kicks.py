"""The learning rate must not leap up for single steps."""

from __future__ import annotations

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class RateKicks(ThresholdCheck):
    """The learning rate does not leap to five times what it is around, twice or more in a window.

    Warm-ups, decays, warm restarts and cycles are none of this: on one side at least they are as high as their
    neighbours. One kick alone may be a step that somebody tried by hand.

    References: Loshchilov & Hutter 2017, "SGDR: stochastic gradient descent with warm restarts",
    https://arxiv.org/abs/1608.03983.
    """

    name = "rate_kicks"
    title = "kicks of the learning rate"
    metric = "learning_rate_kicks_total"
    roles = ("training",)
    limit = Limit(warn=2)
    meaning = "For single steps the learning rate is five times and more what it is before and after them."
    impact = "Each kick throws the weights off, and the steps between repair it: the loss falls slowly or not at all."
    diagnosis = (
        "Which code sets the rate at these steps: a scheduler that is stepped twice or in two places, a parameter "
        "group of another rate that is reported in turn, a rate that is set anew at each checkpoint or validation?"
    )
    mitigation = "Let one scheduler alone set the rate, step it once for each step of the optimizer."

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether there are rates enough."""
        return super().applies(snapshot) and snapshot.number(self.metric) is not None

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return how many steps it were."""
        del snapshot
        return f"At {measurement.number:,.0f} steps the learning rate leaps to five times what it is around them."
