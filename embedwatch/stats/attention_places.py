"""Which keys take attention: the query's own, its neighbours, the first and the last token, a learned sink."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from embedwatch.batch import AttentionBatch
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.attention import NO_KEY, key_masses
from embedwatch.sketches import (
    AttentionMaps,
    BatchStatistic,
    HeadValues,
    PlainRow,
    example_attention,
    plain_heads,
    plain_rows,
)

FEWEST_KEYS = 8
"""Keys that a query must see: an even look gives a single one at most an eighth then."""
DIAGONAL = 0.95
"""A head that gives so much to the query's own key mixes no tokens."""
SINK = 0.3
"""A head that gives so much to the first, the last or a learned sink counts as a sink head (Gu et al. 2024)."""
OVER = ("mean", "max")

OWN, PREVIOUS, NEXT, FIRST, LAST, LEARNED = (
    Metric(f"attention_{name}_ratio", words, labels=("heads",), headline=headline)
    for name, words, headline in (
        ("own", "Share of attention that a query gives to its own key.", True),
        ("previous", "Share that a query gives to the key before its own.", False),
        ("next", "Share that a query gives to the key after its own.", False),
        (
            "first",
            "Share that goes to the first real token, of queries other than its own; 0 where a window hides it.",
            True,
        ),
        ("last", "Share that goes to the last real token, of queries other than its own that see it.", False),
        ("learned_sink", "Share that goes to a learned sink.", False),
    )
)
DIAGONAL_HEADS = Metric(
    "attention_diagonal_heads_ratio",
    f"Share of heads that give more than {DIAGONAL:g} to the query's own key.",
    healthy="0",
)
SINK_HEADS = Metric(
    "attention_sink_heads_ratio",
    f"Share of heads that give more than {SINK:g} to the first real token, to the last, or to a learned sink.",
    healthy="0 in a new model, anything from 0 to 1 in trained ones",
)
METRICS = {"own": OWN, "previous": PREVIOUS, "next": NEXT, "first": FIRST, "last": LAST, "learned": LEARNED}
SINKS = ("first", "last", "learned")


class AttentionPlaces(BatchStatistic[AttentionBatch]):
    """Share of attention on single keys, head by head: on the diagonal, beside it, and on what serves as a sink.

    A query gives `a_k` to key k. Counted is `a_own`, `a_(own-1)`, `a_(own+1)`, `a_first`, `a_last` and what a learned
    sink takes; each where the query sees the key (the first one also where a window hides it: then it takes 0), and
    first and last for other queries than their own. Learned sinks take their share from all keys.

    Shape: batches (N, T); rows that see fewer than 8 keys are left out, and so is what a row does not have.
    State: sums, and a map of 32 × 33 for up to 256 heads; merge exact.
    Error: the standard error over rows stands beside each value: about 0.01 for 16 rows of an ordinary head.
    NaN, Inf, empty: rows whose logits hold them are left out, `attention_validity` counts them; `None` without rows.
    References: Xiao et al. 2023, "Efficient streaming language models with attention sinks" (arXiv 2309.17453); Gu et
    al. 2024, "When attention sink emerges in language models" (arXiv 2410.10781, threshold 0.3); Clark et al. 2019
    (arXiv 1906.04341, heads that look at the separator).

    Example:
        >>> statistic = AttentionPlaces()
        >>> for batch in example_attention(0):
        ...     statistic.update(batch)
        >>> {m.key: m.value for m in statistic.compute()}["attention_sink_heads_ratio"]
        0.5
    """

    name = "attention_places"
    title = "keys that take attention"
    consumes = "attention"
    metrics = (*METRICS.values(), DIAGONAL_HEADS, SINK_HEADS)
    counts_defects = True  # a NaN at a key that nobody sees says nothing

    def __init__(self, *, heads: bool = False) -> None:
        super().__init__(heads=heads)
        self._each = heads
        self._values = self.keep("values", HeadValues(list(METRICS)))
        self._maps = self.keep("maps", AttentionMaps())

    def add(self, batch: AttentionBatch) -> None:
        """Add a batch."""
        batch = batch.clean
        enough = batch.counts >= FEWEST_KEYS
        batch = batch if bool(enough.all()) else batch.take(enough)
        if not len(batch):
            return
        self._values.add(batch.heads, torch.stack([_masses(batch, name) for name in METRICS], 1))
        self._maps.offer(batch)

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        found = [
            measurement
            for name, metric in METRICS.items()
            for measurement in self._values.measure(metric, name, over=OVER, each=self._each)
        ]
        own = self._values.means("own")
        sink = torch.stack([self._values.means(name) for name in SINKS], 1)
        sink_known = sink[~sink.isnan().all(1)].nan_to_num(0.0).amax(1)
        return [
            *found,
            DIAGONAL_HEADS.measure(_share(own[~own.isnan()] > DIAGONAL)),
            SINK_HEADS.measure(_share(sink_known > SINK)),
        ]

    def exhibits(self) -> list[Exhibit]:
        """Return maps of the mean head and of three that differ most: own key, sink, anything else."""
        chosen = self._chosen()
        every = {"all": list(range(len(self._maps.sums)))} if chosen else {}
        return [self._maps.exhibit(every | {str(head): [head] for head in chosen})]

    def _chosen(self) -> list[int]:
        """Return the heads of most own attention, of the largest sink, and of least of both."""
        heads = (self._values.counts("own") > 0).nonzero()[:, 0]
        if not len(heads):
            return []
        own, first, last, learned = (
            self._values.means(name)[heads].nan_to_num(0.0) for name in ("own", "first", "last", "learned")
        )
        sink = torch.stack([first, last, learned]).amax(0)
        places = dict.fromkeys((int(own.argmax()), int(sink.argmax()), int((own + sink).argmin())))
        return [int(heads[place]) for place in places]

    def oracle(self, batch: AttentionBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula, row by row."""
        rows = [row for row in plain_rows(batch) if len(row.shares) >= FEWEST_KEYS]
        values = {name: [(row.head, _plain(row, name)) for row in rows] for name in METRICS}
        means = {name: plain_heads("", values[name], over=("mean",), each=True) for name in METRICS}
        heads = {row.head for row in rows}
        own = [value for head in heads if (value := means["own"].get(f"{{heads={head}}}")) is not None]
        sinks = [[means[name].get(f"{{heads={head}}}") for name in SINKS] for head in heads]
        sink = [max(known) for each in sinks if (known := [value for value in each if value is not None])]
        found: dict[str, float | None] = {}
        for name, metric in METRICS.items():
            found |= plain_heads(metric.name, values[name], over=OVER, each=self._each)
        found[DIAGONAL_HEADS.name] = sum(value > DIAGONAL for value in own) / len(own) if own else None
        found[SINK_HEADS.name] = sum(value > SINK for value in sink) / len(sink) if sink else None
        return found

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[AttentionPlaces, Sequence[AttentionBatch]]]:
        """Yield causal texts with padding, a window and learned sinks, texts that see both sides, other texts' keys."""
        yield cls(heads=True), example_attention(seed)
        both = example_attention(seed, causal=False)
        yield cls(), both
        for batch in both[1:]:
            batch.positions.fill_(NO_KEY)
        yield cls(), both


def _masses(batch: AttentionBatch, name: str) -> Tensor:
    """Return what each row gives to the key of that name, NaN where it has none. Shape: (N,) float64."""
    if name == "learned":
        total = batch.weights.double().sum(1)
        return torch.full_like(total, torch.nan) if batch.sinks is None else (1 - total).clamp(min=0.0)
    own = batch.positions
    keys = {"own": own, "previous": own - 1, "next": own + 1, "first": batch.firsts, "last": batch.lasts}[name]
    has = (keys >= batch.firsts) & (keys <= batch.lasts)
    if name in ("first", "last"):
        has &= keys != own
    else:
        has &= own >= 0
    if name != "first":
        has &= batch.seen.gather(1, keys.clamp(0, batch.seen.shape[1] - 1)[:, None])[:, 0]
    return key_masses(batch.weights, torch.where(has, keys, NO_KEY))


def _plain(row: PlainRow, name: str) -> float | None:
    if name == "learned":
        return None if math.isnan(row.sink) else row.sink
    if name in ("first", "last"):
        key = row.first if name == "first" else row.last
        return None if key == row.own else row.shares.get(key, 0.0 if name == "first" else None)
    key = row.own + {"own": 0, "previous": -1, "next": 1}[name]
    return row.shares.get(key) if row.own >= 0 and row.first <= key <= row.last else None


def _share(are: Tensor) -> float | None:
    return float(are.double().mean()) if len(are) else None
