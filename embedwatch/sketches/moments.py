"""Moments: number, mean and scatter matrix of rows."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from embedwatch.sketches.base import Sketch

__all__ = ["Moments"]


class Moments(Sketch):
    """Number, mean and scatter matrix `Σ (x - mean)(x - mean)ᵀ`, combined without cancellation.

    Parts A and B combine as `mean = mean_A + δ n_B / n`, `S = S_A + S_B + δ δᵀ n_A n_B / n` with `δ = mean_B - mean_A`
    (Chan, Golub & LeVeque 1979, "Updating formulae and a pairwise algorithm for computing sample variances", eq. 2.1).

    Args:
        scatter: keep the matrix; without it only number and mean.
    """

    def __init__(self, *, scatter: bool = True) -> None:
        self._keeps_scatter = scatter
        self.count = torch.zeros((), dtype=torch.int64)
        self.mean: Tensor | None = None
        self.scatter: Tensor | None = None

    def combine(self, count: int, mean: Tensor, scatter: Tensor | None) -> None:
        """Add a part with this number, mean (D,) and scatter (D, D), both float64."""
        if count == 0:
            return
        before = int(self.count)
        if self.mean is None:
            self.mean = mean.clone()
            self.scatter = scatter.clone() if scatter is not None and self._keeps_scatter else None
        else:
            total = before + count
            delta = mean.to(self.mean.device) - self.mean
            self.mean = self.mean + delta * (count / total)
            if self.scatter is not None and scatter is not None:
                self.scatter += scatter.to(self.scatter.device)
                self.scatter.addr_(delta, delta, alpha=before * (count / total))
        self.count = self.count + count

    def second_moment(self) -> Tensor | None:
        """Return the uncentred `Σ x xᵀ / n`, (D, D)."""
        if self.mean is None or self.scatter is None:
            return None
        return self.scatter / int(self.count) + torch.outer(self.mean, self.mean)

    def merge(self, other: Moments) -> None:
        """Add what the other saw."""
        if other.mean is not None:
            self.combine(int(other.count), other.mean, other.scatter)

    def state(self) -> dict[str, Tensor]:
        """Return its tensors."""
        state = {"count": self.count}
        if self.mean is not None:
            state["mean"] = self.mean
        if self.scatter is not None:
            state["scatter"] = self.scatter
        return state

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `state` gave."""
        self.count, self.mean, self.scatter = state["count"], state.get("mean"), state.get("scatter")

    def memory(self, dimension: int) -> int:
        """Return its size in bytes."""
        return 8 * (1 + dimension + (dimension * dimension if self._keeps_scatter else 0))
