"""Whether the segments of two sources have the same shares of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.mixes import mix_p_value, total_variation

__all__ = ["Mix", "SegmentMix"]

P_VALUE = Metric(
    "segment_mix_p_value",
    "How likely so large a difference of the shares of segments is by chance.",
    healthy="> 0.01",
)
DISTANCE = Metric("segment_mix_distance_ratio", "Share of the rows that would have to change their segment.")
LENGTH = Metric("segment_mix_decay_length", "Rows for which a stream keeps to a segment.", "rows", headline=False)
ROWS = Metric("segment_mix_rows", "Rows of the window that have a segment.", "rows", headline=False)
MOST_SHOWN = 50


@dataclass(frozen=True)
class Mix:
    """Segments of the rows of two sources, in order.

    Args:
        names: of the segments.
        reference, window: index of each row's segment, (N,) and (M,) int64.
        permutations, seed: of the blocks.
    """

    names: Sequence[str]
    reference: Tensor
    window: Tensor
    permutations: int = 999
    seed: int = 0


class SegmentMix(Diagnostic):
    """Compares the shares that segments have: how surely they differ, and by how much.

    A G-test of the table segment × source, calibrated by permuting blocks of consecutive rows that are five times as
    long as a stream keeps to a segment; the size is the total variation distance, `½ Σ |p - q|`.
    """

    name = "segment_mix"
    title = "mix of segments"
    examines = "segments"
    metrics = (P_VALUE, DISTANCE, LENGTH, ROWS)

    def examine(self, subject: Mix) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return how surely and by how much the shares differ, and the shares, the most changed first."""
        groups = len(subject.names)
        counts = [torch.bincount(side, minlength=groups) for side in (subject.reference, subject.window)]
        p_value: float | None = None
        length: float | None = None
        distance: float | None = None
        if groups and len(subject.reference) and len(subject.window):
            distance = total_variation(*counts)
            p_value, length = mix_p_value(
                subject.reference, subject.window, groups, permutations=subject.permutations, seed=subject.seed
            )
        shares = [(side.double() / side.sum().clamp(min=1)).tolist() for side in counts]
        parts = [(name, now - before, now, before) for name, before, now in zip(subject.names, *shares, strict=True)]
        rows = sorted(parts, key=lambda row: -abs(row[1]))
        exhibit = Exhibit.build(
            "segment_shares",
            "table",
            "Segments and their shares of the rows, before and now, the most changed first.",
            ("segment", "change", "share", "reference_share"),
            rows[:MOST_SHOWN],
        )
        measured = (P_VALUE.measure(p_value), DISTANCE.measure(distance), LENGTH.measure(length))
        return [*measured, ROWS.measure(len(subject.window))], [exhibit]

    @classmethod
    def examples(cls) -> Iterable[Mix]:
        """Yield two streams of one mix, and one that is empty."""
        labels = torch.randint(0, 3, (2_000,), generator=torch.Generator().manual_seed(0))
        yield Mix(("a", "b", "c"), labels[:1_000], labels[1_000:], permutations=99)
        yield Mix(("a",), labels[:0], labels[:0])
