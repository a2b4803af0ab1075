"""Streams: what a law feeds to a Statistic, cut and changed whatever kind of batch flows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import accumulate, pairwise
from typing import Any

import torch
from hypothesis import strategies as st

__all__ = ["Draw", "Stream", "cut", "shifted"]

Draw = Callable[[Any], Any]
"""Hypothesis' way to choose a value from a strategy."""


class Stream:
    """Some batches of one source: cut anywhere where batches are rows, between batches where each is one step."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self.batches = list(batches)

    def __len__(self) -> int:
        return sum(len(batch) for batch in self.batches)

    @property
    def whole(self) -> Any:
        """All rows as one batch, or all steps in order: what `oracle` takes."""
        first = self.batches[0]
        return type(first).concat(self.batches) if hasattr(first, "concat") else self.batches

    def split(self, sizes: Sequence[int]) -> list[Stream]:
        """Cut into consecutive streams of these sizes."""
        if hasattr(self.batches[0], "concat"):
            return [Stream([part]) for part in self.whole.split(sizes)]
        edges = [0, *accumulate(sizes)]
        return [Stream(self.batches[start:end]) for start, end in pairwise(edges)]

    @property
    def matrices(self) -> list[str]:
        """Names of the fields that hold rows of floating point numbers."""
        first = self.batches[0]
        return [field.name for field in fields(first) if _is_matrix(getattr(first, field.name))]

    def change(self, act: Callable[[torch.Tensor], torch.Tensor]) -> Stream:
        """Return the stream with something done to each matrix."""
        whole = self.whole
        return Stream([replace(whole, **{name: act(getattr(whole, name)) for name in self.matrices})])

    def append(self, rows: Mapping[str, torch.Tensor]) -> Stream:
        """Return the stream with more rows at its end: row numbers of their own, all else as the first row has."""
        whole = self.whole
        count = len(next(iter(rows.values())))
        extra = whole.take(torch.zeros(count, dtype=torch.int64))
        ids = {"ids": whole.ids.max() + 1 + torch.arange(count)} if getattr(whole, "ids", None) is not None else {}
        typed = {name: value.to(getattr(whole, name)) for name, value in rows.items()}
        return Stream([type(whole).concat([whole, replace(extra, **typed, **ids)])])


def _is_matrix(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.ndim == 2 and value.is_floating_point()


def cut(stream: Stream, draw: Draw, *, parts: int | None = None) -> list[Stream]:
    """Cut a stream at drawn places; parts may be empty, of one row, very unequal."""
    number = draw(st.integers(1, 5)) if parts is None else parts
    places = sorted(draw(st.integers(0, len(stream))) for _ in range(number - 1))
    return stream.split([right - left for left, right in pairwise([0, *places, len(stream)])])


def shifted(stream: Stream, turn: int) -> Stream:
    """Return other rows of the same shape, or later steps, as if the source went on."""
    shift = turn * len(stream)
    if not hasattr(stream.batches[0], "concat"):
        return Stream([replace(batch, step=batch.step + shift) for batch in stream.batches])
    whole = stream.change(lambda rows: rows * (1 + 0.1 * turn)).whole
    return Stream([replace(whole, ids=whole.ids + shift) if getattr(whole, "ids", None) is not None else whole])
