"""How many rows differ."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch

from embedwatch.batch import VectorBatch
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.sketches import Additive, SketchStatistic, SmallestKeys, example_batches

CAPACITY = 4096
"""Distinct rows that are told apart one by one: up to so many, less one, the number is exact."""
BOUND = 4
"""Standard errors within which an estimate lies."""

DISTINCT = Metric("distinct_rows", "Rows that differ bit for bit from every other.", "rows", headline=False)
RATIO = Metric("distinct_rows_ratio", "Share of rows that are left when each is counted once.", headline=False)


class DistinctRows(SketchStatistic):
    """Number of rows that differ, and their share of all.

    It tells whether a model is asked the same again and again: then its rows are alike and nothing has collapsed. The
    same text in batches of another size or padding differs in its last bits; a model has a few ways to compute it, so
    the number grows by a small factor.

    Kept are the k smallest content hashes. Until there are k of them the number is exact; then it is `(k - 1) / U_k`,
    with U_k the largest kept hash as a number in (0, 1).

    Shape: batches (N, D); rows with NaN or Inf and zero rows are left out, `validity` counts them.
    State: up to 4,096 hashes and one count; merge exact.
    Error: exact below 4,096 distinct rows; above, a standard error of `1 / √(k - 2)`, which is 1.6 %.
    Empty: no rows, and no share.
    References: Bar-Yossef et al. 2002, "Counting distinct elements in a data stream"; Beyer et al. 2007, "On synopses
    for distinct-value estimation under multiset operations" (unbiased form and error).

    Example:
        >>> statistic = DistinctRows()
        >>> statistic.update(VectorBatch(torch.tensor([[1.0, 2.0], [1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])))
        >>> [m.value for m in statistic.compute()]
        [3, 0.75]
    """

    name = "distinct_rows"
    title = "distinct rows"
    metrics = (DISTINCT, RATIO)

    def __init__(self, *, capacity: int = CAPACITY) -> None:
        super().__init__(capacity=capacity)
        self._count = self.keep("count", Additive(counts={"rows": ()}))
        self._hashes = self.keep("hashes", SmallestKeys(capacity, {}))

    def add(self, batch: VectorBatch) -> None:
        """Add a batch whose dimension fits."""
        hashes = batch.directed.content
        self._count.add("rows", len(hashes))
        self._hashes.add(hashes)

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        rows, kept = int(self._count["rows"]), self._hashes.keys
        if not self._hashes.full:
            return [DISTINCT.measure(len(kept)), RATIO.measure(len(kept) / rows if rows else None)]
        largest = (int(kept[-1]) + 2**63) / 2**64
        number = min(float(rows), (len(kept) - 1) / largest)
        error = number / math.sqrt(len(kept) - 2)
        return [DISTINCT.measure(number, error=error), RATIO.measure(number / rows, error=error / rows)]

    def tolerance(self, metric: str) -> float:
        """Return the error bound against the oracle: exact until rows are sampled, then four standard errors."""
        del metric
        return BOUND / math.sqrt(len(self._hashes.keys) - 2) if self._hashes.full else 1e-9

    def oracle(self, batch: VectorBatch) -> Mapping[str, float | None]:
        """Return its measurements by comparing all rows."""
        rows = batch.rows.double()
        rows = rows[rows.isfinite().all(1) & (rows != 0).any(1)]
        number = len(torch.unique(rows, dim=0)) if len(rows) else 0
        return {DISTINCT.name: number, RATIO.name: number / len(rows) if len(rows) else None}

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[SketchStatistic, Sequence[VectorBatch]]]:
        """Yield rows without and with repeats, fewer and more than are told apart one by one."""
        yield cls(), example_batches(seed)
        whole = VectorBatch.concat(example_batches(seed, sizes=(400,)))
        repeated = torch.cat([whole.rows, whole.rows[:60], whole.rows[:1].expand(100, -1)])
        batch = VectorBatch(repeated, torch.arange(len(repeated)), source=whole.source)
        yield cls(), batch.split((300, 1, len(repeated) - 301))
        yield cls(capacity=128), batch.split((300, 1, len(repeated) - 301))
