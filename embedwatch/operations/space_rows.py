"""Rows about Spaces: norms, geometry, groups, repetitions, and the token table."""

from __future__ import annotations

from collections.abc import Iterator

from embedwatch.exposition import SPACE_LABELS
from embedwatch.operations.lines import HEALTHY, LEGEND, SHOWN, drawn, limit, quantile, worst
from embedwatch.operations.panels import Panel, row, time_series

__all__ = ["geometry", "groups", "norms", "rows", "spectrum", "tokens"]

WINDOWS = "5m"
"""Smallest step of panels on histograms: they grow once a window, and a shorter rate falls between two of them."""
QUANTILES = (0.05, 0.5, 0.95)


def norms() -> Iterator[Panel]:
    """Yield the row on norms."""
    yield row("Norms")
    yield time_series(
        "Mean norm",
        "Mean length of the vectors. " + HEALTHY + "level. A slow rise in training asks for weight decay, a jump in "
        "serving for what changed in front of the model.",
        [worst("norm_mean")],
    )
    yield time_series(
        "Largest norm over median",
        "How far the longest vector sticks out. " + HEALTHY + "below 10 in stored vectors; inside language models much "
        "more is normal.",
        [worst("norm_extreme_ratio"), limit("extreme_norms")],
    )
    yield time_series(
        "Median and 99 % quantile of the norms",
        "Within each window, as measured. " + HEALTHY + "both level; the upper one leaving the median means a tail.",
        [
            worst(
                "norm_quantile",
                {"q": q},
                legend=f"q={q} {{{{model}}}} / {{{{place}}}} {{{{segment}}}}",
                ref=ref,
                shown=SHOWN // 2,
            )
            for ref, q in (("A", "0.5"), ("B", "0.99"))
        ],
    )
    yield time_series(
        "Distribution of the norms",
        "Quantiles of all rows of the last minutes, from the histogram: windows and workers add up, buckets are wide. "
        + HEALTHY
        + "parallel lines.",
        [quantile("norm", q, ref=ref, shown=SHOWN // len(QUANTILES)) for ref, q in zip("ABC", QUANTILES, strict=True)],
        interval=WINDOWS,
    )
    yield time_series(
        "Rows with NaN or Inf",
        "Share of the rows of a window. " + HEALTHY + "0, always.",
        [worst("nonfinite_rows_ratio")],
        unit="percentunit",
    )
    yield time_series(
        "Zero rows",
        "Share of the rows of a window that are zero everywhere. " + HEALTHY + "0; empty inputs and padding make them.",
        [worst("zero_rows_ratio")],
        unit="percentunit",
    )


def geometry() -> Iterator[Panel]:
    """Yield the row on how the vectors lie to each other."""
    yield row("Geometry")
    yield time_series(
        "Mean cosine",
        "Mean cosine of all pairs (anisotropy). " + HEALTHY + "level, and well below the limit; towards 1 all vectors "
        "are alike.",
        [worst("mean_cosine"), limit("collapse")],
    )
    yield time_series(
        "Effective rank",
        "Share of the directions that the vectors use, lowest first. " + HEALTHY + "level, above the limit.",
        [worst("effective_rank_ratio", side="below"), limit("rank_collapse")],
        unit="percentunit",
    )
    yield time_series(
        "Centroid off the origin",
        "Length of the mean vector over the root mean square length: 0 centred, 1 all equal. " + HEALTHY + "level.",
        [worst("centroid_offset_ratio")],
    )
    yield time_series(
        "Largest dimension over median",
        "Size of the largest dimension over the median one. " + HEALTHY + "below 10 in most encoders; inside language "
        "models much more is normal.",
        [worst("dimension_scale_ratio"), limit("dominating_dimension")],
    )
    yield time_series(
        "Empty directions",
        "Share of the directions that carry no variance. " + HEALTHY + "below the limit.",
        [worst("null_directions_ratio"), limit("null_directions")],
        unit="percentunit",
    )
    yield time_series(
        "Uniformity",
        "Log of the mean kernel over pairs of unit vectors; lower is more even. " + HEALTHY + "level; towards 0 it "
        "collapses.",
        [worst("uniformity")],
    )


def spectrum() -> Iterator[Panel]:
    """Yield the row on how variance is spread over directions and dimensions."""
    yield row("Directions and dimensions")
    yield drawn(
        "Participation ratio",
        "Number of directions that share the variance, fewest first.",
        "level.",
        worst("participation_ratio", side="below"),
        unit="short",
    )
    yield drawn(
        "IsoScore",
        "0 one direction holds all variance, 1 all hold the same; lowest first.",
        "level.",
        worst("isoscore", side="below"),
    )
    yield drawn(
        "Rank of the correlations",
        "Effective rank where all dimensions count alike, lowest first; the measure inside models.",
        "above the limit.",
        worst("correlation_rank_ratio", side="below"),
        limit("hidden_rank_collapse"),
        unit="percentunit",
    )
    yield drawn(
        "Spread of dimensions",
        "Share of the mean square that rows do not have in common, median over dimensions, lowest first.",
        "above the limit, also inside models.",
        worst("dimension_spread_ratio", side="below"),
        limit("hidden_collapse"),
        unit="percentunit",
    )
    yield drawn(
        "Dead dimensions",
        "Share of dimensions that are the same in all rows.",
        "0.",
        worst("dead_dimensions_ratio"),
        limit("dead_dimensions"),
        unit="percentunit",
    )
    yield drawn(
        "Outlier dimensions",
        "Dimensions that are at least 6 times as large as the median one.",
        "0 to 3.",
        worst("outlier_dimensions"),
        unit="short",
    )


def groups() -> Iterator[Panel]:
    """Yield the row on labelled groups."""
    labels, legend = (*SPACE_LABELS, "mean"), LEGEND + ", mean {{mean}}"
    yield row("Labelled groups")
    yield drawn(
        "Cohesion",
        "Mean cosine inside groups, with the common mean kept or removed, lowest first. Needs labels.",
        "level, above the separation.",
        worst("cohesion", side="below", labels=labels, legend=legend),
    )
    yield drawn(
        "Separation",
        "Mean cosine between rows of different groups. Needs labels.",
        "level, below the cohesion.",
        worst("separation", labels=labels, legend=legend),
    )
    yield drawn(
        "Margin of the groups",
        "Cohesion minus separation, the common mean removed, lowest first. Needs labels.",
        "above the limit.",
        worst("cohesion_margin", {"mean": "removed"}, side="below"),
        limit("groups_apart"),
    )
    yield drawn(
        "Silhouette",
        "Mean silhouette of the sampled rows, lowest first. Needs labels.",
        "above 0, and level.",
        worst("silhouette", side="below"),
    )


def rows() -> Iterator[Panel]:
    """Yield the row on rows that repeat, and on neighbours."""
    yield row("Rows and neighbours")
    yield drawn(
        "Repeated rows",
        "Share of rows that equal an earlier one bit for bit.",
        "below the limit in what is kept; repeated inputs make them in serving.",
        worst("duplicate_rows_ratio"),
        limit("duplicate_rows"),
        unit="percentunit",
    )
    yield drawn(
        "Hubness",
        "Skewness of how often a row is among the nearest of others. Measured in files and tables.",
        "level; hubs are found by every search.",
        worst("hubness_skewness"),
    )
    yield drawn(
        "Intrinsic dimension",
        "Dimensions that rows fill at the scale of their neighbours, fewest first. Measured in files and tables.",
        "level.",
        worst(
            "intrinsic_dimension",
            side="below",
            labels=(*SPACE_LABELS, "estimator"),
            legend=LEGEND + " {{estimator}}",
        ),
        unit="short",
    )


def tokens() -> Iterator[Panel]:
    """Yield the row on the token table through time."""
    yield row("Token table")
    yield time_series(
        "Largest token norm",
        "Longest row of the token table. " + HEALTHY + "levels off. A steady rise asks for weight decay on the table.",
        [worst("token_norm_max")],
    )
    yield time_series(
        "Mean token norm",
        "Mean length of the rows of the token table. " + HEALTHY + "level, or slowly rising in early training.",
        [worst("token_norm_mean")],
    )
    yield time_series(
        "Tokens past the norm limit",
        "Share of the table's rows that are many times longer than the median. " + HEALTHY + "0.",
        [worst("token_norm_over_ratio")],
        unit="percentunit",
    )
    for rows, meaning in (
        ("touched", "that occurred. " + HEALTHY + "rises fast at first, then slowly"),
        ("untouched", "that did not occur. " + HEALTHY + "0 without weight decay, and little with it"),
    ):
        yield time_series(
            f"Drift of {rows} tokens",
            f"How far rows of the token table have moved since the start, over their length, for tokens {meaning}.",
            [worst("token_drift_ratio", {"rows": rows})],
            unit="percentunit",
        )
