"""Bodies that are meant to do harm, over the wire: each with the statuses that may answer it."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import zstandard

from tests.daemon.serving import npy

__all__ = ["ATTACKS", "Attack"]

NPY, JSON, STREAM = "application/x-npy", "application/json", "application/vnd.apache.arrow.stream"
FILE, NPZ, PARCEL = "application/vnd.apache.arrow.file", "application/x-npz", "application/vnd.embedwatch.parcel"
CHUNK = bytes(1 << 16)
CHUNKS = 1 << 12
"""256 MiB of them."""
BOMB = 1 << 30
"""Bytes that a bomb unpacks to."""
DEPTH = 1_000_000
HUGE = 2**31 - 1


class Attack(NamedTuple):
    """A body, made anew each time, and what may answer it."""

    kind: str
    body: Callable[[], bytes | Iterator[bytes]]
    statuses: tuple[int, ...]
    encoding: str = "identity"
    ingest: bool = True

    @property
    def path(self) -> str:
        """Where it is sent."""
        return "/api/v1/ingest/hostile/p" if self.ingest else "/api/v1/parcels"

    @property
    def headers(self) -> Mapping[str, str]:
        """What it is sent with, beside its type."""
        return {"Content_Encoding": self.encoding}


def _saved(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def _header(shape: str, tail: bytes = b"") -> bytes:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + tail


def _gzip_bomb() -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [packer.compress(CHUNK) for _ in range(BOMB // len(CHUNK))]
    return b"".join([*parts, packer.flush()])


def _zstd_bomb() -> bytes:
    packer = zstandard.ZstdCompressor(level=1).compressobj()
    parts = [packer.compress(CHUNK) for _ in range(BOMB // len(CHUNK))]
    return b"".join([*parts, packer.flush()])


def _arrow() -> bytes:
    table = pa.table({"vectors": pa.array([[1.0, 2.0]] * 40, pa.list_(pa.float32()))})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _arrow_lengths() -> bytes:
    """Return a stream whose lengths of rows and buffers promise what is not there."""
    return _arrow().replace(struct.pack("<q", 40), struct.pack("<q", HUGE))


def _arrow_metadata() -> bytes:
    """Return a stream whose first message claims two gigabytes of metadata."""
    body = bytearray(_arrow())
    body[4:8] = struct.pack("<i", HUGE)
    return bytes(body)


def _parcel_header() -> bytes:
    return struct.pack("<8sI", b"EWPARCEL", 2**32 - 1) + b"{"


def _safetensors_header() -> bytes:
    """Return a sealed parcel whose payload claims a header of exabytes."""
    from embedwatch.core.snapshot import Space
    from embedwatch.parcels import Parcel

    payload = struct.pack("<Q", 2**62) + b"{}"
    return Parcel(Space("m", "p"), "", "state", 40, 6, "hostile", 0, 5.0, payload=payload).to_bytes()


def _chunks() -> Iterator[bytes]:
    return iter(CHUNK for _ in range(CHUNKS))


ATTACKS: dict[str, Attack] = {
    "array of objects": Attack(NPY, lambda: _saved(np.array([[{1}]], dtype=object)), (400,)),
    "pickle as npy": Attack(NPY, lambda: pickle.dumps([[1.0]]), (400,)),
    "pickle as its own type": Attack("application/x-python-pickle", lambda: pickle.dumps([[1.0]]), (415,)),
    "header claims 16 TB": Attack(NPY, lambda: _header("(1000000000, 4096)", bytes(64)), (400,)),
    "header overflows 64 bits": Attack(NPY, lambda: _header("(4611686018427387904, 8)", bytes(64)), (400,)),
    "256 MiB in chunks": Attack(NPY, _chunks, (413,)),
    "gzip bomb of 1 GiB": Attack(NPY, _gzip_bomb, (413,), "gzip"),
    "zstd bomb of 1 GiB": Attack(NPY, _zstd_bomb, (413,), "zstd"),
    "gzip in gzip": Attack(NPY, lambda: gzip.compress(gzip.compress(npy())), (400,), "gzip"),
    "JSON of a million levels": Attack(JSON, lambda: b"[" * DEPTH + b"]" * DEPTH, (400,)),
    "JSON number of a million digits": Attack(JSON, lambda: b"[[" + b"9" * DEPTH + b"]]", (400,)),
    "JSON of a million empty rows": Attack(JSON, lambda: json.dumps([[]] * DEPTH).encode(), (400,)),
    "Arrow with wrong lengths": Attack(STREAM, _arrow_lengths, (400,)),
    "Arrow claims 2 GB of metadata": Attack(STREAM, _arrow_metadata, (400,)),
    "Arrow file of nothing": Attack(FILE, lambda: b"ARROW1\0\0" + bytes(64) + b"ARROW1", (400,)),
    "npz that is no zip": Attack(NPZ, lambda: b"PK\x03\x04" + bytes(1_000), (400,)),
    "parcel header of 4 GiB": Attack(PARCEL, _parcel_header, (400,), ingest=False),
    "safetensors header of exabytes": Attack(PARCEL, _safetensors_header, (400,), ingest=False),
}
