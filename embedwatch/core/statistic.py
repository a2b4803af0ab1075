"""Statistic: a mergeable accumulator over batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from embedwatch.core.errors import MergeError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Histogram, Measurement, Metric
from embedwatch.core.registry import Plugin

__all__ = ["State", "Statistic"]

BatchT = TypeVar("BatchT")
State = dict[str, Any]
"""Name to tensor, number, text or list of these: tensors go to safetensors, the rest to JSON."""


class Statistic(Plugin, ABC, Generic[BatchT]):
    """Accumulates sufficient statistics over batches in fixed memory; normalises only in `compute`.

    The laws that every Statistic obeys are tested by `embedwatch.testing.laws`: equals its own formula on the whole
    data (`oracle`); any split gives the same; `merge` is concatenation, associative and commutative, with the empty
    state as identity; hostile rows are counted or skipped and poison nothing; wrong shapes are refused; memory is
    bounded.

    A subclass writes one file: the class attributes, `__init__` with keyword-only settings, and the abstract methods.
    It never raises because of *data*; it raises on misuse.
    """

    kind: ClassVar[str] = "statistic"
    title: ClassVar[str] = ""
    consumes: ClassVar[str] = "vectors"
    """The kind of batch that it is fed: `vectors`, `pairs`, `attention`, `tokens` or `steps`."""
    metrics: ClassVar[tuple[Metric, ...]] = ()
    """Everything that `compute` may deliver."""
    counts_defects: ClassVar[bool] = False
    """True where NaN and Inf rows are the subject; everywhere else such rows must change nothing."""
    scalars: ClassVar[tuple[str, ...]] = ()
    """Of one that consumes steps: names of the scalars that it reads. Where any does not say, all names are known."""
    needs_reference: ClassVar[bool] = False
    """True where it compares with frozen arrays of a Reference, and cannot be made without."""
    needs_labels: ClassVar[bool] = False
    """True where it says nothing about rows without labels."""
    live: ClassVar[bool] = True
    """False where it is too dear for a model at work, or says nothing there: a Monitor runs it only if it is named."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return the keyword arguments that make an empty copy of this Statistic."""

    @abstractmethod
    def update(self, batch: BatchT) -> None:
        """Add a batch. Never modifies it, never keeps a view of it."""

    @abstractmethod
    def merge(self, other: Statistic[BatchT]) -> None:
        """Add the rows that `other` saw. `other` is left as it was.

        Raises:
            MergeError: if the other is of another class, configuration or dimension.
        """

    @abstractmethod
    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far. Changes nothing."""

    @abstractmethod
    def state_dict(self) -> State:
        """Return copies of everything that `load_state_dict` needs, on the CPU."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the state that an equally configured Statistic gave.

        Raises:
            MergeError: if entries are missing or have the wrong shape.
        """

    @abstractmethod
    def memory(self, dimension: int) -> int:
        """Return an upper bound of the state's size in bytes for rows of this dimension."""

    @abstractmethod
    def oracle(self, batch: BatchT) -> Mapping[str, float | Histogram | None]:
        """Return its measurements by the plain formula on all rows at once, keyed by name or `name{label=value}`."""

    @classmethod
    @abstractmethod
    def examples(cls, seed: int) -> Iterable[tuple[Statistic[BatchT], Sequence[BatchT]]]:
        """Yield empty configured instances with batches that exercise them."""

    def exhibits(self) -> list[Exhibit]:
        """Return evidence for people about everything seen so far."""
        return []

    def tolerance(self, metric: str) -> float:
        """Return the error bound of one metric against the oracle: relative, and absolute below 1."""
        del metric
        return 1e-5

    def merge_tolerance(self, metric: str) -> float:
        """Return the error within which any split and merge gives the same; above rounding only where order matters."""
        del metric
        return 1e-5

    def fresh(self) -> Statistic[BatchT]:
        """Return an empty Statistic of the same configuration."""
        return type(self)(**self.settings())

    def check_mergeable(self, other: object) -> None:
        """Refuse another class or configuration. Call it first in `merge`."""
        if not isinstance(other, type(self)) or type(other) is not type(self):
            raise MergeError(
                f"`other` must be a {type(self).__name__}, got {type(other).__name__}; merge like with like"
            )
        if other.settings() != self.settings():
            raise MergeError(
                f"`other` must have the settings {self.settings()}, got {other.settings()}; "
                f"merge {self.name} states of one configuration"
            )
