"""The noise floor: how far a text lies from itself when nothing has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from embedwatch.core.errors import InputError
from embedwatch.geometry.pairs import cosine_distances, unit
from embedwatch.stats.canary import LEAST_FLOOR

__all__ = ["Floor"]

MARGIN = 2.0
"""A text counts as moved beyond this many times the largest distance that was seen."""


@dataclass(frozen=True)
class Floor:
    """Noise of one provider, measured over all texts and repeats against the first.

    Args:
        repeats: how often all texts were embedded.
        median, ninety, largest: quantiles of `1 - cos` of a text to itself, and the largest.
        norm: largest relative difference of a text's length.
        difference: largest difference of two entries.
    """

    repeats: int
    median: float = 0.0
    ninety: float = 0.0
    largest: float = 0.0
    norm: float = 0.0
    difference: float = 0.0

    @property
    def distance(self) -> float:
        """Cosine distance up to which a text has not moved: twice the largest seen, and at least 1e-9.

        Example:
            >>> Floor(3, largest=1e-4).distance, Floor(1).distance
            (0.0002, 1e-09)
        """
        return min(2.0, max(LEAST_FLOOR, MARGIN * self.largest))

    @property
    def length(self) -> float:
        """Relative difference up to which a text's length has not changed: twice the largest seen."""
        return MARGIN * self.norm

    @classmethod
    def measure(cls, repeated: Sequence[Tensor]) -> Floor:
        """Measure the noise of several embeddings of the same texts, each (N, D) and finite.

        Example:
            >>> rows = torch.eye(2)
            >>> Floor.measure([rows, rows + torch.tensor([[0.0, 0.0], [0.001, 0.0]])]).largest < 1e-6
            True
        """
        first = repeated[0].double()
        if len(repeated) == 1:
            return cls(1)
        apart, norms, difference = [], 0.0, 0.0
        for other in (rows.double() for rows in repeated[1:]):
            apart.append(cosine_distances(unit(first), unit(other)))
            norms = max(norms, float((other.norm(dim=1) / first.norm(dim=1) - 1).abs().max()))
            difference = max(difference, float((other - first).abs().max()))
        every = torch.cat(apart)
        median, ninety, largest = (float(every.quantile(q)) for q in (0.5, 0.9, 1.0))
        return cls(len(repeated), median, ninety, largest, norms, difference)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Floor:
        """Read what `to_json` wrote.

        Raises:
            InputError: if it is no floor.
        """
        numbers = [data.get(name) for name in ("repeats", "median", "ninety", "largest", "norm", "difference")]
        if not all(isinstance(number, int | float) and number >= 0 for number in numbers):
            raise InputError(f"`floor` must hold six numbers of at least 0, got {numbers}; record the canary again")
        return cls(int(numbers[0] or 0), *(float(number or 0) for number in numbers[1:]))
