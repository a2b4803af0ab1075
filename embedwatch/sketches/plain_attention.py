"""Attention row by row in plain words: what the oracles of statistics over attention share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from embedwatch.batch import FLOAT32_MAX, AttentionBatch

__all__ = ["PlainRow", "plain_heads", "plain_rows"]


class PlainRow(NamedTuple):
    """One row that sees a key and whose softmax is a number.

    Args:
        place: its place in the batch.
        head, query: whose it is.
        own, first, last: keys; `own` is -1 where the query has none.
        scores: key that is seen to its score.
        shares: key that is seen to its share of attention.
        sink: share of a learned sink, NaN where there is none.
    """

    place: int
    head: int
    query: int
    own: int
    first: int
    last: int
    scores: dict[int, float]
    shares: dict[int, float]
    sink: float


def plain_rows(batch: AttentionBatch) -> Iterator[PlainRow]:
    """Yield the rows from which anything can be told."""
    columns = (batch.logits.float(), batch.visible, batch.heads, batch.queries)
    ends = (batch.positions, batch.firsts, batch.lasts)
    logits, visible, heads, queries = (column.tolist() for column in columns)
    own, first, last = (column.tolist() for column in ends)
    sinks = [None] * len(batch) if batch.sinks is None else batch.sinks.float().tolist()
    for place, (row, mask) in enumerate(zip(logits, visible, strict=True)):
        scores = {key: score for key, score in enumerate(row) if mask[key] and score != -math.inf}
        sink = sinks[place]
        taken = [*scores.values(), *([] if sink is None or sink == -math.inf else [sink])]
        if not scores or not all(math.isfinite(score) for score in taken):
            continue
        top = max(taken)
        total = math.fsum(math.exp(score - top) for score in taken)
        shares = {key: math.exp(score - top) / total for key, score in scores.items()}
        left = math.nan if sink is None else math.exp(sink - top) / total
        yield PlainRow(place, heads[place], queries[place], own[place], first[place], last[place], scores, shares, left)


def plain_heads(
    name: str,
    values: Iterable[tuple[int, float | None]],
    *,
    over: Sequence[str] = ("mean", "min", "max"),
    each: bool = False,
    largest: bool = False,
) -> dict[str, float | None]:
    """Return what is measured of values (head, value): of each head its mean, or its largest, then over the heads."""
    by_head: dict[int, list[float]] = {}
    for head, value in values:
        if value is not None and abs(value) <= FLOAT32_MAX:
            by_head.setdefault(head, []).append(value)
    of_head = {head: max(held) if largest else math.fsum(held) / len(held) for head, held in by_head.items()}
    if not of_head:
        return {f"{name}{{heads={over[0]}}}": None}
    found = {"mean": math.fsum(of_head.values()) / len(of_head), "min": min(of_head.values())}
    found["max"] = max(of_head.values())
    told = {head: found[head] for head in over} | (
        {str(head): value for head, value in of_head.items()} if each else {}
    )
    return {f"{name}{{heads={head}}}": value for head, value in told.items()}
