"""FrequentDirections: number, mean and a low-rank sketch of a scatter matrix too large to keep."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from embedwatch.sketches.base import Sketch

__all__ = ["FrequentDirections"]


class FrequentDirections(Sketch):
    """A matrix B of at most 2ℓ rows for the scatter matrix S of all rows: `0 ⪯ S - BᵀB ⪯ ‖S - S_k‖_* / (ℓ - k) I`.

    The bound holds for every k < ℓ, S_k being the best approximation of rank k and ‖·‖_* the sum of the eigenvalues.
    Rows fill a buffer of 2ℓ; when it is full, the squares of its singular values are lowered by the (ℓ+1)-th, which
    frees ℓ rows. Merge stacks two sketches and keeps the bound (Ghashami, Liberty, Phillips & Woodruff 2016, "Frequent
    Directions: simple and deterministic matrix sketching", SIAM J. Comput. 45(5), theorem 1.1 and section 3).

    S is centred: each batch gives its rows without their mean, and one row `δ √(n_A n_B / n)` for the step between
    two means (the rank-one term of Chan, Golub & LeVeque 1979). The bound holds in any order of rows; B itself
    depends on it.

    Args:
        size: ℓ.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.count = 0
        self.mean: Tensor | None = None
        self.energy = 0.0
        """Trace of S, exact."""
        self.lowered = 0.0
        """Sum of all that was subtracted: `‖S - BᵀB‖₂` is at most this."""
        self._buffer: Tensor | None = None  # (2ℓ, D)
        self._filled = 0

    def add(self, rows: Tensor) -> None:
        """Add rows (N, D)."""
        if len(rows) == 0:
            return
        wide = rows.double()
        mean = wide.mean(0)
        self._step(len(rows), mean)
        self._append(wide - mean)

    def _step(self, count: int, mean: Tensor) -> None:
        """Take in number and mean of a part, and the scatter between its mean and ours."""
        if self.mean is None:
            self.count, self.mean = count, mean.clone()
            return
        total = self.count + count
        delta = mean.to(self.mean.device) - self.mean
        self._append((delta * (self.count * (count / total)) ** 0.5)[None])
        self.mean = self.mean + delta * (count / total)
        self.count = total

    def _append(self, rows: Tensor) -> None:
        self.energy += float(rows.square().sum())
        if self._buffer is None:
            self._buffer = rows.new_zeros(2 * self.size, rows.shape[1])
        position = 0
        while position < len(rows):
            if self._filled == len(self._buffer):
                self._shrink(self._buffer)
            taken = min(len(rows) - position, len(self._buffer) - self._filled)
            self._buffer[self._filled : self._filled + taken] = rows[position : position + taken]
            self._filled += taken
            position += taken

    def _shrink(self, buffer: Tensor) -> None:
        """Bring the full buffer down to at most ℓ rows, through the small matrix B Bᵀ."""
        squares, vectors = torch.linalg.eigh(buffer @ buffer.T)  # ascending
        squares, vectors = squares.flip(0).clamp(min=0), vectors.flip(1)
        cut = squares[self.size]
        kept = int((squares > cut).sum())
        shrunk = ((squares[:kept] - cut) / squares[:kept]).sqrt()
        fresh = shrunk[:, None] * (vectors[:, :kept].T @ buffer)  # (kept, D)
        buffer.zero_()
        buffer[:kept] = fresh
        self._filled = kept
        self.lowered += float(cut)

    def matrix(self) -> Tensor | None:
        """Return B, at most (2ℓ, D), or `None` when empty."""
        return None if self._buffer is None else self._buffer[: self._filled]

    def eigenvalues(self, *, centred: bool) -> Tensor | None:
        """Return estimated eigenvalues of the covariance `S / (n - 1)`, or of the moment `S / n + μ μᵀ`, descending.

        What the trace of S holds more than BᵀB is spread evenly over all directions that n rows can fill, in the
        manner of compensated Frequent Directions (Desai, Ghashami & Phillips 2016, arXiv 1501.06561).

        Shape: -> (D,); `None` for fewer than two rows.
        """
        matrix = self.matrix()
        if matrix is None or self.mean is None or self.count < 2:
            return None
        rows = matrix / (self.count - 1 if centred else self.count) ** 0.5
        if not centred:
            rows = torch.cat([rows, self.mean[None]])
        values = torch.linalg.svdvals(rows).square()
        dimension = rows.shape[1]
        spread = torch.zeros(dimension, dtype=torch.float64, device=rows.device)
        spread[: len(values)] = values[:dimension]
        missing = max(0.0, self.energy - float(matrix.square().sum())) / (self.count - 1 if centred else self.count)
        fillable = min(self.count - 1, dimension)
        spread[:fillable] += missing / fillable
        return spread

    def merge(self, other: FrequentDirections) -> None:
        """Add what the other saw."""
        rows = other.matrix()
        if rows is None or other.mean is None:
            return
        lost = other.energy - float(rows.square().sum())
        self._step(other.count, other.mean)
        self._append(rows if self._buffer is None else rows.to(self._buffer.device))
        self.energy += lost
        self.lowered += other.lowered

    def state(self) -> dict[str, Tensor]:
        """Return its tensors."""
        matrix = self.matrix()
        if matrix is None or self.mean is None:
            return {}
        scalars = torch.tensor([self.count, self.energy, self.lowered], dtype=torch.float64)
        return {"matrix": matrix, "mean": self.mean, "scalars": scalars}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `state` gave."""
        self.count, self.mean, self.energy, self.lowered = 0, None, 0.0, 0.0
        self._buffer, self._filled = None, 0
        if state:
            self._append(state["matrix"])
            self.mean = state["mean"]
            count, self.energy, self.lowered = state["scalars"].tolist()
            self.count = int(count)

    def memory(self, dimension: int) -> int:
        """Return its size in bytes."""
        return 8 * ((2 * self.size + 1) * dimension + 3)
