"""AttentionMaps: where the queries of each head look, along texts of any length."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from embedwatch.batch import AttentionBatch
from embedwatch.core.exhibit import Exhibit
from embedwatch.geometry.attention import NO_KEY, stretch_masses
from embedwatch.sketches.heads import HeadArrays

__all__ = ["AttentionMaps"]

BINS = 32
"""Rows and columns of a map."""
DIGITS = 6
"""Digits of a share that a map holds."""


class AttentionMaps(HeadArrays):
    """Mean attention of each head from query to key, both cut to 32 equal parts of the text. Merge is exact."""

    def __init__(self) -> None:
        super().__init__(rows=BINS, columns=BINS + 1)

    def offer(self, batch: AttentionBatch) -> None:
        """Add the rows of a batch that have a key of their own; the last column counts them."""
        known = batch.positions != NO_KEY
        batch = batch if bool(known.all()) else batch.take(known)
        if not len(batch):
            return
        length = batch.lasts - batch.firsts + 1
        parts = torch.arange(BINS + 1, device=length.device)
        edges = batch.firsts[:, None] + parts * length[:, None] // BINS  # (N, BINS + 1)
        masses = stretch_masses(batch.cumulated, edges[:, :-1], edges[:, 1:])  # (N, BINS)
        rows = ((batch.positions - batch.firsts) * BINS // length).clamp(0, BINS - 1)
        self.add(batch.heads, torch.cat([masses, torch.ones_like(masses[:, :1])], 1), rows)

    def exhibit(self, heads: Mapping[str, list[int]]) -> Exhibit:
        """Return the mean map of each of these groups of heads, under its name."""
        sums = self.sums
        rows: list[tuple[str, int, int, float]] = []
        for name, group in heads.items():
            rows += _cells(name, sums[[head for head in group if head < len(sums)]].sum(0))
        caption = f"Attention from query (row) to key (column), each in {BINS} equal parts of the text."
        return Exhibit.build("attention_map", "matrix", caption, ("head", "query", "key", "attention"), rows)


def _cells(name: str, held: Tensor) -> list[tuple[str, int, int, float]]:
    """Return the cells of one map, without the queries that never came."""
    filled = held[:, BINS].nonzero()[:, 0]
    means = held[filled, :BINS] / held[filled, BINS:]
    return [
        (name, query, key, round(share, DIGITS))
        for query, shares in zip(filled.tolist(), means.tolist(), strict=True)
        for key, share in enumerate(shares)
    ]
