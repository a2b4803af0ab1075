"""Checkpoint tokens: the rows of a checkpoint's token table, token by token, so that checkpoints have a course."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from embedwatch.batch import TokenBatch
from embedwatch.core.boundary import Boundary
from embedwatch.core.snapshot import Snapshot, Space
from embedwatch.selection import Selection
from embedwatch.sources.subject import TokenTable
from embedwatch.stats.token_norms import CORRELATION, SEEN, TokenNorms
from embedwatch.window import Window

__all__ = ["snapshot_of_tokens"]

ROLE = "tokens"
SEGMENT = "tokens"
"""Of the place of the table, beside the table as a whole: both are examined when a checkpoint comes, and seldom so."""
UNTOLD = frozenset((CORRELATION.name, SEEN.name))
"""What rests on how often tokens came, which no checkpoint tells."""


def snapshot_of_tokens(
    table: TokenTable, boundary: Boundary, *, only: Sequence[str] = (), skip: Sequence[str] = ()
) -> Snapshot | None:
    """Return the norms of a table's rows as a Snapshot, which checks compare with those of checkpoints before it.

    Args:
        table: of a checkpoint; it is read by slices.
        boundary: where exceptions of the Statistic end.
        only: names of statistics, measurements or checks to keep.
        skip: those to leave out.

    Returns:
        `None` where `only` and `skip` leave nothing of it.

    Raises:
        InputError: if the table cannot be read.
    """
    selection = Selection.live(ROLE, only=only, skip=skip)
    if TokenNorms not in selection.statistics:
        return None
    window = Window([TokenNorms()], boundary=boundary)
    for batch in table.batches(table.batch_rows):
        ids, norms = batch.numbers, batch.norms.double()  # (N,)
        unknown = torch.full_like(norms, torch.nan)
        window.update(TokenBatch(ids, norms, torch.zeros_like(ids), unknown, unknown))
    window.close(time.time())
    snapshot = window.snapshot(Space(table.label, table.place, SEGMENT), fingerprint=table.fingerprint(), role=ROLE)
    told = tuple(each for each in snapshot if each.name in selection.metrics - UNTOLD)
    return Snapshot(snapshot.space, told, snapshot.provenance)
