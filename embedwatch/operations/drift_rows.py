"""Rows about change: rows beside their reference, fixed texts then and now, and what the reference is."""

from __future__ import annotations

from collections.abc import Iterator

from embedwatch.operations.lines import age, drawn, worst
from embedwatch.operations.panels import Panel, row

__all__ = ["canaries", "drift", "references"]


def drift() -> Iterator[Panel]:
    """Yield the row on how rows differ from those of their reference."""
    yield row("Drift")
    yield drawn(
        "How likely by chance",
        "p-value of the difference from the reference, all sorts of differences together.",
        "scattered between 0 and 1; low in several windows is drift. The check weighs windows together, and its limit "
        "is of that evidence, not of one of these.",
        worst("drift_p_value", side="below"),
        unit="sci",
    )
    yield drawn(
        "Foreign rows",
        "Share of rows that the reference does not explain, at least.",
        "near 0.",
        worst("drift_foreign_ratio"),
        unit="percentunit",
    )
    yield drawn(
        "Distance of the mean",
        "Distance of the mean from that of the reference, in standard deviations of its rows.",
        "level, well below 1.",
        worst("drift_centroid_ratio"),
    )
    yield drawn(
        "Variance beside the reference",
        "Total variance over that of the reference, lowest first.",
        "near 1.",
        worst("drift_variance_ratio", side="below"),
    )
    yield drawn(
        "Norms beside the reference",
        "Geometric mean of the norms over that of the reference.",
        "near 1.",
        worst("drift_norm_ratio"),
    )
    yield drawn(
        "Rank beside the reference",
        "Effective rank over that of the reference, lowest first.",
        "near 1.",
        worst("drift_rank_ratio", side="below"),
        unit="percentunit",
    )
    yield drawn(
        "Which sort of difference",
        "p-value of each family: content, shift of the mean, geometry, local regions; lowest first.",
        "all of them wander between 0 and 1; one that stays low says what changed.",
        worst(
            "drift_family_p_value",
            side="below",
            labels=("model", "place", "segment", "family"),
            legend="{{model}} / {{place}} {{segment}} {{family}}",
        ),
        unit="sci",
    )
    yield drawn(
        "Variance in the leading directions",
        "Share of variance in the leading directions of the reference, over what it was.",
        "near 1; other coordinates bring it down.",
        worst("transformation_lead_ratio", side="below"),
    )


def references() -> Iterator[Panel]:
    """Yield the row on what rows are compared with."""
    yield row("References")
    yield drawn(
        "Age of the reference",
        "Time since the reference of each place was created, oldest first.",
        "below 90 days, or looked at since.",
        age("reference_created_timestamp_seconds"),
        unit="s",
    )
    yield drawn(
        "Rows of the reference",
        "Rows that the reference rests on, fewest first.",
        "several thousand; level.",
        worst("reference_rows", side="below"),
        unit="short",
    )
    yield drawn(
        "Rows compared",
        "Rows of each window that were compared, fewest first.",
        "level, above what a comparison needs.",
        worst("drift_rows", side="below"),
        unit="short",
    )


def canaries() -> Iterator[Panel]:
    """Yield the row on fixed texts, embedded again."""
    yield row("Canaries")
    yield drawn(
        "Texts that moved",
        "Share of the fixed texts whose vector moved by more than the noise floor.",
        "0, always.",
        worst("canary_moved_ratio"),
        unit="percentunit",
    )
    yield drawn(
        "Distance of fixed texts",
        "Median of 1 - cosine of each text, then and now.",
        "at the noise floor.",
        worst("canary_distance", {"q": "0.5"}),
        worst("canary_floor", ref="B", legend="floor of {{model}}", shown=4),
        unit="sci",
    )
    yield drawn(
        "Neighbours of fixed texts",
        "Share of each text's nearest texts that are the same then and now, lowest first.",
        "1; lower means that searches find something else.",
        worst("canary_overlap_ratio", side="below"),
        unit="percentunit",
    )
