"""AttentionBatch: sampled query rows of one attention layer, and what several statistics need of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from embedwatch.batch.rows import Rows, check_column, check_matrix, check_numbers
from embedwatch.core.errors import UsageError

__all__ = ["AttentionBatch"]


@dataclass(eq=False)
class AttentionBatch(Rows):
    """Sampled query rows of one attention layer: one row for each head of each sampled query.

    Where a value is not known the field is `None`. Batches of one layer may see different numbers of keys; `concat`
    fills up with keys that nobody sees.

    Args:
        logits: (N, T) scores of a query against all keys as the softmax takes them: scaled, capped, with every bias.
        visible: (N, T) bool, the keys that the query may attend to; padding is none of them.
        positions: (N,) int64 index of the query's own key; -1 where it has none, as in cross-attention.
        heads: (N,) int64 head of the query.
        queries: (N,) int64 identity of the query: the same for all heads that look from one token.
        firsts, lasts: (N,) int64 index of the first and the last real key of the query's sequence, seen by it or not.
        head_size: K, for the spread that √d_k predicts.
        outputs: (N,) Euclidean norm of what the head puts out for the query.
        bounds: (N,) what no logit of this head exceeds in the whole layer, sampled or not.
        sinks: (N,) logit of a learned sink: it takes a share of attention and belongs to no key.
        placed: whether anything in the model holds positions; true where that is not known.
        segment: segment of the Space.
    """

    kind: ClassVar[str] = "attention"

    logits: Tensor
    visible: Tensor
    positions: Tensor
    heads: Tensor
    queries: Tensor
    firsts: Tensor
    lasts: Tensor
    head_size: int
    outputs: Tensor | None = None
    bounds: Tensor | None = None
    sinks: Tensor | None = None
    placed: bool = True
    segment: str = "all"

    def __post_init__(self) -> None:
        check_matrix("logits", self.logits)
        if self.visible.shape != self.logits.shape or self.visible.dtype != torch.bool:
            raise UsageError(
                f"`visible` must be bool of shape {tuple(self.logits.shape)}, got {self.visible.dtype} "
                f"{tuple(self.visible.shape)}; give the mask in the shape of the logits"
            )
        for name in ("positions", "heads", "queries", "firsts", "lasts"):
            check_column(name, getattr(self, name), len(self.logits))
        for name in ("outputs", "bounds", "sinks"):
            check_numbers(name, getattr(self, name), len(self.logits))

    @classmethod
    def concat(cls, batches: Sequence[AttentionBatch]) -> AttentionBatch:
        """Join batches of one layer; those with fewer keys are filled up with keys that nobody sees."""
        keys = max(batch.logits.shape[1] for batch in batches)
        return super().concat([_with_keys(batch, keys) for batch in batches])

    @cached_property
    def seen(self) -> Tensor:
        """The keys that take part: visible, and not masked by a logit of -Inf. Shape: (N, T) bool."""
        return self.visible & (self.logits.float() != -torch.inf)

    @cached_property
    def counts(self) -> Tensor:
        """Number of keys that each row sees. Shape: (N,) int64."""
        return self.seen.sum(1)

    @cached_property
    def scores(self) -> Tensor:
        """The logits of the keys that each row sees, in float32; -Inf at all others. Shape: (N, T)."""
        return self.logits.float().masked_fill(~self.seen, -torch.inf)

    @cached_property
    def finite(self) -> Tensor:
        """Rows without NaN and Inf among what the softmax takes, whose softmax is a number. Shape: (N,) bool."""
        finite = torch.isfinite(self.scores.amax(1)) | ~self.visible.any(1)
        if self.sinks is None:
            return finite
        return finite & (self.sinks.float() < torch.inf)  # NaN is not; a sink at -Inf takes nothing

    @property
    def clean(self) -> AttentionBatch:
        """The rows that are finite and see a key."""
        return self if self._cleaned is None else self._cleaned  # a batch without rows is false

    @cached_property
    def _cleaned(self) -> AttentionBatch | None:
        """The batch `clean` where it is another one: a batch that held itself would stay until a garbage collection."""
        good = self.finite & (self.counts > 0)
        return None if bool(good.all()) else self.take(good)

    @cached_property
    def weights(self) -> Tensor:
        """Attention of each row over the visible keys, in float32; zero for a row that sees no key. Shape: (N, T).

        Rows sum to 1, or to less where a learned sink takes a share.
        """
        scores = self.scores
        if self.sinks is not None:
            scores = torch.cat([scores, self.sinks.float()[:, None]], 1)  # (N, T + 1)
        return torch.softmax(scores, dim=1)[:, : self.logits.shape[1]].nan_to_num(0.0)

    @cached_property
    def cumulated(self) -> Tensor:
        """Attention that the keys before each place take together, in float64. Shape: (N, T + 1)."""
        return torch.nn.functional.pad(self.weights.double().cumsum(1), (1, 0))


def _with_keys(batch: AttentionBatch, keys: int) -> AttentionBatch:
    """Return the batch with so many keys, those that are new unseen."""
    more = keys - batch.logits.shape[1]
    if not more:
        return batch
    pad = torch.nn.functional.pad
    return replace(batch, logits=pad(batch.logits, (0, more)), visible=pad(batch.visible, (0, more)))
