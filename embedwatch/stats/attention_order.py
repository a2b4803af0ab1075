"""Whether attention can tell places: equal logits for the same token at two of them give it away."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from embedwatch.batch import AttentionBatch
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.sketches import Additive, BatchStatistic, example_attention

NEAR = 8
"""A query's own key and those just before it: so near, relative positions share no bucket, and those on one side alone
no distance."""
EQUAL = 2e-6
"""Logits are equal that differ by so little of the largest: what rounding in float32 leaves."""
ROUNDED = 5e-7
"""Logits were of half precision that lie so near to what it can hold, of themselves; scaled in float32 afterwards."""
HALVES = (torch.float16, torch.bfloat16)

TIED = Metric(
    "attention_tied_rows_ratio",
    f"Share of queries that give two of the {NEAR} keys up to their own the same logit, but not all of them.",
    healthy="0; where attention knows no places, the share of texts in which a token repeats so soon",
)
COMPARED = Metric(
    "attention_compared_rows_total",
    "Rows whose near logits were compared.",
    "rows",
    "counter",
    digits=9,
    headline=False,
)

UNPLACED = Metric(
    "attention_unplaced_rows_total",
    "Compared rows that see no key after their own, in a model of which no part holds positions.",
    "rows",
    "counter",
    digits=9,
    headline=False,
)


class AttentionOrder(BatchStatistic[AttentionBatch]):
    """Share of sampled rows in which two near keys have exactly the same logit.

    Where positions are added to tokens, turn queries and keys, or are a bias on scores, no two keys have the same
    logit, not even those of the same token. Without them all that tells two keys apart is what they hold: in an encoder
    the same token has the same logit wherever it stands, in each layer; in a decoder in the first one, since above it
    each place has seen another past. No token need be known for that.

    Looked at are the 8 keys up to the query's own, since T5 gives far keys a common bias, and ALiBi in an encoder keys
    on both sides. Rows whose near logits are all the same say nothing: the query, or the text, is one token repeated.
    Neither do rows whose logits are of half precision, where rounding makes them equal; also where they were scaled
    afterwards, in float32, by 1 / √K or 1 / K.

    Where no part of a model holds positions, rows that see no key after their own are counted apart: there the causal
    mask is meant to tell an order. Whoever has a part for them, and makes no use of it, looks the same in numbers only.

    Dropout on the embedding tells equal tokens apart: a training that has it shows nothing of this, its model at work
    does.

    Shape: batches (N, T); rows that see fewer than 2 near keys are left out, and those without a key of their own.
    State: three counts; merge exact.
    NaN, Inf, empty: rows whose logits hold them are left out, `attention_validity` counts them; `None` without rows.
    References: Vaswani et al. 2017, section 3.5 (https://arxiv.org/abs/1706.03762): without positions a model makes no
    use of the order of a sequence; Kazemnejad et al. 2023, "The impact of positional encoding on length generalization"
    (https://arxiv.org/abs/2305.19466): decoders can learn it from the causal mask.

    Example:
        >>> statistic = AttentionOrder()
        >>> for batch in example_attention(0):
        ...     statistic.update(batch)
        >>> statistic.compute()[0].value
        0.0
    """

    name = "attention_order"
    title = "attention that knows places"
    consumes = "attention"
    metrics = (TIED, COMPARED, UNPLACED)
    counts_defects = True  # a NaN at a key that nobody sees says nothing

    def __init__(self) -> None:
        super().__init__()
        self._rows = self.keep("rows", Additive(counts={"compared": (), "tied": (), "unplaced": ()}))

    def add(self, batch: AttentionBatch) -> None:
        """Add a batch."""
        batch = batch.clean
        if not len(batch):
            return
        compared, tied = _ties(*_near(batch), batch.head_size)
        self._rows.add("compared", int(compared.sum()))
        self._rows.add("tied", int((compared & tied).sum()))
        if not batch.placed:
            self._rows.add("unplaced", int((compared & ~_looks_ahead(batch)).sum()))

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        compared, tied, unplaced = (
            int(self._rows[name]) if name in self._rows else 0 for name in ("compared", "tied", "unplaced")
        )
        ratio = tied / compared if compared else None
        return [TIED.measure(ratio), COMPARED.measure(compared), UNPLACED.measure(unplaced)]

    def oracle(self, batch: AttentionBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula, row by row."""
        clean = batch.clean
        told = []
        for logits, seen, own in zip(clean.logits.float(), clean.seen, clean.positions.tolist(), strict=True):
            near = [float(logits[key]) for key in range(max(own - NEAR + 1, 0), own + 1) if seen[key]]
            told.append((_plain_tied(near, clean.head_size), bool(seen[own + 1 :].any())))
        verdicts = [verdict for verdict, _ in told if verdict is not None]
        causal = sum(verdict is not None and not ahead for verdict, ahead in told)
        return {
            TIED.name: sum(verdicts) / len(verdicts) if verdicts else None,
            COMPARED.name: len(verdicts),
            UNPLACED.name: 0 if clean.placed else causal,
        }

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[AttentionOrder, Sequence[AttentionBatch]]]:
        """Yield texts without ties, texts in which a token repeats, logits of half precision, models without places."""
        yield cls(), example_attention(seed, causal=False)
        tied = example_attention(seed)
        for batch in tied:
            batch.logits[::3, 1:] = batch.logits[::3, :-1].clone()  # the last two are equal where the query sees both
            batch.logits[::3, 1::2] = batch.logits[::3, ::2][:, : batch.logits[::3, 1::2].shape[1]]
        yield cls(), tied
        for number, batch in enumerate(tied[1:]):
            rounded = batch.logits.bfloat16().float()
            batch.logits = rounded / math.sqrt(batch.head_size) if number else rounded
        yield cls(), tied
        for causal in (True, False):
            batches = example_attention(seed, causal=causal)
            for batch in batches:
                batch.placed = False
            yield cls(), batches


def _near(batch: AttentionBatch) -> tuple[Tensor, Tensor]:
    """Return the logits of the near keys of each row, and which it has. Shape: (N, NEAR) float64, bool."""
    keys = batch.positions[:, None] - torch.arange(NEAR, device=batch.positions.device)  # (N, NEAR)
    has = (keys >= 0) & (batch.positions >= 0)[:, None]
    place = keys.clamp(0, batch.seen.shape[1] - 1)
    has &= batch.seen.gather(1, place)
    return batch.scores.gather(1, place).double().masked_fill(~has, 0.0), has


def _looks_ahead(batch: AttentionBatch) -> Tensor:
    """Return the rows that see a key after their own. Shape: (N,) bool."""
    keys = torch.arange(batch.seen.shape[1], device=batch.seen.device)
    return (batch.seen & (keys > batch.positions[:, None])).any(1)


def _ties(logits: Tensor, has: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return which rows can be compared, and which have two equal logits. Shape: (N, NEAR) twice -> (N,) bool twice."""
    within = EQUAL * logits.abs().amax(1)  # (N,)
    lowest, highest = logits.masked_fill(~has, torch.inf).amin(1), logits.masked_fill(~has, -torch.inf).amax(1)
    compared = (highest - lowest > within) & ~_is_rounded(logits, size)
    gaps = logits.masked_fill(~has, torch.nan).sort(1).values.diff(dim=1)  # NaN comes last
    return compared, (gaps <= within[:, None]).any(1)


def _is_rounded(logits: Tensor, size: int) -> Tensor:
    """Return the rows that float16 or bfloat16 held before they were scaled. Shape: (N, M) -> (N,) bool."""
    held = []
    for factor in _factors(size):
        scaled = logits * factor
        held += [((scaled.to(kind).double() - scaled).abs() <= ROUNDED * scaled.abs()).all(1) for kind in HALVES]
    return torch.stack(held).any(0)


def _factors(size: int) -> tuple[float, ...]:
    """Return by what scores may have been divided after they were rounded."""
    return (1.0, math.sqrt(size), float(size)) if size else (1.0,)


def _plain_tied(row: Sequence[float], size: int) -> bool | None:
    if len(row) < 2 or any(_holds(row, kind, factor) for kind in HALVES for factor in _factors(size)):
        return None
    within = EQUAL * max(map(abs, row))
    if not max(row) - min(row) > within:
        return None
    return any(abs(one - other) <= within for place, one in enumerate(row) for other in row[:place])


def _holds(row: Sequence[float], kind: torch.dtype, factor: float) -> bool:
    scaled = [value * factor for value in row]
    return all(math.isclose(float(torch.tensor(value).to(kind)), value, rel_tol=ROUNDED) for value in scaled)
