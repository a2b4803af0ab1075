"""A map in use between two spaces, watched on texts whose vectors the one model gave and the other gives again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from embedwatch.align.aligner import Aligner
from embedwatch.batch import PairBatch
from embedwatch.canary import Canary, Embed
from embedwatch.canary.embedding import BATCH, Round, embed_in
from embedwatch.core.boundary import Boundary, OnError
from embedwatch.core.errors import InputError
from embedwatch.core.snapshot import Snapshot, Space
from embedwatch.stats.pair_similarity import PairSimilarity
from embedwatch.window import Window

__all__ = ["PLACE", "Bridge", "probe_pair"]

PLACE = "pairs"


class Bridge:
    """A map in use between two spaces, with what shows whether it holds: texts, and vectors that the one model gave.

    `embedwatch.watch(model, bridge=...)` embeds the texts with the live model, maps its vectors into the space of the
    canary, and compares what they find there with what they found at the start.

    Args:
        canary: texts with the vectors of the model that is mapped into, or the file of one.
        aligner: maps vectors of the other model there, or its folder; without, only what needs no common coordinates
            is told.
        texts: where the canary was recorded without them.
        encode: turns texts into vectors (N, D) with the live model; by default what the model's own `encode` does.

    Raises:
        InputError: if a file cannot be read, or the map does not lead into the space of the canary.
        UsageError: if the texts are missing, or are others than those that were recorded.

    Example:
        >>> embed = lambda texts: [[len(text), text.count("e"), text.count(" "), 1.0] for text in texts]
        >>> bridge = Bridge(Canary.record(embed, model="letters"))
        >>> window = bridge.window(bridge.embedded(embed))
        >>> round(bridge.snapshot(window, Space("letters", "pairs")).number("pair_overlap_ratio"), 6)
        1.0
    """

    def __init__(
        self,
        canary: Canary | str | os.PathLike[str],
        aligner: Aligner | str | os.PathLike[str] | None = None,
        *,
        texts: Sequence[str] = (),
        encode: Callable[[Sequence[str]], Any] | None = None,
    ) -> None:
        self.canary = canary if isinstance(canary, Canary) else Canary.load(canary)
        self.aligner = aligner if isinstance(aligner, Aligner | None) else Aligner.load(aligner)
        self.texts = self.canary.asked(texts)
        self.encode = encode
        if self.aligner is not None and self.aligner.right_dimension != self.canary.dimension:
            raise InputError(
                f"`aligner` must map into the {self.canary.dimension} dimensions of the canary, got "
                f"{self.aligner.right_dimension}; record the canary with the model that the map leads to"
            )

    def embedded(self, embed: Embed) -> Tensor:
        """Return what the other model makes of the texts now, as it stands. Shape: -> (N, D1) float32.

        Raises:
            InputError: if it gives no vectors, or such as the map does not take.
        """
        rows: Tensor = embed_in(embed, self.texts, Round(torch.arange(len(self.texts)), BATCH)).float()
        if self.aligner is not None and rows.shape[1] != self.aligner.left_dimension:
            raise InputError(
                f"`encode` must give the {self.aligner.left_dimension} dimensions that the map takes, got "
                f"{rows.shape[1]}; use the map that was fitted for this model"
            )
        return rows

    def window(self, rows: Tensor, *, boundary: Boundary | None = None, check: bool = False) -> Window:
        """Return a closed window of the pairs: vectors of the canary, and these, mapped.

        Args:
            rows: (N, D1) of the other model.
            boundary: where exceptions of our Statistic end.
            check: refuse rows that another model wrote than the map was fitted for.

        Raises:
            InputError: if they are.
        """
        if self.aligner is not None:
            sound = rows.isfinite().all(1) & (rows != 0).any(1)
            mapped = torch.full((len(rows), self.aligner.right_dimension), torch.nan)
            mapped[sound] = self.aligner.transform(rows[sound], check=check)
            rows = mapped
        window = Window([PairSimilarity(most=len(self.canary))], boundary=boundary or Boundary())
        window.update(PairBatch(self.canary.vectors, rows, torch.arange(len(rows)), source=PLACE))
        window.close(time.time())
        return window

    def snapshot(self, window: Window, space: Space, *, fingerprint: str = "", step: int | None = None) -> Snapshot:
        """Return what both spaces have in common, with provenance."""
        known = self.aligner
        told = "as they stand" if known is None else f"mapped by {known.method}, fitted for the {known.side} side"
        return window.snapshot(
            space,
            step=step,
            fingerprint=fingerprint,
            coverage={"rows_expected": len(self.canary), "rows_read": window.rows},
            notes=[f"{len(self.canary)} texts of {self.canary.model} beside another model's vectors, {told}"],
            role=PLACE,
        )


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
        UsageError: if the texts are missing, or are others than those that were recorded.
    """
    bridge = Bridge(canary, aligner, texts=texts)
    window = bridge.window(bridge.embedded(embed), boundary=Boundary(on_error=on_error), check=True)
    return bridge.snapshot(window, Space(model or canary.model, PLACE), fingerprint=fingerprint)
