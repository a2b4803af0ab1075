"""The vectors of an index with their ids, whatever it is: never through calls that end the process or give garbage.

| call of FAISS | what is wrong with it | what is done instead |
| --- | --- | --- |
| `IndexIDMap.reconstruct_n` | ends the process where an id is missing, always without IDMap2 | the index inside |
| `IndexIVF.reconstruct_n` | uninitialised rows for ids of one's own, and after `remove_ids` | the lists are walked |
| `IndexIVF.reconstruct` | needs a direct map, which needs ids without gaps | the lists are walked |
| any for `IndexIVF…FastScan` from a file | ends the process (1.15.1: SIGSEGV) | refused |
| `reconstruct` through a map that is no rotation | raises; garbage from a file (1.15.1) | refused, or behind the map |
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol, cast

import numpy as np

from embedwatch.ann._faiss import faiss
from embedwatch.ann.arrays import Ids, Matrix, sample_of
from embedwatch.ann.facts import IndexFacts, IndexRefusedError
from embedwatch.ann.structure import Layers, peel, turns

__all__ = ["StoredVectors", "describe", "describe_layers", "turnable"]

SAMPLE = 1000
"""Vectors that are looked at when an index is opened."""
STORED = "stored"


class _Rows(Protocol):
    """Vectors by position."""

    count: int
    ids: Ids | None
    """Of each position; `None` where they are the positions."""

    def take(self, positions: Ids) -> Matrix:
        """Return the vectors at these positions. Shape: (n,) -> (n, d)."""


class _Codes:
    """An index whose vectors lie one behind the other."""

    def __init__(self, index: Any) -> None:
        self.index, self.count, self.ids = index, int(index.ntotal), None

    def take(self, positions: Ids) -> Matrix:
        """Return the vectors at these positions."""
        return np.asarray(self.index.reconstruct_batch(positions), np.float32)


class _Lists:
    """Inverted lists, walked; positions are in the order of the ids, since the lists have none."""

    def __init__(self, index: Any) -> None:
        self.index = index
        lists = index.invlists
        sizes = [lists.list_size(number) for number in range(lists.nlist)]
        self.count = sum(sizes)
        if self.count != index.ntotal:
            raise IndexRefusedError(
                f"holds {self.count:,} vectors in its lists and says {index.ntotal:,}; it is damaged, write it again "
                "with faiss.write_index"
            )
        found = [faiss.rev_swig_ptr(lists.get_ids(number), size).copy() for number, size in enumerate(sizes) if size]
        ids = np.concatenate(found) if found else np.zeros(0, np.int64)
        order = np.argsort(ids, kind="stable")
        self._list = np.repeat(np.arange(lists.nlist), sizes)[order]
        self._offset = (np.arange(self.count) - np.repeat(np.cumsum(sizes) - sizes, sizes))[order]
        ids = ids[order]
        self.ids: Ids | None = None if np.array_equal(ids, np.arange(self.count)) else ids

    def take(self, positions: Ids) -> Matrix:
        """Return the vectors at these positions."""
        rows = np.empty((len(positions), self.index.d), np.float32)
        lists, offsets = self._list[positions].tolist(), self._offset[positions].tolist()
        for row, number, offset in zip(rows, lists, offsets, strict=True):
            self.index.reconstruct_from_offset(number, offset, faiss.swig_ptr(row))
        return rows


class _Reversed:
    """Vectors as they were before chains of transforms."""

    def __init__(self, rows: _Rows, chains: list[Any]) -> None:
        self.rows, self.chains, self.count, self.ids = rows, chains, rows.count, rows.ids

    def take(self, positions: Ids) -> Matrix:
        """Return the vectors at these positions, transformed back."""
        return self.back(self.chains, self.rows.take(positions))

    @staticmethod
    def back(chains: list[Any], rows: Matrix) -> Matrix:
        """Return vectors as they were before the chains, which stand outermost first."""
        for chain in reversed(chains):
            stored = np.ascontiguousarray(rows, np.float32)
            rows = np.empty((len(stored), chain.d), np.float32)
            chain.reverse_chain(len(stored), faiss.swig_ptr(stored), faiss.swig_ptr(rows))
        return rows


class StoredVectors:
    """The vectors of an index in a fixed order, with their ids.

    Those of inverted lists come in the order of their ids, all others as they lie.

    Args:
        index: any index of vectors.
        stored: as they are stored behind a transform, not as they were before it.

    Raises:
        IndexRefusedError: where vectors cannot be had.

    Example:
        >>> index = faiss.index_factory(4, "IDMap,Flat")
        >>> index.add_with_ids(np.eye(4, dtype=np.float32), np.array([70, 71, 73, 72]))
        >>> vectors = StoredVectors(index)
        >>> vectors.ids(np.array([2])).tolist(), vectors.take(np.array([2])).tolist()
        ([73], [[0.0, 0.0, 1.0, 0.0]])
    """

    def __init__(self, index: Any, *, stored: bool = False) -> None:
        self._owner = index  # what FAISS casts it to owns nothing
        self.layers = peel(index)
        self.index = self.layers.index
        if self.layers.unreadable:
            raise IndexRefusedError(self.layers.unreadable)
        if not self.index.is_trained:
            raise IndexRefusedError("was not trained, and so holds nothing; train it and add vectors first")
        self.behind = stored and bool(self.layers.chains)
        """Whether vectors are given as they lie behind a transform."""
        rows = self._rows(stored=stored)
        self.count = rows.count
        self._take = rows
        self._ids = _mapped(rows.ids, self.layers)
        self.dimension = int(self.layers.chains[-1].index.d if self.behind else self.index.d)

    @property
    def own_ids(self) -> bool:
        """Whether ids were given, and are not 0 to count - 1."""
        return self._ids is not None

    @property
    def all_ids(self) -> Ids:
        """The ids of all positions."""
        return np.arange(self.count, dtype=np.int64) if self._ids is None else self._ids

    def ids(self, positions: Ids) -> Ids:
        """Return the ids of these positions."""
        return positions.astype(np.int64) if self._ids is None else self._ids[positions]

    def take(self, positions: Ids) -> Matrix:
        """Return the vectors at these positions. Shape: (n,) -> (n, D)."""
        return self._take.take(np.ascontiguousarray(positions, np.int64))

    def coded(self, rows: Matrix) -> Matrix:
        """Return vectors as the index would give them back, had they been added. Shape: (n, D) -> (n, D)."""
        layers = self.layers
        store = layers.core if layers.refine is None else layers.refine
        if isinstance(store, faiss.IndexHNSW | faiss.IndexNSG):
            store = faiss.downcast_index(store.storage)
        rows = np.ascontiguousarray(rows, np.float32)
        chains = [] if self.behind else layers.chains
        inner = np.ascontiguousarray(_forward(chains, rows))
        if not isinstance(store, faiss.IndexFlat | faiss.IndexIVFFlat):
            try:
                inner = store.sa_decode(store.sa_encode(inner))
            except RuntimeError:
                raise self._no_vectors() from None
        return _Reversed.back(chains, inner)

    def as_stored(self, queries: Matrix) -> Matrix:
        """Return queries in the space in which the vectors are given. Shape: (Q, D of the index) -> (Q, D)."""
        return _forward(self.layers.chains, queries) if self.behind else queries

    def _rows(self, *, stored: bool) -> _Rows:
        layers = self.layers
        store = layers.core if layers.refine is None else layers.refine
        if isinstance(store, faiss.IndexIVFFlatDedup | faiss.IndexIVFFastScan):
            raise self._no_vectors()
        lists = isinstance(store, faiss.IndexIVF)
        rows: _Rows = cast("_Rows", _Lists(store) if lists else _Codes(store))
        probe = sample_of(rows.count, 1)
        self._try(rows, probe)
        if stored or not layers.chains:
            return rows
        back = _Reversed(rows, layers.chains)
        try:
            known = all(_undone(chain) for chain in layers.chains)
            back.take(probe[: len(probe) * known])
        except RuntimeError:
            known = False
        if not known:
            raise IndexRefusedError(
                "maps its vectors by what cannot be undone before it stores them; read them as they lie behind the "
                f"map with `--select {STORED}`"
            )
        return back

    def _try(self, rows: _Rows, probe: Ids) -> None:
        try:
            rows.take(probe)
        except RuntimeError:
            raise self._no_vectors() from None

    def _no_vectors(self) -> IndexRefusedError:
        return IndexRefusedError(
            f"is of a kind whose vectors FAISS cannot give back ({self.layers.kind}); give the vectors that it "
            "was built from, or embed again"
        )


def _undone(chain: Any) -> bool:
    """Return whether a chain can be undone step by step, which FAISS does without a look.

    A linear map must be a rotation or a projection; and behind one that moves the origin no length may be dropped.
    """
    moved = False
    for place in range(chain.chain.size()):
        step = faiss.downcast_VectorTransform(chain.chain.at(place))
        if isinstance(step, faiss.LinearTransform):
            moved = moved or bool(step.have_bias)
            if not turns(step):
                return False
        elif isinstance(step, faiss.NormalizationTransform) and moved:
            return False
    return True


def _forward(chains: list[Any], rows: Matrix) -> Matrix:
    """Return vectors as the chains make them. Shape: (n, d_in) -> (n, d_out)."""
    for chain in chains:
        for place in range(chain.chain.size()):
            step = faiss.downcast_VectorTransform(chain.chain.at(place))
            rows = step.apply(np.ascontiguousarray(rows, np.float32))
    return rows


def _mapped(ids: Ids | None, layers: Layers) -> Ids | None:
    """Return the ids that people gave, through the id maps, innermost first.

    Raises:
        IndexRefusedError: where an id map counts on positions that the index inside no longer has.
    """
    for layer in reversed(layers.maps):
        if ids is not None:
            raise IndexRefusedError(
                "gives its vectors ids that are no longer theirs: vectors were removed from lists behind an id map; "
                "build it again, and give the ids to the lists themselves (add_with_ids)"
            )
        ids = faiss.vector_to_array(layer.id_map).astype(np.int64)
        if np.array_equal(ids, np.arange(len(ids))):
            ids = None
    return ids


def describe(vectors: StoredVectors) -> IndexFacts:
    """Return what an index is made of, and how long a sample of its vectors is."""
    positions = sample_of(vectors.count, SAMPLE)
    rows = vectors.take(positions)
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
    finite = lengths[np.isfinite(lengths)]
    counts = np.unique(vectors.all_ids, return_counts=True)[1] if vectors.own_ids else np.zeros(0, np.int64)
    return replace(
        describe_layers(vectors.layers),
        rows=vectors.count,
        own_ids=vectors.own_ids,
        repeated_ids=int(counts[counts > 1].sum()),
        shortest=float(finite.min()) if len(finite) else 0.0,
        longest=float(finite.max()) if len(finite) else 0.0,
        nonfinite=len(lengths) - len(finite),
        sample=len(lengths),
    )


def describe_layers(layers: Layers) -> IndexFacts:
    """Return what an index is made of, without a look at its vectors."""
    return IndexFacts(
        kind=layers.kind,
        rows=int(layers.index.ntotal),
        dimension=int(layers.index.d),
        metric=layers.metric,
        lossy=tuple(layers.lossy),
        rounded=tuple(layers.rounded),
        settings=layers.settings,
        recipe=layers.recipe,
        turnable=turnable(layers),
    )


def turnable(layers: Layers) -> str:
    """Return why vectors cannot be rotated where they lie; empty where they can."""
    core = layers.core
    if layers.chains or layers.refine is not None:
        return "it transforms or refines its vectors"
    if isinstance(core, faiss.IndexIVFFlat):
        plain = isinstance(faiss.downcast_index(core.quantizer), faiss.IndexFlat)
        return "" if plain and layers.recipe else "its centroids or lists are of a kind that cannot be turned"
    if isinstance(core, faiss.IndexHNSWFlat) or (isinstance(core, faiss.IndexFlat) and layers.recipe):
        return ""
    return f"{layers.kind} holds codes, which cannot be turned"
