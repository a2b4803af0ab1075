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
    def is_rows(self) -> bool:
        """Whether batches are rows; otherwise each is one step, and an empty stream has none."""
        return bool(self.batches) and hasattr(self.batches[0], "concat")

    @property
    def whole(self) -> Any:
        """All rows as one batch, or all steps in order: what `oracle` takes."""
        return type(self.batches[0]).concat(self.batches) if self.is_rows else self.batches

    def split(self, sizes: Sequence[int]) -> list[Stream]:
        """Cut into consecutive streams of these sizes."""
        if self.is_rows:
            return [Stream([part]) for part in self.whole.split(sizes)]
        edges = [0, *accumulate(sizes)]
        return [Stream(self.batches[start:end]) for start, end in pairwise(edges)]

    @property
    def numbers(self) -> list[str]:
        """Names of the fields that hold floating point numbers: a row of them, or one, for each row."""
        held = (
            {field.name: getattr(self.batches[0], field.name) for field in fields(self.batches[0])}
            if self.is_rows
            else {}
        )
        return [name for name, value in held.items() if isinstance(value, torch.Tensor) and value.is_floating_point()]

    @property
    def dimension(self) -> int:
        """The largest number of columns, 1 where numbers stand alone."""
        columns = [getattr(self.batches[0], name).shape[1:] for name in self.numbers]
        return max((size for shape in columns for size in shape), default=1)

    def change(self, act: Callable[[torch.Tensor], torch.Tensor]) -> Stream:
        """Return the stream with something done to all floating point tensors; steps hold none."""
        if not self.is_rows:
            return self
        whole = self.whole
        return Stream([replace(whole, **{name: act(getattr(whole, name)) for name in self.numbers})])

    def spoil(self, number: float, draw: Draw) -> Stream:
        """Return the stream with up to four rows or steps more, which hold this number in one place."""
        count = min(len(self), draw(st.integers(1, 4)))
        if not self.is_rows:
            return Stream([*self.batches, *(_spoiled(step, number, len(self), draw) for step in self.batches[:count])])
        sound = self.whole.take(slice(0, count))
        rows = {name: getattr(sound, name).clone() for name in self.numbers}
        bad = rows[draw(st.sampled_from(self.numbers))].view(count, -1)
        bad[:, draw(st.integers(0, bad.shape[1] - 1))] = number
        return self.append(rows)

    def repeat(self, factor: float, count: int) -> Stream:
        """Return the stream with its first row, or step, so many times more, all its numbers times a factor."""
        if not self.is_rows:
            first = self.batches[0]
            scalars = {name: value * factor for name, value in first.scalars.items()}
            later = self.batches[-1].step + 1
            return Stream([*self.batches, *(replace(first, step=later + k, scalars=scalars) for k in range(count))])
        first = self.whole.take(slice(0, 1))
        scaled = {name: getattr(first, name).float() * factor for name in self.numbers}
        return self.append({name: value.expand(count, *value.shape[1:]) for name, value in scaled.items()})

    def append(self, rows: Mapping[str, torch.Tensor]) -> Stream:
        """Return the stream with more rows at its end: row numbers of their own, all else as the first row has."""
        whole = self.whole
        count = len(next(iter(rows.values())))
        extra = whole.take(torch.zeros(count, dtype=torch.int64))
        ids = {"ids": whole.ids.max() + 1 + torch.arange(count)} if getattr(whole, "ids", None) is not None else {}
        typed = {name: value.to(getattr(whole, name)) for name, value in rows.items()}
        return Stream([type(whole).concat([whole, replace(extra, **typed, **ids)])])


def _spoiled(step: Any, number: float, later: int, draw: Draw) -> Any:
    """Return a later step of which one scalar is this number."""
    scalars = dict(step.scalars)
    if scalars:
        scalars[draw(st.sampled_from(sorted(scalars)))] = number
    return replace(step, step=step.step + later, scalars=scalars)


def cut(stream: Stream, draw: Draw, *, parts: int | None = None) -> list[Stream]:
    """Cut a stream at drawn places; parts may be empty, of one row, very unequal."""
    number = draw(st.integers(1, 5)) if parts is None else parts
    places = sorted(draw(st.integers(0, len(stream))) for _ in range(number - 1))
    return stream.split([right - left for left, right in pairwise([0, *places, len(stream)])])


def shifted(stream: Stream, turn: int) -> Stream:
    """Return other rows of the same shape, or later steps, as if the source went on."""
    shift = turn * len(stream)
    if not stream.is_rows:
        return Stream([replace(batch, step=batch.step + shift) for batch in stream.batches])
    whole = stream.change(lambda rows: rows * (1 + 0.1 * turn)).whole
    return Stream([replace(whole, ids=whole.ids + shift) if getattr(whole, "ids", None) is not None else whole])
