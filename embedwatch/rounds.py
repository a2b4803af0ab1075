"""Rounds: what is done after a step, at the end of a window, and when nothing happens. On the model's own threads."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from embedwatch.core.boundary import Boundary
from embedwatch.courses import Courses
from embedwatch.diagnostics.watching import Watched
from embedwatch.evaluator import Evaluator
from embedwatch.observe.anatomy import lies_in_parts, weight_of
from embedwatch.observe.arrival import Arriving, arriving
from embedwatch.observe.attachment import Attachment
from embedwatch.observe.attention.site import AttentionSite
from embedwatch.observe.budget import Budget
from embedwatch.observe.gradient_parts import squares_of_parts
from embedwatch.observe.gradients import gradient_norms
from embedwatch.observe.modes import outside_modes
from embedwatch.observe.observer import Observer
from embedwatch.observe.optimizers import OptimizerWatch
from embedwatch.observe.pulse import Pulse, Ticker
from embedwatch.observe.resting import beside_work

__all__ = ["Rounds", "Scalar"]

PATIENT_SECONDS = 10.0
"""Rows do not wait longer for more of them."""
STEPS_AT_ONCE = 32
"""Scalars of so many steps are handed to the evaluator together."""
CHUNK_LOOKS = 4
"""The evaluator gets the rows of so many looks at once: many small updates cost more than one."""
SERVING_SECONDS = 60.0
"""Outside training a window is open for at least so long."""
ASK_AGAIN = 1.0
"""Seconds of the model's work after which a pause is looked at again."""
ACCUMULATED = 64
"""So many forward passes with gradients may make one step of an optimizer."""
IDLE_SECONDS = 60.0
"""Outside training a window that holds anything is closed after so long without a step."""

Scalar = float | int | Tensor | Arriving


class Rounds:
    """Carries what hooks have seen to the evaluator, closes windows in time, and keeps to the budget.

    Args:
        attachment: hooks on the model.
        courses: what the evaluator does with rows.
        pulse: of the Monitor; it calls `ticked`.
        boundary: where exceptions of ours end.
        window: steps after which a window is closed.
        budget: the share of the model's time that watching may take.
        together: whether windows close at the same steps as those of other ranks, and together with them.
    """

    def __init__(
        self,
        attachment: Attachment,
        courses: Courses,
        pulse: Pulse,
        boundary: Boundary,
        *,
        window: int,
        budget: float | None,
        together: bool = False,
    ) -> None:
        self.together = together
        self.attachment, self.courses, self.pulse, self.boundary = attachment, courses, pulse, boundary
        self.windows = 0
        """Windows that were closed."""
        self.budget = Budget(budget)
        self._every, self._window = pulse.every, window
        self._attention_every = pulse.attention_every
        self._lock = threading.RLock()
        self._steps: list[tuple[int, dict[str, Scalar]]] = []
        self._given: dict[str, Scalar] = {}
        self._looked = True
        self._full = False
        self._seconds = 0.0
        self._began = time.perf_counter()
        self._closed_step, self._closed_at = pulse.step, time.monotonic()
        self._collected_at = time.monotonic()
        self._optimized = self._moved = False
        self._spoken = self._stepped = 0  # steps that somebody spoke of, and those of them with one of the optimizer
        self._trained = False  # whether the last step was one of a training
        self._zero: dict[str, float] = {"ours": 0.0, "busy": 0.0}
        self._affordable_at = 0.0
        self.optimizers = OptimizerWatch(
            attachment.model,
            self._optimizer_stepped,
            table=lambda: None if attachment.table is None else weight_of(attachment.table.module),
        )
        pulse.ended = lambda: self.optimizers.gone
        self.evaluator = Evaluator(boundary, idle=_weakly(self._idle))
        weakref.finalize(self, self.evaluator.stop).atexit = False

    def _optimizer_stepped(self) -> None:
        self._optimized = self._moved = True
        if self.pulse.armed:
            with outside_modes(), self.boundary.guard("monitor", "gradients", recovers=True):
                self._measure_gradients()
        self.tick("optimizer")

    def _measure_gradients(self) -> None:
        """Take the norms of gradients as they were when the optimizer took them."""
        began = time.thread_time()
        table, held = self.attachment.table, self.optimizers.parameters
        weight = None if table is None else table.module.weight
        norms = gradient_norms(held, weight) or (squares_of_parts(held, weight) if self.together else {})
        self.pulse.scalars |= {name: arriving(norm) for name, norm in norms.items()}
        self._seconds += time.thread_time() - began

    def tick(self, ticker: Ticker, step: int | None = None, scalars: dict[str, Scalar] | None = None) -> None:
        """End a step, if nobody overrules who says so."""
        if self.pulse.off:
            return
        with self._lock, self.boundary.guard("monitor", "tick", recovers=True):
            if scalars is not None:
                self._given = scalars
            self.pulse.tick(ticker, step)

    def ticked(self) -> None:
        """Take note of a step that is over."""
        with self._lock:
            if self.pulse.training:
                self._record_step()
            due = self._changed() or self._is_due()
            over = self.pulse.paused and self.pulse.busy >= self._affordable_at
            if self._looked or due or over:  # most steps are neither: nothing was seen
                self._handle(due=due)
            self._looked = self.pulse.armed

    def _record_step(self) -> None:
        scalars, self._given = self._given, {}
        seen, self.pulse.scalars = self.pulse.scalars, {}
        scalars = {**seen, **scalars}  # who says it himself knows it better
        if self._is_skipped():
            scalars.setdefault("skipped", 1.0)
        rate = self.optimizers.rate
        if rate is not None:
            scalars.setdefault("lr", rate)
        chance = self.courses.chance
        if chance is not None and self._predicts_tokens():
            scalars.setdefault("chance_loss", chance)
        if self._steps and self._steps[-1][0] == self.pulse.step:
            self._steps[-1][1].update(scalars)  # who overrules the others has spoken of the same step
        elif scalars:
            self._steps.append((self.pulse.step, scalars))
        if len(self._steps) > STEPS_AT_ONCE:  # the last one may be spoken of again
            self.evaluator.put(partial(self.courses.take_steps, self._steps[:-1]))
            self._steps = self._steps[-1:]

    def _is_skipped(self) -> bool:
        """Return whether a step ended without one of the optimizer, as where a scaler of gradients met infinity.

        Who speaks of each part of an accumulated batch as a step has none in most of them: there nothing is skipped.
        """
        moved, self._moved = self._moved, False
        if self.pulse.ticker != "manual" or self.optimizers.optimizer is None:
            return False
        self._spoken, self._stepped = self._spoken + 1, self._stepped + moved
        return not moved and 2 * self._stepped > self._spoken

    def _predicts_tokens(self) -> bool:
        """Return whether the model puts out one number for each token: then a blind guess loses ln V."""
        table = self.attachment.table
        return table is not None and self.pulse.width == len(table.counts)

    def _changed(self) -> bool:
        """Return whether a training has ended and the model serves: what it learned with is judged by itself."""
        before, self._trained = self._trained, self.pulse.training
        if before != self._trained:  # the model's time is not counted as before: begin anew
            self._zero = self._totals_spent()
        return before and not self._trained

    def _is_due(self) -> bool:
        self._closed_step = min(self._closed_step, self.pulse.step)  # steps may be counted anew
        steps = self.pulse.step - self._closed_step
        if not self.windows:
            return steps > self._first_window()
        if self.courses.urgent and steps > 0 and not self.together:  # ranks would not agree about it
            return True
        seconds = time.monotonic() - self._closed_at
        enough = self.pulse.training or seconds >= SERVING_SECONDS * self.budget.window_stretch
        return steps >= self.window and enough

    @property
    def window(self) -> int:
        """Steps after which a window is closed now."""
        return self._window * self.budget.window_stretch

    def _first_window(self) -> int:
        """Return how many steps go by before health at the start is judged: who counts them may not have spoken yet."""
        if self.pulse.ticker == "forward":
            return ACCUMULATED if self.pulse.grad else 0
        return 1 if self.pulse.ticker == "optimizer" else 0

    def _handle(self, *, due: bool) -> None:
        """Hand on what a step has shown, and close the window where it is time."""
        began = time.thread_time()
        with self._lock, outside_modes(), self.boundary.guard("monitor", "tick", recovers=True):
            if self.pulse.training:
                self._compare_tables()
            patient = time.monotonic() - self._collected_at < PATIENT_SECONDS
            self._collect(CHUNK_LOOKS if patient else 0)
            if due:
                self.close_windows()
                self._adapt()
            if not self.pulse.training:
                spent = self._spent()
                until = self.budget.affordable_at(spent["ours"])
                self.pulse.rest(paused=spent["busy"] < until)
                # to ask at each step would cost more than looks do; what the start took may yet prove to be none of it
                self._affordable_at = self._zero["busy"] + min(until, spent["busy"] + ASK_AGAIN)
        self._seconds += time.thread_time() - began

    def _compare_tables(self) -> None:
        """Compare tables with what they were before the step, if an optimizer has stepped, where one is known."""
        stepped, self._optimized = self._optimized, False
        for table in self.attachment.tables:
            if (stepped and self._has_moved(table.module)) or self.optimizers.optimizer is None:
                table.stepped()
            else:
                table.forget()

    def _has_moved(self, module: nn.Module) -> bool:
        """Return whether the step was one of a table too: another optimizer that has a gradient for it may yet come."""
        weight = weight_of(module)
        return self.optimizers.settings(weight) is not None or getattr(weight, "grad", None) is None

    @property
    def observers(self) -> list[Observer]:
        """All of them."""
        return [*self.attachment.observers, *self.attachment.unplaced]

    @property
    def watching(self) -> list[Observer | AttentionSite]:
        """All that sees anything."""
        return [*self.observers, *self.attachment.attention.sites]

    def _collect(self, looks: int) -> None:
        """Hand rows to the evaluator, of each place where those of so many looks wait; 0: where any do."""
        if not looks:
            self._collected_at = time.monotonic()
        for observer in self.observers:
            if observer.waiting >= max(looks * observer.rows, 1):
                seen = observer.collect()
                size = sum(look.sample.rows.nbytes for look in seen)
                if not self.evaluator.put(partial(self.courses.take, observer.place, seen), size=size):
                    observer.dropped += sum(len(look.sample.rows) for look in seen)
        for site in self.attachment.attention.sites:
            if site.waiting:
                looks_at = site.collect()
                size = sum(look.rows.nbytes for look in looks_at)
                if not self.evaluator.put(partial(self.courses.take_attention, site.place, looks_at), size=size):
                    site.dropped += sum(len(look.rows.batch) for look in looks_at)

    @property
    def has_news(self) -> bool:
        """Whether anything has happened since windows were closed."""
        moved = self.pulse.step != self._closed_step or not self.windows or bool(self._steps)
        if self.together and self.pulse.training:  # ranks must not disagree about it
            return moved or (self._full and any(table.sharded for table in self.attachment.tables))
        return moved or any(each.waiting for each in self.watching)

    def close_windows(self) -> None:
        """Close the open windows, and let the evaluator measure, judge and deliver them."""
        with self._lock, outside_modes(), self.boundary.guard("monitor", "flush", recovers=True):
            self.attachment.renew()
            self._collect(0)
            self.attachment.mark()
            tables = self.attachment.tables if self.pulse.forwards else []
            states = [table.state(full=self._full, decay=self._decay(table.module.weight)) for table in tables]
            steps, self._steps = self._steps, []
            totals = self._totals()
            together = self.together and self.pulse.training  # who serves is told nothing by the others
            close = partial(
                self.courses.close_windows, states, steps, totals, self._provenance(totals), together=together
            )
            self.evaluator.put(close, extra=not self.windows)  # the first window is part of the start
            self._closed_step, self._closed_at = self.pulse.step, time.monotonic()
            self.windows += 1
            self.pulse.rested = self.pulse.paused
            self._full = False

    def _decay(self, weight: Tensor) -> float | None:
        decay = (self.optimizers.settings(weight) or {}).get("weight_decay")
        return float(decay) if isinstance(decay, (int, float)) else None

    def examine(self) -> None:
        """Let embedding tables be examined in full, and compare all of their rows with the start at the next close."""
        self._full = True
        for table in self.attachment.tables:
            with outside_modes(), self.boundary.guard("monitor", "examine", recovers=True):
                provenance = self._provenance(self._totals())
                job = partial(self.courses.examine, table.name, table.rows(), len(table.counts), provenance)
                self.evaluator.put(job, extra=True)

    def diagnose(self) -> None:
        """Let the model itself be examined without running it, unless it lies in parts on several ranks.

        Nor is a model examined beside its work that computes weights when they are read.
        """
        model = self.attachment.model
        computed = any("parametrizations" in part._modules for part in model.modules())
        if not computed and not lies_in_parts(model):
            self.evaluator.put(partial(self._diagnose, self.pulse.step), extra=True)

    def _diagnose(self, step: int) -> None:
        with beside_work():  # the evaluator does this, and the model goes on
            self.courses.diagnose(step=step)

    def _provenance(self, totals: Watched) -> dict[str, Any]:
        coverage = {"places_expected": totals.expected, "places_seen": totals.seen}
        serving = not (self.pulse.training or self.pulse.grad)
        return {"ended": time.time(), "step": self.pulse.step, "coverage": coverage, "serving": serving}

    def _totals(self) -> Watched:
        """Return how watching went since it began."""
        waiting = self.attachment.waiting()
        return Watched(
            expected=self.attachment.expected - len(waiting),
            blind=self.attachment.blind(),
            waiting=waiting,
            paused=self.pulse.rested and not self.pulse.training,
            overhead=self.budget.overhead,
            every=self.pulse.every,
            seconds=self.seconds,
            dropped=sum(each.dropped for each in self.watching),
            reattached=self.attachment.reattached,
        )

    @property
    def seconds(self) -> float:
        """Processor time of all that was done so far, on all threads."""
        seeing = sum(each.seconds for each in self.watching) + self.pulse.seconds
        return self._seconds + seeing + self.evaluator.seconds

    def _spent(self) -> dict[str, float]:
        """Return `_totals_spent` since a training or serving began."""
        return {name: total - self._zero[name] for name, total in self._totals_spent().items()}

    def _totals_spent(self) -> dict[str, float]:
        """Return our seconds, without what the start and examinations took, and those that the model was busy."""
        busy = time.perf_counter() - self._began if self.pulse.training else self.pulse.busy
        return {"ours": self.seconds - self.evaluator.extra_seconds, "busy": busy}

    def _adapt(self) -> None:
        """Keep to the budget. The ranks of one training must stay in step, so there nothing changes."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return
        self.budget.window_over(**self._spent())
        self.pulse.every = self._every * self.budget.stretch
        if self._attention_every is not None:
            self.pulse.attention_every = self._attention_every * self.budget.stretch

    def _idle(self) -> None:
        """Close a window that nobody will: in serving, when requests have stopped, or never came."""
        waited = time.monotonic() - self._closed_at >= IDLE_SECONDS
        if waited and self.has_news and not (self.pulse.off or self.pulse.training):
            self.close_windows()


def _weakly(method: Callable[[], None]) -> Callable[[], None]:
    """Return what calls a method as long as its object lives, and does not keep it alive."""
    reference = weakref.WeakMethod(method)

    def call() -> None:
        found = reference()
        if found is not None:
            found()

    return call
