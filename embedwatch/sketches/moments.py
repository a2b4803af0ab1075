"""Moments: number, mean and scatter of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from embedwatch.core.errors import MergeError
from embedwatch.sketches.base import Sketch, check_tensor

__all__ = ["Moments"]


class Moments(Sketch):
    """Number, mean and scatter `Σ (x - mean)(x - mean)ᵀ`, combined without cancellation.

    Parts A and B combine as `mean = mean_A + δ n_B / n`, `S = S_A + S_B + δ δᵀ n_A n_B / n` with `δ = mean_B - mean_A`
    (Chan, Golub & LeVeque 1979, "Updating formulae and a pairwise algorithm for computing sample variances", eq. 2.1).

    Args:
        scatter: keep the whole matrix (D, D), or its diagonal (D,).
        columns: D where it is not the dimension of the batches.
    """

    def __init__(self, *, scatter: Literal["matrix", "diagonal"], columns: int | None = None) -> None:
        self._matrix = scatter == "matrix"
        self._columns = columns
        self.count = 0
        self.mean: Tensor | None = None
        self.scatter: Tensor | None = None

    def combine(self, count: int, mean: Tensor, scatter: Tensor) -> None:
        """Add a part with this number, mean (D,) and scatter (D, D) or (D,), both float64."""
        if count == 0:
            return
        if self.mean is None or self.scatter is None:
            self.count, self.mean, self.scatter = count, mean.clone(), scatter.clone()
            return
        total = self.count + count
        delta = mean.to(self.mean.device) - self.mean
        between = torch.outer(delta, delta) if self._matrix else delta.square()
        self.scatter += scatter.to(self.scatter.device)
        self.scatter += between * (self.count * (count / total))
        self.mean += delta * (count / total)
        self.count = total

    def covariance(self) -> Tensor | None:
        """Return the unbiased covariance `S / (n - 1)`, (D, D) or (D,); `None` for fewer than two rows."""
        return None if self.scatter is None or self.count < 2 else self.scatter / (self.count - 1)

    def second_moment(self) -> Tensor | None:
        """Return the uncentred `Σ x xᵀ / n`, (D, D) or its diagonal (D,); `None` when empty."""
        if self.mean is None or self.scatter is None:
            return None
        square = torch.outer(self.mean, self.mean) if self._matrix else self.mean.square()
        return self.scatter / self.count + square

    def merge(self, other: Moments) -> None:
        """Add what the other saw."""
        if other.mean is not None and other.scatter is not None:
            self.combine(other.count, other.mean, other.scatter)

    def state(self) -> dict[str, Tensor]:
        """Return its tensors."""
        if self.mean is None or self.scatter is None:
            return {}
        return {"count": torch.tensor(self.count), "mean": self.mean, "scatter": self.scatter}

    def load(self, state: Mapping[str, Tensor], dimension: int) -> None:
        """Take over what `state` gave."""
        if not state:
            return
        dimension = self._columns or dimension
        count = int(check_tensor("count", state["count"], (), torch.int64))
        mean = check_tensor("mean", state["mean"], (None,), torch.float64)
        if count < 1 or len(mean) not in (1, dimension):
            raise MergeError(
                f"`count` and `mean` must be of rows, got {count} and {tuple(mean.shape)}; the state is damaged"
            )
        shape = (len(mean), len(mean)) if self._matrix else (len(mean),)
        self.combine(count, mean, check_tensor("scatter", state["scatter"], shape, torch.float64))

    def memory(self, dimension: int) -> int:
        """Return its size in bytes."""
        dimension = self._columns or dimension
        return 8 * (1 + dimension + (dimension * dimension if self._matrix else dimension))
