"""Index files, opened in a process of their own: their vectors, what they answer, and copies of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from embedwatch.ann.arrays import Ids, Matrix
from embedwatch.ann.child import Child, ChildEndedError, borrowed
from embedwatch.ann.facts import IndexFacts, IndexRefusedError
from embedwatch.ann.headers import HEADER_BYTES, IndexHeader, header_of
from embedwatch.core.errors import InputError, UsageError

__all__ = ["IndexBuilder", "IndexFile", "View", "building", "check_header", "index_label", "opened"]

View = Literal["added", "stored", "closed"]
MEMORY = "EMBEDWATCH_INDEX_MEMORY"
"""Environment variable: most bytes that reading an index may take."""
MEMORY_TIMES, MEMORY_MORE = 8, 1 << 30
"""Reading an index may take so many times the size of its file, and so many bytes more."""
SECONDS, SECONDS_PER_BYTE = 120.0, 1 / 5e6
"""An answer may take so long, and so much longer for each byte of the file."""
BUILD_SECONDS = 7 * 86_400.0
"""Training and adding may take a week: what is lost is at most one part."""


def index_label(path: Path) -> str:
    """Return the name of a file as it may stand in a message."""
    name = os.fsencode(path.name or os.fspath(path)).decode("utf-8", "replace")
    return "".join(character if character.isprintable() else "?" for character in name)[:160]


def check_header(path: Path) -> IndexHeader:
    """Return what the first bytes of a file say.

    Raises:
        InputError: if it is no index of vectors.
    """
    label = index_label(path)
    try:
        with path.open("rb") as file:
            header = header_of(file.read(HEADER_BYTES))
    except FileNotFoundError:
        raise InputError(f"{label} does not exist; check the path") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{label} cannot be read: {getattr(error, 'strerror', error)}; check the path") from None
    if header is None:
        raise InputError(f"{label} must begin like an index of FAISS, it does not; is it another kind, or cut off?")
    if header.binary:
        raise InputError(f"{label} holds vectors of bits, not of floats; give the vectors that it was built from")
    if header.dimension < 1 or header.dimension > 1 << 20 or not 0 <= header.rows < 1 << 48:
        raise InputError(
            f"{label} says it has {header.rows:,} vectors of {header.dimension:,} dimensions; it is damaged, write it "
            "again with faiss.write_index"
        )
    return header


class IndexFile:
    """An index file that is open in a child.

    Args:
        path: of the file.
        child: in which it is open.
        facts: what it is made of.
        seconds: that one answer may take.
    """

    def __init__(self, path: Path, child: Child, facts: IndexFacts, seconds: float) -> None:
        self.path, self.facts, self._child, self._seconds = path, facts, child, seconds

    @property
    def label(self) -> str:
        """Name of the file."""
        return index_label(self.path)

    def rows(self, start: int, count: int) -> Matrix:
        """Return `count` vectors from this position on. Shape: (count, D), its own memory."""
        answer, data = self._ask("rows", start=start, count=count)
        return _matrix(data, answer["shape"])

    def rows_at(self, positions: Ids) -> Matrix:
        """Return the vectors at these positions. Shape: (n,) -> (n, D)."""
        answer, data = self._ask("rows", body=_bytes(positions, np.int64))
        return _matrix(data, answer["shape"])

    def ids(self, start: int, count: int) -> Ids:
        """Return the ids of `count` vectors from this position on. Shape: (count,)."""
        return np.frombuffer(self._ask("ids", start=start, count=count)[1], np.int64)

    def ids_at(self, positions: Ids) -> Ids:
        """Return the ids of these positions. Shape: (n,) -> (n,)."""
        return np.frombuffer(self._ask("ids", body=_bytes(positions, np.int64))[1], np.int64)

    def search(self, queries: Matrix, k: int) -> tuple[Matrix, Ids]:
        """Return distances and ids of the nearest as the index answers. Shape: (Q, D) -> (Q, k), (Q, k).

        Raises:
            UsageError: for queries of another dimension.
        """
        self._check(queries)
        answer, data = self._ask("search", k=k, body=_bytes(queries, np.float32))
        half = 4 * int(np.prod(answer["shape"]))
        distances = np.frombuffer(data[:half], np.float32).reshape(answer["shape"])
        return distances, np.frombuffer(data[half:], np.int64).reshape(answer["shape"])

    def recall(self, queries: Matrix | None, *, k: int, count: int, seed: int) -> dict[str, Any]:
        """Return what `embedwatch.ann.recall.sampled_recall` finds, as plain values."""
        if queries is not None:
            self._check(queries)
        body = b"" if queries is None else _bytes(queries, np.float32)
        return self._ask("recall", k=k, count=count, seed=seed, body=body)[0]

    def coded(self, rows: Matrix) -> Matrix:
        """Return vectors as the index would give them back, had they been added. Shape: (n, D) -> (n, D)."""
        self._check(rows)
        answer, data = self._ask("coded", body=_bytes(rows, np.float32))
        return _matrix(data, answer["shape"])

    def bake(self, matrix: Matrix, offset: Matrix, out: Path, *, input_unit: bool, output_unit: bool) -> None:
        """Write a copy that maps what it takes; see `embedwatch.ann.baking.bake`. The last that is asked of this."""
        self._copy("bake", matrix, offset, out, input_unit=input_unit, output_unit=output_unit)

    def rotate(self, matrix: Matrix, offset: Matrix, out: Path) -> None:
        """Write a copy whose vectors are turned; see `embedwatch.ann.rotating.rotate`. The last that is asked."""
        self._copy("rotate", matrix, offset, out)

    def _copy(self, what: str, matrix: Matrix, offset: Matrix, out: Path, **options: Any) -> None:
        body = _bytes(matrix, np.float32) + _bytes(offset, np.float32)
        self._child.key = []  # what was open is used up
        self._ask(what, body=body, shape=list(matrix.shape), out=os.fspath(out.absolute()), **options)

    def _check(self, rows: Matrix) -> None:
        if rows.ndim != 2 or rows.shape[1] != self.facts.dimension:
            raise UsageError(
                f"`queries` must have {self.facts.dimension} dimensions like {self.label}, got {rows.shape[-1]}; "
                "embed them with the model of the index"
            )

    def _ask(self, what: str, *, body: bytes = b"", **request: Any) -> tuple[dict[str, Any], bytearray]:
        with told_of(self.label):
            return self._child.ask(what, seconds=self._seconds, body=body, **request)


def _matrix(data: bytearray, shape: list[int]) -> Matrix:
    found: Matrix = np.frombuffer(data, np.float32).reshape(shape)
    return found


def _bytes(array: Any, dtype: Any) -> bytes:
    return np.ascontiguousarray(array, dtype).tobytes()


@contextmanager
def told_of(label: str) -> Iterator[None]:
    """Put the name of a file before what a child says of it, and say what to do where one ended."""
    try:
        yield
    except IndexRefusedError as error:
        raise InputError(f"{label} {error}") from None
    except ChildEndedError as error:
        raise InputError(
            f"{label} {error}: the process that read it is gone, this one is not; the file is damaged, or made by "
            "another FAISS; write it again with faiss.write_index"
        ) from None


@contextmanager
def opened(path: str | os.PathLike[str], view: View = "added") -> Iterator[IndexFile]:
    """Open an index file in a child, with limits of memory and time.

    Args:
        path: of the file.
        view: which vectors it gives: as they were `added`, as they lie `stored` behind a transform, or none (`closed`).

    Raises:
        InputError: in one line that says what is wrong and what to do.
    """
    path = Path(path)
    header = check_header(path)
    with told_of(index_label(path)):
        status = path.stat()
        key = [os.fspath(path.absolute()), status.st_size, status.st_mtime_ns, status.st_ino, view]
        seconds = SECONDS + status.st_size * SECONDS_PER_BYTE
        more = int(os.environ.get(MEMORY) or 0) or MEMORY_TIMES * status.st_size + MEMORY_MORE
    with borrowed(key) as child:
        with told_of(index_label(path)):
            child.key = []
            told, _ = child.ask("open", seconds=seconds, path=key[0], key=key, view=view, bytes_more=more)
            child.key = key
        facts = IndexFacts.from_json(told)
        if (facts.dimension, facts.rows) != (header.dimension, header.rows):
            raise InputError(f"{index_label(path)} says one thing and holds another; it changed while it was read")
        yield IndexFile(path, child, facts, seconds)


class IndexBuilder:
    """An index that grows in a child.

    Args:
        label: what messages call it.
        child: in which it grows.
        kind: its layers.
        rows: vectors that it holds already.
    """

    def __init__(self, label: str, child: Child, kind: str, rows: int) -> None:
        self.label, self.kind, self.rows, self._child = label, kind, rows, child

    def add(self, rows: Matrix, ids: Ids) -> None:
        """Add vectors with their ids."""
        body = _bytes(ids, np.int64) + _bytes(rows, np.float32)
        with told_of(self.label):
            answer, _ = self._child.ask("add", seconds=BUILD_SECONDS, count=len(ids), body=body)
        self.rows = answer["rows"]

    def save(self, out: Path) -> None:
        """Write it as it is now."""
        with told_of(self.label):
            self._child.ask("save", seconds=BUILD_SECONDS, out=os.fspath(out.absolute()))


@contextmanager
def building(
    label: str,
    *,
    resume: Path | None = None,
    recipe: str = "",
    dimension: int = 0,
    metric: str = "",
    sample: Matrix | None = None,
    own_ids: bool = False,
    settings: Mapping[str, float] | None = None,
) -> Iterator[IndexBuilder]:
    """Make an empty index and train it, or go on with one that was saved; see `embedwatch.ann.building`.

    Raises:
        InputError: where it cannot be built or read.
    """
    with borrowed() as child:
        with told_of(label):
            if resume is not None:
                path = os.fspath(resume.absolute())
                answer, _ = child.ask("resume", seconds=BUILD_SECONDS, path=path)
                yielded = IndexBuilder(label, child, answer["kind"], answer["rows"])
            else:
                answer, _ = child.ask(
                    "create", seconds=BUILD_SECONDS, body=_bytes(sample, np.float32), recipe=recipe,
                    dimension=dimension, metric=metric, own_ids=own_ids, settings=dict(settings or {}),
                )  # fmt: skip
                yielded = IndexBuilder(label, child, answer["kind"], 0)
        try:
            yield yielded
        except BaseException:
            child.end()
            raise
        with told_of(label):
            child.ask("drop", seconds=SECONDS)  # what was built stays in no process
