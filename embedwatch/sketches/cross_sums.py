"""CrossSums: moments of paired unit rows, within each side and across both."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from embedwatch.core.errors import MergeError
from embedwatch.geometry.similarity import CrossMoments
from embedwatch.sketches.base import Sketch, check_tensor
from embedwatch.sketches.moments import Moments

__all__ = ["CrossSums"]


class CrossSums(Sketch):
    """Number, means and scatter of rows (x, y): those of each side, and `Σ (x - x̄)(y - ȳ)ᵀ`.

    One scatter matrix of both sides beside one another, (D1 + D2)², so that its parts combine as those of `Moments` do;
    memory does not grow with the rows.
    """

    def __init__(self) -> None:
        self._moments: Moments | None = None
        self._widths = (0, 0)

    def add(self, left: Tensor, right: Tensor) -> None:
        """Add pairs. Shape: (N, D1), (N, D2) float64.

        Raises:
            MergeError: if either side has another dimension than before.
        """
        moments = self._fitting((left.shape[1], right.shape[1]))
        if not len(left):
            return
        both = torch.cat([left, right], dim=1)  # (N, D1 + D2)
        mean = both.mean(0)
        both = both - mean
        moments.combine(len(both), mean.cpu(), (both.T @ both).cpu())

    def _fitting(self, widths: tuple[int, int]) -> Moments:
        if self._moments is None:
            self._moments, self._widths = Moments(scatter="matrix", columns=sum(widths)), widths
        for side, before, now in zip(("left", "right"), self._widths, widths, strict=True):
            if before != now:
                raise MergeError(
                    f"{side} rows must have {before} dimensions like those before, got {now}; "
                    "use one Statistic for each pair of spaces"
                )
        return self._moments

    @property
    def moments(self) -> CrossMoments | None:
        """All that was added; `None` where nothing was."""
        if self._moments is None or self._moments.mean is None or self._moments.scatter is None:
            return None
        width, mean, scatter = self._widths[0], self._moments.mean, self._moments.scatter
        return CrossMoments(
            self._moments.count,
            mean[:width],
            mean[width:],
            scatter[:width, :width],
            scatter[width:, width:],
            scatter[:width, width:],
        )

    def merge(self, other: CrossSums) -> None:
        """Add what the other saw."""
        if other._moments is not None:
            self._fitting(other._widths).merge(other._moments)

    def state(self) -> dict[str, Tensor]:
        """Return the dimensions of both sides, and the moments."""
        if self._moments is None:
            return {}
        return {"widths": torch.tensor(self._widths), **self._moments.state()}

    def load(self, state: Mapping[str, Tensor], dimension: int) -> None:
        """Take over what `state` gave."""
        if not state:
            return
        first, second = check_tensor("widths", state["widths"], (2,), torch.int64).tolist()
        if min(first, second) < 1:
            raise MergeError(f"`widths` must be at least 1, got {first} and {second}; the state is damaged")
        rest = {name: value for name, value in state.items() if name != "widths"}
        if rest and len(rest["mean"]) != first + second:
            entries = len(rest["mean"])
            raise MergeError(f"`mean` must have {first + second} entries, got {entries}; the state is damaged")
        self._fitting((first, second)).load(rest, dimension)

    def memory(self, dimension: int) -> int:
        """Return an upper bound of its size in bytes, `dimension` that of the wider side."""
        return 8 * (3 + 2 * dimension + 4 * dimension * dimension)
