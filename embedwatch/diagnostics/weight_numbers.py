"""Whether all weights of a model are numbers, tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.inquiry import Inquiry
from embedwatch.loading.examinable import Entries

NEAR_END = 0.5
"""An entry beyond this share of the largest number of its type overflows when it is doubled."""

TENSORS = Metric("weight_tensors", "Tensors of floating-point weights that were read.", "tensors", headline=False)
BROKEN = Metric("nonfinite_weight_tensors", "Tensors of weights that hold NaN or Inf.", "tensors", healthy="0")
ENTRIES = Metric("nonfinite_weights", "Entries of all weights that are NaN or Inf.", "entries", healthy="0")
ZERO = Metric("zero_weight_tensors", "Tensors of two and more dimensions in which every weight is zero.", "tensors")
HUGE = Metric(
    "huge_weight_tensors", "Tensors with a weight beyond half of what their type can hold.", "tensors", healthy="0"
)


class WeightNumbers(Diagnostic):
    """Which weights are NaN or Inf, all zero, or near the end of what their type can hold.

    Every floating-point tensor is read once, piece by piece, those of a folder from the file: no model is built. One is
    huge where `max |w| > largest finite number of its type / 2`.

    Shape: any. Range: counts.
    NaN, Inf, empty: that is what is counted. Left out are empty tensors, quantised ones (their entries mean nothing
    without a scale), weights on the meta device, and masks, which hold 0 and -Inf alone. `None` where nothing is left.
    References: IEEE 754-2019, 3.3 (what a type can hold); Micikevicius et al. 2018, "Mixed precision training",
        https://arxiv.org/abs/1710.03740 (overflow in float16).
    """

    name = "weight_numbers"
    title = "numbers in the weights"
    place = "layers"
    metrics = (TENSORS, BROKEN, ENTRIES, ZERO, HUGE)

    def examine(self, subject: Any) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return the measurements of an Inquiry, and the tensors that stand out."""
        inquiry: Inquiry = subject
        told = [_told(entries) for entries in inquiry.subject.every_weight()]
        told = [each for each in told if each.number and not each.is_mask]
        broken = sorted((each for each in told if each.nonfinite), key=lambda each: -each.nonfinite / each.number)
        zero = [each for each in told if each.is_zero]
        huge = [each for each in told if each.share > NEAR_END]
        values = (
            len(told),
            len(broken) if told else None,
            sum(each.nonfinite for each in broken) if told else None,
            len(zero) if told else None,
            len(huge) if told else None,
        )
        odd = Exhibit.build(
            "odd_weights",
            "table",
            "Weights that stand out: those with NaN or Inf first, then all zero, then near the end of their type.",
            ("tensor", "entries", "nan", "inf", "largest", "type"),
            [each.row for each in dict.fromkeys((*broken, *zero, *huge))],
        )
        return [metric.measure(value) for metric, value in zip(self.metrics, values, strict=True)], [odd]

    @classmethod
    def examples(cls) -> Iterable[Inquiry]:
        """Yield a small model."""
        from embedwatch.loading.tiny import tiny_subject

        yield Inquiry(tiny_subject("bert"))


@dataclass(frozen=True)
class _Told:
    """What one tensor holds: how many entries, how many are NaN, Inf and -Inf, and the largest finite one in size."""

    name: str
    dimensions: int
    dtype: torch.dtype
    number: int
    nan: int
    inf: int
    below: int
    largest: float

    @property
    def nonfinite(self) -> int:
        """Number of entries that are NaN or Inf."""
        return self.nan + self.inf + self.below

    @property
    def is_mask(self) -> bool:
        """Whether it is what is added to logits of attention: 0 where a token is seen, -Inf where not."""
        return 0 < self.below == self.nonfinite < self.number and self.largest == 0

    @property
    def is_zero(self) -> bool:
        """Whether it is a matrix, or more, of zeros alone; vectors of zeros are how biases begin."""
        return self.dimensions > 1 and not self.nonfinite and self.largest == 0

    @property
    def share(self) -> float:
        """Its largest finite entry over the largest number of its type."""
        return self.largest / torch.finfo(self.dtype).max

    @property
    def row(self) -> tuple[str, int, int, int, float, str]:
        """A row of the table."""
        kind = str(self.dtype).removeprefix("torch.")
        return self.name, self.number, self.nan, self.inf + self.below, float(f"{self.largest:.4g}"), kind


def _told(entries: Entries) -> _Told:
    number = nan = inf = below = 0
    largest = 0.0
    for piece in entries.pieces():
        if not piece.numel():
            continue
        number += piece.numel()
        low, high = (float(end) for end in torch.aminmax(piece))
        if not abs(low) + abs(high) < torch.inf:  # NaN, or Inf: counted in a second look, which few need
            nan += int(piece.isnan().sum())
            inf += int((piece == torch.inf).sum())
            below += int((piece == -torch.inf).sum())
            sound = piece[piece.isfinite()]
            low, high = (float(end) for end in torch.aminmax(sound)) if sound.numel() else (0.0, 0.0)
        largest = max(largest, abs(low), abs(high))
    return _Told(entries.name, len(entries.shape), entries.dtype, number, nan, inf, below, largest)
