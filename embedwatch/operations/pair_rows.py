"""Rows about the same items in two spaces, and about an index beside the model that asks it."""

from __future__ import annotations

from collections.abc import Iterator

from embedwatch.exposition import SPACE_LABELS
from embedwatch.operations.lines import LEGEND, drawn, limit, worst
from embedwatch.operations.panels import Panel, row

__all__ = ["indexes", "pairs"]


def pairs() -> Iterator[Panel]:
    """Yield the row on two spaces as they stand."""
    yield row("Two spaces as they stand")
    yield drawn(
        "Neighbours that the other side finds",
        "Share of the 10 nearest that vectors of the other side find as they stand, lowest first.",
        "as at the beginning; `alignment_lost` says when some of it is lost.",
        worst("pair_overlap_ratio", side="below"),
        unit="percentunit",
    )
    yield drawn(
        "Neighbours that both sides agree on",
        "Share of each item's 10 nearest that are the same on both sides, whatever the coordinates, lowest first.",
        "far above chance, which is drawn beside it, and level.",
        worst("pair_mutual_ratio", side="below"),
        worst("pair_mutual_null_ratio", ref="B", legend="chance of {{model}}", shown=4),
        unit="percentunit",
    )
    yield drawn(
        "CKA of the pair",
        "1 for one space in other coordinates, 0 for unrelated ones; lowest first.",
        "level.",
        worst("pair_cka", side="below"),
    )
    yield drawn(
        "Items that find themselves",
        "Share of items whose own vector is the nearest on the other side, lowest first.",
        "level.",
        worst("pair_recall_ratio", {"k": "1"}, side="below"),
        unit="percentunit",
    )
    yield drawn(
        "What a map misses",
        "Squared distance of both sides less their means, over the variance of the left one: 0 for one space, 2 and "
        "more for strangers.",
        "as at the beginning.",
        worst("pair_residual_ratio"),
    )
    yield drawn(
        "Pairs compared",
        "Items that have a vector on both sides, fewest first.",
        "level; few pairs say little.",
        worst("pair_rows", side="below"),
        unit="short",
    )
    yield drawn(
        "Pairs that are no numbers",
        "Pairs of which a side holds NaN or Inf.",
        "0.",
        worst("pair_nonfinite_rows"),
        unit="short",
    )
    yield drawn(
        "What was lost",
        "Verdicts on maps between spaces: 1 where they are so grave. The value stands in the verdict.",
        "0.",
        worst(
            "check_failing",
            {"check": "alignment_lost"},
            labels=(*SPACE_LABELS, "severity"),
            legend=LEGEND + " {{severity}}",
        ),
        unit="short",
    )


def indexes() -> Iterator[Panel]:
    """Yield the row on indexes."""
    yield row("Indexes")
    yield drawn(
        "Recall of the index",
        "Share of the true nearest neighbours that the index finds, with its 95 % interval, lowest first.",
        "above the limit.",
        worst("index_recall_ratio", side="below", shown=3),
        worst("index_recall_low_ratio", side="below", ref="B", legend="low of " + LEGEND, shown=3),
        worst("index_recall_high_ratio", side="below", ref="C", legend="high of " + LEGEND, shown=3),
        limit("index_recall"),
        unit="percentunit",
    )
    yield drawn(
        "Recall of the worst query",
        "The same share for the query that fares worst, lowest first.",
        "above a half.",
        worst("index_recall_worst_ratio", side="below"),
        unit="percentunit",
    )
    yield drawn(
        "Stale rows of the index",
        "Share of sampled ids of which the index holds another vector than the present model writes.",
        "0.",
        worst("index_stale_ratio"),
        limit("index_stale"),
        unit="percentunit",
    )
    yield drawn(
        "Ids that the index lacks",
        "Share of sampled ids that the index does not hold.",
        "0.",
        worst("index_missing_ratio"),
        unit="percentunit",
    )
    yield drawn(
        "What the index holds, and what the model writes",
        "Median cosine of both, lowest first.",
        "1.",
        worst("index_row_cosine", side="below"),
    )
    yield drawn(
        "Queries asked",
        "Queries on which the recall rests, fewest first.",
        "a hundred and more.",
        worst("index_recall_queries", side="below"),
        unit="short",
    )
