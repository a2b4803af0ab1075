"""Rows of attention that are no numbers, and rows that see nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch

from embedwatch.batch import AttentionBatch
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.sketches import BatchStatistic, HeadValues, example_attention

ROWS = Metric("attention_rows_total", "Sampled rows of attention.", "rows", "counter", digits=9, headline=False)
NONFINITE = Metric(
    "attention_nonfinite_rows_total",
    "Sampled rows whose softmax or whose output is NaN or infinite.",
    "rows",
    "counter",
    healthy="0",
    digits=9,
)
UNSEEING = Metric(
    "attention_unseeing_rows_total", "Sampled rows that see no key.", "rows", "counter", digits=9, headline=False
)


class AttentionValidity(BatchStatistic[AttentionBatch]):
    """Number of sampled rows, of those that are no numbers, and of those that see no key.

    A row is no number where a logit that it sees, or that of its learned sink, is NaN or +Inf, where all that it sees
    are -Inf, or where the norm of its output is NaN or infinite. A logit of -Inf beside others is a mask and takes
    nothing; logits of keys that a row does not see say nothing.

    Shape: batches (N, T).
    State: counts for up to 256 heads; merge exact.
    NaN, Inf, empty: what is counted; zeros without rows.

    Example:
        >>> statistic = AttentionValidity()
        >>> batch, *_ = example_attention(0)
        >>> batch.logits[7] = math.nan
        >>> statistic.update(batch)
        >>> [m.value for m in statistic.compute()]
        [20, 1, 0]
    """

    name = "attention_validity"
    title = "sound rows of attention"
    consumes = "attention"
    metrics = (ROWS, NONFINITE, UNSEEING)
    counts_defects = True

    def __init__(self) -> None:
        super().__init__()
        self._values = self.keep("values", HeadValues(["rows", "nonfinite", "unseeing"]))

    def add(self, batch: AttentionBatch) -> None:
        """Add a batch."""
        sound = batch.finite
        if batch.outputs is not None:
            sound = sound & torch.isfinite(batch.outputs.float())
        columns = [torch.ones_like(sound), ~sound, ~batch.visible.any(1)]
        marks = torch.stack(columns, 1).double()
        self._values.add(batch.heads, torch.where(marks > 0, marks, torch.nan))  # only what is known is counted

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        counts = (int(self._values.counts(name).sum()) for name in ("rows", "nonfinite", "unseeing"))
        return [metric.measure(count) for metric, count in zip(self.metrics, counts, strict=True)]

    def exhibits(self) -> list[Exhibit]:
        """Return the heads that have rows which are no numbers."""
        rows, bad = (self._values.counts(name).tolist() for name in ("rows", "nonfinite"))
        found = [(head, count, rows[head]) for head, count in enumerate(bad) if count]
        return [
            Exhibit.build(
                "attention_nonfinite_heads",
                "table",
                "Heads with rows that are NaN or infinite.",
                ("head", "nonfinite", "rows"),
                found,
            )
        ]

    def oracle(self, batch: AttentionBatch) -> Mapping[str, float | None]:
        """Return its measurements by looking at each row."""
        bad = unseeing = 0
        for place, (logits, visible) in enumerate(
            zip(batch.logits.float().tolist(), batch.visible.tolist(), strict=True)
        ):
            seen = [logit for logit, is_seen in zip(logits, visible, strict=True) if is_seen]
            others = [] if batch.outputs is None else [float(batch.outputs[place].float())]
            sink = -math.inf if batch.sinks is None else float(batch.sinks[place].float())
            broken = any(math.isnan(logit) or logit == math.inf for logit in (*seen, sink))
            masked = bool(seen) and all(logit == -math.inf for logit in seen)
            bad += broken or masked or not all(map(math.isfinite, others))
            unseeing += not seen
        return {ROWS.name: len(batch), NONFINITE.name: bad, UNSEEING.name: unseeing}

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[AttentionValidity, Sequence[AttentionBatch]]]:
        """Yield sound rows, and rows of which some are no numbers or see nothing."""
        yield cls(), example_attention(seed)
        broken = example_attention(seed, causal=False)
        broken[0].logits[3, 5], broken[0].logits[4] = math.nan, -math.inf
        broken[1].visible[2] = False
        outputs = torch.ones(len(broken[2]))
        outputs[1] = math.inf
        broken[2].outputs = outputs
        yield cls(), broken
