"""Healthy rows of one source, dealt in blocks to a reference, a fresh window and what faults draw on."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from embedwatch.ann import cluster_centres
from embedwatch.core.errors import InputError
from embedwatch.drills.changes import topics_of
from embedwatch.drills.fault import Stock, generator_of
from embedwatch.geometry.comparison import LEADING, LENGTHS, UNIT
from embedwatch.geometry.persistence import cell_decay_length, decay_length
from embedwatch.reading import RowReader
from embedwatch.references.fitting import LEAST_ROWS

__all__ = ["Pool", "Split", "read_pool", "split"]

REFERENCE_WINDOWS = 2
"""A reference has so many times the rows of a window, at most."""
POOL_WINDOWS = REFERENCE_WINDOWS + 3
"""Rows that are read, in windows: reference, window, spare ones and a topic."""
HEAD_ROWS = 4096
"""The first rows, in whose order persistence is looked for."""
CELLS = 32
TOPICS = 20
ROWS_PER_TOPIC = 50
"""Fewer topics are made where the rows do not fill them."""
TOPIC_SAMPLE = 8192
LARGEST_TOPIC = 0.15
"""A topic that holds more of the rows is not held out: the rest would be another source."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Rows of a source, in its order.

    Args:
        rows: finite ones, (N, D).
        blocks: which block of consecutive rows each is of, (N,) int64.
        block: rows of a block.
        length: decay length of the first rows.
        centres: of the topics, (K, D).
        nonfinite: rows that were left out.
    """

    rows: Tensor
    blocks: Tensor
    block: int
    length: float
    centres: Tensor
    nonfinite: int


@dataclass(frozen=True, eq=False)
class Split:
    """A reference, a fresh window, and what faults draw on: no row is in two of them.

    Args:
        reference: (R, D), in blocks.
        window: (W, D), in blocks.
        stock: for faults.
    """

    reference: Tensor
    window: Tensor
    stock: Stock


def read_pool(reader: RowReader, *, window: int, seed: int, shuffle: bool) -> Pool:
    """Return as many rows as a drill can use: all, or blocks drawn from everywhere in the source.

    Args:
        reader: of the source.
        window: rows of the longest window.
        seed: of the blocks that are drawn.
        shuffle: whether rows have no order: each is a block of its own.

    Raises:
        InputError: if there are too few finite rows.
    """
    total, wanted = reader.count(), POOL_WINDOWS * window
    block, length = 1, 1.0
    if not shuffle:
        length = _length(_head(reader), seed)
        block = max(UNIT, math.ceil(LENGTHS * length) if length > 1 else UNIT)
    count = math.ceil(total / block)
    drawn = torch.randperm(count, generator=generator_of("blocks", seed))[: math.ceil(wanted / block)]
    is_drawn = torch.zeros(count, dtype=torch.bool)
    is_drawn[drawn] = True
    parts: list[Tensor] = []
    places: list[Tensor] = []
    start = nonfinite = 0
    for batch in reader.batches():
        blocks = torch.arange(start, start + len(batch)) // block
        start += len(batch)
        chosen = is_drawn[blocks.clamp(max=max(0, count - 1))]
        finite = batch.finite.cpu()
        nonfinite += int((chosen & ~finite).sum())
        kept = chosen & finite
        parts.append(_wide(batch.rows.cpu()[kept]))
        places.append(blocks[kept])
    rows = torch.cat(parts) if parts else torch.zeros(0, 1)
    least = window + LEAST_ROWS
    if len(rows) < least:
        raise InputError(
            f"`source` must have at least {least:,} finite rows for a window of {window:,}, got {len(rows):,} in "
            f"{reader.name}; add rows or ask for a smaller window"
        )
    centres = cluster_centres(rows[:: max(1, len(rows) // TOPIC_SAMPLE)], _topic_count(len(rows)), seed=seed)
    return Pool(rows, torch.cat(places), block, length, centres, nonfinite)


def split(pool: Pool, *, window: int, seed: int, other: Tensor | None = None) -> Split:
    """Return the pool's rows, dealt by lot: blocks stay whole, and one topic is held out of reference and window.

    Args:
        pool: of healthy rows.
        window: rows of the window.
        seed: of the lot.
        other: rows of another source, for the fault that has use for them.
    """
    generator = generator_of("split", seed)
    held = _held_out(pool, window, generator)
    rows, blocks = pool.rows[~held], pool.blocks[~held]
    keys, place = torch.unique(blocks, return_inverse=True)
    rank = torch.randperm(len(keys), generator=generator)[place]
    order = rank.argsort(stable=True)
    rows, rank = rows[order], rank[order]
    left = len(rows) - window
    spare = min(window, max(0, left - REFERENCE_WINDOWS * window))
    end = window + spare
    while 0 < end < len(rows) and rank[end] == rank[end - 1]:
        end += 1  # the rest of a block belongs to nobody
    reference = rows[end : end + REFERENCE_WINDOWS * window]
    stock = Stock(reference.mean(0), pool.centres, rows[window : window + spare], pool.rows[held], other)
    return Split(reference, rows[:window], stock)


def _head(reader: RowReader) -> Tensor:
    """Return the first finite rows."""
    found: list[Tensor] = []
    for batch in reader.batches():
        found.append(_wide(batch.rows.cpu()[batch.finite.cpu()]))
        if sum(map(len, found)) >= HEAD_ROWS:
            break
    return torch.cat(found)[:HEAD_ROWS] if found else torch.zeros(0, 1)


def _length(head: Tensor, seed: int) -> float:
    """Return for how many rows they keep to their topic, by their directions or by their cells."""
    if len(head) < LEAST_ROWS:
        return 1.0
    centred = head.double() - head.double().mean(0)
    directions = torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -LEADING:]
    cells = topics_of(head, cluster_centres(head, CELLS, seed=seed))
    return max(decay_length(centred @ directions), cell_decay_length(cells))


def _topic_count(rows: int) -> int:
    return max(1, min(TOPICS, rows // ROWS_PER_TOPIC))


def _held_out(pool: Pool, window: int, generator: torch.Generator) -> Tensor:
    """Return which rows are of the topic that is held out, one by lot of those of a fitting size. (N,) bool."""
    topics = topics_of(pool.rows, pool.centres)
    sizes = torch.bincount(topics, minlength=len(pool.centres))
    room = min(LARGEST_TOPIC * len(pool.rows), len(pool.rows) - window - LEAST_ROWS)
    fitting = ((sizes > 0) & (sizes <= room)).nonzero()[:, 0]
    if not len(fitting):
        return torch.zeros(len(pool.rows), dtype=torch.bool)
    large = fitting[sizes[fitting] >= min(int(sizes[fitting].max()), window // 10)]
    return topics == large[int(torch.randint(len(large), (), generator=generator))]


def _wide(rows: Tensor) -> Tensor:
    """Return rows in which a fault can be computed: no less than float32."""
    return rows if rows.dtype == torch.float64 else rows.float()
