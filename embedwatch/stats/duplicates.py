"""Exact duplicates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.hashing import hash_integers
from embedwatch.sketches import Additive, SketchStatistic, SmallestKeys, example_batches

CAPACITY = 1 << 16
"""Distinct rows that are counted one by one: up to so many the answer is exact."""
CELLS = 1 << 16
NAMED_GROUPS = 50
NAMING_ROWS = 4096
"""Rows sampled by their identity: where a row is repeated very often, it is among them, and can be named."""
HEAVY_SHARE = 1e-4
"""A row that makes this share of the stream, and stands out from the cells of others, is counted apart."""

RATIO = Metric(
    "duplicate_rows_ratio",
    "Share of rows that equal an earlier row bit for bit: 1 - distinct / rows.",
    healthy="< 0.002",
)


class Duplicates(SketchStatistic):
    """Share of rows that repeat an earlier row bit for bit.

    The k rows with the smallest content hashes are counted one by one: all rows while there are at most 65,536 distinct
    ones, a uniform sample of the distinct ones after that. Then there are two estimates, and the one with the smaller
    standard error is given. From the number of distinct rows, `1 - (k - 1) / (U_k n)` with U_k the k-th smallest
    hash as a number in (0, 1) (Bar-Yossef et al. 2002; Beyer et al. 2007): right for any frequencies, good to `(1 -
    share) / √k`. From the counts of the sampled rows, `1 - k / Σ counts`: far better for few repeats, but a row that
    is repeated very often is missed by the sample or dominates it. Rows that make a ten-thousandth of the stream or
    more are therefore read off a table of counts by hash cell, where they stand out, and counted apart.

    Shape: batches (N, D); rows with NaN or Inf and zero rows are left out, `validity` counts them.
    State: 65,536 hashes with count, first and last row number, and 65,536 cells; merge exact.
    Error: exact to 65,536 distinct rows; above, the standard error is given with the value.

    Example:
        >>> statistic = Duplicates()
        >>> statistic.update(VectorBatch(torch.tensor([[1.0, 2.0], [1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])))
        >>> statistic.compute()[0].value
        0.25
    """

    name = "duplicates"
    title = "exact duplicates"
    live = False
    metrics = (RATIO,)

    def __init__(self, *, capacity: int = CAPACITY) -> None:
        super().__init__(capacity=capacity)
        self._cells = self.keep("cells", Additive(counts={"cells": (CELLS,), "rows": ()}))
        self._rows = self.keep(
            "rows", SmallestKeys(NAMING_ROWS, {"content": ((), torch.int64, "first"), "id": ((), torch.int64, "first")})
        )
        self._distinct = self.keep(
            "distinct",
            SmallestKeys(
                capacity,
                {
                    "count": ((), torch.int64, "sum"),
                    "first": ((), torch.int64, "amin"),
                    "last": ((), torch.int64, "amax"),
                },
            ),
        )

    def add(self, batch: VectorBatch) -> None:
        """Add a batch whose dimension fits."""
        rows = batch.directed
        hashes = rows.content
        if not len(hashes):
            return
        once = torch.ones_like(hashes)
        ids = rows.numbers
        self._cells.add("rows", len(hashes))
        self._cells.add_at("cells", hash_integers(hashes, seed=1) & (CELLS - 1), once)
        self._distinct.add(hashes, count=once, first=ids, last=ids)
        self._rows.add(rows.keys, content=hashes, id=ids)

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        rows = int(self._cells["rows"])
        if not rows:
            return [RATIO.measure(None)]
        counts = self._distinct.values("count").cpu().double()
        if not self._distinct.full:
            return [RATIO.measure(1 - len(counts) / rows)]
        value, error = min(self._by_number(rows), self._by_counts(rows, counts), key=lambda estimate: estimate[1])
        return [RATIO.measure(min(1.0, max(0.0, value)), error=error)]

    def _by_number(self, rows: int) -> tuple[float, float]:
        """Return the share from the number of distinct rows, (k - 1) / U_k with U_k the largest kept hash in (0, 1)."""
        kept = self._distinct.keys
        largest = (int(kept[-1]) + 2**63) / 2**64
        distinct = (len(kept) - 1) / largest
        return 1 - distinct / rows, distinct / rows / math.sqrt(len(kept) - 2)

    def _by_counts(self, rows: int, counts: Tensor) -> tuple[float, float]:
        """Return the share from how often each sampled row occurs, with the heavy rows counted apart."""
        cells = self._cells["cells"].cpu().double()
        typical = float(cells.median())
        spread = 1.5 * float((cells - typical).abs().median())
        border = max(HEAVY_SHARE * rows, 10 * spread)
        heavy = cells[cells - typical >= border] - typical
        repeats, error = _light_share(counts[counts < border])
        light = max(0.0, rows - float(heavy.sum()))
        noise = math.sqrt(len(heavy) * (typical + 1)) / rows
        unseen = border / rows / 2  # a row just below the border may have escaped the sample
        return (float((heavy - 1).sum()) + light * repeats) / rows, math.hypot(error * light / rows, noise, unseen)

    def exhibits(self) -> list[Exhibit]:
        """Return the most repeated rows among those counted, with the first and last row number of each."""
        counts = self._distinct.values("count")
        first, last = self._distinct.values("first"), self._distinct.values("last")
        repeated = (counts > 1).nonzero()[:, 0]
        order = sorted(repeated.tolist(), key=lambda place: (-int(counts[place]), int(first[place])))[:NAMED_GROUPS]
        rows = [(int(first[place]), int(last[place]), int(counts[place])) for place in order]
        known = {row[0] for row in rows}
        often = [row for row in self._often() if self._distinct.full and row[0] not in known]
        rows = sorted(often + rows, key=lambda row: -row[2])[:NAMED_GROUPS]
        return [
            Exhibit.build(
                "duplicate_rows", "table", "Rows that occur more than once.", ("row", "last_row", "times"), rows
            )
        ]

    def _often(self) -> list[tuple[int, int, int]]:
        """Return rows that a plain sample of rows holds twice or more: those that the distinct ones may have missed."""
        ids, content = self._rows.values("id"), self._rows.values("content")
        scale = int(self._cells["rows"]) / max(1, len(ids))
        found = []
        for value in content[_repeated(content)].unique().tolist():
            here = ids[content == value]
            found.append((int(here.min()), int(here.max()), round(len(here) * scale)))
        return found

    def tolerance(self, metric: str) -> float:
        """Return the error bound against the oracle: exact until rows are sampled, then four standard errors."""
        measured = self.compute()[0]
        del metric
        return 1e-9 if measured.error is None else 4 * measured.error

    def oracle(self, batch: VectorBatch) -> Mapping[str, float | None]:
        """Return its measurements by comparing all rows."""
        rows = batch.rows.double()
        rows = rows[rows.isfinite().all(1) & (rows != 0).any(1)]
        return {RATIO.name: 1 - len(torch.unique(rows, dim=0)) / len(rows) if len(rows) else None}

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[SketchStatistic, Sequence[VectorBatch]]]:
        """Yield rows without and with repeats, fewer and more than are counted one by one."""
        yield cls(), example_batches(seed)
        whole = VectorBatch.concat(example_batches(seed, sizes=(400,)))
        repeated = torch.cat([whole.rows, whole.rows[:60], whole.rows[:1].expand(100, -1)])
        batch = VectorBatch(repeated, torch.arange(len(repeated)), source=whole.source)
        yield cls(), batch.split((300, 1, len(repeated) - 301))
        yield cls(capacity=128), batch.split((300, 1, len(repeated) - 301))


def _repeated(values: Tensor) -> Tensor:
    """Return which values occur more than once. Shape: (N,) -> (N,) bool."""
    _, place, counts = values.unique(return_inverse=True, return_counts=True)
    repeated: Tensor = counts[place] > 1
    return repeated


def _light_share(counts: Tensor) -> tuple[float, float]:
    """Return the share of repeats among sampled distinct rows with these counts, and its standard error (delta method).

    Where none is repeated the error is that of one more: what is not in the sample is not known to be nowhere.
    """
    total = float(counts.sum())
    if total == 0:
        return 0.0, 1.0
    size = len(counts)
    share = 1 - size / total
    spread = float((size / total * counts - 1).square().sum().sqrt()) / total
    return share, max(spread, 1 / total)
