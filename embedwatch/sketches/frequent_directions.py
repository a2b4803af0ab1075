"""FrequentDirections: number, mean and a low-rank sketch of a scatter matrix too large to keep."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.core.errors import MergeError
from embedwatch.sketches.base import Sketch, check_tensor

__all__ = ["FrequentDirections", "SketchedSpectrum"]

BISECTIONS = 60


class SketchedSpectrum(NamedTuple):
    """Eigenvalues (D,), descending, as a sketch knows them.

    With λ̂ the eigenvalues of BᵀB, each true one lies between λ̂ and λ̂ plus all that was subtracted, and their sum
    is the trace, which is known. A measure that never falls when variance moves from a larger to a smaller direction
    (participation ratio, IsoScore: they are Schur-concave in λ) therefore lies between its values at the steepest
    and the flattest such spectrum. The effective rank is Schur-concave in √λ, not in λ: there the two are an
    indication, no bound.

    Args:
        estimate: the missing variance given back in equal parts to the kept directions, in the manner of compensated
            Frequent Directions (Desai, Ghashami & Phillips 2016, arXiv 1501.06561), and to the dropped ones by the
            power law of the kept ones continued.
        flattest: all of it given to the smallest directions.
        steepest: all of it given to the largest directions.
    """

    estimate: Tensor
    flattest: Tensor
    steepest: Tensor


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

    def eigenvalues(self, *, centred: bool) -> SketchedSpectrum | None:
        """Return the eigenvalues of the covariance `S / (n - 1)`, or of the moment `S / n + μ μᵀ`, with their range.

        `None` for fewer than two rows.
        """
        matrix = self.matrix()
        if matrix is None or self.mean is None or self.count < 2:
            return None
        norm = self.count - 1 if centred else self.count
        rows, trace = matrix / norm**0.5, self.energy / norm
        if not centred:
            rows, trace = torch.cat([rows, self.mean[None]]), trace + float(self.mean.square().sum())
        dimension = rows.shape[1]
        fillable = min(norm, dimension)
        known = torch.zeros(dimension, dtype=torch.float64, device=rows.device)
        values = torch.linalg.svdvals(rows).square()[:fillable]
        known[: len(values)] = values
        return SketchedSpectrum(
            _continued(known, trace, min(self.size, fillable), fillable),
            _flattest(known, trace, fillable),
            _steepest(known, trace, self.lowered / norm),
        )

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

    def load(self, state: Mapping[str, Tensor], dimension: int) -> None:
        """Take over what `state` gave."""
        if not state:
            return
        matrix = check_tensor("matrix", state["matrix"], (None, dimension), torch.float64)
        mean = check_tensor("mean", state["mean"], (dimension,), torch.float64)
        count, energy, lowered = check_tensor("scalars", state["scalars"], (3,), torch.float64).tolist()
        if len(matrix) > 2 * self.size or count < 1 or energy < 0 or lowered < 0:
            raise MergeError(f"a sketch of {self.size} directions holds other numbers; the state is damaged")
        self._append(matrix)
        self.count, self.mean, self.energy, self.lowered = int(count), mean, energy, lowered

    def memory(self, dimension: int) -> int:
        """Return its size in bytes."""
        return 8 * ((2 * self.size + 1) * dimension + 3)


def _continued(known: Tensor, trace: float, size: int, fillable: int) -> Tensor:
    """Return the first `size` eigenvalues raised by one amount, the others continuing their power law to the trace."""
    rank = torch.arange(1, fillable + 1, dtype=torch.float64, device=known.device)

    def spectrum(raised: float) -> Tensor:
        values = known[:size] + raised
        upper, lower = float(values[size // 4]), float(values[-1])
        if lower <= 0 or size < 2:
            return torch.cat([values, torch.zeros_like(rank[size:])])
        steepness = math.log(upper / lower) / math.log(size / (size // 4 + 1))
        return torch.cat([values, lower * (rank[size:] / size) ** -steepness])

    found = torch.zeros_like(known)
    found[:fillable] = spectrum(_bisect(lambda raised: float(spectrum(raised).sum()), trace))
    return found


def _flattest(known: Tensor, trace: float, fillable: int) -> Tensor:
    """Return the eigenvalues with the small ones filled up to one level, like water."""
    found = known.clone()
    level = _bisect(lambda water: float(known[:fillable].clamp(min=water).sum()), trace)
    found[:fillable] = known[:fillable].clamp(min=level)
    return found


def _steepest(known: Tensor, trace: float, lowered: float) -> Tensor:
    """Return the eigenvalues with the largest raised as far as the sketch allows, one after the other."""
    missing = max(0.0, trace - float(known.sum()))
    before = lowered * torch.arange(len(known), dtype=torch.float64, device=known.device)
    return known + (missing - before).clamp(min=0, max=lowered)


def _bisect(rising: Callable[[float], float], wanted: float) -> float:
    """Return where a rising function reaches a value, between zero and the value itself."""
    low, high = 0.0, wanted
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < wanted else (low, middle)
    return low
