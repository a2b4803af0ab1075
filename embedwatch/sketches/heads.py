"""HeadValues and HeadArrays: what is kept for each of a bounded number of heads of attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from embedwatch.batch import FLOAT32_MAX
from embedwatch.core.errors import MergeError
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.sketches.base import Sketch, check_tensor

__all__ = ["MOST_HEADS", "HeadArrays", "HeadValues"]

MOST_HEADS = 256
"""Heads that are kept apart; rows of later ones are left out. No layer is known that has more than half as many."""


OVER = ("mean", "min", "max")
"""What is said of a layer's heads together."""


class HeadValues(Sketch):
    """Number, sum, sum of squares and maximum of named values of each head's rows. Merge is exact to rounding.

    A value that is NaN, or beyond the range of float32, is not known: it is left out, whatever else is known of its
    row.

    Args:
        columns: names of the values.

    Example:
        >>> values = HeadValues(["share"])
        >>> values.add(torch.tensor([0, 0, 2]), torch.tensor([[0.25], [0.75], [1.0]]))
        >>> values.means("share")
        tensor([0.5000,    nan, 1.0000], dtype=torch.float64)
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = {name: place for place, name in enumerate(columns)}
        self._counts = torch.zeros(0, len(self._columns), dtype=torch.int64)
        self._sums = self._squares = self._maxima = torch.zeros(0, len(self._columns), dtype=torch.float64)

    def add(self, heads: Tensor, values: Tensor) -> None:
        """Add rows: heads (N,) int64 and their values (N, C)."""
        kept = _kept(heads)
        heads, values = heads[kept], values[kept].double()
        known = values.abs() <= FLOAT32_MAX  # false for NaN
        self._grow(heads)
        plain = torch.where(known, values, 0.0)
        self._counts.index_add_(0, heads, known.long())
        self._sums.index_add_(0, heads, plain)
        self._squares.index_add_(0, heads, plain.square())
        index = heads[:, None].expand_as(values)
        self._maxima.scatter_reduce_(0, index, torch.where(known, values, -torch.inf), reduce="amax")

    def _grow(self, heads: Tensor) -> None:
        """Have a place for each of these heads, on their device."""
        more = max(0, int(heads.max()) + 1 - len(self._counts)) if len(heads) else 0
        device = heads.device
        self._counts, self._sums, self._squares = (
            _longer(each, more, device, 0.0) for each in (self._counts, self._sums, self._squares)
        )
        self._maxima = _longer(self._maxima, more, device, -torch.inf)

    def counts(self, column: str) -> Tensor:
        """Return how often the value was known of each head. Shape: (H,) int64."""
        return self._counts[:, self._columns[column]].cpu()

    def means(self, column: str) -> Tensor:
        """Return the mean value of each head, NaN where it was never known. Shape: (H,) float64."""
        return self._sums[:, self._columns[column]].cpu() / self.counts(column)

    def errors(self, column: str) -> Tensor:
        """Return the standard error of each head's mean over its rows; NaN for fewer than two. Shape: (H,) float64."""
        counts, means = self.counts(column), self.means(column)
        spread = self._squares[:, self._columns[column]].cpu() / counts - means.square()
        return torch.where(counts > 1, (spread.clamp(min=0.0) / (counts - 1)).sqrt(), torch.nan)

    def maxima(self, column: str) -> Tensor:
        """Return the largest value of each head, -Inf where it was never known. Shape: (H,) float64."""
        return self._maxima[:, self._columns[column]].cpu()

    def measure(
        self, metric: Metric, column: str, *, over: Sequence[str] = OVER, each: bool = False, largest: bool = False
    ) -> list[Measurement]:
        """Return what is asked `over` the heads' means, under the label `heads`, and the mean of each head if asked.

        The error of the mean over heads is the mean of their errors: no less than the true one, since what a query
        shows in one head it may show in all.

        Args:
            metric: its label is `heads`.
            column: name of the value.
            over: which of mean, smallest and largest.
            each: every head's own, under its number.
            largest: take the largest value of each head in place of its mean; that has no error.
        """
        values = self.maxima(column) if largest else self.means(column)
        errors = torch.full_like(values, torch.nan) if largest else self.errors(column)
        known = torch.isfinite(values).nonzero()[:, 0]
        if not len(known):
            return [metric.measure(None, heads=over[0])]
        values, errors = values[known], errors[known]
        low, high = int(values.argmin()), int(values.argmax())
        found = {
            "mean": (values.mean(), errors.mean()),
            "min": (values[low], errors[low]),
            "max": (values[high], errors[high]),
        }
        rows = [(name, *found[name]) for name in over]
        rows += zip(map(str, known.tolist()), values, errors, strict=True) if each else []
        return [metric.measure(float(value), error=_number(error), heads=name) for name, value, error in rows]

    def merge(self, other: HeadValues) -> None:
        """Add what the other saw."""
        self._grow(torch.arange(len(other._counts), device=self._counts.device))
        held = slice(0, len(other._counts))
        for mine, theirs in ((self._counts, other._counts), (self._sums, other._sums), (self._squares, other._squares)):
            mine[held] += theirs.to(mine.device)
        self._maxima[held] = torch.maximum(self._maxima[held], other._maxima.to(self._maxima.device))

    def state(self) -> dict[str, Tensor]:
        """Return its tensors; a maximum that is not known stands as 0."""
        if not len(self._counts):
            return {}
        maxima = self._maxima.masked_fill(self._counts == 0, 0.0)
        return {"counts": self._counts, "sums": self._sums, "squares": self._squares, "maxima": maxima}

    def load(self, state: Mapping[str, Tensor], dimension: int) -> None:
        """Take over what `state` gave."""
        del dimension
        if not state:
            return
        counts = check_tensor("counts", state["counts"], (None, len(self._columns)), torch.int64)
        names = ("sums", "squares", "maxima")
        sums, squares, maxima = (check_tensor(name, state[name], counts.shape, torch.float64) for name in names)
        if len(counts) > MOST_HEADS or bool((counts < 0).any()) or bool((squares < 0).any()):
            raise MergeError(f"`counts` must be of at most {MOST_HEADS} heads and not negative; the state is damaged")
        self._counts, self._sums, self._squares = counts, sums, squares
        self._maxima = maxima.masked_fill(counts == 0, -torch.inf)

    def memory(self, dimension: int) -> int:
        """Return an upper bound of its size in bytes."""
        del dimension
        return MOST_HEADS * len(self._columns) * 32


class HeadArrays(Sketch):
    """A sum of arrays (R, M) for each head. Merge is exact to rounding.

    Args:
        rows: R.
        columns: M.
    """

    def __init__(self, *, rows: int = 1, columns: int) -> None:
        self._rows, self._columns = rows, columns
        self._sums = torch.zeros(0, columns, dtype=torch.float64)

    def add(self, heads: Tensor, values: Tensor, rows: Tensor | None = None) -> None:
        """Add `values` (N, M) to the arrays of `heads` (N,) int64, at `rows` (N,) int64 of them."""
        kept = _kept(heads)
        if not bool(kept.all()):
            heads, values, rows = heads[kept], values[kept], None if rows is None else rows[kept]
        if len(heads):
            self._grow((int(heads.max()) + 1) * self._rows, heads.device)
        place = heads * self._rows if rows is None else heads * self._rows + rows
        self._sums.index_add_(0, place, values.double())

    def _grow(self, length: int, device: torch.device) -> None:
        self._sums = _longer(self._sums, max(0, length - len(self._sums)), device, 0.0)

    @property
    def sums(self) -> Tensor:
        """The sum of each head, for all heads up to the last that came. Shape: (H, R, M) float64."""
        return self._sums.cpu().view(-1, self._rows, self._columns)

    def merge(self, other: HeadArrays) -> None:
        """Add what the other saw."""
        self._grow(len(other._sums), self._sums.device)
        self._sums[: len(other._sums)] += other._sums.to(self._sums.device)

    def state(self) -> dict[str, Tensor]:
        """Return its tensor."""
        return {"sums": self._sums} if len(self._sums) else {}

    def load(self, state: Mapping[str, Tensor], dimension: int) -> None:
        """Take over what `state` gave."""
        del dimension
        if not state:
            return
        sums = check_tensor("sums", state["sums"], (None, self._columns), torch.float64)
        if len(sums) % self._rows or len(sums) > MOST_HEADS * self._rows:
            raise MergeError(
                f"`sums` must be of at most {MOST_HEADS} heads of {self._rows} rows, got {len(sums)}; it is damaged"
            )
        self._sums = sums

    def memory(self, dimension: int) -> int:
        """Return an upper bound of its size in bytes."""
        del dimension
        return MOST_HEADS * self._rows * self._columns * 8


def _kept(heads: Tensor) -> Tensor:
    """Return which rows belong to a head that is kept apart. Shape: (N,) -> (N,) bool."""
    return (heads >= 0) & (heads < MOST_HEADS)


def _longer(held: Tensor, more: int, device: torch.device, fill: float) -> Tensor:
    """Return a tensor of its own with so many rows more, which hold `fill`."""
    return torch.cat([held.to(device), held.new_full((more, held.shape[1]), fill, device=device)])


def _number(error: Tensor) -> float | None:
    """Return an error, `None` where it is not known."""
    return None if bool(error.isnan()) else float(error)
