"""Fault: one way in which vectors go wrong, as a function of rows."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from embedwatch.core.errors import UsageError
from embedwatch.core.registry import Plugin

__all__ = ["Fault", "Stock", "generator_of"]


@dataclass(frozen=True, eq=False)
class Stock:
    """What a fault may draw on beside the rows that it changes. Never modified.

    Args:
        mean: of the reference, (D,).
        centres: of the topics that the rows have, (K, D).
        spare: further healthy rows in their order, (S, D).
        topic: rows of a topic that the reference lacks, (T, D).
        other: rows of another source, (M, D); `None` where none was named.
    """

    mean: Tensor
    centres: Tensor
    spare: Tensor
    topic: Tensor
    other: Tensor | None = None


class Fault(Plugin, ABC):
    """One way in which vectors go wrong.

    A subclass in a file of `embedwatch/faults/` writes the attributes and `apply`, which is pure: rows in, other rows
    out, the same for the same generator; what it changes by chance it changes evenly over the rows, since a drill looks
    at more and more of the first ones.

    Args:
        stock: what it may draw on.
    """

    kind: ClassVar[str] = "fault"
    title: ClassVar[str] = ""
    """A few words for a table."""
    strength: ClassVar[float]
    """How strong it is unless something else is asked for: as it really happens."""
    strengths: ClassVar[tuple[float, ...]] = ()
    """Strengths that are worth trying, from weak to strong."""
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    """The strengths that make sense: above the first, up to the second."""
    unit: ClassVar[str] = "ratio"
    """Of the strength: `ratio` is told in percent."""
    measures: ClassVar[str]
    """What the strength says, in words."""
    found_by: ClassVar[tuple[str, ...]] = ()
    """Names of the checks that should find it."""
    names: ClassVar[tuple[str, ...]] = ()
    """Names that `what_changed` may rightly give it; none where it has no name for it."""
    unseen: ClassVar[str] = ""
    """Why it may not be found, in a sentence."""
    paired: bool = True
    """Whether each row is still of the item that it was of: a fault of the model, not of its input."""

    def __init__(self, stock: Stock) -> None:
        self.stock = stock

    @classmethod
    def check_strength(cls, strength: float) -> None:
        """Refuse a strength that makes no sense.

        Raises:
            UsageError: naming the bounds.
        """
        low, high = cls.bounds
        if not low < strength <= high:
            raise UsageError(
                f"`strength` of {cls.name} must be above {low:g} and at most {high:g} ({cls.measures}), got "
                f"{strength:g}; {cls.strength:g} is usual"
            )

    @classmethod
    def told(cls, strength: float) -> str:
        """Return a strength as people say it."""
        return f"{strength:.3g} {cls.unit}" if cls.unit != "ratio" else f"{100 * strength:.3g} %"

    def impossible(self, rows: int, strength: float) -> str:
        """Return why this fault cannot be made in so many rows, in a sentence; empty where it can."""
        del rows, strength
        return ""

    @abstractmethod
    def apply(self, rows: Tensor, generator: torch.Generator, strength: float) -> Tensor:
        """Return the rows as they are with the fault. Never modifies what it is given. Shape: (N, D) -> (≤ N, D)."""


def generator_of(name: str, seed: int) -> torch.Generator:
    """Return a generator of its own for each name and seed, whatever else is drawn."""
    return torch.Generator().manual_seed(zlib.crc32(f"{name} {seed}".encode()))
