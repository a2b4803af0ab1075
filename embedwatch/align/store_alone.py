"""What a store tells without its texts: how its rows look, and no more."""

from __future__ import annotations

from collections import defaultdict

import torch

from embedwatch.align.mixed_results import Group
from embedwatch.core.errors import InputError
from embedwatch.core.source import Source
from embedwatch.geometry.grids import GRIDS, on_grid
from embedwatch.geometry.unit_length import have_unit_length
from embedwatch.reading import Progress

__all__ = ["groups_alone"]

BLIND = (
    "without the texts only what shows in the rows is told: another model, pooling or prefix look like other content"
)
SHOWN_IDS = 20
MOST_IDS = 100_000
"""Row numbers of a group that are kept."""
Look = tuple[bool, bool, str, int]


def groups_alone(source: Source, progress: Progress) -> tuple[tuple[Group, ...], int, tuple[str, ...]]:
    """Return groups of rows that look alike, the largest first; how many rows there are; and what a reader must know.

    A row looks like: broken or not, of length 1 or not, on which grid of numbers, and up to which dimension it is used.
    """
    counts: dict[Look, int] = defaultdict(int)
    ids: dict[Look, list[int]] = defaultdict(list)
    done, width = 0, 0
    with progress(source.label, source.rows) as advance:
        for batch in source.batches(source.batch_rows):
            rows = batch.rows.float()
            width = rows.shape[1]
            for place, look in enumerate(_looks(rows)):
                counts[look] += 1
                if len(ids[look]) < MOST_IDS:
                    ids[look].append(done + place)
            done += len(rows)
            advance(done)
    if not done:
        raise InputError(f"{source.label} must hold rows, got none; give a file with rows")
    order = sorted(counts, key=lambda look: -counts[look])
    groups = [
        Group(
            _name(look, order[0]), _words(look, width), counts[look], tuple(ids[look]),
            tuple(source.names(ids[look][:SHOWN_IDS])), None,
            "fail" if look[0] else ("ok" if look == order[0] else "warn"),
        )
        for look in order
    ]  # fmt: skip
    return tuple(groups), done, (BLIND, *source.notes)


def _looks(rows: torch.Tensor) -> list[Look]:
    sound = rows.isfinite().all(1) & (rows != 0).any(1)
    filled = torch.where(sound[:, None], rows, 0.1)
    unit = have_unit_length(filled.double().norm(dim=1))
    grids = [""] * len(rows)
    for grid in reversed(GRIDS):
        for place in on_grid(filled, grid).nonzero()[:, 0].tolist():
            grids[place] = grid
    used = torch.where(filled != 0, torch.arange(1, rows.shape[1] + 1), 0).amax(1)
    looks = zip(sound.tolist(), unit.tolist(), grids, used.tolist(), strict=True)
    # a last entry that happens to be zero is no cut
    return [
        (not ok, one and ok, grid if ok else "", _used(last, rows.shape[1]) if ok else 0)
        for ok, one, grid, last in looks
    ]


def _used(last: int, width: int) -> int:
    return last if width - last > max(1, width // 50) else width


def _name(look: Look, most: Look) -> str:
    if look[0]:
        return "broken"
    if look == most:
        return "most"
    if look[3] != most[3]:
        return "truncated"
    return "rounded" if look[2] != most[2] else "norm"


def _words(look: Look, width: int) -> str:
    broken, unit, grid, used = look
    if broken:
        return "NaN, Inf or zero"
    told = [
        "length 1" if unit else "other lengths than 1",
        f"values are {grid}" if grid else "no coarser number format",
    ]
    if used < width:
        told.append(f"zeros behind dimension {used}")
    return ", ".join(told)
