"""Labels from a text file go with the rows of any source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.registry import registered
from embedwatch.core.source import Source
from embedwatch.sources import open_source
from embedwatch.sources.labelled import LabelledSource
from tests.sources.makers import glove, matrix, npy


@pytest.fixture
def labels(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "labels.txt"
        path.write_text(text)
        return path

    return write


def test_rows_get_the_label_of_their_line(tmp_path: Path, labels: Callable[[str], Path]) -> None:
    plain = open_source(npy(tmp_path, matrix(6)))
    source = LabelledSource(plain, labels("cat\ndog\n\n cat \nbird\ndog"))
    for size in (1, 2, 4, 100):
        batches = list(source.batches(size))
        assert torch.cat([batch.labels for batch in batches if batch.labels is not None]).tolist() == [
            0,
            1,
            -1,
            0,
            2,
            1,
        ]
        assert all(tuple(batch.groups) == ("cat", "dog", "bird") for batch in batches)
        for mine, theirs in zip(batches, plain.batches(size), strict=True):
            assert torch.equal(mine.rows, theirs.rows)
            assert mine.ids is not None
            assert theirs.ids is not None
            assert torch.equal(mine.ids, theirs.ids)
            assert (mine.source, mine.segment) == (theirs.source, theirs.segment)


def test_is_the_source_otherwise(tmp_path: Path, labels: Callable[[str], Path]) -> None:
    plain = open_source(glove(tmp_path, matrix(4)))
    source = LabelledSource(plain, labels("a\nb\na\nb\n"))
    assert (source.label, source.place, source.rows, source.dimension, source.notes) == (
        plain.label,
        plain.place,
        plain.rows,
        plain.dimension,
        plain.notes,
    )
    assert source.names([1, 3]) == plain.names([1, 3])


def test_the_fingerprint_changes_with_the_labels(tmp_path: Path, labels: Callable[[str], Path]) -> None:
    plain = open_source(npy(tmp_path, matrix(2)))
    first = LabelledSource(plain, labels("a\nb")).fingerprint()
    assert LabelledSource(plain, labels("a\nc")).fingerprint() != first
    assert LabelledSource(plain, labels("a\nb")).fingerprint() == first


@pytest.mark.parametrize(("text", "count"), [("a\nb\n", "2 labels"), ("a\n" * 9, "9 labels"), ("a", "1 label")])
def test_another_number_of_labels_is_refused_at_once(
    text: str, count: str, tmp_path: Path, labels: Callable[[str], Path]
) -> None:
    with pytest.raises(InputError) as error:
        LabelledSource(open_source(npy(tmp_path, matrix(3))), labels(text))
    assert str(error.value) == (
        f"labels.txt has {count} for the 3 rows of vectors.npy; "
        "write one line for each row, an empty one where it has no label"
    )


class Endless(Source):
    """Does not know how many rows it has before they are read."""

    def __init__(self, count: int) -> None:
        self.count, self.label, self.rows, self.dimension = count, "stream", None, 2

    @classmethod
    def accepts(cls, path: Path) -> bool:
        return False

    @classmethod
    def open(cls, path: Path, *, select: str | None = None, labels: str | None = None) -> Source:
        raise NotImplementedError

    def batches(self, size: int) -> Iterator[VectorBatch]:
        for start in range(0, self.count, size):
            yield VectorBatch(torch.ones(min(size, self.count - start), 2), source=self.label)

    def fingerprint(self) -> str:
        return "0"


@pytest.mark.parametrize(
    ("count", "message"), [(5, "3 labels, stream at least 5 rows"), (2, "3 labels for the 2 rows of stream")]
)
def test_another_number_is_refused_when_it_shows(count: int, message: str, labels: Callable[[str], Path]) -> None:
    source = LabelledSource(Endless(count), labels("a\nb\nc\n"))
    with pytest.raises(InputError, match=message):
        list(source.batches(5))
    assert len(list(LabelledSource(Endless(3), labels("a\nb\nc\n")).batches(2))) == 2


def test_too_many_groups_are_no_groups(labels: Callable[[str], Path]) -> None:
    with pytest.raises(
        InputError, match=r"labels\.txt holds over 10,000 different labels by line 10,001, so they are no"
    ):
        LabelledSource(Endless(3), labels("".join(f"{i}\n" for i in range(10_001))))


def test_is_not_registered(tmp_path: Path) -> None:
    assert LabelledSource not in registered(Source).values()
    assert not LabelledSource.accepts(tmp_path)
    with pytest.raises(UsageError, match=r"wrap that: LabelledSource\(source, labels\)"):
        LabelledSource.open(tmp_path)
