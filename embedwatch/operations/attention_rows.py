"""Rows about attention: what its heads look at, and whether they are alive."""

from __future__ import annotations

from collections.abc import Iterator

from embedwatch.exposition import SPACE_LABELS
from embedwatch.operations.lines import CHOSEN, LEGEND, drawn, limit, rate, worst
from embedwatch.operations.panels import Panel, row

__all__ = ["attention"]


def attention() -> Iterator[Panel]:
    """Yield the rows on attention."""
    yield row("Heads")
    yield drawn(
        "Inner entropy of attention",
        "Entropy over that of an even look, without first and last token; mean over heads, lowest layers first.",
        "1 in a new model, 0.5 to 0.85 in trained ones; towards 0 it collapses.",
        worst("attention_inner_entropy_ratio", {"heads": "mean"}, side="below"),
        limit("attention_collapse"),
        unit="percentunit",
    )
    yield drawn(
        "Uniform heads",
        "Share of heads that look at everything alike.",
        "1 in a new model, 0 in trained ones.",
        worst("attention_uniform_heads_ratio"),
        limit("attention_uniform"),
        unit="percentunit",
    )
    yield drawn(
        "Dead heads",
        "Share of heads whose output is next to nothing beside the median head's.",
        "0.",
        worst("attention_dead_heads_ratio"),
        limit("attention_dead_heads"),
        unit="percentunit",
    )
    yield drawn(
        "Twin heads",
        "Share of heads for which another one looks at the same.",
        "0, or steady.",
        worst("attention_twin_heads_ratio"),
        limit("attention_twin_heads"),
        unit="percentunit",
    )
    yield drawn(
        "Diagonal heads",
        "Share of heads that look at nothing but the query's own key.",
        "0.",
        worst("attention_diagonal_heads_ratio"),
        limit("attention_diagonal"),
        unit="percentunit",
    )
    yield drawn(
        "Attention on the first token",
        "Share that goes to the first real token, mean over heads.",
        "steady; trained decoders use it as a sink.",
        worst("attention_first_ratio", {"heads": "mean"}),
        unit="percentunit",
    )
    yield row("Logits and distances")
    yield drawn(
        "Largest attention logit",
        "Largest logit of the sampled rows of any head.",
        "below 100 in most models, and not growing.",
        worst("attention_logit_max", {"heads": "max"}),
        limit("attention_logit_growth"),
    )
    yield drawn(
        "Spread of attention logits",
        "Standard deviation of a query's logits, mean over heads.",
        "1 to 3 in trained models, less in new ones.",
        worst("attention_logit_spread", {"heads": "mean"}),
    )
    yield drawn(
        "Distance looked at",
        "How far a query looks, over the farthest key that it sees; mean over heads, lowest first.",
        "about 0.5 in a new model; falls, and settles.",
        worst("attention_distance_ratio", {"heads": "mean"}, side="below"),
        unit="percentunit",
    )
    yield drawn(
        "Rows of attention that are no numbers",
        "Sampled rows of attention with NaN or Inf, in a window.",
        "0, always.",
        rate(
            "attention_nonfinite_rows_total", labels=SPACE_LABELS, legend=LEGEND, variables=CHOSEN, function="increase"
        ),
        unit="short",
    )
    yield drawn(
        "Equal logits of near keys",
        "Share of queries that cannot tell two near keys apart.",
        "0; above it attention does not know positions.",
        worst("attention_tied_rows_ratio"),
        limit("attention_order"),
        unit="percentunit",
    )
