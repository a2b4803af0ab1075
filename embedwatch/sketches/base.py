"""Sketch: a mergeable building block. SketchStatistic: a Statistic whose whole state lies in sketches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import MergeError
from embedwatch.core.statistic import State, Statistic

__all__ = ["Sketch", "SketchStatistic", "example_batches"]

SketchT = TypeVar("SketchT", bound="Sketch")


class Sketch(ABC):
    """Part of a Statistic's state: updated by its owner, merged, saved and bounded here."""

    @abstractmethod
    def merge(self, other: Any) -> None:
        """Add what an equally configured sketch saw."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return its tensors and lists, by name."""

    @abstractmethod
    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave."""

    @abstractmethod
    def memory(self, dimension: int) -> int:
        """Return an upper bound of its size in bytes."""


class SketchStatistic(Statistic[VectorBatch]):
    """A Statistic over vectors whose state lies in sketches: a subclass writes `add`, `compute` and `oracle`.

    A subclass's `__init__` passes its settings to `super().__init__` and keeps each sketch with `self.keep`.
    """

    def __init__(self, **settings: Any) -> None:
        self._settings = settings
        self._sketches: dict[str, Sketch] = {}
        self.dimension: int | None = None

    def keep(self, name: str, sketch: SketchT) -> SketchT:
        """Make a sketch part of the state, and return it."""
        self._sketches[name] = sketch
        return sketch

    @abstractmethod
    def add(self, batch: VectorBatch) -> None:
        """Add a batch whose dimension fits."""

    def settings(self) -> dict[str, Any]:
        """Return the keyword arguments that make an empty copy of this Statistic."""
        return dict(self._settings)

    def update(self, batch: VectorBatch) -> None:
        """Add a batch.

        Raises:
            MergeError: if its dimension is not that of the batches before.
        """
        self._fit(batch.dimension)
        if len(batch):
            with torch.no_grad():
                self.add(batch)

    def merge(self, other: Statistic[VectorBatch]) -> None:
        """Add the rows that `other` saw."""
        self.check_mergeable(other)
        if isinstance(other, SketchStatistic) and other.dimension is not None:
            self._fit(other.dimension)
            for name, sketch in self._sketches.items():
                sketch.merge(other._sketches[name])

    def _fit(self, dimension: int) -> None:
        if self.dimension is not None and self.dimension != dimension:
            raise MergeError(
                f"rows must have {self.dimension} dimensions like those before, got {dimension}; "
                "use one Statistic for each space"
            )
        self.dimension = dimension

    def state_dict(self) -> State:
        """Return copies of all tensors, on the CPU, and the dimension."""
        state: State = {"dimension": self.dimension}
        for name, sketch in self._sketches.items():
            state.update({f"{name}.{key}": _copy(value) for key, value in sketch.state().items()})
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the state that an equally configured Statistic gave."""
        if "dimension" not in state:
            raise MergeError(
                f"state of {self.name} must hold `dimension`, got {sorted(state)}; it is cut or of another kind"
            )
        self.dimension = state["dimension"]
        for name, sketch in self._sketches.items():
            part = {key[len(name) + 1 :]: value for key, value in state.items() if key.startswith(f"{name}.")}
            try:
                sketch.load({key: _copy(value) for key, value in part.items()})
            except (KeyError, RuntimeError) as error:
                raise MergeError(
                    f"state of {self.name} does not fit in {name!r}: {error}; it is cut or of another kind"
                ) from error

    def memory(self, dimension: int) -> int:
        """Return an upper bound of the state's size in bytes."""
        return sum(sketch.memory(dimension) for sketch in self._sketches.values())

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[SketchStatistic, Sequence[VectorBatch]]]:
        """Yield the default configuration with random rows; a configured Statistic yields more."""
        yield cls(), example_batches(seed)


def _copy(value: Any) -> Any:
    return value.detach().cpu().clone() if isinstance(value, Tensor) else list(value)


def example_batches(
    seed: int, *, dimension: int = 7, sizes: Sequence[int] = (23, 1, 40, 2), groups: int = 3
) -> list[VectorBatch]:
    """Return labelled batches of one source: a few clusters of different size, off-centre, of uneven scale.

    Example:
        >>> [len(batch) for batch in example_batches(0)]
        [23, 1, 40, 2]
    """
    generator = torch.Generator().manual_seed(seed)
    count = sum(sizes)
    names = [f"group {index}" for index in range(groups)]
    labels = torch.randint(0, groups, (count,), generator=generator)
    centres = torch.randn(groups, dimension, generator=generator) * 2 + 0.5
    spread = torch.linspace(0.3, 1.5, dimension)
    rows = centres[labels] + torch.randn(count, dimension, generator=generator) * spread  # (N, D)
    whole = VectorBatch(rows, torch.arange(count), labels, names, source=f"example {seed}")
    return whole.split(sizes)
