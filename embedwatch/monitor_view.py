"""MonitorView: what a Monitor shows of what it found, and of itself."""

from __future__ import annotations

from collections.abc import Mapping

from embedwatch.core.boundary import Boundary
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Status, Verdict, worst
from embedwatch.courses import Courses
from embedwatch.evaluator import CAPACITY
from embedwatch.observe.attachment import Attachment
from embedwatch.observe.places import Place
from embedwatch.observe.pulse import Pulse
from embedwatch.rounds import Rounds

__all__ = ["MonitorView"]


class MonitorView:
    """What a Monitor shows; asking for it computes next to nothing, and changes nothing."""

    name: str
    """Label of the model."""
    boundary: Boundary
    """Where exceptions of ours end."""
    pulse: Pulse
    detached: bool
    """Whether it has ended."""
    _attachment: Attachment
    _courses: Courses
    _rounds: Rounds

    @property
    def places(self) -> tuple[Place, ...]:
        """Where the model is watched."""
        attention = (site.place for site in self._attachment.attention.sites)
        return (*(observer.place for observer in self._attachment.observers), *attention)

    @property
    def snapshots(self) -> dict[str, Snapshot]:
        """The last Snapshot of each place."""
        return {place: judgement.snapshot for place, judgement in self._courses.judgements().items()}

    @property
    def verdicts(self) -> list[Verdict]:
        """The last verdicts of all places."""
        return [verdict for judgement in self._courses.judgements().values() for verdict in judgement.verdicts]

    @property
    def exhibits(self) -> dict[str, tuple[Exhibit, ...]]:
        """What the last findings cite, by place."""
        return {place: judgement.exhibits for place, judgement in self._courses.judgements().items()}

    @property
    def findings(self) -> list[Verdict]:
        """Those that are not well: `warn` and `fail`, the gravest first."""
        found = [verdict for verdict in self.verdicts if verdict.status in ("warn", "fail")]
        return sorted(found, key=lambda verdict: verdict.status != "fail")

    @property
    def status(self) -> Status:
        """The gravest verdict; `unknown` where nothing could be judged yet."""
        return worst([verdict.status for verdict in self.verdicts if verdict.status != "unknown"])

    @property
    def errors(self) -> dict[tuple[str, str], int]:
        """Exceptions of ours that were counted, by (stage, name)."""
        return self.boundary.errors

    @property
    def overhead(self) -> float | None:
        """Our processor time over the rest of the model's time, lately; `None` before it is known."""
        return self._rounds.budget.overhead

    @property
    def seconds(self) -> float:
        """Processor time of all that was done so far, on all threads."""
        return self._rounds.seconds

    @property
    def windows(self) -> int:
        """Windows that were closed."""
        return self._rounds.windows

    @property
    def gathering(self) -> dict[str, int]:
        """Rows that are still to come for the reference of each place."""
        return self._courses.gathered()

    def blind(self) -> Mapping[str, str]:
        """Return the places that saw nothing yet, each with the likely cause."""
        return self._attachment.blind()

    def memory(self) -> int:
        """Return the most bytes that watching holds: statistics of all places, rows that wait, what is remembered."""
        rows = sum(observer.most_bytes(self._courses.dimension) for observer in self._rounds.observers)
        tables = sum(table.memory() for table in self._attachment.tables)
        return self._courses.memory() + rows + CAPACITY + tables + self._attachment.attention.memory()

    def __repr__(self) -> str:
        unseen = len(self.blind()) + len(self._attachment.waiting())
        unseen = unseen if self.pulse.forwards else self._attachment.expected
        overhead = "" if self.overhead is None else f", {self.overhead:.2%} of its time"
        state = "detached" if self.detached else f"one step in {self.pulse.every}, windows of {self._rounds.window}"
        return (
            f"Monitor({self.name}: {self._attachment.expected - unseen} of {self._attachment.expected} places seen, "
            f"step {self.pulse.step:,}, {state}, {self.windows} judged, {self.status}{overhead})"
        )
