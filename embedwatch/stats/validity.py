"""Rows that are no vectors: NaN, Inf, zero."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.sketches import Additive, Extremes, SketchStatistic, example_batches

NAMED_ROWS = 20
"""So many offending rows of each sort are kept by number."""

ROWS = Metric("rows", "Rows seen, whatever they hold.", "rows", digits=9, headline=False)
NAN = Metric("nan_rows_ratio", "Share of rows that hold a NaN.", healthy="0", headline=False)
INF = Metric("inf_rows_ratio", "Share of rows that hold an infinite value and no NaN.", healthy="0", headline=False)
NONFINITE = Metric(
    "nonfinite_rows_ratio", "Share of rows that hold a NaN or an infinite value.", healthy="0", headline=False
)
NONFINITE_ROWS = Metric("nonfinite_rows", "Rows that hold a NaN or an infinite value.", "rows", healthy="0", digits=9)
ZERO = Metric("zero_rows_ratio", "Share of rows that are zero in every dimension.", healthy="0", headline=False)
ZERO_ROWS = Metric("zero_rows", "Rows that are zero in every dimension.", "rows", digits=9, headline=False)


class Validity(SketchStatistic):
    """Counts rows that hold NaN or Inf and rows that are zero, and keeps the numbers of the first of each.

    Shape: batches (N, D).
    State: four counts and 3 × 20 row numbers; merge exact.
    NaN, Inf, empty: they are the subject; no rows give no ratios.

    Example:
        >>> statistic = Validity()
        >>> statistic.update(VectorBatch(torch.tensor([[1.0, 2.0], [0.0, 0.0], [float("nan"), 1.0], [3.0, 4.0]])))
        >>> {m.name: m.value for m in statistic.compute()}["nonfinite_rows_ratio"]
        0.25
    """

    name = "validity"
    title = "non-finite and zero rows"
    metrics = (ROWS, NAN, INF, NONFINITE, NONFINITE_ROWS, ZERO, ZERO_ROWS)
    counts_defects = True

    def __init__(self) -> None:
        super().__init__()
        self._counts = self.keep("counts", Additive(counts={"rows": (), "nan": (), "inf": (), "zero": ()}))
        self._first = {sort: self.keep(sort, Extremes(NAMED_ROWS)) for sort in ("nan", "inf", "zero")}

    def add(self, batch: VectorBatch) -> None:
        """Add a batch whose dimension fits."""
        self._counts.add("rows", len(batch))
        bad = ~batch.finite
        if bool(bad.any()):
            nan = torch.zeros_like(bad)
            nan[bad] = batch.rows[bad].isnan().any(1)
            self._note("nan", batch, nan)
            self._note("inf", batch, bad & ~nan)
        self._note("zero", batch, batch.norms == 0)

    def _note(self, sort: str, batch: VectorBatch, mask: Tensor) -> None:
        index = mask.nonzero()[:, 0]
        if len(index):
            self._counts.add(sort, len(index))
            if batch.ids is not None:  # the largest negative number is the first row
                self._first[sort].add(-batch.ids[index].double(), batch.ids[index])

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        count = {name: int(self._counts[name]) for name in ("rows", "nan", "inf", "zero")}
        rows = count["rows"]
        return [
            ROWS.measure(rows),
            NAN.measure(count["nan"] / rows if rows else None),
            INF.measure(count["inf"] / rows if rows else None),
            NONFINITE.measure((count["nan"] + count["inf"]) / rows if rows else None),
            NONFINITE_ROWS.measure(count["nan"] + count["inf"]),
            ZERO.measure(count["zero"] / rows if rows else None),
            ZERO_ROWS.measure(count["zero"]),
        ]

    def exhibits(self) -> list[Exhibit]:
        """Return the first offending rows of each sort."""
        bad = [(row, sort) for sort in ("nan", "inf") for row, _ in self._first[sort].entries()]
        zero = [(row,) for row, _ in self._first["zero"].entries()]
        return [
            Exhibit.build("nonfinite_rows", "table", "First rows that hold NaN or Inf.", ("row", "holds"), sorted(bad)),
            Exhibit.build("zero_rows", "table", "First rows that are zero in every dimension.", ("row",), zero),
        ]

    def oracle(self, batch: VectorBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on all rows at once."""
        nan = batch.rows.isnan().any(1)
        inf = batch.rows.isinf().any(1) & ~nan
        zero = (batch.rows == 0).all(1)
        share = {NAN: nan, INF: inf, NONFINITE: nan | inf, ZERO: zero}
        ratios = {metric.name: float(mask.double().mean()) if len(batch) else None for metric, mask in share.items()}
        counts = {ROWS: len(batch), NONFINITE_ROWS: int((nan | inf).sum()), ZERO_ROWS: int(zero.sum())}
        return {**{metric.name: count for metric, count in counts.items()}, **ratios}

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[SketchStatistic, Sequence[VectorBatch]]]:
        """Yield sound rows, and rows among which some are not."""
        yield cls(), example_batches(seed)
        whole = VectorBatch.concat(example_batches(seed))
        rows = whole.rows.clone()
        rows[3], rows[40, 2], rows[41, 0], rows[60] = 0.0, torch.nan, torch.inf, 0.0
        yield cls(), VectorBatch(rows, whole.ids, source=whole.source).split((20, 30, len(rows) - 50))
