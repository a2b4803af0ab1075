"""What single heads do, in words: by the limits of the statistics and checks that judge whole layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from embedwatch.checks.attention_collapse import FAIL as SINGLE
from embedwatch.checks.attention_long_range import AttentionLongRange
from embedwatch.core.exhibit import Exhibit
from embedwatch.stats.attention_entropy import UNIFORM
from embedwatch.stats.attention_heads import DEAD, TWIN
from embedwatch.stats.attention_places import DIAGONAL, SINK

__all__ = ["TRAITS", "Head", "heads_exhibit", "ranked", "summary"]

Number = float | None
NAMED = 12
"""So many heads of a trait are named."""
NEIGHBOUR = 0.5
"""A head that gives so much to the token before its own, or to the one after, is made for that."""
TRAITS: Mapping[str, str] = {
    "too diffuse": f"an entropy above {UNIFORM:g} of an even look",
    "too concentrated": f"less than {SINGLE:g} of the entropy of an even look, between first and last token",
    "diagonal only": f"more than {DIAGONAL:g} on the query's own token",
    "long range missing": f"less than {AttentionLongRange.limit.warn:g} on what is far"
    if AttentionLongRange.limit is not None
    else "",
    "redundant": f"a cosine of {TWIN:g} or more with another head of the layer",
    "dead": f"at most {DEAD:g} of the median head's output",
    "neighbour": f"more than {NEIGHBOUR:g} on the token before or after; normal",
    "sink": f"more than {SINK:g} on the first token, the last or a learned sink; normal in trained models",
}
"""What a head may be, and from where on it is."""


@dataclass(frozen=True)
class Head:
    """One head of one layer, in numbers.

    Args:
        layer: number of the layer, from 0, in the order of the model.
        place: name of its module.
        head: number of the head.
        values: measurements of this head, by the name of the metric.
        twin: the head that is most like it, and the cosine, where it is known.
        output: its output norm over that of the median head.
    """

    layer: int
    place: str
    head: int
    values: Mapping[str, Number]
    twin: tuple[int, float] | None = None
    output: Number = None

    @property
    def name(self) -> str:
        """Layer and head, as `--heads` takes them: `3.5`."""
        return f"{self.layer}.{self.head}"

    def traits(self) -> Mapping[str, float]:
        """Return what it is, with the number that says so.

        Example:
            >>> Head(3, "h.3.attn", 5, {"attention_own_ratio": 0.99}).traits()
            {'diagonal only': 0.99}
        """
        read = self.values.get
        far = AttentionLongRange.limit
        ends = [read(f"attention_{name}_ratio") for name in ("first", "last", "learned_sink")]
        sink = max((value for value in ends if value is not None), default=None)
        lowest = None if far is None else far.warn
        beside = max(read("attention_previous_ratio") or 0.0, read("attention_next_ratio") or 0.0)
        is_beside = beside > NEIGHBOUR
        found = {
            "too diffuse": _if(read("attention_entropy_ratio"), above=UNIFORM),
            "too concentrated": None if is_beside else _if(read("attention_inner_entropy_ratio"), below=SINGLE),
            "diagonal only": _if(read("attention_own_ratio"), above=DIAGONAL),
            "long range missing": None if is_beside else _if(read("attention_long_range_ratio"), below=lowest),
            "redundant": None if self.twin is None or self.twin[1] < TWIN else self.twin[1],
            "dead": self.output if self.output is not None and self.output <= DEAD else None,
            "neighbour": beside if is_beside else None,
            "sink": _if(sink, above=SINK),
        }
        return {trait: value for trait, value in found.items() if value is not None}

    def words(self) -> str:
        """Return what it is in a few words; empty for a head that nothing is to be said of."""
        said = []
        for trait, value in self.traits().items():
            like = f" with head {self.twin[0]}" if trait == "redundant" and self.twin is not None else ""
            said.append(f"{trait}{like} ({value:.2g})")
        return ", ".join(said)


def _if(value: Number, *, above: Number = None, below: Number = None) -> Number:
    if value is None:
        return None
    crossed = (above is not None and value > above) or (below is not None and value < below)
    return value if crossed else None


FALLING = ("too diffuse", "diagonal only", "redundant", "neighbour", "sink")
"""Traits that a larger number makes graver."""


def ranked(heads: Sequence[Head], trait: str) -> list[tuple[float, Head]]:
    """Return the heads that have a trait with the number that says so, the gravest first."""
    having = [(each.traits()[trait], each) for each in heads if trait in each.traits()]
    return sorted(having, key=lambda pair: -pair[0] if trait in FALLING else pair[0])


def summary(heads: Sequence[Head]) -> list[str]:
    """Return a sentence for each trait that some heads have, the gravest heads first.

    Example:
        >>> summary([Head(0, "a", 1, {"attention_own_ratio": 0.99}), Head(0, "a", 2, {"attention_own_ratio": 0.5})])
        ["Diagonal only: 1 of 2 heads, with more than 0.95 on the query's own token: 0.1 (0.99)."]
    """
    found = []
    for trait, meaning in TRAITS.items():
        having = ranked(heads, trait)
        if not having:
            continue
        named = ", ".join(f"{head.name} ({value:.2g})" for value, head in having[:NAMED])
        rest = f" and {len(having) - NAMED} more" if len(having) > NAMED else ""
        words = f"{trait[0].upper()}{trait[1:]}: {len(having)} of {len(heads)} heads, with {meaning}: {named}{rest}."
        found.append(words)
    return found


COLUMNS: Mapping[str, str] = {
    "entropy": "attention_entropy_ratio",
    "inner_entropy": "attention_inner_entropy_ratio",
    "own": "attention_own_ratio",
    "previous": "attention_previous_ratio",
    "next": "attention_next_ratio",
    "first": "attention_first_ratio",
    "last": "attention_last_ratio",
    "learned_sink": "attention_learned_sink_ratio",
    "distance": "attention_distance_mean",
    "reach": "attention_distance_ratio",
    "far": "attention_long_range_ratio",
    "largest_logit": "attention_logit_max",
    "spread": "attention_logit_spread",
}
"""Columns of the table of heads, and the measurements that they show."""


def heads_exhibit(heads: Iterable[Head]) -> Exhibit:
    """Return all heads with all their numbers, and with words for what is to be said of them."""
    rows = [
        (
            each.layer,
            each.head,
            *(_plain(each.values.get(metric)) for metric in COLUMNS.values()),
            _plain(each.output),
            None if each.twin is None else each.twin[0],
            None if each.twin is None else _plain(each.twin[1]),
            each.words(),
        )
        for each in heads
    ]
    return Exhibit.build(
        "attention_heads_table",
        "table",
        "Each head of each layer: entropy, where it looks, how far, its logits, its output over the median head's.",
        ("layer", "head", *COLUMNS, "output", "twin", "twin_cosine", "words"),
        rows,
    )


def _plain(value: Number) -> Number:
    return None if value is None else float(f"{value:.4g}")
