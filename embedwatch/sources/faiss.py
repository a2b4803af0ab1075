"""faiss: the vectors of a FAISS index, read in a process of their own."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path

import numpy as np
import torch

from embedwatch.ann.facts import IndexFacts
from embedwatch.ann.headers import HEADER_BYTES, header_of
from embedwatch.ann.indexes import View, opened
from embedwatch.core.errors import UsageError
from embedwatch.sources._file_source import Block, FileSource
from embedwatch.sources._files import has_suffix, head, require_file, rows_within
from embedwatch.sources._messages import count_of, shown

__all__ = ["FaissSource"]

STORED = "stored"
UNEQUAL = 0.01
"""Lengths that differ by more than this from each other change the order of inner products."""


class FaissSource(FileSource):
    """The vectors of a FAISS index, and the ids that they have there.

    Flat, IVF, HNSW, product and scalar quantisers, with id maps, transforms and refinement, as `faiss.write_index`
    writes them. Rows come as they lie; those of inverted lists in the order of their ids. `names` are the ids. What a
    quantiser or a projection lost is gone: the vectors are what the index can give back, and the notes say so. With
    `select="stored"` they are given as they lie behind a transform.

    An index has no header that says whether its vectors can be had, so it is read when it is opened, in another
    process: FAISS may end the one that calls it. The limit of its memory is eight times the file and 1 GiB, or what
    `EMBEDWATCH_INDEX_MEMORY` says in bytes.

    References:
        FAISS 1.15, `faiss/impl/index_read.cpp`.
    """

    name = "faiss"
    title = "FAISS index"
    suffixes = (".faiss", ".index")

    @classmethod
    def accepts(cls, path: Path) -> bool:
        """Return whether it ends in `.faiss` or begins like an index."""
        return has_suffix(path, (".faiss",)) or header_of(head(path, HEADER_BYTES)) is not None

    @classmethod
    def open(cls, path: Path, *, select: str | None = None, labels: str | None = None) -> FaissSource:
        """Read the index, and say what it is made of."""
        cls.refuse_options(labels=labels)
        if select not in (None, STORED):
            raise UsageError(
                f"`select` must be {STORED!r} or be left out for faiss, got {shown(select)}; without it they come "
                "as they were added"
            )
        return cls(path, select=select)

    def __init__(self, path: Path, *, select: str | None = None) -> None:
        require_file(path)
        with opened(path, _view(select)) as index:
            self.facts: IndexFacts = index.facts
            dimension = index.rows(0, 0).shape[1]
        super().__init__(path, rows=self.facts.rows, dimension=dimension, select=select, notes=_notes(self.facts))

    def blocks(self, size: int) -> Generator[Block, None, None]:
        """Read the vectors from the process in which the index is open."""
        size = rows_within(size, self.facts.dimension * 4)
        with opened(self.path, _view(self.select)) as index:
            for start in range(0, index.facts.rows, size):
                yield Block(torch.from_numpy(index.rows(start, min(size, index.facts.rows - start))))

    def names(self, rows: Sequence[int]) -> list[str]:
        """Return the ids that these rows have in the index."""
        if not self.facts.own_ids or not rows:
            return [str(row) for row in rows]
        with opened(self.path, _view(self.select)) as index:
            return [str(number) for number in index.ids_at(np.asarray(rows, np.int64))]


def _view(select: str | None) -> View:
    return "stored" if select == STORED else "added"


def _notes(facts: IndexFacts) -> list[str]:
    """Return what a reader of the numbers must know."""
    notes = [f"FAISS index {facts.kind}, compared by {facts.metric}"]
    if facts.lossy:
        notes.append(f"lossy: the index {', and '.join(facts.lossy)}; these are the vectors that it gives back")
    if facts.rounded:
        notes.append(f"rounded: the index {', and '.join(facts.rounded)}")
    if facts.own_ids:
        notes.append("rows are numbered here; their names are the ids of the index")
    if facts.repeated_ids:
        notes.append(f"{count_of(facts.repeated_ids, 'vector')} with an id that another one has too")
    if facts.metric == "inner product" and not facts.lossy and facts.longest > facts.shortest * (1 + UNEQUAL):
        notes.append(
            f"inner product of vectors of unequal length ({facts.shortest:.3g} to {facts.longest:.3g} in a sample): "
            "the order is not that of cosine"
        )
    return notes
