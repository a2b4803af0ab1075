"""The process in which index files are opened: what ends it, ends nothing else.

It reads requests from standard input: a line of JSON that says how many raw bytes follow. On standard output it answers
with two lengths, JSON, and raw bytes. `embedwatch.ann.child` is the other side.
"""

from __future__ import annotations

import json
import os
import select
import struct
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from embedwatch.ann._faiss import faiss
from embedwatch.ann.arrays import Matrix
from embedwatch.ann.baking import bake
from embedwatch.ann.building import Building
from embedwatch.ann.facts import IndexRefusedError
from embedwatch.ann.recall import nearest, sampled_recall
from embedwatch.ann.rotating import rotate
from embedwatch.ann.structure import peel
from embedwatch.ann.vectors import StoredVectors, describe, describe_layers

__all__ = ["main"]

IDLE = 20.0
"""Seconds without a request after which the index is let go."""
FLAGS = faiss.IO_FLAG_READ_ONLY | faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE | faiss.IO_FLAG_PQ_SKIP_SDC_TABLE
SAME_FOLDER = faiss.IO_FLAG_ONDISK_SAME_DIR
CLOSED, STORED = "closed", "stored"
"""Views of an index: without its vectors, and with them as they lie behind a transform."""
LOOPS = 1 << 20
"""Most entries of a list of layers in a file."""
Answer = tuple[dict[str, Any], bytes]


class _Worker:
    """What is open, and what is asked of it."""

    def __init__(self) -> None:
        self.index: Any = None
        self.vectors: StoredVectors | None = None
        self.key: list[Any] = []
        self.path = ""
        self.building: Building | None = None

    def forget(self) -> None:
        """Let everything go."""
        self.index = self.vectors = self.building = None
        self.key = []

    def answer(self, request: Mapping[str, Any], body: bytes) -> Answer:
        """Do what is asked."""
        handlers: dict[str, Callable[[Mapping[str, Any], bytes], Answer]] = {
            "open": self._open,
            "rows": self._rows,
            "ids": self._ids,
            "search": self._search,
            "recall": self._recall,
            "coded": self._coded,
            "bake": self._bake,
            "rotate": self._rotate,
            "create": self._create,
            "resume": self._resume,
            "add": self._add,
            "save": self._save,
            "drop": self._drop,
        }
        return handlers[request["do"]](request, body)

    def _open(self, request: Mapping[str, Any], body: bytes) -> Answer:
        del body
        key = request["key"]
        if key != self.key or self.index is None:
            self.forget()
            _limit(request["bytes_more"])
            faiss.set_deserialization_vector_byte_limit(request["bytes_more"])
            faiss.set_deserialization_loop_limit(LOOPS)
            self.index = read_index(request["path"])
            self.path = request["path"]
            if request["view"] != CLOSED:
                self.vectors = StoredVectors(self.index, stored=request["view"] == STORED)
            self.key = key
        facts = describe_layers(peel(self.index)) if self.vectors is None else describe(self.vectors)
        return facts.to_json(), b""

    @property
    def _stored(self) -> StoredVectors:
        if self.vectors is None:
            raise IndexRefusedError("is not open with its vectors; open it first")
        return self.vectors

    @property
    def _growing(self) -> Building:
        if self.building is None:
            raise IndexRefusedError("is not being built; create it first")
        return self.building

    def _positions(self, request: Mapping[str, Any], body: bytes) -> Any:
        if "start" in request:
            return np.arange(request["start"], request["start"] + request["count"], dtype=np.int64)
        return np.frombuffer(body, np.int64)

    def _rows(self, request: Mapping[str, Any], body: bytes) -> Answer:
        rows = np.ascontiguousarray(self._stored.take(self._positions(request, body)), np.float32)
        return {"shape": list(rows.shape)}, rows.tobytes()

    def _ids(self, request: Mapping[str, Any], body: bytes) -> Answer:
        return {}, np.ascontiguousarray(self._stored.ids(self._positions(request, body))).tobytes()

    def _search(self, request: Mapping[str, Any], body: bytes) -> Answer:
        distances, ids = nearest(self.index, _matrix(body, self.index.d), request["k"])
        return {"shape": list(ids.shape)}, distances.tobytes() + ids.tobytes()

    def _recall(self, request: Mapping[str, Any], body: bytes) -> Answer:
        queries = _matrix(body, self.index.d) if body else None
        found = sampled_recall(
            self.index, queries, k=request["k"], count=request["count"], seed=request["seed"], vectors=self._stored
        )
        return found.to_json(), b""

    def _coded(self, request: Mapping[str, Any], body: bytes) -> Answer:
        """Return vectors as the index would give them back."""
        del request
        rows = _matrix(body, self.index.d)
        return {"shape": list(rows.shape)}, self._stored.coded(rows).tobytes()

    def _bake(self, request: Mapping[str, Any], body: bytes) -> Answer:
        matrix, offset = _map(request, body)
        self.forget()
        index = _in_one_file(read_index(self.path))
        baked = bake(index, matrix, offset, input_unit=request["input_unit"], output_unit=request["output_unit"])
        _write(baked, request["out"])
        return {}, b""

    def _rotate(self, request: Mapping[str, Any], body: bytes) -> Answer:
        matrix, offset = _map(request, body)
        self.forget()
        index = _in_one_file(read_index(self.path, 0))  # not mapped from the file, which stays as it is
        rotate(index, matrix, offset)
        _write(index, request["out"])
        return {}, b""

    def _create(self, request: Mapping[str, Any], body: bytes) -> Answer:
        _limit(None)
        rows = _matrix(body, request["dimension"])
        self.building = Building.create(
            request["recipe"],
            request["dimension"],
            request["metric"],
            rows,
            own_ids=request["own_ids"],
            settings=request["settings"],
        )
        return {"kind": self.building.kind}, b""

    def _resume(self, request: Mapping[str, Any], body: bytes) -> Answer:
        del body
        _limit(None)
        self.building = Building(read_index(request["path"], 0))
        return {"rows": self.building.rows, "kind": self.building.kind}, b""

    def _add(self, request: Mapping[str, Any], body: bytes) -> Answer:
        count = request["count"]
        ids = np.frombuffer(body[: count * 8], np.int64)
        self._growing.add(_matrix(body[count * 8 :], self._growing.dimension), ids)
        return {"rows": self._growing.rows}, b""

    def _drop(self, request: Mapping[str, Any], body: bytes) -> Answer:
        del request, body
        self.forget()
        return {}, b""

    def _save(self, request: Mapping[str, Any], body: bytes) -> Answer:
        del body
        _write(self._growing.index, request["out"])
        return {}, b""


def read_index(path: str, more: int = faiss.IO_FLAG_MMAP_IFC) -> Any:
    """Read an index file, mapping what can be mapped.

    Raises:
        IndexRefusedError: saying why it cannot be read.
    """
    try:
        try:
            return faiss.read_index(path, FLAGS | SAME_FOLDER | more)
        except RuntimeError as error:
            if "ONDISK_SAME_DIR" not in str(error):
                raise
            return faiss.read_index(path, FLAGS | SAME_FOLDER)  # lists in a file of their own are mapped anyway
    except RuntimeError as error:
        raise IndexRefusedError(_why(str(error))) from None


def _in_one_file(index: Any) -> Any:
    """Return an index, or refuse one whose copy would share the lists that it keeps in a file of their own."""
    core = peel(index).core
    if isinstance(core, faiss.IndexIVF) and isinstance(
        faiss.downcast_InvertedLists(core.invlists), faiss.OnDiskInvertedLists
    ):
        raise IndexRefusedError(
            "keeps its lists in a file of their own, which a copy would share; use `--mode migrate`, or bring them "
            "into memory with faiss.extract_index_ivf(index).replace_invlists before it is written"
        )
    return index


def _why(message: str) -> str:
    """Return what FAISS says of a file it cannot read, in our words."""
    last = " ".join(message.split()).rpartition(": ")[2] or "unknown"
    if "read error" in message or "size" in message or "bytes" in message:
        return f"ends early or is damaged (FAISS says: {_short(message)}); copy it again"
    if "not recognized" in message or "Index type" in message:
        return f"is of a kind that this FAISS {faiss.__version__} does not know; upgrade faiss-cpu, or write it again"
    return f"cannot be read by FAISS {faiss.__version__} ({_short(last)}); write it again with faiss.write_index"


def _short(message: str) -> str:
    text = " ".join(message.split())
    text = text.partition("Error: ")[2] or text.rpartition(": ")[2] or text
    return "".join(character if character.isprintable() else "?" for character in text)[:100]


def _matrix(body: bytes, dimension: int) -> Matrix:
    return np.frombuffer(body, np.float32).reshape(-1, dimension)


def _map(request: Mapping[str, Any], body: bytes) -> tuple[Matrix, Matrix]:
    outputs, inputs = request["shape"]
    numbers = np.frombuffer(body, np.float32)
    return numbers[: outputs * inputs].reshape(outputs, inputs), numbers[outputs * inputs :]


def _write(index: Any, path: str) -> None:
    """Write an index, and wait until the disk has it."""
    faiss.write_index(index, path)
    with Path(path).open("rb") as file:
        os.fsync(file.fileno())


def _limit(more: int | None) -> None:
    """Let this process take at most so many bytes more than it has now; as many as it wants for `None`."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        soft = hard if more is None else pages * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def main() -> None:
    """Answer requests until standard input ends."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    source = sys.stdin.buffer
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what FAISS prints is no answer
    worker = _Worker()
    while _next(source, worker):
        line = source.readline()
        if not line:
            return
        request = json.loads(line)
        told, data = _safely(worker, request, source.read(request.get("bytes", 0)))
        text = json.dumps(told).encode()
        out.write(struct.pack("<QQ", len(text), len(data)) + text)
        out.write(data)
        out.flush()


def _next(source: IO[bytes], worker: _Worker) -> bool:
    """Wait for a request; after a while without one, let the index go."""
    if worker.index is not None and not select.select([source], [], [], IDLE)[0]:
        worker.forget()
    return True


def _safely(worker: _Worker, request: Mapping[str, Any], body: bytes) -> Answer:
    try:
        answer, data = worker.answer(request, body)
    except IndexRefusedError as error:
        told = str(error)
    except MemoryError:
        told = "takes more memory than it may; if it is sound, give it more with EMBEDWATCH_INDEX_MEMORY (bytes)"
    except Exception as error:  # noqa: BLE001  # whatever FAISS raises, the other side tells it
        reason = f"{type(error).__name__}: {_short(str(error))}"
        told = f"cannot be used by FAISS {faiss.__version__} ({reason}); write it again with faiss.write_index"
    else:
        return {"answer": answer}, data
    if request["do"] == "open":
        worker.forget()
    return {"refused": told}, b""
