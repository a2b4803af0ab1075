"""How far attention looks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from embedwatch.batch import AttentionBatch
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.attention import NO_KEY, band_masses, mean_distances, stretch_masses
from embedwatch.sketches import BatchStatistic, HeadValues, PlainRow, example_attention, plain_heads, plain_rows

FEWEST_KEYS = 8
"""Keys that a query must see."""
LONG_TEXT = 64
"""Tokens from which on a text is long enough to tell near from far."""
FAR = 4
"""Far is what lies farther than one part in so many of the text."""
PARTS = 8
"""A text's start and end are one part in so many."""
MIDDLE = (2, 6)
"""The parts that are its middle, as `start <= part < end`."""
BANDS = 22
"""0, 1, 2-3, 4-7, ... tokens; the last band begins at 2^20."""

DISTANCE = Metric(
    "attention_distance_mean", "How far a query looks on average.", "tokens", labels=("heads",), headline=False
)
REACH = Metric(
    "attention_distance_ratio", "The same over the distance of the farthest key that the query sees.", labels=("heads",)
)
LONG_RANGE = Metric(
    "attention_long_range_ratio",
    f"Share that goes farther than 1/{FAR} of a text of {LONG_TEXT} tokens or more, without its first and last token.",
    healthy="> 0.1 in some head of each layer; about 0.5 in a new model",
    labels=("heads",),
)
START = Metric(
    "attention_start_over_middle_ratio",
    f"What queries in the last 1/{PARTS} of a long text give to a key in its first 1/{PARTS}, without the first token, "
    "over what they give to a key in its middle half.",
    healthy="0.4 to 2.5",
)
BAND = Metric(
    "attention_band_ratio",
    "Share of attention by distance: from so many tokens up to twice as many, mean over heads.",
    labels=("tokens",),
    headline=False,
)
COLUMNS = ("distance", "reach", "long", "start", "middle")
TRACE = 1e-12
"""A share below is lost beside 1 when shares are added up."""
BAND_COLUMNS = tuple(str(2**band // 2) for band in range(BANDS))
"""Names of the bands: the least distance in each, in tokens."""


class AttentionDistances(BatchStatistic[AttentionBatch]):
    """Distance between query and key, weighted by attention: mean, by band, the long range, and start against middle.

    `Σ a |k - q| / Σ a` in tokens, and over the farthest key that the query sees. The bands hold distance 0, 1, 2-3, 4-7
    and so on, on both sides. The long range counts in texts of 64 tokens or more, for queries that see a key farther
    than a quarter of the text; first and last token are none, since they serve as sinks at any distance.

    Start over middle tells whether the end of a text takes its start for its neighbourhood, as positions that wrap
    around do. For queries in the last eighth that see all of the text before them, it divides the mean share of a key
    in the first eighth, without the first token, by that of a key in eighths three to six, which lie nearer. What fades
    with distance is below 1.

    Shape: batches (N, T); rows that see fewer than 8 keys, or have no key of their own, are left out.
    State: sums for up to 256 heads; merge exact.
    Error: the standard error over rows stands beside each value: 5 % of the long range for 16 rows (median).
    NaN, Inf, empty: rows whose logits hold them are left out, `attention_validity` counts them; `None` without rows.
    References: Vig & Belinkov 2019, "Analyzing the structure of attention in a Transformer language model"
    (arXiv 1906.04284, mean distance); Liu et al. 2023, "Lost in the middle" (arXiv 2307.03172, start against middle).

    Example:
        >>> statistic = AttentionDistances()
        >>> for batch in example_attention(0):
        ...     statistic.update(batch)
        >>> found = {m.key: m.value for m in statistic.compute()}
        >>> round(found["attention_distance_mean{heads=min}"], 1)
        1.4
    """

    name = "attention_distances"
    title = "distance of attention"
    consumes = "attention"
    metrics = (DISTANCE, REACH, LONG_RANGE, START, BAND)
    counts_defects = True  # a NaN at a key that nobody sees says nothing

    def __init__(self, *, heads: bool = False) -> None:
        super().__init__(heads=heads)
        self._each = heads
        self._values = self.keep("values", HeadValues([*COLUMNS, *BAND_COLUMNS]))

    def add(self, batch: AttentionBatch) -> None:
        """Add a batch."""
        batch = batch.clean
        enough = (batch.counts >= FEWEST_KEYS) & (batch.positions != NO_KEY)
        batch = batch if bool(enough.all()) else batch.take(enough)
        if not len(batch):
            return
        distance, farthest = mean_distances(batch.weights, batch.seen, batch.positions)
        bands = band_masses(batch.cumulated, batch.positions, BANDS)  # (N, BANDS)
        columns = [distance, distance / farthest, _long_range(batch), *_start_and_middle(batch)]
        self._values.add(batch.heads, torch.cat([torch.stack(columns, 1), bands], 1))

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        measure, each = self._values.measure, self._each
        start, middle = (float(self._values.means(name).nanmean()) for name in ("start", "middle"))
        bands = {name: float(self._values.means(name).nanmean()) for name in BAND_COLUMNS}
        reached = [name for name, share in bands.items() if share > 0] or BAND_COLUMNS[:1]
        return [
            *measure(DISTANCE, "distance", each=each),
            *measure(REACH, "reach", each=each),
            *measure(LONG_RANGE, "long", each=each),
            START.measure(start / middle if middle > 0 else None),
            *(BAND.measure(bands[name], tokens=name) for name in reached),
        ]

    def oracle(self, batch: AttentionBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula, row by row."""
        rows = [row for row in plain_rows(batch) if len(row.shares) >= FEWEST_KEYS and row.own != NO_KEY]
        distance = [(row.head, _plain_distance(row)) for row in rows]
        reach = [
            (row.head, None if mean is None else mean / max(abs(key - row.own) for key in row.shares))
            for row, (_, mean) in zip(rows, distance, strict=True)
        ]
        far = [(row.head, _plain_long_range(row)) for row in rows]
        sides = [(row.head, *_plain_sides(row)) for row in rows]
        start = plain_heads("", [(head, value) for head, value, _ in sides], over=("mean",))["{heads=mean}"]
        middle = plain_heads("", [(head, value) for head, _, value in sides], over=("mean",))["{heads=mean}"]
        found = {
            **plain_heads(DISTANCE.name, distance, each=self._each),
            **plain_heads(REACH.name, reach, each=self._each),
            **plain_heads(LONG_RANGE.name, far, each=self._each),
            START.name: None if start is None or not middle else start / middle,
        }
        for least, beyond in pairwise((*map(int, BAND_COLUMNS), None)):
            band = [(row.head, _plain_band(row, least or 0, beyond)) for row in rows]
            share = plain_heads("", band, over=("mean",))["{heads=mean}"]
            if (share is not None and share > TRACE) or (least == 0 and not rows):
                found[f"{BAND.name}{{tokens={least}}}"] = share
        return found

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[AttentionDistances, Sequence[AttentionBatch]]]:
        """Yield causal texts with padding, a window and learned sinks, texts that see both sides, other texts' keys."""
        yield cls(heads=True), example_attention(seed, queries=12)
        both = example_attention(seed, causal=False, queries=12)
        yield cls(), both
        both[1].positions.fill_(NO_KEY)
        yield cls(), both[1:]


def _lengths(batch: AttentionBatch) -> Tensor:
    return batch.lasts - batch.firsts + 1


def _long_range(batch: AttentionBatch) -> Tensor:
    """Return the share of each row that goes far, NaN where it sees nothing far. Shape: (N,) float64."""
    length, own = _lengths(batch), batch.positions
    starts = torch.stack([batch.firsts + 1, own + length // FAR + 1], 1)
    ends = torch.stack([own - length // FAR, batch.lasts], 1)
    ends = torch.maximum(starts, ends)
    seen = torch.nn.functional.pad(batch.seen.double().cumsum(1), (1, 0))
    has = (stretch_masses(seen, starts, ends).sum(1) > 0) & (length >= LONG_TEXT)
    return torch.where(has, stretch_masses(batch.cumulated, starts, ends).sum(1), torch.nan)


def _start_and_middle(batch: AttentionBatch) -> tuple[Tensor, Tensor]:
    """Return the mean share of a key at the start, and of one in the middle, for queries near the end."""
    length, part = _lengths(batch), _lengths(batch) // PARTS
    begin, end = (batch.firsts + place * part for place in MIDDLE)
    starts, ends = torch.stack([batch.firsts + 1, begin], 1), torch.stack([batch.firsts + part, end], 1)
    late = (length >= LONG_TEXT) & (batch.positions > batch.lasts - part)
    whole = batch.seen.gather(1, batch.firsts[:, None])[:, 0]  # no window hides the start
    shares = stretch_masses(batch.cumulated, starts, ends) / (ends - starts)  # (N, 2)
    start, middle = torch.where((late & whole)[:, None], shares, torch.nan).unbind(1)
    return start, middle


def _plain_distance(row: PlainRow) -> float | None:
    total = sum(row.shares.values())  # nothing where a learned sink takes all
    return sum(share * abs(key - row.own) for key, share in row.shares.items()) / total if total else None


def _plain_long_range(row: PlainRow) -> float | None:
    length = row.last - row.first + 1
    inner = {key: share for key, share in row.shares.items() if row.first < key < row.last}
    far = [share for key, share in inner.items() if abs(key - row.own) > length // FAR]
    return sum(far) if far and length >= LONG_TEXT else None


def _plain_sides(row: PlainRow) -> tuple[float | None, float | None]:
    length = row.last - row.first + 1
    part = length // PARTS
    if length < LONG_TEXT or row.own <= row.last - part or row.first not in row.shares:
        return None, None
    start = [row.shares.get(key, 0.0) for key in range(row.first + 1, row.first + part)]
    middle = [row.shares.get(row.first + key, 0.0) for key in range(MIDDLE[0] * part, MIDDLE[1] * part)]
    return sum(start) / len(start), sum(middle) / len(middle)


def _plain_band(row: PlainRow, least: int, beyond: int | None) -> float:
    return sum(
        share
        for key, share in row.shares.items()
        if abs(key - row.own) >= least and (beyond is None or abs(key - row.own) < beyond)
    )
