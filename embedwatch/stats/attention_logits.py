"""How large the logits of attention are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch

from embedwatch.batch import AttentionBatch
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.attention import score_spreads
from embedwatch.sketches import BatchStatistic, HeadValues, example_attention, plain_heads, plain_rows

LARGEST = Metric(
    "attention_logit_max",
    "Largest logit of the sampled rows of a head; the largest of all rows lies between it and the bound.",
    healthy="< 100 in most models",
    labels=("heads",),
)
BOUND = Metric(
    "attention_logit_bound",
    "What no logit of a head exceeds, sampled or not.",
    labels=("heads",),
    headline=False,
)
SPREAD = Metric(
    "attention_logit_spread",
    "Standard deviation of a query's logits over the keys that it sees; 1 for queries and keys of unit variance, "
    "whatever the size of the heads.",
    healthy="1 to 3 on average in trained models, less in new ones",
    labels=("heads",),
)
UNSCALED = Metric(
    "attention_unscaled_spread_ratio",
    "The same over √d_k: near 1 where queries and keys have unit variance and their product was not scaled down.",
    labels=("heads",),
    headline=False,
)


class AttentionLogits(BatchStatistic[AttentionBatch]):
    """Largest logit of the sample and its bound, and how far the logits of a query are spread.

    Logits are taken as the softmax takes them. Of entries with variance 1, `q·k` has the standard deviation √d_k, and
    `q·k / √d_k` has 1. The largest of a sample of 16 queries a head is 82 % of the true one (median of a random model);
    `bounds`, such as max ‖q‖ · max ‖k‖ · scale, holds for all.

    Shape: batches (N, T); rows that see one key have no spread.
    State: sums and maxima for up to 256 heads; merge exact.
    NaN, Inf, empty: rows whose logits hold them are left out, bounds that hold them too; `None` without rows.
    References: Vaswani et al. 2017, "Attention is all you need" (arXiv 1706.03762, section 3.2.1); Wortsman et al.
    2023, "Small-scale proxies for large-scale Transformer training instabilities" (arXiv 2309.14322, section 3.1).

    Example:
        >>> statistic = AttentionLogits()
        >>> for batch in example_attention(0):
        ...     statistic.update(batch)
        >>> found = {m.key: m.value for m in statistic.compute()}
        >>> round(found["attention_logit_spread{heads=min}"], 1)
        1.0
    """

    name = "attention_logits"
    title = "logits of attention"
    consumes = "attention"
    metrics = (LARGEST, BOUND, SPREAD, UNSCALED)
    counts_defects = True  # a NaN at a key that nobody sees says nothing

    def __init__(self, *, heads: bool = False) -> None:
        super().__init__(heads=heads)
        self._each = heads
        self._values = self.keep("values", HeadValues(["largest", "bound", "spread", "unscaled"]))

    def add(self, batch: AttentionBatch) -> None:
        """Add a batch."""
        batch = batch.clean
        if not len(batch):
            return
        largest = batch.scores.amax(1).double()
        bounds = torch.full_like(largest, torch.nan) if batch.bounds is None else batch.bounds.double()
        spread = score_spreads(batch.scores)
        columns = [largest, bounds, spread, spread / math.sqrt(batch.head_size)]
        self._values.add(batch.heads, torch.stack(columns, 1))

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        measure, each = self._values.measure, self._each
        return [
            *measure(LARGEST, "largest", each=each, largest=True),
            *measure(BOUND, "bound", each=each, largest=True),
            *measure(SPREAD, "spread", each=each),
            *measure(UNSCALED, "unscaled", each=each),
        ]

    def oracle(self, batch: AttentionBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula, row by row."""
        rows = list(plain_rows(batch))
        bounds = [math.nan] * len(batch) if batch.bounds is None else batch.bounds.tolist()
        spread = [(row.head, _deviation(list(row.scores.values()))) for row in rows]
        unscaled = [(head, None if std is None else std / batch.head_size**0.5) for head, std in spread]
        largest = [(row.head, max(row.scores.values())) for row in rows]
        bound = [(row.head, bounds[row.place]) for row in rows]
        return {
            **plain_heads(LARGEST.name, largest, each=self._each, largest=True),
            **plain_heads(BOUND.name, bound, each=self._each, largest=True),
            **plain_heads(SPREAD.name, spread, each=self._each),
            **plain_heads(UNSCALED.name, unscaled, each=self._each),
        }

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[AttentionLogits, Sequence[AttentionBatch]]]:
        """Yield causal texts with padding, a window and learned sinks, and texts that see both sides."""
        yield cls(heads=True), example_attention(seed)
        yield cls(), example_attention(seed, causal=False)


def _deviation(scores: list[float]) -> float | None:
    if len(scores) < 2:
        return None
    mean = math.fsum(scores) / len(scores)
    return math.sqrt(math.fsum((score - mean) ** 2 for score in scores) / len(scores))
