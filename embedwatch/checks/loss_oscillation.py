"""The loss must not swing."""

from __future__ import annotations

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class LossOscillation(ThresholdCheck):
    """The loss holds no wave that is large beside it.

    A wave counts where noise would hold one as clear once in a hundred thousand windows, and 24 steps at least were
    seen. A tenth of the loss is far more than what a healthy course has left after its trend is taken away.

    References: Cohen et al. 2021, "Gradient descent on neural networks typically occurs at the edge of stability",
    https://arxiv.org/abs/2103.00065
    """

    name = "loss_oscillation"
    title = "wave in the loss"
    metric = "loss_wave_ratio"
    weighs = ("loss_wave_period",)
    roles = ("training",)
    limit = Limit(warn=0.1, fail=0.5)
    exhibits = ("loss_course",)
    meaning = "The loss swings in a regular rhythm, by a large part of itself."
    impact = (
        "Steps undo one another: most of the way is lost, and the model that is saved depends on where in the swing."
    )
    diagnosis = (
        "A period of two steps is a learning rate beyond what the curvature allows. A longer one: does it follow the "
        "learning rate (a schedule in cycles), the order of the data (files of different kinds in turn), or the number "
        "of steps of an epoch? Plot loss and rate over each other."
    )
    mitigation = (
        "Lower the learning rate, or the height of its cycles; shuffle the data across files; use larger batches."
    )

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether there are steps enough to see a wave."""
        return super().applies(snapshot) and snapshot.number(self.metric) is not None

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return height and period."""
        period = snapshot.number("loss_wave_period")
        if period is None:
            return "No wave stands out from the noise of the loss."
        return f"The loss swings by {measurement.number:.0%} of itself, once in {period:.3g} steps."
