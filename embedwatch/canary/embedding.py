"""How texts become vectors here: any function, asked in some order and in batches of some size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from embedwatch.core.errors import InputError

__all__ = ["BATCH", "Embed", "Round", "embed_in", "rounds"]

Embed = Callable[[list[str]], Any]
"""Takes texts, and returns as many vectors: a tensor, an array, or lists of numbers, `None` for a missing one."""
BATCH = 32
SIZES = (7, 1, 16, 3)
"""Batches of the second round and those after: a text is padded otherwise, or stands alone."""


class Round(NamedTuple):
    """One time that all texts are embedded: in which order, and how many at a time."""

    order: Tensor
    size: int


def rounds(count: int, repeats: int, *, seed: int = 0) -> Iterator[Round]:
    """Yield the rounds: as given by 32, then shuffled in other batches each time.

    Example:
        >>> [(round.size, sorted(round.order.tolist())) for round in rounds(3, 3)]
        [(32, [0, 1, 2]), (7, [0, 1, 2]), (1, [0, 1, 2])]
    """
    generator = torch.Generator().manual_seed(seed)
    yield Round(torch.arange(count), BATCH)
    for turn in range(repeats - 1):
        yield Round(torch.randperm(count, generator=generator), SIZES[turn % len(SIZES)])


def embed_in(embed: Embed, texts: Sequence[str], turn: Round) -> Tensor:
    """Return the vectors of the texts, in the order of the texts, embedded in one round.

    Shape: -> (N, D) float32. What is not a number, also what is missing, is NaN.

    Raises:
        InputError: if `embed` returns something other than one vector for each text, all of one dimension.
    """
    parts, order = [], turn.order.tolist()
    for start in range(0, len(order), turn.size):
        asked = [texts[place] for place in order[start : start + turn.size]]
        parts.append(_rows(embed(asked), len(asked)))
    widths = sorted({part.shape[1] for part in parts})
    if len(widths) > 1:
        raise InputError(f"`embed` must return vectors of one dimension, got {widths[0]} and {widths[-1]}; embed alike")
    joined = torch.cat(parts)
    found = torch.empty_like(joined)
    found[turn.order] = joined
    return found


def _rows(returned: Any, count: int) -> Tensor:
    """Return what `embed` gave as float32 rows on the CPU."""
    if isinstance(returned, Tensor):
        rows = returned.detach().cpu()
    else:
        try:
            rows = torch.from_numpy(np.array(_plain(returned), dtype=np.float64))
        except (TypeError, ValueError) as error:
            raise InputError(
                f"`embed` must return vectors of numbers, all of one dimension, got {type(returned).__name__}; "
                "return a tensor, an array or lists"
            ) from error
    if rows.ndim != 2 or len(rows) != count or rows.shape[1] == 0:
        raise InputError(
            f"`embed` must return one vector for each of {count} texts, got shape {tuple(rows.shape)}; return (N, D)"
        )
    return rows.float()


def _plain(returned: Any) -> Any:
    """Return lists whose missing vectors are NaN; numpy turns a missing number into one by itself."""
    if not isinstance(returned, list | tuple):
        return returned
    width = next((len(row) for row in returned if row is not None), 0)
    return [[np.nan] * width if row is None else row for row in returned]
