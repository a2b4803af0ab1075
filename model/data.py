"""Batches of tokens: each is a pure function of its number, so that a run can resume.

Letters: B batch, T positions.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from .errors import ModelError
from .objectives import Batch, causal, masked, translation

__all__ = ["Data", "Pairs", "Windows", "seeded", "unigram_entropy"]

HELD_OUT = 20
"""One of so many windows or pairs is kept for validation and never trained on."""
MOST_VALIDATION = 256
"""Windows or pairs of one validation, spread evenly over those that are held out."""
POOL = 32
"""So many batches of pairs are sorted by length together, so that a batch holds little padding."""


class Data(Protocol):
    """What the training loop asks for."""

    def batch(self, position: int) -> Batch:
        """Return training batch number `position`, from 0 without end; the same number gives the same batch."""

    def validation(self) -> Iterator[Batch]:
        """Yield what is held out, always the same."""


class Windows:
    """A stream of tokens cut into windows of T, drawn in a new order each epoch.

    Args:
        tokens: (N,) the stream.
        length: T, what the model reads at once.
        batch: B.
        objective: `causal` or `masked`.
        vocabulary: V.
        seed: of the order and of the masks.

    Raises:
        ModelError: if the stream is too short for a window to train on and one to validate on.
    """

    def __init__(
        self, tokens: Tensor, *, length: int, batch: int, objective: str, vocabulary: int, seed: int = 0
    ) -> None:
        if objective not in ("causal", "masked"):
            raise ModelError(f"`objective` must be causal or masked, got {objective!r}; pairs are for translation")
        self.tokens, self.length, self.size, self.seed = tokens, length, _at_least_one("batch", batch), seed
        self.objective, self.vocabulary = objective, vocabulary
        self._extra = 1 if objective == "causal" else 0  # the last target lies one step beyond the inputs
        count = (len(tokens) - self._extra) // _at_least_one("length", length)
        if count < 2:
            raise ModelError(
                f"`tokens` must fill 2 windows of {length} tokens, got {len(tokens):,} tokens; give a longer text or "
                "make the model's `length` shorter"
            )
        self._train, self._held_out = _split(count)
        self._order = _Order(len(self._train), seed)

    def batch(self, position: int) -> Batch:
        """Return training batch number `position`."""
        per_epoch = math.ceil(len(self._train) / self.size)
        epoch, index = divmod(position, per_epoch)
        rows = self._order(epoch)[index * self.size : (index + 1) * self.size]
        return self._make(self._train[rows], seeded(self.seed, "mask", position))

    def validation(self) -> Iterator[Batch]:
        """Yield what is held out."""
        chosen = _spread(self._held_out)
        for number, start in enumerate(range(0, len(chosen), self.size)):
            yield self._make(chosen[start : start + self.size], seeded(self.seed, "validation", number))

    def _make(self, windows: Tensor, generator: torch.Generator) -> Batch:
        starts = (windows * self.length).tolist()
        ids = torch.stack([self.tokens[start : start + self.length + self._extra] for start in starts]).long()
        if self.objective == "causal":
            return causal(ids)
        return masked(ids, vocabulary=self.vocabulary, generator=generator)


class Pairs:
    """Sentences and their translations, batched with others of like length.

    Args:
        sources: tokens of each sentence.
        targets: tokens of each translation.
        length: the most tokens of one side, the end included; longer pairs are left out and counted in `dropped`.
        batch: B.
        seed: of the order.

    Raises:
        ModelError: if fewer than two pairs fit.
    """

    def __init__(
        self, sources: Sequence[Tensor], targets: Sequence[Tensor], *, length: int, batch: int, seed: int = 0
    ) -> None:
        fits = [i for i, pair in enumerate(zip(sources, targets, strict=True)) if max(map(len, pair)) < length]
        self.dropped = len(sources) - len(fits)
        if len(fits) < 2:
            raise ModelError(
                f"`sources` must hold 2 pairs of fewer than {length} tokens, got {len(fits)} of {len(sources):,}; "
                "give more pairs or make the model's `length` longer"
            )
        self.sources, self.targets = [sources[i] for i in fits], [targets[i] for i in fits]
        self.size, self.seed = _at_least_one("batch", batch), seed
        self._train, self._held_out = _split(len(fits))
        self._order = _Order(len(self._train), seed)
        self._plan: tuple[int, list[list[int]]] = (-1, [])

    def batch(self, position: int) -> Batch:
        """Return training batch number `position`."""
        epoch, index = divmod(position, math.ceil(len(self._train) / self.size))
        if self._plan[0] != epoch:
            self._plan = (epoch, self._batches(epoch))
        return self.batch_of(self._plan[1][index])

    def validation(self) -> Iterator[Batch]:
        """Yield what is held out."""
        rows = _spread(self._held_out).tolist()
        for start in range(0, len(rows), self.size):
            yield self.batch_of(rows[start : start + self.size])

    def held_out(self) -> list[int]:
        """Return the rows that are never trained on."""
        return [int(row) for row in self._held_out]

    def _batches(self, epoch: int) -> list[list[int]]:
        order = [int(row) for row in self._train[self._order(epoch)]]
        pool = POOL * self.size
        alike = [
            row
            for start in range(0, len(order), pool)
            for row in sorted(order[start : start + pool], key=lambda row: (len(self.targets[row]), row))
        ]
        batches = [alike[start : start + self.size] for start in range(0, len(alike), self.size)]
        shuffled = torch.randperm(len(batches), generator=seeded(self.seed, "batches", epoch)).tolist()
        return [batches[index] for index in shuffled]

    def batch_of(self, rows: list[int]) -> Batch:
        """Return some pairs as a batch."""
        return translation([self.sources[row].long() for row in rows], [self.targets[row].long() for row in rows])


class _Order:
    """The order of an epoch, kept until another one is asked for."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed
        self._kept: tuple[int, Tensor] = (-1, torch.empty(0))

    def __call__(self, epoch: int) -> Tensor:
        if self._kept[0] != epoch:
            self._kept = (epoch, torch.randperm(self.count, generator=seeded(self.seed, "order", epoch)))
        return self._kept[1]


def unigram_entropy(ids: Tensor) -> float:
    """Return the entropy of the frequencies of tokens, `-Σ_v f_v log f_v`, in nats.

    No model that ignores context can have a lower loss on these tokens, not even one that knows their frequencies: a
    loss clearly below it shows that context is used.

    Example:
        >>> round(unigram_entropy(torch.tensor([5, 5, 7, 9])), 4)
        1.0397
    """
    counts = ids.flatten().long().bincount().double()
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * shares.log()).sum())


def seeded(seed: int, *purpose: str | int) -> torch.Generator:
    """Return a generator for one purpose: streams of different purposes have nothing to do with one another."""
    digest = hashlib.blake2b(repr((seed, *purpose)).encode(), digest_size=7).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little"))


def _split(count: int) -> tuple[Tensor, Tensor]:
    """Return which rows are trained on and which are held out: every 20th, or the last of fewer."""
    rows = torch.arange(count)
    held_out = rows % HELD_OUT == HELD_OUT - 1 if count >= HELD_OUT else rows == count - 1
    return rows[~held_out], rows[held_out]


def _spread(rows: Tensor) -> Tensor:
    count = min(len(rows), MOST_VALIDATION)
    return rows[torch.arange(count) * len(rows) // count]


def _at_least_one(name: str, value: int) -> int:
    if value < 1:
        raise ModelError(f"`{name}` must be at least 1, got {value}; count from one")
    return value
