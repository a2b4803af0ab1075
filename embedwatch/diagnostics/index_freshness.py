"""Whether an index holds what the present model writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from embedwatch.ann.freshness import IndexFreshness as Freshness
from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric

__all__ = ["IndexFreshness", "IndexState"]

STALE = Metric(
    "index_stale_ratio",
    "Share of sampled ids under which the index holds another vector than the present model writes.",
)
MISSING = Metric("index_missing_ratio", "Share of sampled ids that the index does not hold.", headline=False)
COSINE = Metric(
    "index_row_cosine", "Median cosine of what the index holds with what the present model writes.", headline=False
)
SAMPLED = Metric("index_sampled_rows", "Ids of the index that were compared.", "rows", headline=False)
BEHIND = Metric(
    "index_behind_seconds", "How much later the model was written than the index; below 0 if earlier.", "seconds",
    headline=False,
)  # fmt: skip


@dataclass(frozen=True)
class IndexState:
    """What is known of an index beside a model.

    Args:
        freshness: of a sample of ids; `None` where no vectors of the present model were given.
        behind: seconds from when the index was written until the model was; `None` where no model was named.
    """

    freshness: Freshness | None
    behind: float | None = None


class IndexFreshness(Diagnostic):
    """Compares vectors in an index with what the present model writes for the same ids.

    An index whose model was changed behind its back answers without any error, and wrongly.

    Range: shares 0 to 1; `None` where nothing was compared.
    """

    name = "index_freshness"
    title = "index beside the present model"
    examines = "index"
    place = "index"
    metrics = (STALE, MISSING, COSINE, SAMPLED, BEHIND)

    def examine(self, subject: IndexState) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return the shares, and the ids that differ most."""
        found = subject.freshness
        behind = BEHIND.measure(subject.behind)
        if found is None:
            return [STALE.missing(), behind], []
        measured = [
            STALE.measure(found.stale / found.found if found.found else None),
            MISSING.measure(found.missing / found.sampled if found.sampled else None),
            COSINE.measure(found.median),
            SAMPLED.measure(found.found),
            behind,
        ]
        caption = "Ids under which the index holds another vector than the present model writes, the worst first."
        return measured, [Exhibit.build("index_stale", "table", caption, ("id", "cosine"), found.worst)]

    @classmethod
    def examples(cls) -> Iterable[IndexState]:
        """Yield one that is stale in part, one without vectors of a model, one with ids that are all missing."""
        return [
            IndexState(Freshness(100, 4, 24, 0.997, ((7, 0.02),)), -3600.0),
            IndexState(None, 86_400.0),
            IndexState(Freshness(10, 10, 0, None)),
        ]
