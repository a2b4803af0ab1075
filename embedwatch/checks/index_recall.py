"""An index should find the nearest neighbours."""

from __future__ import annotations

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit

LEAST_QUERIES = 50


class IndexRecall(ThresholdCheck):
    """The index finds most of the true nearest neighbours."""

    name = "index_recall"
    title = "recall of the index"
    metric = "index_recall_ratio"
    weighs = ("index_recall_low_ratio", "index_recall_high_ratio", "index_recall_queries")
    roles = ("index",)
    limit = Limit(warn=0.9, fail=0.7, side="below")
    meaning = (
        "The index misses many of the vectors that are truly nearest to a query: its lists or its graph skip them."
    )
    impact = "Searches leave out the best documents, without any error; no model makes up for it."
    diagnosis = (
        "Ask with queries of your users (`--queries`), who may fare otherwise than rows of the index. Lists: compare "
        "`nprobe` with their number; vectors that came after training make them uneven. Graphs: `efSearch`, and how "
        "many vectors were removed or added since it was built."
    )
    mitigation = (
        "Raise `nprobe` or `efSearch` until the recall is enough, and see what it costs; if that does not do, train "
        "and build the index again on the vectors that it holds now."
    )

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the share with its interval."""
        low, high = (snapshot.number(f"index_recall_{end}_ratio") for end in ("low", "high"))
        queries = snapshot.number("index_recall_queries")
        if low is None or high is None or measurement.number is None or queries is None:
            return ""
        return f"The index finds {measurement.number:.1%} ({low:.1%} to {high:.1%}, {queries:,.0f} queries)."

    def minimum_rows(self, snapshot: Snapshot) -> int:
        """Return more rows than there are where too few queries were asked."""
        queries = snapshot.number("index_recall_queries")
        return 1 if queries is None or queries >= LEAST_QUERIES else snapshot.provenance.rows + 1
