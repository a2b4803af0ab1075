"""How many of the true nearest neighbours an index finds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from embedwatch.ann.facts import IndexRecall as Recall
from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric

__all__ = ["IndexRecall"]

RECALL = Metric(
    "index_recall_ratio",
    "Share of the true nearest neighbours that the index finds, exact search beside its own, on sampled queries.",
    healthy="above 0.9",
)
LOW = Metric("index_recall_low_ratio", "Lower end of the 95 % interval of the index recall.", headline=False)
HIGH = Metric("index_recall_high_ratio", "Upper end of the 95 % interval of the index recall.", headline=False)
WORST = Metric("index_recall_worst_ratio", "The same share for the query that fares worst.", headline=False)
QUERIES = Metric("index_recall_queries", "Queries on which the index recall rests.", "queries", headline=False)


class IndexRecall(Diagnostic):
    """Asks an index for the neighbours of sampled queries, and looks through all its vectors too.

    `|answers and truth| / k`, k = 10, a mean over queries with Wilson's interval, as many trials as the spread over
    queries allows. What a quantiser lost is in the truth as well: the share tells what lists and graph miss.

    Range: 0 to 1; `None` for an index without two vectors.
    """

    name = "index_recall"
    title = "neighbours that the index finds"
    examines = "index"
    place = "index"
    metrics = (RECALL, LOW, HIGH, WORST, QUERIES)

    def examine(self, subject: Recall) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return what was found."""
        width = None if subject.low is None or subject.high is None else (subject.high - subject.low) / 2
        return [
            RECALL.measure(subject.value, error=width),
            LOW.measure(subject.low),
            HIGH.measure(subject.high),
            WORST.measure(subject.worst),
            QUERIES.measure(subject.queries),
        ], []

    @classmethod
    def examples(cls) -> Iterable[Recall]:
        """Yield one that finds nearly all, and one that could not be asked."""
        return [Recall(0.97, 0.95, 0.98, 200, 10, 5000, 0.6), Recall(None, None, None, 0, 10, 0)]
