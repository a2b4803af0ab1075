"""A map between two spaces, watched on the texts of a canary that another model embeds."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from embedwatch.align.aligner import Aligner
from embedwatch.batch import PairBatch
from embedwatch.canary import Canary, Embed
from embedwatch.canary.embedding import BATCH, Round, embed_in
from embedwatch.core.boundary import Boundary, OnError
from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.snapshot import Snapshot, Space
from embedwatch.stats.pair_similarity import PairSimilarity
from embedwatch.window import Window

__all__ = ["PLACE", "probe_pair"]

PLACE = "pairs"


def probe_pair(
    canary: Canary,
    embed: Embed,
    *,
    aligner: Aligner | None = None,
    texts: Sequence[str] = (),
    model: str | None = None,
    fingerprint: str = "",
    on_error: OnError = "count",
) -> Snapshot:
    """Return what the space of a canary and that of another model have in common now, measured on its texts.

    The check `alignment_lost` compares it with the first Snapshot of a History.

    Args:
        canary: texts with the vectors that the one model gave them.
        embed: the other model: takes texts, and returns as many vectors.
        aligner: maps these into the space of the canary; without, only what needs no common coordinates is told.
        texts: where the canary was recorded without them.
        model: label of what is measured; by default the name of the canary.
        fingerprint: of what embeds.
        on_error: what happens to exceptions of our own Statistic.

    Raises:
        InputError: if the map does not lead into the space of the canary, or its rows are of another model.
        UsageError: if the texts are missing.
    """
    if aligner is not None and aligner.right_dimension != canary.dimension:
        raise InputError(
            f"`aligner` must map into the {canary.dimension} dimensions of the canary, got {aligner.right_dimension}; "
            "record the canary with the model that the map leads to"
        )
    asked = texts or canary.texts
    if len(asked) != len(canary):
        raise UsageError(f"`texts` must be the {len(canary)} that were recorded, got {len(asked)}; give those")
    now: Tensor = embed_in(embed, asked, Round(torch.arange(len(asked)), BATCH)).float()
    sound = now.isfinite().all(1) & (now != 0).any(1)
    if aligner is not None:
        mapped = torch.full((len(now), aligner.right_dimension), torch.nan)
        mapped[sound] = aligner.transform(now[sound])
        now = mapped
    window = Window([PairSimilarity(most=len(canary))], boundary=Boundary(on_error=on_error))
    window.update(PairBatch(canary.vectors, now, torch.arange(len(now)), source=PLACE))
    window.close(time.time())
    told = "as they stand" if aligner is None else f"mapped by {aligner.method}, fitted for the {aligner.side} side"
    return window.snapshot(
        Space(model or canary.model, PLACE),
        fingerprint=fingerprint,
        coverage={"rows_expected": len(canary), "rows_read": len(now)},
        notes=[f"{len(canary)} texts of {canary.model} beside another model's vectors, {told}"],
        role=PLACE,
    )
