"""ComparedStatistic: a Statistic that compares rows with those of a reference."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Protocol

from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import MergeError
from embedwatch.core.statistic import State
from embedwatch.sketches.base import SketchStatistic
from embedwatch.sketches.frozen import Frozen, FrozenMark

__all__ = ["REFERENCE", "ROW_ARRAYS", "ComparedStatistic", "Fitter", "is_early"]

REFERENCE = "reference."
"""What the arrays of the calibrating rows are called among the frozen ones."""
ROW_ARRAYS = "rows."
"""Arrays of a map whose names begin so hold rows themselves: it must do without them where rows may not be kept."""


class Fitter(Protocol):
    """Fits the arrays of a map on the first half of a reference, read once, in bounded memory."""

    def update(self, batch: VectorBatch) -> None:
        """Add rows of the first half, in order."""

    def frozen(self) -> Mapping[str, Tensor]:
        """Return the arrays of the map.

        Raises:
            UsageError: if nothing can be fitted on these rows.
        """


class ComparedStatistic(SketchStatistic):
    """A Statistic over vectors that compares with frozen arrays: a map, and what healthy rows look like under it.

    What is fitted on rows is calibrated on others, or it would find fresh healthy rows strange. So the first half of a
    reference fits the map (`fitter`); an instance that has only the map sees the second half, and gives what it saw as
    arrays (`calibrated`); instances that have both compare. Instances with equal maps merge, so that references which
    share a map merge exactly.

    A subclass writes `fitter`, `space_dimension`, `calibrated` and what every SketchStatistic writes, and asks
    `reference` for the arrays of the calibrating rows.

    Args:
        frozen: the arrays of the map, and those of calibrating rows if it compares.
        settings: further settings of the subclass.
    """

    needs_reference = True
    live = False
    live_settings: ClassVar[Mapping[str, Any]] = {}
    """Settings for a model at work, where what is dear is left out."""
    maps_rows: ClassVar[bool] = False
    """True where the map is nothing without rows: a reference that may keep none is made without this Statistic."""
    row_metrics: ClassVar[tuple[str, ...]] = ()
    """Measurements that are missing where a reference may keep no rows: its state comes without `row_sketches` then."""

    def __init__(self, *, frozen: Mapping[str, Tensor], **settings: Any) -> None:
        self.frozen = frozen if isinstance(frozen, Frozen) else Frozen(frozen)
        super().__init__(frozen=self.frozen, **settings)
        self._mark = self.keep("frozen", FrozenMark(self.frozen))
        self.reference: Mapping[str, Tensor] | None = self.frozen.under(REFERENCE) or None
        """What `calibrated` gave for the calibrating rows; `None` in the instance that sees those."""

    @classmethod
    @abstractmethod
    def fitter(cls, **options: Any) -> Fitter:
        """Return what fits the map, empty."""

    @property
    @abstractmethod
    def space_dimension(self) -> int:
        """D of the rows that fitted the map."""

    @abstractmethod
    def calibrated(self, start: int) -> Mapping[str, Tensor]:
        """Return what windows are compared with, from the rows seen.

        Args:
            start: number of the first calibrating row; rows soon after it may resemble those that fitted.
        """

    def as_reference(self, start: int = 0) -> Frozen:
        """Return the arrays with which windows are compared: the map, and what the rows seen look like under it."""
        found = {f"{REFERENCE}{name}": array.clone() for name, array in self.calibrated(start).items()}
        return Frozen({**self.frozen, **found})

    def state_without_rows(self) -> State:
        """Return the state without the sketches that hold rows."""
        return {
            key: value for key, value in self.state_dict().items() if key.partition(".")[0] not in self.row_sketches
        }

    @classmethod
    def fit(cls, batches: Iterable[VectorBatch], *, rows: int, **options: Any) -> Frozen:
        """Return the frozen arrays of a reference, read once.

        Args:
            batches: its rows in order, numbered from 0.
            rows: how many there are; the first half of the numbers fits, the second calibrates.
            options: of `fitter`.

        Raises:
            UsageError: if nothing can be fitted on the first half.
            MergeError: if no row is left to calibrate.
        """
        half, fitter = rows // 2, cls.fitter(**options)
        calibrating: ComparedStatistic | None = None
        for batch in batches:
            early = is_early(batch, half)
            if bool(early.any()):
                fitter.update(batch.take(early))
            if not bool(early.all()):
                calibrating = calibrating or cls(frozen=fitter.frozen())
                calibrating.update(batch.take(~early))
        if calibrating is None:
            fitter.frozen()  # says what is wrong where nothing can be fitted
            raise MergeError(f"`batches` must hold rows from number {half:,} on, got none; number them from 0")
        return calibrating.as_reference(half)

    def update(self, batch: VectorBatch) -> None:
        """Add a batch.

        Raises:
            MergeError: if its dimension is not that of the reference.
        """
        if batch.dimension != self.space_dimension:
            raise MergeError(
                f"rows must have {self.space_dimension} dimensions like the reference, got {batch.dimension}; "
                "compare rows of one space"
            )
        if not len(batch):
            return
        self._mark.use()
        if batch.order is not None:
            batch = batch.take(slice(None))
            batch.ids = batch.order
        super().update(batch)


def is_early(batch: VectorBatch, half: int) -> Tensor:
    """Return which rows fit; the others calibrate. Shape: (N,) bool."""
    return batch.numbers < half
