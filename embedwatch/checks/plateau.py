"""A loss that is still high must go on falling."""

from __future__ import annotations

from typing import Any

from embedwatch.core.course_check import CourseCheck
from embedwatch.core.history import History, Points, course_of
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.trend import Trend
from embedwatch.core.verdict import Evidence, Limit

LOSS, RATE, CHANCE = "loss_mean", "learning_rate", "chance_loss"
FEWEST_WINDOWS = 12
FEWEST_LATE = 5
"""So many windows of the last third a trend needs."""
LEARNED = 0.5
"""A loss below this share of a blind guess's has learned from context: what is known of single tokens alone leaves 0.55
to 0.9 of it, in bytes of text as in 50,000 tokens."""
COOLED = 0.25
"""Below this share of the largest learning rate so far the loss is meant to settle."""
WARMING = 1.1
"""A rate that grows by so much in the last third is warming up."""


class Plateau(CourseCheck):
    """The loss falls, unless it has come far below a blind guess or the learning rate has come down.

    A line through the last third of the windows says how much was gained there: judged is the most that it may have
    been, the end of a confidence interval, over the loss. Nothing can be wrong where the loss is below half of ln V,
    where the learning rate is below a quarter of its largest or still warms up, or where it is not known what a blind
    guess costs: a converged model stands still too. Small healthy models gain 6 % at least there; one whose targets
    were shuffled is told after some hundred steps, when noise leaves no room for more than 3 %.
    """

    name = "plateau"
    title = "gain of the last third"
    metric = LOSS
    weighs = (RATE, CHANCE)
    limit = Limit(warn=0.03, side="below")
    meaning = "The loss stands still near what single tokens cost, at a learning rate that should move it."
    impact = "Time and energy are spent, and the model learns nothing that the context tells."
    diagnosis = (
        "Train on one batch alone: if its loss does not fall either, look at the mask, at targets shifted by one and "
        "at gradients that are cut off; if it does, do targets belong to their inputs (shuffled apart, from another "
        "file)? Then try a rate three times as high and one three times as low."
    )
    mitigation = (
        "Put inputs and targets right; change the learning rate or lengthen the warm-up; normalise before layers "
        "(pre-LayerNorm), which trains where post-LayerNorm stands still."
    )

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the most that the loss may have gained in the last third of the course, over its level."""
        del reference
        course = course_of(LOSS, snapshot, history)
        late = _last_third(course)
        if len(course) < FEWEST_WINDOWS or len(late) < FEWEST_LATE:
            return self.too_few(snapshot, len(course), FEWEST_WINDOWS)
        line, span = Trend.through(late), late[-1][0] - late[0][0]
        if line.level <= 0:
            return self.harmless(snapshot, 0.0, "The loss is not above zero, so no gain can be told in shares of it.")
        gain = max(0.0, -line.low * span / line.level)
        said = f"The loss gained at most {gain:.2%} in the last {span:,.0f} steps and is {line.level:.3g}"
        if excuse := self._excuse(snapshot, history, line.level, late[0][0]):
            return self.harmless(snapshot, gain, f"{said}; {excuse}.")
        return self.found(snapshot, gain, f"{said}, near the {snapshot.number(CHANCE):.3g} of a blind guess.")

    def _excuse(self, snapshot: Snapshot, history: History | None, level: float, since: float) -> str:
        """Return why a loss may stand still here; empty where it should not."""
        rates = course_of(RATE, snapshot, history)
        now = rates[-1][1] if rates else 0.0
        before = next((rate for step, rate in rates if step >= since), now)
        chance = snapshot.number(CHANCE)
        if rates and now < COOLED * max(rate for _, rate in rates):
            return "the learning rate has come down"
        if now > WARMING * before:
            return "the learning rate is warming up"
        if not chance:
            return "what a blind guess costs is not known"
        return f"that is {level / chance:.2f} of a blind guess" if level < LEARNED * chance else ""


def _last_third(course: Points) -> Points:
    start = course[-1][0] - (course[-1][0] - course[0][0]) / 3 if course else 0.0
    return [point for point in course if point[0] >= start]
