"""The contract of sources bites: each broken Source is caught by the clause that it breaks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import UsageError
from embedwatch.core.source import Source
from embedwatch.sources.npy import NpySource
from embedwatch.testing.contracts import ContractViolation
from embedwatch.testing.source_contract import SOURCE_CONTRACT, refuses_damage, source_contract

SHARED = torch.zeros(1000, 4)


class NumbersFromOne(NpySource, register=False):
    """Numbers rows from one."""

    def batches(self, size: int) -> Iterator[VectorBatch]:
        for batch in super().batches(size):
            yield VectorBatch(batch.rows, batch.ids + 1 if batch.ids is not None else None)


class TooMany(NpySource, register=False):
    """Yields larger batches than asked."""

    def batches(self, size: int) -> Iterator[VectorBatch]:
        return super().batches(size + 1)


class Miscounts(NpySource, register=False):
    """Promises another number of rows."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.rows = 7

    def batches(self, size: int) -> Iterator[VectorBatch]:
        yield from NpySource(self.path).batches(size)


class ReadsOnce(NpySource, register=False):
    """Gives nothing the second time."""

    def batches(self, size: int) -> Iterator[VectorBatch]:
        rows = super().batches(size)
        return rows if self.__dict__.setdefault("first", rows) is rows else iter(())


class SharesMemory(NpySource, register=False):
    """Reuses one buffer."""

    def batches(self, size: int) -> Iterator[VectorBatch]:
        for batch in super().batches(size):
            SHARED[: len(batch)] = batch.rows
            yield VectorBatch(SHARED[: len(batch)], batch.ids)


class LabelsBelowNone(NpySource, register=False):
    """Labels below the one that says none."""

    def batches(self, size: int) -> Iterator[VectorBatch]:
        for batch in super().batches(size):
            yield VectorBatch(batch.rows, batch.ids, torch.full((len(batch),), -2))


class NamesOnce(NpySource, register=False):
    """Names each row once, however often it is asked."""

    def names(self, rows: Sequence[int]) -> list[str]:
        return [str(row) for row in sorted(set(rows))]


class Unmoved(NpySource, register=False):
    """Has the same fingerprint whatever the content."""

    def fingerprint(self) -> str:
        return "0123456789abcdef"


class TakesAnySize(NpySource, register=False):
    """Takes a size of nothing."""

    def batches(self, size: int) -> Iterator[VectorBatch]:
        return super().batches(max(size, 1))


class LeavesFilesOpen(NpySource, register=False):
    """Opens a file and forgets it."""

    kept: list[Any] = []  # noqa: RUF012  # shared on purpose

    def batches(self, size: int) -> Iterator[VectorBatch]:
        self.kept.append(self.path.open("rb"))
        return super().batches(size)


BROKEN: dict[str, tuple[type[NpySource], ...]] = {
    "rows": (NumbersFromOne, TooMany, Miscounts),
    "same again": (ReadsOnce,),
    "own memory": (SharesMemory,),
    "groups": (LabelsBelowNone,),
    "names": (NamesOnce,),
    "fingerprint": (Unmoved,),
    "misuse": (TakesAnySize,),
    "files": (LeavesFilesOpen,),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32))
    return path


def test_every_clause_is_broken_by_something() -> None:
    assert set(BROKEN) == set(SOURCE_CONTRACT)


@pytest.mark.parametrize(("clause", "source"), [(clause, each) for clause, broken in BROKEN.items() for each in broken])
def test_the_clause_bites(clause: str, source: type[Source], path: Path) -> None:
    try:
        with pytest.raises(ContractViolation):
            SOURCE_CONTRACT[clause](source, path)
        with pytest.raises(ContractViolation):
            source_contract(source, path)
    finally:
        while LeavesFilesOpen.kept:
            LeavesFilesOpen.kept.pop().close()


class RaisesAnything(NpySource, register=False):
    """Raises what comes to mind."""

    def __init__(self, path: Path) -> None:
        try:
            super().__init__(path)
        except ValueError as error:
            raise KeyError(str(error)) from error


class SpeaksAtLength(NpySource, register=False):
    """Complains in several lines."""

    @classmethod
    def open(cls, path: Path, *, select: str | None = None, labels: str | None = None) -> NpySource:
        try:
            return super().open(path, select=select, labels=labels)
        except ValueError as error:
            raise type(error)(f"{error}\nSorry!") from error


class BlamesTheUser(NpySource, register=False):
    """Calls a damaged file a mistake of use."""

    @classmethod
    def open(cls, path: Path, *, select: str | None = None, labels: str | None = None) -> NpySource:
        try:
            return super().open(path, select=select, labels=labels)
        except ValueError as error:
            raise UsageError(str(error)) from error


@pytest.mark.parametrize("source", [RaisesAnything, SpeaksAtLength, BlamesTheUser])
def test_damage_that_is_refused_badly_is_caught(source: type[Source], path: Path, tmp_path: Path) -> None:
    with pytest.raises(ContractViolation):
        refuses_damage(source, path, tmp_path / "damaged")
