"""How spread out attention is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch

from embedwatch.batch import AttentionBatch
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.attention import normalised_entropies
from embedwatch.sketches import BatchStatistic, HeadValues, PlainRow, example_attention, plain_heads, plain_rows

UNIFORM = 0.98
"""A head with more entropy looks everywhere alike; the most even head of three trained models has 0.951."""
FEWEST_KEYS = 8
"""Inner keys below which their entropy is a matter of chance."""

ENTROPY = Metric(
    "attention_entropy_ratio",
    "Entropy of attention over that of an even look at all visible keys.",
    healthy="1 in a new model, 0.2 to 0.8 on average in trained ones",
    labels=("heads",),
)
INNER = Metric(
    "attention_inner_entropy_ratio",
    "The same over the keys between the first and the last real one, which serve as sinks.",
    healthy="1 in a new model, 0.5 to 0.85 on average in trained ones",
    labels=("heads",),
)
UNIFORM_HEADS = Metric(
    "attention_uniform_heads_ratio",
    f"Share of heads whose entropy is above {UNIFORM:g} of an even look.",
    healthy="1 in a new model, 0 in trained ones",
)


class AttentionEntropy(BatchStatistic[AttentionBatch]):
    """Entropy of attention over its maximum, head by head, with and without the keys that serve as sinks.

    `-Σ p ln p / ln n` over the n keys that a query sees, p being their shares without that of a learned sink. In
    trained models most heads give much to the first or to the last token; how they spread the rest is the entropy
    between.

    Shape: batches (N, T); rows that see one key, or fewer than 8 inner ones, are left out.
    State: sums for up to 256 heads; merge exact.
    Error: the standard error over rows stands beside each value; 16 rows give 4 % (median) of one head's entropy.
    NaN, Inf, empty: rows whose logits hold them are left out, `attention_validity` counts them; `None` without rows.
    References: Zhai et al. 2023, "Stabilizing Transformer training by preventing attention entropy collapse"
    (arXiv 2303.06296); Clark et al. 2019, "What does BERT look at?" (arXiv 1906.04341, entropy and sinks of heads).

    Example:
        >>> statistic = AttentionEntropy()
        >>> for batch in example_attention(0):
        ...     statistic.update(batch)
        >>> found = {m.key: m.value for m in statistic.compute()}
        >>> round(found["attention_entropy_ratio{heads=max}"], 2)
        0.85
    """

    name = "attention_entropy"
    title = "entropy of attention"
    consumes = "attention"
    metrics = (ENTROPY, INNER, UNIFORM_HEADS)
    counts_defects = True  # a NaN at a key that nobody sees says nothing

    def __init__(self, *, heads: bool = False) -> None:
        super().__init__(heads=heads)
        self._each = heads
        self._values = self.keep("values", HeadValues(["entropy", "inner"]))

    def add(self, batch: AttentionBatch) -> None:
        """Add a batch."""
        batch = batch.clean
        if not len(batch):
            return
        inner = batch.scores.scatter(1, torch.stack([batch.firsts, batch.lasts], 1), -torch.inf)
        enough = (inner > -torch.inf).sum(1) >= FEWEST_KEYS
        inner_entropies = torch.where(enough, normalised_entropies(inner), torch.nan)
        self._values.add(batch.heads, torch.stack([normalised_entropies(batch.scores), inner_entropies], 1))

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        means = self._values.means("entropy")
        known = means[~means.isnan()]
        return [
            *self._values.measure(ENTROPY, "entropy", each=self._each),
            *self._values.measure(INNER, "inner", each=self._each),
            UNIFORM_HEADS.measure(float((known > UNIFORM).double().mean()) if len(known) else None),
        ]

    def exhibits(self) -> list[Exhibit]:
        """Return the entropy of each head."""
        columns = (self._values.means(name).tolist() for name in ("entropy", "inner"))
        rows = [(head, *map(_known, values)) for head, values in enumerate(zip(*columns, strict=True))]
        return [
            Exhibit.build(
                "attention_entropy",
                "curve",
                "Entropy of each head over that of an even look, and between the first and the last token.",
                ("head", "entropy", "inner_entropy"),
                rows,
            )
        ]

    def oracle(self, batch: AttentionBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula, row by row."""
        rows = list(plain_rows(batch))
        entropy = [(row.head, _entropy(row, row.scores.keys())) for row in rows]
        inner = [(row.head, row.scores.keys() - {row.first, row.last}) for row in rows]
        between = [
            (row.head, _entropy(row, keys) if len(keys) >= FEWEST_KEYS else None)
            for row, (_, keys) in zip(rows, inner, strict=True)
        ]
        of_head = plain_heads("", entropy, over=("mean",), each=True)
        known = [value for head, value in of_head.items() if head != "{heads=mean}" and value is not None]
        return {
            **plain_heads(ENTROPY.name, entropy, each=self._each),
            **plain_heads(INNER.name, between, each=self._each),
            UNIFORM_HEADS.name: sum(value > UNIFORM for value in known) / len(known) if known else None,
        }

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[AttentionEntropy, Sequence[AttentionBatch]]]:
        """Yield causal texts with padding, a window and learned sinks, and texts that see both sides."""
        yield cls(), example_attention(seed)
        yield cls(heads=True), example_attention(seed, causal=False)


def _entropy(row: PlainRow, keys: Iterable[int]) -> float | None:
    scores = [row.scores[key] for key in keys]
    if len(scores) < 2:
        return None
    top = max(scores)
    powers = [math.exp(score - top) for score in scores]
    shares = [power / math.fsum(powers) for power in powers]
    return -math.fsum(share * math.log(share) for share in shares if share > 0) / math.log(len(shares))


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
