"""Which use of a model reproduces rows that its present use does not: other poolings, prefixes and limits are tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from embedwatch.core.errors import EmbedwatchError
from embedwatch.core.source import Source
from embedwatch.geometry.pairs import cosine_distances, unit
from embedwatch.sources._text_lines import TextLines
from embedwatch.sources.paired import PairedSource

if TYPE_CHECKING:
    from embedwatch.loading.encoder import TextEncoder

__all__ = ["Candidate", "candidates_of", "explained_by"]

POOLINGS = ("mean", "cls", "last", "max")
PREFIXES = ("", "query: ", "passage: ")
LIMITS = (16, 32, 64, 128, 256, 512)
TRIED = 48
"""Rows on which all candidates are tried, and texts at most that confirmed ones encode again."""
MOST_ENCODED = 5_000
REPRODUCED = 1e-4
"""Distance up to which a candidate reproduces a row, also where that was rounded."""


class Candidate(NamedTuple):
    """A way to use the model: what it is called, and its encoder."""

    told: str
    encoder: TextEncoder
    lines: TextLines


def candidates_of(source: Source) -> tuple[Candidate, ...]:
    """Return other ways to use the model of encoded texts: pooling, prefix, both, and shorter limits of tokens."""
    from embedwatch.sources.subject import EncodedTexts

    if not isinstance(source, EncodedTexts):
        return ()
    own = source.encoder
    found = []
    for pooling in (None, *POOLINGS):
        for prefix in dict.fromkeys((own.prefix, *PREFIXES)):
            if pooling is None and prefix == own.prefix:
                continue
            try:
                encoder = source.subject.encoder(pooling=pooling, prefix=prefix)
            except EmbedwatchError:
                continue
            if pooling is not None and encoder.pipeline.modes == own.pipeline.modes:
                continue
            told = [f"{pooling} pooling" if pooling else "", f'prefix "{prefix}"' if prefix != own.prefix else ""]
            found.append(Candidate(" and ".join(filter(None, told)), encoder, source.texts))
    cuts = [limit for limit in LIMITS if own.limit is None or limit < own.limit]
    found += [Candidate(f"texts cut at {limit} tokens", replace(own, limit=limit), source.texts) for limit in cuts]
    return tuple(found)


def explained_by(
    pair: PairedSource, numbers: Tensor, candidates: Sequence[Candidate], threshold: float
) -> Iterator[tuple[str | None, Tensor]]:
    """Yield what reproduces which of some rows, and at the end, under `None`, those that nothing does.

    All candidates are tried on 48 rows, spread evenly; those that reproduce any encode the texts of all, 5,000 at most.
    """
    rows = pair.partners(numbers[:MOST_ENCODED]).float()
    few = torch.linspace(0, len(rows) - 1, min(TRIED, len(rows))).long().unique()
    limit = max(threshold, REPRODUCED)
    best = torch.full((len(rows),), torch.inf, dtype=torch.float64)
    winner = torch.full((len(rows),), -1)
    for place, candidate in enumerate(candidates):
        if not bool((_apart(candidate, numbers[few], rows[few]) <= limit).any()):
            continue
        apart = _apart(candidate, numbers[: len(rows)], rows)
        better = (apart <= limit) & (apart < best)
        best[better], winner[better] = apart[better], place
    for place, candidate in enumerate(candidates):
        chosen = (winner == place).nonzero()[:, 0]
        if len(chosen):
            yield candidate.told, chosen
    rest = torch.cat([(winner < 0).nonzero()[:, 0], torch.arange(len(rows), len(numbers))])
    if len(rest):
        yield None, rest


def _apart(candidate: Candidate, numbers: Tensor, rows: Tensor) -> Tensor:
    """Return how far rows lie from what a candidate writes for their texts. Shape: (N,)."""
    texts = [line.text for line in candidate.lines.find(numbers.tolist())]
    written = candidate.encoder.encode(texts).vectors
    if written.shape[1] != rows.shape[1]:
        return torch.full((len(rows),), torch.inf, dtype=torch.float64)
    return torch.nan_to_num(cosine_distances(unit(written), unit(rows)), nan=torch.inf)
