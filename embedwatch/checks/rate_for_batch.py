"""Where the size of the batch changes, the learning rate must go with it."""

from __future__ import annotations

import math
from typing import Any

from embedwatch.core.course_check import CourseCheck
from embedwatch.core.history import History, Points, course_of
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

SIZE, RATE = "batch_size", "learning_rate"
FACTOR = 1.9
"""A size that changes by less, up or down, is none that asks for another rate."""
SAME = 1.05
"""Two windows of about one size are no accident, as the last batch of an epoch is."""
WINDOWS = 5
"""So many windows long a change is news."""


class RateForBatch(CourseCheck):
    """The learning rate follows a batch that becomes twice as large, or half.

    Judged is the exponent `ln(rate / rate before) / ln(size / size before)`: 1 for SGD, whose step is a sum over
    examples, ½ for Adam, whose step is divided by the size of its gradient; 0 where the rate stayed. Asked for five
    windows after a change, if both sizes last two windows.

    References: Goyal et al. 2017, "Accurate, large minibatch SGD", https://arxiv.org/abs/1706.02677 (linear); Malladi
    et al. 2022, "On the SDEs and scaling rules for adaptive gradient algorithms", https://arxiv.org/abs/2205.10287
    (square root); Smith et al. 2018, "Don't decay the learning rate, increase the batch size",
    https://arxiv.org/abs/1711.00489.
    """

    name = "rate_for_batch"
    title = "rate against batch size"
    metric = SIZE
    weighs = (RATE,)
    limit = Limit(warn=0.2, side="below")
    meaning = "The batch has changed its size by twice or more, and the learning rate did not go with it."
    impact = (
        "A larger batch at the same rate makes fewer steps of the same length over the same data: the training slows "
        "down. A smaller one makes each step noisier, which may throw the loss up."
    )
    diagnosis = (
        "Was it meant? Growing the batch in place of lowering the rate is a schedule of its own. Else: another number "
        "of devices or of accumulated batches after a resumption, with the rate of the old configuration?"
    )
    mitigation = (
        "Scale the rate with the square root of the size (Adam), or with the size itself (SGD), with a short warm-up; "
        "or keep the size by accumulating."
    )

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the exponent of the last change; 1 where there was none lately."""
        del reference
        sizes, rates = course_of(SIZE, snapshot, history), dict(course_of(RATE, snapshot, history))
        change = _last_change(sizes)
        if not sizes:
            return self.too_few(snapshot, 0, 1)
        if change is None:
            return self.harmless(snapshot, 1.0, "The size of the batch did not change lately.")
        before, after = change
        first, second = (rates.get(step, 0.0) for step, _ in change)
        said = f"The batch went from {before[1]:,.0f} to {after[1]:,.0f}"
        if first <= 0 or second <= 0:
            return self.harmless(snapshot, 1.0, f"{said}; the learning rate is not known.")
        exponent = math.log(second / first) / math.log(after[1] / before[1])
        return self.found(snapshot, exponent, f"{said}, and the learning rate from {first:.3g} to {second:.3g}.")


def _last_change(sizes: Points) -> Points | None:
    """Return the last window of one size and the first of another, if that was lately; both sizes last two windows."""
    known = [point for point in sizes if point[1] > 0][-WINDOWS - 2 :]
    for place in range(len(known) - 2, 1, -1):
        earlier, before, after, later = known[place - 2 : place + 2]
        factor = after[1] / before[1]
        lasting = all(1 / SAME < second[1] / first[1] < SAME for first, second in ((earlier, before), (after, later)))
        if lasting and max(factor, 1 / factor) >= FACTOR:
            return [before, after]
    return None
