"""Sketch: a mergeable building block. BatchStatistic: a Statistic whose whole state lies in sketches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence, Sized
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import MergeError
from embedwatch.core.statistic import State, Statistic

__all__ = ["BatchStatistic", "Sketch", "SketchStatistic", "check_tensor", "example_batches"]

SCALARS = 1
"""Dimension of what has none: records of numbers, each of which stands alone."""

BatchT = TypeVar("BatchT", bound=Sized)
SketchT = TypeVar("SketchT", bound="Sketch")


class Sketch(ABC):
    """Part of a Statistic's state: updated by its owner, merged, saved and bounded here."""

    @property
    def holds_rows(self) -> bool:
        """Whether rows themselves lie in it, which somebody may have to leave out."""
        return False

    @abstractmethod
    def merge(self, other: Any) -> None:
        """Add what an equally configured sketch saw."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return its tensors and lists, by name."""

    @abstractmethod
    def load(self, state: Mapping[str, Any], dimension: int) -> None:
        """Take over what `state` gave, into an empty sketch.

        Raises:
            MergeError: for anything that `state` cannot have given: states come over networks.
        """

    @abstractmethod
    def memory(self, dimension: int) -> int:
        """Return an upper bound of its size in bytes."""


class BatchStatistic(Statistic[BatchT]):
    """A Statistic over any kind of batch whose state lies in sketches: a subclass writes `add`, `compute`, `oracle`.

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

    @property
    def row_sketches(self) -> list[str]:
        """Names of the sketches in which rows themselves lie."""
        return [name for name, sketch in self._sketches.items() if sketch.holds_rows]

    @abstractmethod
    def add(self, batch: BatchT) -> None:
        """Add a batch whose dimension fits."""

    def settings(self) -> dict[str, Any]:
        """Return the keyword arguments that make an empty copy of this Statistic."""
        return dict(self._settings)

    def update(self, batch: BatchT) -> None:
        """Add a batch.

        Raises:
            MergeError: if its dimension is not that of the batches before.
        """
        if not len(batch):
            return
        self._fit(getattr(batch, "dimension", SCALARS))
        # whatever mode the model runs in: our state must stay usable outside it, and exact
        with torch.inference_mode(mode=False), torch.no_grad(), _without_autocast(_device(batch)):
            self.add(batch)

    def merge(self, other: Statistic[BatchT]) -> None:
        """Add the rows that `other` saw."""
        self.check_mergeable(other)
        if isinstance(other, BatchStatistic) and other.dimension is not None:
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
        dimension = state.get("dimension", "nothing")
        if dimension is not None and (isinstance(dimension, bool) or not isinstance(dimension, int) or dimension < 1):
            raise MergeError(
                f"state of {self.name} must hold `dimension` as a whole number, got {dimension!r}; it is damaged"
            )
        parts = self._parts(state)
        if dimension is None and any(parts.values()):
            raise MergeError(f"state of {self.name} must be empty without a dimension; it is damaged")
        loaded = type(self)(**self.settings())
        for name, sketch in loaded._sketches.items():
            try:
                sketch.load(parts[name], dimension or 0)
            except (AttributeError, IndexError, KeyError, OverflowError, RuntimeError, TypeError, ValueError) as error:
                raise MergeError(f"state of {self.name} does not fit in {name!r}: {error}; it is damaged") from error
        loaded.check_state()
        self.__dict__.update(loaded.__dict__)  # all of it or nothing
        self.dimension = dimension

    def check_state(self) -> None:
        """Refuse a loaded state whose sketches do not fit one another, where `compute` relies on it."""
        return

    def _parts(self, state: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return copies of the entries of each sketch."""
        parts: dict[str, dict[str, Any]] = {name: {} for name in self._sketches}
        for key, value in state.items():
            name, _, entry = key.partition(".")
            if key == "dimension":
                continue
            if name not in parts or not isinstance(value, Tensor | list):
                raise MergeError(
                    f"state of {self.name} must not hold {key!r} of {type(value).__name__}; it is of another kind"
                )
            parts[name][entry] = _copy(value)
        return parts

    def memory(self, dimension: int) -> int:
        """Return an upper bound of the state's size in bytes."""
        return sum(sketch.memory(dimension) for sketch in self._sketches.values())


class SketchStatistic(BatchStatistic[VectorBatch]):
    """A Statistic over vectors whose state lies in sketches."""

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[SketchStatistic, Sequence[VectorBatch]]]:
        """Yield the default configuration with random rows; a configured Statistic yields more."""
        yield cls(), example_batches(seed)


def check_tensor(name: str, value: object, shape: tuple[int | None, ...], dtype: torch.dtype) -> Tensor:
    """Return a tensor of a state; `None` in the shape stands for any size, and floating point must be finite.

    Raises:
        MergeError: if it is anything else.
    """
    if not isinstance(value, Tensor) or value.dtype != dtype or value.ndim != len(shape):
        got = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise MergeError(f"`{name}` must be {dtype} with {len(shape)} axes, got {got}; the state is damaged")
    if any(want is not None and want != have for want, have in zip(shape, value.shape, strict=True)):
        raise MergeError(f"`{name}` must have the shape {shape}, got {tuple(value.shape)}; the state is damaged")
    if dtype.is_floating_point and not bool(torch.isfinite(value).all()):
        raise MergeError(f"`{name}` must be finite, got NaN or Inf; the state is damaged")
    return value


def _without_autocast(device: str) -> AbstractContextManager[object]:
    """Switch autocast off where it is on: leaving a block of it empties a cache that all threads share."""
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def _device(batch: object) -> str:
    """Return the type of device that a batch lies on; numbers without tensors lie on the CPU."""
    return next((value.device.type for value in vars(batch).values() if isinstance(value, Tensor)), "cpu")


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
