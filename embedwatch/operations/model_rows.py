"""Rows about a model that was examined: positions, scale, vocabulary, meaning, layers, and the texts that it writes."""

from __future__ import annotations

from collections.abc import Iterator

from embedwatch.exposition import SPACE_LABELS
from embedwatch.operations.lines import LEGEND, drawn, limit, worst
from embedwatch.operations.panels import Panel, row

__all__ = ["generation", "layers", "meaning", "positions", "scale", "vocabulary"]

EXAMINED = "Examined at the start and at checkpoints."
WORDS = ("lexicon", "vectors")
"""Labels of word groups: which words, and which vectors of them."""


def positions() -> Iterator[Panel]:
    """Yield the row on how a model tells places in a text apart."""
    yield row("Positions")
    yield drawn(
        "Tokens beyond what positions are made for",
        f"Positions that are asked for and that the model was not made for. {EXAMINED}",
        "0.",
        worst("position_beyond_usable"),
        limit("position_range"),
        unit="short",
    )
    yield drawn(
        "Resolution of positions",
        f"How unlike the codes of neighbours are, lowest first. {EXAMINED}",
        "above the limit.",
        worst("position_resolution", side="below"),
        limit("position_resolution"),
        unit="sci",
    )
    yield drawn(
        "Positions mistaken for others",
        f"How many times as far apart the most alike far positions are as neighbours are, lowest first. {EXAMINED}",
        "above 1; below it a far token looks nearer than the next one.",
        worst("position_alias_neighbours", side="below"),
        limit("position_alias"),
    )
    yield drawn(
        "Share of waves that complete a period",
        f"Of the waves of positions, those whose period fits the trained length, lowest first. {EXAMINED}",
        "level; about a half and more.",
        worst("position_covered_ratio", side="below"),
        unit="percentunit",
    )
    yield drawn(
        "Resemblance of the first and the last position",
        f"Cosine of their codes. {EXAMINED}",
        "well below 1.",
        worst("position_ends_cosine"),
    )
    yield drawn(
        "Share of positions with the code of the next",
        f"Codes that rounding has made equal. {EXAMINED}",
        "0.",
        worst("position_shared_ratio"),
        limit("position_numbers"),
        unit="percentunit",
    )
    yield drawn(
        "Tokens over positions at the entrance",
        "Size of what tokens bring over that of positions, where they are summed.",
        "0.2 to 6, and level.",
        worst("token_position_ratio"),
    )
    yield drawn(
        "Attention between end and start",
        "Over that at middle distances, in texts that the model read. Only where models are run (`deep`).",
        "below 3.",
        worst("position_ends_over_middle_ratio"),
        limit("position_ends"),
    )


def scale() -> Iterator[Panel]:
    """Yield the row on the size of what enters a model and of what leaves it."""
    yield row("Scale")
    yield drawn(
        "Size of what enters",
        f"Root mean square entry of what enters the first layer. {EXAMINED}",
        "level.",
        worst("entering_rms"),
    )
    yield drawn(
        "Factors √D at the entrance",
        f"How many factors √D lie between a row of the table and the first layer. {EXAMINED}",
        "0 or 1, as the configuration says; 2 is a mistake.",
        worst("lookup_scale_power"),
    )
    yield drawn(
        "Signs of a new model",
        f"Share of the signs that speak of weights as they were drawn. {EXAMINED}",
        "1 before training, near 0 in a model that was trained; a training itself is not judged by it.",
        worst("fresh_signs_ratio"),
        unit="percentunit",
    )
    yield drawn(
        "Spread of logits",
        f"Standard deviation of logits over the vocabulary, for random directions. {EXAMINED}",
        "about 1 before training.",
        worst("logit_norm_std"),
    )


def vocabulary() -> Iterator[Panel]:
    """Yield the row on the tokens of a model."""
    yield row("Vocabulary")
    yield drawn(
        "Untrained tokens",
        f"Share of the tokens in use whose rows look untrained. {EXAMINED}",
        "below the limit, and falling in a training.",
        worst("untrained_tokens_ratio"),
        limit("untrained_tokens"),
        unit="percentunit",
    )
    yield drawn(
        "Tokens that no text leads to",
        f"Share of the tokens in use that the tokenizer never makes. {EXAMINED}",
        "below the limit.",
        worst("unreachable_tokens_ratio"),
        limit("unreachable_tokens"),
        unit="percentunit",
    )
    yield drawn(
        "Copied rows of tokens",
        f"Tokens in use whose row is a copy of another token's. {EXAMINED}",
        "0.",
        worst("twin_tokens"),
        unit="short",
    )


def meaning() -> Iterator[Panel]:
    """Yield the row on groups of words."""
    yield row("Meaning")
    labels, legend = (*SPACE_LABELS, *WORDS), "{{model}} {{lexicon}} {{vectors}}"
    yield drawn(
        "Related words are close",
        f"Probability that words that belong together are closer than others, lowest first. {EXAMINED}",
        "above the limit; 0.5 is chance.",
        worst("word_related_auc", side="below", labels=labels, legend=legend),
        limit("meaning_related"),
    )
    yield drawn(
        "Loose topics",
        f"Share of topics whose words are no closer than words at random. {EXAMINED}",
        "below the limit.",
        worst("word_topics_loose_ratio", labels=labels, legend=legend),
        limit("meaning_topics"),
        unit="percentunit",
    )
    yield drawn(
        "Words known",
        f"Share of the words of a lexicon that the space knows, lowest first. {EXAMINED}",
        "level; few known words say little.",
        worst("word_coverage_ratio", side="below", labels=labels, legend=legend),
        unit="percentunit",
    )


def layers() -> Iterator[Panel]:
    """Yield the row on what flows through the layers."""
    yield row("Layers")
    yield drawn(
        "Weights that are no numbers",
        f"Entries of all weights that are NaN or Inf. {EXAMINED}",
        "0.",
        worst("nonfinite_weights"),
        limit("nonfinite_weights"),
        unit="short",
    )
    yield drawn(
        "Largest gain over median",
        f"Of the gains of one normalisation, the worst one. {EXAMINED}",
        "below the limit.",
        worst("norm_gain_peak_ratio"),
        limit("norm_gains"),
    )
    yield drawn(
        "Dimensions that a normalisation takes out",
        f"Share of the dimensions, in the worst one. {EXAMINED}",
        "below the limit.",
        worst("norm_gain_dead_ratio"),
        limit("norm_dead_dimensions"),
        unit="percentunit",
    )
    yield drawn(
        "How far tokens are from being alike",
        "0 all alike, 1 not; the least of it over the layers, lowest first. Only where models are run (`deep`).",
        "above the limit.",
        worst("alike_distance_min", side="below"),
        limit("tokens_alike"),
    )
    yield drawn(
        "Silent units",
        "Share of the inner units that no token woke. Only where models are run (`deep`).",
        "below the limit.",
        worst("silent_unit_ratio"),
        limit("silent_units"),
        unit="percentunit",
    )
    yield drawn(
        "Growth of the stream",
        "Norm of tokens behind the last layer over that before the first. Only where models are run (`deep`).",
        "level from checkpoint to checkpoint.",
        worst("stream_growth_ratio"),
    )


def generation() -> Iterator[Panel]:
    """Yield the row on texts that a model wrote."""
    yield row("Texts written")
    labels, legend = (*SPACE_LABELS, "decoding"), LEGEND + " {{decoding}}"
    yield drawn(
        "Repetition",
        "Share of 4-grams that the same text held before. Only where models write (`deep`, with `prompts`).",
        "0.01 to 0.03 in prose of people.",
        worst("generation_repetition_ratio", {"n": "4"}, labels=labels, legend=legend),
        limit("generation_repetition"),
        unit="percentunit",
    )
    yield drawn(
        "Loops",
        "Share of texts that end in a loop. Only where models write (`deep`, with `prompts`).",
        "0 where words are drawn; often more in greedy texts of small models.",
        worst("generation_loops_ratio", labels=labels, legend=legend),
        limit("generation_loops"),
        unit="percentunit",
    )
