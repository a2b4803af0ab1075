"""Fitting: makes a reference from rows that come once, in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.boundary import Boundary
from embedwatch.core.errors import EmbedwatchError, InputError
from embedwatch.core.registry import registered
from embedwatch.core.snapshot import Space
from embedwatch.core.statistic import Statistic
from embedwatch.geometry.unit_length import have_unit_length
from embedwatch.references.kept_rows import KeptRows, Names, empty_sample, offer
from embedwatch.references.origin import Origin, Part
from embedwatch.references.reference import Reference
from embedwatch.selection import Selection
from embedwatch.sketches import ROW_ARRAYS, BatchStatistic, ComparedStatistic, Fitter, Frozen, is_early
from embedwatch.window import Window, library_versions

__all__ = ["LEAST_ROWS", "Fitting"]

LEAST_ROWS = 200
"""Half of them fit, and ten blocks of ten calibrate."""


class Fitting:
    """Gathers all that a reference holds, in one pass and bounded memory.

    Args:
        rows: how many will come; the first half of the numbers fits the maps, the second calibrates.
        like: a reference whose maps are taken, so that all rows calibrate and both merge exactly.
        keep_rows: whether a sample of the rows is kept.
        boundary: where exceptions of statistics end.

    Example:
        >>> import torch
        >>> fitting = Fitting(rows=1_000)
        >>> rows = torch.randn(1_000, 8, generator=torch.Generator().manual_seed(0))
        >>> fitting.update(VectorBatch(rows, torch.arange(1_000)))
        >>> fitting.reference(Space("faq", "vectors"), [Part("faq", 1_000, "ab12")]).origin.fitted
        500
    """

    def __init__(
        self, *, rows: int, like: Reference | None = None, keep_rows: bool = True, boundary: Boundary | None = None
    ) -> None:
        if like is None and rows < LEAST_ROWS:
            raise InputError(f"`rows` must be at least {LEAST_ROWS} for a reference, got {rows:,}; add rows")
        self.boundary = boundary or Boundary()
        self.fitted = 0 if like is not None else rows // 2
        self._like = like
        self._fitters: dict[str, Fitter] = {}
        kinds = {name: kind for name, kind in compared_statistics().items() if keep_rows or not kind.maps_rows}
        self._maps: dict[str, Frozen] | None = None
        self._calibrating: dict[str, ComparedStatistic] = {}
        plain = [each for each in Selection.choose().made(self.boundary)() if keep_rows or not _holds_rows(each)]
        self._whole = Window(plain, boundary=self.boundary)
        self._sample = empty_sample() if keep_rows else None
        self._is_unit, self._dtype, self._finite = True, "", 0
        if like is None:
            self._fitters = {name: kind.fitter() for name, kind in kinds.items()}
        else:
            self._maps = {name: self._kept(arrays) for name, arrays in like.maps.items() if name in kinds}
            self._calibrate()

    def update(self, batch: VectorBatch) -> None:
        """Add rows, in the order of their numbers.

        Raises:
            InputError: if their dimension is another than that of the reference it shall be like.
            UsageError: if nothing can be fitted on the rows.
        """
        if not len(batch):
            return
        if self._like is not None and batch.dimension != self._like.origin.dimension:
            raise InputError(
                f"rows must have {self._like.origin.dimension} dimensions like the reference, got {batch.dimension}; "
                "compare rows of one space"
            )
        self._whole.update(batch)
        self._dtype = self._dtype or str(batch.rows.dtype).removeprefix("torch.")
        self._finite += len(batch.clean)
        if len(batch.clean):
            self._is_unit &= bool(have_unit_length(batch.clean.norms).all())
        if self._sample is not None:
            offer(self._sample, batch)
        early = is_early(batch, self.fitted)
        first, later = batch.take(early), batch.take(~early)
        for name, fitter in list(self._fitters.items()):
            if len(first) and not self._try("fit", name, partial(fitter.update, first)):
                del self._fitters[name]
        if len(later):
            if self._maps is None:
                self._freeze()
            for name, statistic in list(self._calibrating.items()):
                if not self._try("statistic", name, partial(statistic.update, later)):
                    del self._calibrating[name]

    @property
    def finite(self) -> int:
        """Finite rows that came."""
        return self._finite

    @property
    def fits(self) -> bool:
        """Whether enough of the rows are finite."""
        return self._like is not None or self._finite >= LEAST_ROWS

    def _freeze(self) -> None:
        maps: dict[str, Frozen] = {}

        def keep(name: str, fitter: Fitter) -> None:
            maps[name] = self._kept(fitter.frozen())

        for name, fitter in self._fitters.items():
            self._try("fit", name, partial(keep, name, fitter))
        self._maps, self._fitters = maps, {}
        self._calibrate()

    def _kept(self, arrays: Mapping[str, Tensor]) -> Frozen:
        """Return the arrays of a map, without those that hold rows where none may be kept."""
        kept = self._sample is not None
        return Frozen({name: array for name, array in arrays.items() if kept or not name.startswith(ROW_ARRAYS)})

    def _calibrate(self) -> None:
        kinds = compared_statistics()
        for name, arrays in (self._maps or {}).items():
            if name in kinds:
                self._calibrating[name] = kinds[name](frozen=arrays)

    def reference(
        self,
        space: Space,
        parts: Sequence[Part],
        *,
        role: str = "vectors",
        model: str = "",
        notes: Sequence[str] = (),
        names: Names | None = None,
    ) -> Reference:
        """Return the reference of everything seen.

        Args:
            space: what the rows are of.
            parts: the sources they came from.
            role: what sort of place it is.
            model: fingerprint of the model that made the rows.
            notes: what a reader must know.
            names: what people call the rows of these numbers.

        Raises:
            UsageError: if nothing can be fitted, or no row is left to calibrate.
        """
        if self._maps is None:
            self._freeze()
        if self._whole.dimension is None or not self._calibrating:
            raise InputError("a reference must hold rows that calibrate, got none; add rows")
        self._whole.close(time.time())
        versions = tuple(sorted(library_versions().items()))
        origin = Origin(
            space=space,
            parts=tuple(parts),
            dimension=self._whole.dimension,
            dtype=self._dtype,
            is_unit=self._is_unit,
            role=role,
            model=model,
            fitted=self.fitted,
            created=time.time(),
            notes=tuple(notes),
            versions=versions,
        )
        kept = None if self._sample is None else KeptRows.of(self._sample, names)
        maps = {name: arrays for name, arrays in (self._maps or {}).items() if name in self._calibrating}
        return Reference(origin, maps, dict(self._calibrating), self._whole, kept)

    def _try(self, stage: str, name: str, action: Callable[[], object]) -> bool:
        """Return whether it worked; what is wrong with the rows is said, what is wrong with us is counted."""
        refused: EmbedwatchError | None = None
        worked = False
        with self.boundary.guard(stage, name):
            try:
                action()
                worked = True
            except EmbedwatchError as error:
                refused = error
        if refused is not None:
            raise refused
        return worked


def _holds_rows(statistic: Statistic[VectorBatch]) -> bool:
    return not isinstance(statistic, BatchStatistic) or bool(statistic.row_sketches)


def compared_statistics() -> dict[str, type[ComparedStatistic]]:
    """Return every registered Statistic that compares vectors with a reference, by name."""
    kinds: dict[str, type[Statistic[VectorBatch]]] = registered(Statistic)
    return {name: kind for name, kind in kinds.items() if issubclass(kind, ComparedStatistic)}
