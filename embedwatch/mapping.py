"""Maps: the rows of a space laid out in a plane, for people to look at.

A principal component map shows all rows that were kept, a t-SNE map those of the smallest hashes, a UMAP map all where
the package is installed. What lies near in a t-SNE or UMAP map was near; how far apart two islands lie says nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from embedwatch.ann.clusters import cluster_centres
from embedwatch.batch import VectorBatch
from embedwatch.core.errors import UsageError
from embedwatch.core.source import Source
from embedwatch.hashing import hash_integers

__all__ = [
    "MOST_NEIGHBOURLY",
    "MOST_POINTS",
    "Frame",
    "KeptRows",
    "Layout",
    "Overheard",
    "fit_plane",
    "joined",
    "lay_out",
    "principal_plane",
]

MOST_POINTS = 50_000
"""Rows of a map, at most."""
MOST_NEIGHBOURLY = 5_000
"""Rows of a t-SNE map, at most: its time grows faster than their number."""
LEAST_POINTS = 8
"""Rows below which there is no map."""
MOST_BYTES = 256 << 20
"""Of the rows that are kept for one map."""
NEIGHBOURS = 15
"""Neighbours of a row in a UMAP map, where there are so many: what the package takes by itself."""
PERPLEXITY = 30.0
DIRECTIONS = 50
"""Principal directions that t-SNE is given."""
CELLS = 12
SEED = 0
LARGEST = torch.finfo(torch.float32).max ** 0.25
"""Entries beyond are cut, so that their products stay finite."""


class KeptRows:
    """The rows with the smallest hash of their number: the same in every source that numbers its rows alike.

    State: at most two times `capacity` rows of float32, and no more than 256 MiB of those that stay. Exact under any
    order of the batches. Rows that hold NaN or Inf are left out.

    Example:
        >>> kept = KeptRows(2)
        >>> kept.offer(VectorBatch(torch.eye(4), ids=torch.arange(4)))
        >>> len(kept.rows)
        2
    """

    def __init__(self, capacity: int = MOST_POINTS) -> None:
        self.capacity = capacity
        self.seen = 0
        self.group_names: dict[str, int] = {}
        self._rows: list[Tensor] = []
        self._ids: list[Tensor] = []
        self._groups: list[Tensor] = []
        self._held = 0

    def offer(self, batch: VectorBatch) -> None:
        """Take rows of a batch."""
        numbers = torch.arange(self.seen, self.seen + len(batch)) if batch.ids is None else batch.ids.cpu()
        self.seen += len(batch)
        groups = torch.full((len(batch),), -1)
        if batch.labels is not None:
            known = [self.group_names.setdefault(name, len(self.group_names)) for name in batch.groups]
            table = torch.tensor([*known, -1])
            groups = table[batch.labels.cpu()]  # -1 is the last
        finite = batch.finite.cpu()
        rows = batch.rows.detach().cpu()[finite].float().clamp(-LARGEST, LARGEST)
        self.capacity = min(self.capacity, max(LEAST_POINTS, MOST_BYTES // (4 * max(1, batch.dimension))))
        self._rows.append(rows)
        self._ids.append(numbers[finite])
        self._groups.append(groups[finite])
        self._held += len(rows)
        if self._held > 2 * self.capacity:
            self._prune()

    def hold(self, rows: Tensor, ids: Tensor, groups: Tensor) -> None:
        """Hold these rows, and no others."""
        self._rows, self._ids, self._groups, self._held = [rows], [ids], [groups], len(rows)

    def _prune(self) -> None:
        rows, ids, groups = (torch.cat(parts) for parts in (self._rows, self._ids, self._groups))
        if len(rows) > self.capacity:
            chosen = hash_integers(ids, SEED).argsort()[: self.capacity]
            rows, ids, groups = rows[chosen], ids[chosen], groups[chosen]
        self.hold(rows, ids, groups)

    def _settled(self, which: int, none: Tensor) -> Tensor:
        if not self._rows:
            return none
        if len(self._rows) > 1 or len(self._rows[0]) > self.capacity:
            self._prune()
        return (self._rows, self._ids, self._groups)[which][0]

    @property
    def rows(self) -> Tensor:
        """What was kept. Shape: (n, D)."""
        return self._settled(0, torch.zeros(0, 1))

    @property
    def ids(self) -> Tensor:
        """Row numbers. Shape: (n,)."""
        return self._settled(1, torch.zeros(0, dtype=torch.int64))

    @property
    def groups(self) -> Tensor:
        """Places in `group_names`, -1 for none. Shape: (n,)."""
        return self._settled(2, torch.zeros(0, dtype=torch.int64))


class Overheard(Source, register=False):
    """Another Source whose rows are kept as somebody else reads them.

    Args:
        source: where the vectors come from.
        capacity: rows that are kept.
    """

    def __init__(self, source: Source, capacity: int = MOST_POINTS) -> None:
        self.source, self.capacity = source, capacity
        self.kept = KeptRows(capacity)
        self.place, self.role, self.label = source.place, source.role, source.label
        self.rows, self.dimension, self.batch_rows = source.rows, source.dimension, source.batch_rows
        self.notes = source.notes

    @classmethod
    def accepts(cls, path: Path) -> bool:
        """Return false: it wraps another source."""
        return False

    @classmethod
    def open(cls, path: Path, *, select: str | None = None, labels: str | None = None) -> Overheard:
        """Refuse: it wraps another source."""
        raise UsageError(f"`{path}` must be opened by its own source; wrap that: Overheard(source)")

    def batches(self, size: int) -> Iterator[VectorBatch]:
        """Yield the batches of the source; whoever reads to the end leaves a sample of all."""
        kept = KeptRows(self.capacity)
        for batch in self.source.batches(size):
            kept.offer(batch)
            yield batch
            self.notes = self.source.notes  # they may grow while it is read
        self.kept = kept

    def fingerprint(self) -> str:
        """Return that of the source."""
        return self.source.fingerprint()

    def names(self, rows: Sequence[int]) -> list[str]:
        """Return what the source calls these rows."""
        return self.source.names(rows)


@dataclass(frozen=True)
class Layout:
    """Where points lie in one map.

    Args:
        method: `PCA`, `t-SNE` or `UMAP`.
        places: (m, 2) in float32.
        points: which of the frame's points they are, (m,) int64; `None` for all in their order.
        told: what the map shows of the whole, in a few words.
    """

    method: str
    places: Tensor
    points: Tensor | None = None
    told: str = ""


@dataclass(frozen=True)
class Frame:
    """One state of a space.

    Args:
        name: of the state: a file, a checkpoint.
        ids: row numbers of its points, (n,).
        norms: of its points, (n,).
        cells: of k-means in the space itself, (n,); those of the first frame go on in the next ones.
        layouts: its maps.
    """

    name: str
    ids: Tensor
    norms: Tensor
    cells: Tensor
    layouts: tuple[Layout, ...]

    def numbered(self, ids: Sequence[int]) -> Frame:
        """Return it with other row numbers."""
        return replace(self, ids=torch.tensor(ids, dtype=torch.int64))


def joined(parts: Sequence[KeptRows]) -> KeptRows:
    """Return the rows of several sources as those of one, in their order, numbered anew; for one map of all."""
    rows = [part.rows for part in parts if len(part.rows)]
    found = KeptRows(max(1, sum(map(len, rows))))
    if rows:
        every = torch.cat(rows)
        found.hold(every, torch.arange(len(every)), torch.full((len(every),), -1))
    return found


def lay_out(states: Sequence[tuple[str, KeptRows]]) -> list[Frame]:
    """Return maps of one space in successive states, each turned to fit the one before it.

    The plane of each state is its own: the two directions of most variance. What two states share, rows of the same
    number, are laid over one another by the rotation or reflection that brings them closest (orthogonal Procrustes), so
    that the picture shows what moved, and does not spin. t-SNE begins where the state before it ended.

    Args:
        states: name and rows of each, in their order.

    Example:
        >>> kept = KeptRows()
        >>> kept.offer(VectorBatch(torch.randn(40, 4, generator=torch.Generator().manual_seed(0))))
        >>> [layout.method for layout in lay_out([("a", kept)])[0].layouts]
        ['PCA', 't-SNE']
    """
    frames: list[Frame] = []
    centres: Tensor | None = None
    for name, kept in states:
        rows, ids = kept.rows, kept.ids
        if len(rows) < LEAST_POINTS:
            continue
        before = frames[-1] if frames else None
        if centres is None or centres.shape[1] != rows.shape[1]:
            centres = cluster_centres(rows, CELLS, seed=SEED)
        cells = torch.cdist(rows, centres).argmin(1)
        layouts = [*_layouts(rows, ids, before)]
        frames.append(Frame(name, ids, rows.norm(dim=1), cells, tuple(layouts)))
    return frames


def _layouts(rows: Tensor, ids: Tensor, before: Frame | None) -> Iterator[Layout]:
    places, share = principal_plane(rows)
    yield _turned(Layout("PCA", places, told=f"{share:.0%} of the variance"), ids, before)
    few = hash_integers(ids, SEED).argsort()[:MOST_NEIGHBOURLY].sort().values
    yield _turned(Layout("t-SNE", _neighbourly(rows[few], ids[few], before), few), ids, before)
    if importlib.util.find_spec("umap") is not None:
        yield _turned(Layout("UMAP", _umap(rows)), ids, before)


def principal_plane(rows: Tensor, directions: int = 2) -> tuple[Tensor, float]:
    """Return rows in the directions of most variance, and the share of the variance that these have.

    Each direction points to where its largest entry is above 0, so that the same rows give the same picture.

    Shape: (N, D) -> (N, directions), number from 0 to 1.

    Example:
        >>> places, share = principal_plane(torch.tensor([[0.0, 0, 0], [2, 0, 0], [1, 1, 0], [1, -1, 0]]))
        >>> places.shape, round(share, 3)
        (torch.Size([4, 2]), 1.0)
    """
    centred = rows - rows.mean(0)
    covariance = (centred.T @ centred).double()  # (D, D)
    found = torch.linalg.eigh(covariance)
    chosen = found.eigenvectors[:, -directions:].flip(1)  # (D, directions)
    if chosen.shape[1] < directions:
        chosen = torch.nn.functional.pad(chosen, (0, directions - chosen.shape[1]))
    largest = chosen.gather(0, chosen.abs().argmax(0, keepdim=True))
    chosen = chosen * torch.where(largest < 0, -1.0, 1.0)
    total = float(found.eigenvalues.clamp(min=0).sum())
    kept = float(found.eigenvalues[-directions:].clamp(min=0).sum())
    return (centred @ chosen.float()), (kept / total if total > 0 else 1.0)


def _neighbourly(rows: Tensor, ids: Tensor, before: Frame | None) -> Tensor:
    """Return a t-SNE map, from where the same rows lay before, or from the principal plane."""
    from sklearn.manifold import TSNE

    reduced, _ = principal_plane(rows, min(DIRECTIONS, rows.shape[1]))
    start = reduced[:, :2] if reduced.shape[1] > 1 else torch.cat([reduced, torch.zeros_like(reduced)], 1)
    old = None if before is None else next((each for each in before.layouts if each.method == "t-SNE"), None)
    if old is not None and old.points is not None and before is not None:
        mine, there = _common(ids, before.ids[old.points])
        start = start / start[:, 0].std().clamp(min=1e-12) * old.places[:, 0].std()
        start[mine] = old.places[there]
    start = start / start[:, 0].std().clamp(min=1e-12) * 1e-4  # as scikit-learn scales its own start
    perplexity = min(PERPLEXITY, max(2.0, (len(rows) - 1) / 3))
    laid = TSNE(init=start.numpy(), perplexity=perplexity, random_state=SEED, method="barnes_hut")
    return torch.as_tensor(laid.fit_transform(reduced.numpy()), dtype=torch.float32)


def _umap(rows: Tensor) -> Tensor:
    reduced, _ = principal_plane(rows, min(DIRECTIONS, rows.shape[1]))
    near = min(NEIGHBOURS, len(rows) - 1)
    start = "random" if len(rows) <= NEIGHBOURS else "spectral"  # of a few rows the spectrum has too few directions
    laid = importlib.import_module("umap").UMAP(
        n_components=2, n_neighbors=near, init=start, random_state=SEED, n_jobs=1
    )
    return torch.as_tensor(laid.fit_transform(reduced.numpy()), dtype=torch.float32)


def _turned(layout: Layout, ids: Tensor, before: Frame | None) -> Layout:
    """Return a layout that is turned to fit that of the frame before it, by the rows that both have."""
    old = None if before is None else next((each for each in before.layouts if each.method == layout.method), None)
    if old is None or before is None:
        return layout
    own = ids if layout.points is None else ids[layout.points]
    there = before.ids if old.points is None else before.ids[old.points]
    mine, theirs = _common(own, there)
    if len(mine) < 3:
        return layout
    places = fit_plane(layout.places, layout.places[mine], old.places[theirs])
    return Layout(layout.method, places, layout.points, layout.told)


def fit_plane(places: Tensor, own: Tensor, target: Tensor) -> Tensor:
    """Return places moved, turned or mirrored so that some of them lie closest to where they are meant to be.

    `(places - mean(own)) R + mean(target)` with `R = U Vᵀ` from the singular values of `(own - mean)ᵀ (target - mean)`:
    no length changes.

    Shape: (n, 2), (m, 2), (m, 2) -> (n, 2).

    References:
        Schönemann 1966, A generalized solution of the orthogonal Procrustes problem.

    Example:
        >>> spots = torch.tensor([[0.0, 0], [2, 0], [0, 1]])
        >>> quarter = torch.tensor([[0.0, 1], [-1, 0]])
        >>> bool(torch.allclose(fit_plane(spots @ quarter, spots @ quarter, spots), spots, atol=1e-5))
        True
    """
    u, _, v = torch.linalg.svd((own - own.mean(0)).T @ (target - target.mean(0)))
    turn: Tensor = u @ v
    return (places - own.mean(0)) @ turn + target.mean(0)


def _common(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Return the places of the numbers that both hold, in each. Shape: (n,), (m,) -> (k,), (k,)."""
    order = second.argsort()
    found = torch.searchsorted(second[order], first).clamp(max=max(0, len(second) - 1))
    places = order[found] if len(second) else torch.zeros_like(first)
    same = second[places] == first if len(second) else torch.zeros(len(first), dtype=torch.bool)
    mine = same.nonzero()[:, 0]
    return mine, places[mine]
