"""What is known of an index, in plain values that travel between processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["IndexFacts", "IndexRecall", "IndexRefusedError"]


class IndexRefusedError(Exception):
    """What is wrong with an index, as one sentence with its remedy; whoever knows the file's name puts it before."""


@dataclass(frozen=True)
class IndexFacts:
    """What an index is made of.

    Args:
        kind: its layers, outermost first, as `faiss.index_factory` would name them: `IDMap2,IVF64,PQ48x8`.
        rows: vectors that it holds.
        dimension: of the vectors that it takes, and so of its queries.
        metric: `inner product`, `euclidean` or the number that FAISS has for another one.
        own_ids: whether ids were given; else they are the numbers 0 to rows - 1.
        repeated_ids: vectors whose id another one has too.
        lossy: why vectors cannot be had as they were added: one phrase for each layer that loses something.
        rounded: the same for losses below one percent.
        settings: how hard it searches: `nprobe`, `efSearch`, `k_factor`, where it has them.
        recipe: what `faiss.index_factory` needs to build one like it; empty where it cannot.
        turnable: empty where its vectors can be rotated where they lie, else why not.
        shortest, longest: Euclidean lengths of a sample of its vectors; 0 where there are none.
        nonfinite: vectors of that sample with NaN or Inf.
        sample: size of the sample.
    """

    kind: str
    rows: int
    dimension: int
    metric: str
    own_ids: bool = False
    repeated_ids: int = 0
    lossy: tuple[str, ...] = ()
    rounded: tuple[str, ...] = ()
    settings: Mapping[str, float] = field(default_factory=dict)
    recipe: str = ""
    turnable: str = ""
    shortest: float = 0.0
    longest: float = 0.0
    nonfinite: int = 0
    sample: int = 0

    @property
    def unit(self) -> bool:
        """Whether all vectors of the sample have length 1, within one percent."""
        return self.sample > 0 and self.shortest > 0.99 and self.longest < 1.01

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> IndexFacts:
        """Read what `to_json` wrote."""
        return cls(**{**data, "lossy": tuple(data["lossy"]), "rounded": tuple(data["rounded"])})


@dataclass(frozen=True)
class IndexRecall:
    """Share of the true k nearest that an index found.

    Args:
        value: between 0 and 1; `None` where there was nothing to ask.
        low, high: 95 % interval over queries.
        queries: that were asked.
        k: neighbours a query.
        rows: vectors among which they were looked for.
        worst: lowest share of a single query.
        own: whether the queries were rows of the index, each of which was left out of its own neighbours.
    """

    value: float | None
    low: float | None
    high: float | None
    queries: int
    k: int
    rows: int
    worst: float | None = None
    own: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> IndexRecall:
        """Read what `to_json` wrote."""
        return cls(**data)
