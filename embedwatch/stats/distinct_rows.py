"""How many rows differ, and how many inputs they were made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch

from embedwatch.batch import VectorBatch
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.hashing import hash_integers
from embedwatch.sketches import Additive, SketchStatistic, SmallestKeys, example_batches

CAPACITY = 4096
"""Distinct rows that are told apart one by one: up to so many, less one, the number is exact."""
BOUND = 4
"""Standard errors within which an estimate lies."""

DISTINCT = Metric("distinct_rows", "Rows that differ bit for bit from every other.", "rows", headline=False)
RATIO = Metric("distinct_rows_ratio", "Share of rows that are left when each is counted once.", headline=False)
INPUTS = Metric(
    "distinct_inputs", "Tokens, texts or images that differ, of which rows were made.", "inputs", headline=False
)


class DistinctRows(SketchStatistic):
    """Number of rows that differ, their share of all, and the number of inputs that differ.

    It tells whether a model is asked the same again and again: then its rows are alike and nothing has collapsed. Where
    inputs differ and rows do not, the model gives one vector for many. Of some rows it may not be known what they were
    made of; they are left out of the number of inputs, which then may be too small.

    The same text in batches of another size or padding differs in its last bits; a model has a few ways to compute it,
    so the number of rows grows by a small factor.

    Kept are the k smallest hashes of contents, and of inputs. Until there are k of them the number is exact; then it is
    `(k - 1) / U_k`, with U_k the largest kept hash as a number in (0, 1).

    Shape: batches (N, D); rows with NaN or Inf and zero rows are left out, `validity` counts them.
    State: up to 4,096 hashes of each and one count; merge exact.
    Error: exact below 4,096 distinct ones; above, a standard error of `1 / √(k - 2)`, which is 1.6 %.
    Empty: no rows, no share, no inputs where none is known.
    References: Bar-Yossef et al. 2002, "Counting distinct elements in a data stream"; Beyer et al. 2007, "On synopses
    for distinct-value estimation under multiset operations" (unbiased form and error).

    Example:
        >>> statistic = DistinctRows()
        >>> statistic.update(VectorBatch(torch.tensor([[1.0, 2.0], [1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])))
        >>> [m.value for m in statistic.compute()]
        [3, 0.75, None]
    """

    name = "distinct_rows"
    title = "distinct rows"
    metrics = (DISTINCT, RATIO, INPUTS)

    def __init__(self, *, capacity: int = CAPACITY) -> None:
        super().__init__(capacity=capacity)
        self._count = self.keep("count", Additive(counts={"rows": ()}))
        self._hashes = self.keep("hashes", SmallestKeys(capacity, {}))
        self._inputs = self.keep("inputs", SmallestKeys(capacity, {}))

    def add(self, batch: VectorBatch) -> None:
        """Add a batch whose dimension fits."""
        directed = batch.directed
        self._count.add("rows", len(directed))
        self._hashes.add(directed.content)
        if directed.inputs is not None:
            self._inputs.add(hash_integers(directed.inputs))

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        rows = int(self._count["rows"])
        number, error = _number(self._hashes, rows)
        inputs, inputs_error = _number(self._inputs, rows)
        return [
            DISTINCT.measure(number, error=error),
            RATIO.measure(number / rows, error=None if error is None else error / rows) if rows else RATIO.missing(),
            INPUTS.measure(inputs or None, error=inputs_error),
        ]

    def tolerance(self, metric: str) -> float:
        """Return the error bound against the oracle: exact until some are left out, then four standard errors."""
        sketch = self._inputs if metric == INPUTS.name else self._hashes
        return BOUND / math.sqrt(len(sketch.keys) - 2) if sketch.full else 1e-9

    def oracle(self, batch: VectorBatch) -> Mapping[str, float | None]:
        """Return its measurements by comparing all rows."""
        rows = batch.rows.double()
        counted = rows.isfinite().all(1) & (rows != 0).any(1)
        rows = rows[counted]
        number = len(torch.unique(rows, dim=0)) if len(rows) else 0
        inputs = None if batch.inputs is None else len(set(batch.inputs[counted].tolist())) or None
        return {
            DISTINCT.name: number,
            RATIO.name: number / len(rows) if len(rows) else None,
            INPUTS.name: inputs,
        }

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[SketchStatistic, Sequence[VectorBatch]]]:
        """Yield rows without and with repeats, fewer and more than are told apart one by one, and rows of inputs."""
        whole = VectorBatch.concat(example_batches(seed, sizes=(400,)))
        repeated = torch.cat([whole.rows, whole.rows[:60], whole.rows[:1].expand(100, -1)])
        sizes = (300, 1, len(repeated) - 301)
        batch = VectorBatch(repeated, torch.arange(len(repeated)), source=whole.source)
        of_inputs = replace(batch, inputs=torch.arange(len(repeated)) // 2)
        yield cls(), of_inputs.split(sizes)
        yield cls(capacity=128), of_inputs.split(sizes)
        yield cls(), batch.split(sizes)
        yield cls(capacity=128), batch.split(sizes)
        yield cls(), example_batches(seed)


def _number(sketch: SmallestKeys, rows: int) -> tuple[float, float | None]:
    """Return how many keys differ, at most one for each row, and the standard error where that is an estimate."""
    kept = sketch.keys
    if not sketch.full:
        return len(kept), None
    largest = (int(kept[-1]) + 2**63) / 2**64
    number = min(float(rows), (len(kept) - 1) / largest)
    return number, number / math.sqrt(len(kept) - 2)
