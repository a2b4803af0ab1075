"""Two Sources of the same items, read side by side as pairs."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from embedwatch.batch import PairBatch, VectorBatch
from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.source import Source
from embedwatch.hashing import hash_text

__all__ = ["PairedSource"]

Join = Literal["auto", "number", "name"]
JOINS: tuple[Join, ...] = ("auto", "number", "name")
PROBED = 8
"""Rows whose names are looked at, to know whether a Source has any."""
UNNAMED = ("sentences",)
"""Places whose names are texts, shortened, and no identities."""


class _Joined(NamedTuple):
    """Rows that have a partner, ascending by the left one: their numbers on both sides, and how many have none."""

    left: Tensor
    right: Tensor
    alone: tuple[int, int]
    repeated: tuple[int, int]


class PairedSource(Source):
    """The same items in two spaces: rows of one Source beside rows of another.

    Rows are joined by their number, or by their name where both Sources name their rows (an id column, words, tokens).
    Names that occur twice on one side, or on one side only, are left out and counted in `notes`. What is joined by
    name and stands in another order is brought into the order of the left side through a temporary file.

    Args:
        left: a Source.
        right: a Source of the same items; its dimension may be another.
        join: `number`, `name`, or `auto`: by name where both have names.

    Raises:
        InputError: if joined by number and the numbers of rows differ, or by name and no name is on both sides.
        UsageError: if `join` is something else, or names are asked for that a side does not have.

    Example:
        >>> import numpy, tempfile
        >>> from embedwatch.sources import open_source
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = Path(folder, "old.npy"), Path(folder, "new.npy")
        ...     for path, width in zip(paths, (3, 2)):
        ...         numpy.save(path, numpy.ones((5, width), "float32"))
        ...     pairs = PairedSource(*map(open_source, paths))
        ...     [(tuple(batch.left.shape), tuple(batch.right.shape)) for batch in pairs.batches(4)]
        [((4, 3), (4, 2)), ((1, 3), (1, 2))]
    """

    title = "Pairs"
    place = "pairs"
    role = "pairs"

    def __init__(self, left: Source, right: Source, *, join: Join = "auto") -> None:
        if join not in JOINS:
            raise UsageError(f"`join` must be one of {', '.join(JOINS)}, got {join!r}; choose one")
        self.left, self.right = left, right
        named = [_named(source) for source in (left, right)]
        if join == "name" and not all(named):
            label = (left, right)[named.index(False)].label
            raise UsageError(f"`join` by name needs names on both sides, got none in {label}; join by number")
        self.by_name = all(named) if join == "auto" else join == "name"
        self.label = left.label if left.label == right.label else f"{left.label} and {right.label}"
        self.batch_rows = min(left.batch_rows, right.batch_rows)
        if self.by_name:
            self.rows = len(self._joined.left)
        else:
            known = [source.rows for source in (left, right)]
            if None not in known and known[0] != known[1]:
                raise InputError(_unequal(left, right, known[0], known[1]))
            self.rows = known[0] if known[0] is not None else known[1]
        self.dimension = None
        self.batch_rows = min(left.batch_rows, right.batch_rows)

    @property
    def notes(self) -> tuple[str, ...]:  # type: ignore[override]  # those of the sides are complete after a reading
        """What a reader of the numbers must know, each side's remarks behind its label."""
        sides = [f"{source.label}: {note}" for source in (self.left, self.right) for note in source.notes]
        return (*self._told(), *dict.fromkeys(sides))

    def _told(self) -> tuple[str, ...]:
        if not self.by_name:
            return ("joined by row number: row i of the one is taken for row i of the other",)
        found = self._joined
        told = f"joined by name: {len(found.left):,} pairs"
        for source, alone, repeated in zip((self.left, self.right), found.alone, found.repeated, strict=True):
            less = [f"{alone:,} without a partner" if alone else "", f"{repeated:,} named twice" if repeated else ""]
            if any(less):
                told += f"; of {source.label} {' and '.join(filter(None, less))} left out"
        return (told,)

    @classmethod
    def accepts(cls, path: Path) -> bool:
        """Return false: a pair is made of two Sources."""
        return False

    @classmethod
    def open(cls, path: Path, *, select: str | None = None, labels: str | None = None) -> PairedSource:
        """Refuse: a pair is made of two Sources."""
        raise UsageError(f"`{path}` must be given with its partner; use PairedSource(left, right)")

    def batches(self, size: int) -> Iterator[PairBatch]:
        """Yield pairs in the order of the left side, each with the row number that it has there.

        Raises:
            InputError: if one side ends before the other.
        """
        return self._by_name(size) if self.by_name else self._by_number(size)

    def _by_number(self, size: int) -> Iterator[PairBatch]:
        rights = _Rows(self.right.batches(size))
        seen = 0
        for batch in self.left.batches(size):
            right = rights.take(len(batch))
            if len(right) < len(batch):
                raise InputError(_unequal(self.left, self.right, None, seen + len(right)))
            yield PairBatch(batch.rows, right, torch.arange(seen, seen + len(batch)), source=self.left.label)
            seen += len(batch)
        if len(rights.take(1)):
            raise InputError(_unequal(self.left, self.right, seen, None))

    def _by_name(self, size: int) -> Iterator[PairBatch]:
        joined = self._joined
        ordered = bool((joined.right.diff() > 0).all())
        if ordered:
            rights = _Rows(_chosen(self.right, joined.right, size))
            for rows, numbers in _numbered(self.left, joined.left, size):
                yield PairBatch(rows, rights.take(len(rows)), numbers, source=self.left.label)
            return
        with tempfile.TemporaryFile() as file:
            store = _Store(file, self.right, joined.right, size)
            done = 0
            for rows, numbers in _numbered(self.left, joined.left, size):
                yield PairBatch(rows, store.take(done, len(rows)), numbers, source=self.left.label)
                done += len(rows)

    def partners(self, numbers: Tensor) -> Tensor:
        """Return the right rows of some pairs, without the left side being read.

        Args:
            numbers: row numbers of the left side, ascending, each of a pair.

        Shape: (N,) -> (N, D2).
        """
        wanted = numbers
        if self.by_name:
            wanted = self._joined.right[torch.searchsorted(self._joined.left, numbers)]
        order = wanted.argsort()
        rows = torch.cat([rows for rows, _ in _numbered(self.right, wanted[order], self.right.batch_rows)])
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order))
        return rows[back]

    @cached_property
    def _joined(self) -> _Joined:
        """Which rows belong together, by the hash of their names."""
        sides = [_unique(source) for source in (self.left, self.right)]
        (left, at_left, repeated), (right, at_right, others) = sides
        places = torch.searchsorted(right, left).clamp(max=max(0, len(right) - 1))
        both = right[places] == left if len(right) else torch.zeros(len(left), dtype=torch.bool)
        if not bool(both.any()):
            raise InputError(
                f"{self.left.label} and {self.right.label} must have rows of the same name, got none; join by number"
            )
        numbers, partners = at_left[both], at_right[places[both]]
        order = numbers.argsort()
        alone = len(left) - len(numbers), len(right) - len(numbers)
        return _Joined(numbers[order], partners[order], alone, (repeated, others))

    def fingerprint(self) -> str:
        """Return a short hash that changes with either side."""
        told = f"{self.left.fingerprint()}\0{self.right.fingerprint()}\0{self.by_name}"
        return hashlib.blake2b(told.encode(), digest_size=8).hexdigest()

    def names(self, rows: Sequence[int]) -> list[str]:
        """Return what people call these rows: by the left side, or by the right one where only it has any."""
        told = [_named(source) or source.place in UNNAMED for source in (self.left, self.right)]
        return (self.left if told[0] or not told[1] else self.right).names(rows)


class _Rows:
    """Takes rows off a stream of batches, as many as asked for."""

    def __init__(self, batches: Iterable[VectorBatch | Tensor]) -> None:
        self._batches = iter(batches)
        self._held: Tensor | None = None

    def take(self, count: int) -> Tensor:
        """Return the next rows, fewer at the end. Shape: (count, D)."""
        parts: list[Tensor] = []
        missing = count
        while missing > 0:
            if self._held is None or not len(self._held):
                following = next(self._batches, None)
                if following is None:
                    break
                self._held = following if isinstance(following, Tensor) else following.rows
            parts.append(self._held[:missing])
            self._held = self._held[missing:]
            missing -= len(parts[-1])
        return torch.cat(parts) if parts else torch.zeros(0, 1)


class _Store:
    """Rows of a Source in a temporary file, in the order in which their partners come."""

    def __init__(self, file: Any, source: Source, wanted: Tensor, size: int) -> None:
        rank = wanted.argsort()  # place among the pairs of the i-th wanted row, ascending by number
        self._rows: np.memmap[tuple[int, int], np.dtype[np.float32]] | None = None
        done = 0
        for rows, numbers in _numbered(source, wanted[rank], size):
            if self._rows is None:
                shape = (len(wanted), rows.shape[1])
                self._rows = np.memmap(file, dtype=np.float32, mode="w+", shape=shape)
            self._rows[rank[done : done + len(numbers)].numpy()] = rows.float().numpy()
            done += len(numbers)

    def take(self, start: int, count: int) -> Tensor:
        """Return a copy of some rows. Shape: (count, D)."""
        if self._rows is None:
            return torch.zeros(0, 1)
        return torch.from_numpy(np.array(self._rows[start : start + count]))


def _numbered(source: Source, wanted: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the rows of a Source with these numbers, ascending, with their numbers."""
    seen = 0
    for batch in source.batches(size):
        first, last = torch.searchsorted(wanted, torch.tensor([seen, seen + len(batch)])).tolist()
        numbers = wanted[first:last]
        if len(numbers):
            yield batch.rows[numbers - seen], numbers
        seen += len(batch)


def _chosen(source: Source, wanted: Tensor, size: int) -> Iterator[Tensor]:
    return (rows for rows, _ in _numbered(source, wanted, size))


def _named(source: Source) -> bool:
    """Return whether a Source has names for its rows that may stand for them."""
    if source.place in UNNAMED:
        return False
    count = PROBED if source.rows is None else min(PROBED, source.rows)
    numbers = list(range(count))
    return bool(numbers) and source.rows is not None and source.names(numbers) != [str(number) for number in numbers]


def _unique(source: Source) -> tuple[Tensor, Tensor, int]:
    """Return the hashes of the names that occur once, ascending, the rows that have them, and how many occur twice."""
    size, count = source.batch_rows, source.rows or 0
    chunks = (range(start, min(count, start + size)) for start in range(0, count, size))
    hashes = [hash_text(name) for chunk in chunks for name in source.names(chunk)]
    found, order = torch.tensor(hashes, dtype=torch.int64).sort(stable=True)
    once = torch.ones(len(found), dtype=torch.bool)
    twin = found[1:] == found[:-1]
    once[1:] &= ~twin
    once[:-1] &= ~twin
    return found[once], order[once], int((~once).sum())


def _unequal(left: Source, right: Source, first: int | None, second: int | None) -> str:
    """Return what is wrong where the sides are not equally long; one of the numbers may not be known."""
    sides = (left, first), (right, second)
    told = [f"{source.label} {'more' if count is None else f'{count:,}'}" for source, count in sides]
    return (
        f"both sides must have a row for each item, got {' and '.join(told)}; embed the same items in one order, "
        "or give both an id column"
    )
