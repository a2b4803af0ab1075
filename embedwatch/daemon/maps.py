"""Maps: rows of a reference and of the last window in two dimensions, drawn by the evaluator and kept as bytes."""

from __future__ import annotations

import gzip
import json
import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.exhibit import NO_ID
from embedwatch.core.snapshot import Space
from embedwatch.references import Reference
from embedwatch.sketches import SmallestKeys

__all__ = ["MapRows", "Maps"]

MOST_ROWS = 600
"""Rows of each side that are drawn: a uniform sample."""
LEAST_ROWS = 50
SAMPLE_BYTES = 1 << 20
"""A sample of long rows holds fewer of them."""
FITTED_ROWS = 1_000
"""Rows of a reference that the directions are fitted on, once."""
WINDOW_ROWS = 256
"""Rows of a window that they are fitted on where there is no reference, each time: a few milliseconds."""
KEPT = 32
"""Leading directions in which neighbours are looked for."""
NEAR = 0.99
"""Of the reference's own rows, this share lies as near to another one as what counts as near."""
PERPLEXITY = 30.0
"""Neighbours that t-SNE keeps together (van der Maaten & Hinton 2008 name 5 to 50)."""
FEWEST_SPREAD = 10
"""Rows below which t-SNE shows nothing."""
LOOKED_AT = 300.0
"""Seconds for which somebody who asked for a map counts as looking at it."""
REST = 9.0
"""So many times as long as t-SNE took, the next one waits: it takes a tenth of the thread at most."""
LARGEST = torch.finfo(torch.float16).max
DIGITS = 4


class MapRows:
    """A uniform sample of the finite rows of one window, in half precision.

    Args:
        dimension: of the rows.
    """

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._kept = _sample(dimension)

    def add(self, batch: VectorBatch) -> None:
        """Offer the rows of a batch."""
        clean = batch.clean
        if len(clean):
            rows = clean.rows.clamp(-LARGEST, LARGEST)
            self._kept.add(clean.keys, number=clean.numbers, rows=rows)

    @property
    def rows(self) -> Tensor:
        """The rows, in float32. Shape: (m, D)."""
        return self._kept.values("rows").float()

    @property
    def numbers(self) -> Tensor:
        """Their numbers, `NO_ID` where they have none. Shape: (m,)."""
        return self._kept.values("number")

    @staticmethod
    def memory(dimension: int) -> int:
        """Return the bytes that it can come to take."""
        return _sample(dimension).memory(dimension)


def _sample(dimension: int) -> SmallestKeys:
    most = max(LEAST_ROWS, min(MOST_ROWS, SAMPLE_BYTES // (2 * dimension)))
    return SmallestKeys(most, {"number": ((), torch.int64, "first"), "rows": (("D",), torch.float16, "first")})


class _Base(NamedTuple):
    """Directions that rows are seen in, and what they say of the rows that they were fitted on."""

    mean: Tensor  # (D,)
    directions: Tensor  # (D, k)
    shares: list[float]
    reduced: Tensor | None  # (m, k), of the reference
    distances: float | None
    """What counts as near to the reference."""

    def reduce(self, rows: Tensor) -> Tensor:
        """Return rows in these directions. (N, D) -> (N, k)."""
        return (rows - self.mean) @ self.directions


@dataclass
class _Map:
    """What is known of one Space, and the bytes that are sent."""

    about: dict[str, Any]
    before: Tensor | None  # (m, k)
    now: Tensor  # (n, k), in half precision
    body: bytes = b""
    zipped: bytes = b""
    spread: bool = False

    def encode(self) -> None:
        """Make the bytes anew."""
        text = json.dumps(self.about, allow_nan=False, separators=(",", ":")) + "\n"
        body = text.encode()
        self.body, self.zipped = body, gzip.compress(body, 6, mtime=0)


class Maps:
    """Draws the map of each Space when its window closes; t-SNE only where somebody looks, and never for long.

    Principal components are those of the reference, so that a picture does not turn from window to window; without a
    reference they are those of the window itself. t-SNE starts from them.

    Args:
        ticks: seconds of a clock that never jumps.

    References:
        van der Maaten & Hinton 2008, "Visualizing Data using t-SNE"; Kobak & Berens 2019 (doi
        10.1038/s41467-019-13056-x) for the start from principal components.
    """

    def __init__(self, ticks: Callable[[], float] = time.monotonic) -> None:
        self._ticks = ticks
        self._maps: dict[Space, _Map] = {}
        self._wanted: dict[Space, float] = {}
        self._bases: WeakKeyDictionary[Reference, _Base] = WeakKeyDictionary()
        self._next = -math.inf

    def draw(self, space: Space, sample: MapRows, reference: Reference | None, *, ended: float, of: int) -> None:
        """Draw the map of a window that closed.

        Args:
            space: whose it is.
            sample: of its rows.
            reference: what they are compared with.
            ended: seconds since the epoch.
            of: rows of the window.
        """
        rows, numbers = sample.rows, sample.numbers
        if not len(rows):
            return
        base = self._base(reference, sample.dimension) or _fitted(rows[:WINDOW_ROWS])
        now = base.reduce(rows)  # (n, k)
        far = [] if base.reduced is None or base.distances is None else _far(now, base.reduced, base.distances)
        about = {
            "time": ended,
            "rows": of,
            "drawn": len(rows),
            "reference": None if base.reduced is None or reference is None else reference.fingerprint,
            "reference_rows": 0 if base.reduced is None else len(base.reduced),
            "shares": base.shares,
            "numbers": [None if number == NO_ID else number for number in numbers.tolist()],
            "far": far,
            "usual_far_ratio": 1 - NEAR,
            "pca": {"reference": _points(base.reduced), "now": _points(now)},
            "tsne": None,
        }
        found = _Map(about, base.reduced, now.clamp(-LARGEST, LARGEST).half())
        found.encode()
        self._maps[space] = found

    def _base(self, reference: Reference | None, dimension: int) -> _Base | None:
        """Return the directions of a reference; `None` where it keeps no rows, or others than these."""
        if reference is None or reference.kept is None or len(reference.kept) < 2:
            return None
        if reference.origin.dimension != dimension:
            return None
        if reference not in self._bases:
            self._bases[reference] = _fitted(reference.kept.rows[:FITTED_ROWS].float(), compared=True)
        return self._bases[reference]

    def about(self, space: Space) -> dict[str, Any] | None:
        """Return what tells one map of a Space from the next, in plain JSON types; `None` where there is none."""
        found = self._maps.get(space)
        return None if found is None else {"time": found.about["time"], "spread": found.about["tsne"] is not None}

    def body(self, space: Space, *, zipped: bool, spread: bool = False) -> bytes | None:
        """Return the map of a Space as it was drawn last. Of any thread.

        Args:
            space: whose it is.
            zipped: whether through gzip.
            spread: whether somebody looks at t-SNE of it.
        """
        found = self._maps.get(space)
        if found is None:
            return None
        if spread:
            self._wanted[space] = self._ticks()
        return found.zipped if zipped else found.body

    def spread(self) -> None:
        """Add t-SNE to one map that somebody looks at and that has none, unless the last one was just now."""
        now = self._ticks()
        for space, since in list(self._wanted.items()):
            if now - since > LOOKED_AT or space not in self._maps:
                self._wanted.pop(space, None)
        waiting = [space for space, _ in sorted(self._wanted.items(), key=lambda each: -each[1])]
        waiting = [space for space in waiting if space in self._maps and not self._maps[space].spread]
        if not waiting or now < self._next:
            return
        found = self._maps[waiting[0]]
        found.spread = True  # also where it fails: the next window is another try
        found.about = {**found.about, "tsne": _spread(found.before, found.now.float())}
        found.encode()
        self._next = now + (self._ticks() - now) * REST

    def forget(self, spaces: Collection[Space]) -> None:
        """Let maps go."""
        for space in spaces:
            self._maps.pop(space, None)


def _fitted(rows: Tensor, *, compared: bool = False) -> _Base:
    """Return the leading principal directions of rows, each with its larger end up. Shape: rows (N, D)."""
    mean = rows.mean(0)
    centred = (rows - mean).double()
    products = centred @ centred.T  # (N, N): fewer rows than dimensions, as a rule
    values, vectors = torch.linalg.eigh(products)  # ascending
    kept = min(KEPT, rows.shape[1], max(len(rows) - 1, 1))
    values, vectors = values.flip(0).clamp(min=0)[:kept], vectors.flip(1)[:, :kept]
    directions = centred.T @ vectors  # (D, k)
    directions = directions / directions.norm(dim=0).clamp(min=torch.finfo(torch.float64).tiny)
    signs = torch.sign(directions.gather(0, directions.abs().argmax(0, keepdim=True)))
    directions = (directions * torch.where(signs == 0, torch.ones_like(signs), signs)).float()
    total = float(products.trace())
    shares = [round(float(value) / total, DIGITS) if total > 0 else 0.0 for value in values[:2]]
    base = _Base(mean, directions, shares, None, None)
    if not compared:
        return base
    reduced = base.reduce(rows)[:MOST_ROWS]  # the sample is in the order of its hashes, so the first are a sample too
    between = torch.cdist(reduced, reduced)
    between.fill_diagonal_(math.inf)
    return base._replace(reduced=reduced, distances=float(torch.quantile(between.amin(1), NEAR)))


def _far(now: Tensor, before: Tensor, near: float) -> list[int]:
    """Return which rows lie where the reference has none, the farthest first."""
    distances = torch.cdist(now, before).amin(1)
    order = torch.argsort(distances, descending=True)
    return [int(place) for place in order if float(distances[place]) > near]


def _points(rows: Tensor | None) -> list[list[float]]:
    """Return the first two coordinates in few digits."""
    if rows is None:
        return []
    flat = torch.zeros(len(rows), 2)
    flat[:, : min(2, rows.shape[1])] = rows[:, :2]
    return [[float(f"{x:.{DIGITS}g}"), float(f"{y:.{DIGITS}g}")] for x, y in flat.tolist()]


def _spread(before: Tensor | None, now: Tensor) -> dict[str, Any] | None:
    """Return t-SNE of both sides together; `None` for too few rows."""
    both = now if before is None else torch.cat([before, now])
    if len(both) < FEWEST_SPREAD or both.shape[1] < 2:
        return None
    scale = float(both[:, 0].std())
    if not scale > 0:
        return None
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    perplexity = min(PERPLEXITY, (len(both) - 1) / 3)
    start = (both[:, :2] / scale * 1e-4).numpy()
    with threadpool_limits(1):
        found = TSNE(2, init=start, perplexity=perplexity, max_iter=500, random_state=0).fit_transform(both.numpy())
    points = _points(torch.from_numpy(found))
    border = len(both) - len(now)
    return {"reference": points[:border], "now": points[border:]}
