"""One pass over pairs: cross-moments of all that fit, and samples of those that fit and of those that judge."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.align.kept_pairs import KeptPairs, Pairs
from embedwatch.batch import PairBatch
from embedwatch.core.errors import UsageError
from embedwatch.geometry.alignment import PairMoments
from embedwatch.geometry.norms import row_norms
from embedwatch.geometry.retrieval import directions
from embedwatch.geometry.unit_length import have_unit_length
from embedwatch.hashing import hash_integers, hash_rows

__all__ = ["AnchorPass", "Anchors", "read_anchors"]

HELD_SHARE = 0.2
"""Of the pairs, as far as they are few."""
MOST_HELD = 2_000
"""Pairs that judge: a standard error of a recall near 0.9 is then below 0.01."""
SPARE = 1.5
"""Times as many pairs are set aside, for those among them that turn out to be twins of others."""
UNKNOWN_SHARE = 0.05
"""Set aside where the number of pairs is not known beforehand."""
KEPT_BYTES = 128 << 20
MOST_KEPT = 16_384
"""Pairs that fit and are kept as they are, for methods that need more than moments."""
TWIN_COSINE = 0.999
"""Pairs this near in both spaces, less the means, are one item twice: it must not judge what it was fitted on."""
TWIN_CHUNK = 512
SEEN_BITS = 26
"""Contents of right rows are remembered in a table of so many bits' numbering: 8 MB for any number of pairs."""
BIT = torch.tensor([1 << bit for bit in range(8)], dtype=torch.uint8)


class Anchors(NamedTuple):
    """What one pass leaves.

    Args:
        moments: of all pairs that fit.
        spare: moments of the pairs that were set aside.
        kept: a sample of the pairs that fit, all where they are few.
        held: pairs that judge; neither row of one is the twin of a row that fits.
        rows: pairs that were read.
        left_out: pairs with NaN, Inf or a zero row.
        twins: pairs that judge nothing, because a row of theirs lies on both sides.
        unit: share of left and of right rows that had length 1.
        content: hash of all pairs, in whatever order.
    """

    moments: PairMoments
    spare: PairMoments
    kept: Pairs
    held: Pairs
    rows: int
    left_out: int
    twins: int
    unit: tuple[float, float]
    content: str

    @property
    def all(self) -> PairMoments:
        """Moments of all pairs, those that judge among them."""
        return self.moments.merged(self.spare)


class AnchorPass:
    """Reads pairs once, in memory that does not grow with their number.

    Which pairs judge is decided by the content of the left row, so that equal rows are always on one side; the contents
    of right rows that fitted are remembered, and what they share is left out. Both depend on the set of pairs alone,
    except that of two pairs with one right row on different sides the later one goes.

    Args:
        left: D1.
        right: D2.
        expected: number of pairs, where it is known.
        seed: another one sets other pairs aside.
    """

    def __init__(self, left: int, right: int, *, expected: int | None = None, seed: int = 0) -> None:
        share = HELD_SHARE if expected else UNKNOWN_SHARE
        if expected:
            share = min(HELD_SHARE, SPARE * MOST_HELD / expected)
        self._below = int((share - 0.5) * 2**64)  # of hashes, which are spread over all of int64
        self._seed = seed
        capacity = max(MOST_HELD, min(MOST_KEPT, KEPT_BYTES // (4 * (left + right))))
        self._kept = KeptPairs(capacity, left, right)
        self._held = KeptPairs(int(SPARE * MOST_HELD), left, right)
        self._seen = torch.zeros(1 << (SEEN_BITS - 3), dtype=torch.uint8)
        self._moments, self._spare = (PairMoments.empty(left, right) for _ in range(2))
        self._rows = self._left_out = self._twins = self._content = 0
        self._unit = [0, 0]
        self._widths = (left, right)

    def add(self, batch: PairBatch) -> None:
        """Add pairs.

        Raises:
            UsageError: if they have other dimensions.
        """
        widths = batch.left.shape[1], batch.right.shape[1]
        if widths != self._widths:
            raise UsageError(f"pairs must have {self._widths} dimensions, got {widths}; give one pair of spaces")
        ids = torch.arange(self._rows, self._rows + len(batch)) if batch.ids is None else batch.ids
        self._rows += len(batch)
        sides = [rows.float() for rows in (batch.left, batch.right)]
        norms = [row_norms(rows) for rows in sides]
        good = (norms[0] > 0) & (norms[1] > 0) & torch.isfinite(norms[0] + norms[1])
        for place, each in enumerate(norms):
            self._unit[place] += int(have_unit_length(each).sum())
        contents = [hash_rows(rows) for rows in sides]
        self._content = (self._content + int(hash_integers(contents[0] ^ hash_integers(contents[1])).sum())) % 2**64
        if not bool(good.all()):
            self._left_out += int((~good).sum())
            sides, contents, ids = [r[good] for r in sides], [c[good] for c in contents], ids[good]
        self._sort(Pairs(directions(sides[0]), directions(sides[1]), ids), *contents)

    def _sort(self, pairs: Pairs, left: Tensor, right: Tensor) -> None:
        """Send each pair to its side."""
        keys = hash_integers(left, seed=self._seed)
        aside = keys < self._below
        fits = ~aside
        known = self._held.contents
        if len(known):
            fits &= ~torch.isin(right, known)
        if not bool(fits.all()):
            judging = aside & ~self._was_seen(right)
            self._twins += int((aside & ~judging).sum()) + int((~aside & ~fits).sum())
            spare = pairs.take(judging)
            self._held.add(spare, keys[judging], right[judging])
            self._spare = self._spare.merged(PairMoments.of(spare.left, spare.right))
            pairs, keys, right = pairs.take(fits), keys[fits], right[fits]
        self._remember(right)
        self._kept.add(pairs, keys, right)
        self._moments = self._moments.merged(PairMoments.of(pairs.left, pairs.right))

    def _place(self, contents: Tensor) -> tuple[Tensor, Tensor]:
        place = (contents >> 7) & ((1 << SEEN_BITS) - 1)
        return place >> 3, BIT[place & 7]

    def _was_seen(self, contents: Tensor) -> Tensor:
        byte, bit = self._place(contents)
        return (self._seen[byte] & bit) != 0

    def _remember(self, contents: Tensor) -> None:
        byte, bit = self._place(contents)
        for each in BIT:  # an assignment by index keeps one of several values for a byte
            own = byte[bit == each]
            self._seen[own] |= each

    def anchors(self) -> Anchors:
        """Return what was read."""
        kept, held = self._kept.pairs(), self._held.pairs()
        contents = self._held.contents
        seen = self._was_seen(contents)
        if len(held) and len(kept):
            seen = seen | _twins(held, kept, self._moments)
        judging = _once(held.take(~seen), contents[~seen]).take(slice(0, MOST_HELD))
        counted = max(1, self._rows)
        return Anchors(
            self._exact(kept),
            self._spare,
            kept,
            judging,
            self._rows,
            self._left_out,
            self._twins + int(seen.sum()),
            (self._unit[0] / counted, self._unit[1] / counted),
            f"{self._content:016x}",
        )

    def _exact(self, kept: Pairs) -> PairMoments:
        """Return the moments; where all pairs are kept those of float64, in which an unseen direction is zero."""
        return kept.moments() if len(kept) == self._moments.number else self._moments


def read_anchors(batches: Iterable[PairBatch], *, expected: int | None = None, seed: int = 0) -> Anchors | None:
    """Return what one pass over batches leaves; `None` where there is none."""
    reading: AnchorPass | None = None
    for batch in batches:
        if reading is None:
            reading = AnchorPass(batch.left.shape[1], batch.right.shape[1], expected=expected, seed=seed)
        reading.add(batch)
    return None if reading is None else reading.anchors()


def _once(pairs: Pairs, others: Tensor) -> Pairs:
    """Return pairs of which no two have one right row. Left rows are distinct already."""
    _, place = torch.unique(others, return_inverse=True)
    first = torch.full((len(others),), len(others)).scatter_reduce_(0, place, torch.arange(len(others)), "amin")
    return pairs.take(first[: int(place.max()) + 1].sort().values if len(others) else slice(0, 0))


def _twins(pairs: Pairs, others: Pairs, moments: PairMoments) -> Tensor:
    """Return which pairs are nearly one of the others, in both spaces. Shape: (N,) bool."""
    means = moments.left_mean.float(), moments.right_mean.float()
    near = directions(others.left - means[0]).T, directions(others.right - means[1]).T
    found = []
    for start in range(0, len(pairs), TWIN_CHUNK):
        some = pairs.take(slice(start, start + TWIN_CHUNK))
        alike = directions(some.left - means[0]) @ near[0]  # (C, M)
        alike = torch.minimum(alike, directions(some.right - means[1]) @ near[1])
        found.append(alike.amax(1) > TWIN_COSINE)
    return torch.cat(found)
