"""Bodies: what is sound is read the same in every format, and what is hostile is answered in one line."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
import zstandard

from embedwatch.core.errors import InputError
from embedwatch.daemon.bodies import ROW_TYPES, Limits, TooLarge, UnknownType, decompressed, read_rows
from tests.daemon.parcels import read_parcel

NPY, NPZ, JSON, STREAM, FILE = ROW_TYPES
VECTORS = np.array([[1.0, 2.5], [-3.0, 0.0], [0.5, 1e-3]], np.float32)
IDS, LABELS = [7, 0, 3], ["a", "b", "a"]
LIMITS = Limits(body=1 << 20, json=1 << 16, rows=100, dimension=64)
SMALL = 24 << 20
"""Bytes that reading a small hostile body may take at most."""


def npy(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def arrow(columns: dict[str, Any], *, file: bool = False, metadata: Any = None, **options: Any) -> bytes:
    table = pa.table(columns).replace_schema_metadata(metadata)
    sink = io.BytesIO()
    made = pa.ipc.new_file if file else pa.ipc.new_stream
    with made(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue()


COLUMNS = {
    "vectors": pa.array(VECTORS.tolist(), pa.list_(pa.float32())),
    "ids": pa.array(IDS),
    "labels": pa.array(LABELS),
}
SOUND = {
    NPZ: npz(vectors=VECTORS, ids=np.array(IDS), labels=np.array(LABELS), segment=np.array("de")),
    JSON: json.dumps({"vectors": VECTORS.tolist(), "ids": IDS, "labels": LABELS, "segment": "de"}).encode(),
    STREAM: arrow(COLUMNS, metadata={"segment": "de"}),
    FILE: arrow(COLUMNS, metadata={"segment": "de"}, file=True),
}


@pytest.mark.parametrize("kind", SOUND)
def test_all_formats_say_the_same(kind: str) -> None:
    batch = read_rows(SOUND[kind], f"{kind.upper()}; charset=utf-8", limits=LIMITS, source="s")
    assert torch.equal(batch.rows, torch.from_numpy(VECTORS))
    assert batch.ids is not None
    assert batch.labels is not None
    assert (batch.ids.tolist(), batch.labels.tolist(), list(batch.groups)) == (IDS, [0, 1, 0], ["a", "b"])
    assert (batch.segment, batch.source) == ("de", "s")
    assert batch.keys.tolist() == read_rows(SOUND[NPZ], NPZ, source="s").keys.tolist()


@pytest.mark.parametrize("dtype", ["<f2", ">f2", "<f4", ">f4", "<f8", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_floats_of_every_size_and_order_become_float32(dtype: str, order: Any) -> None:
    given = np.asarray(VECTORS.astype(dtype), order=order)
    batch = read_rows(npy(given), NPY)
    assert batch.rows.dtype == torch.float32
    assert np.array_equal(batch.rows.numpy(), given.astype(np.float32))
    assert batch.ids is None
    assert batch.labels is None


def test_what_is_not_finite_stays_for_statistics_to_count() -> None:
    rows = read_rows(npy(np.array([[np.nan, 1.0], [np.inf, 1e300]])), NPY).rows
    assert rows.isnan().tolist() == [[True, False], [False, False]]
    assert rows.isinf().tolist() == [[False, False], [True, True]]
    assert read_rows(b"[[null, 1]]", JSON).rows.isnan().tolist() == [[True, False]]
    missing = arrow({"vectors": pa.array([[1.0, 2.0], None, [None, 3.0]], pa.list_(pa.float64()))})
    assert read_rows(missing, STREAM).rows.isnan().tolist() == [[False] * 2, [True] * 2, [True, False]]


def test_arrow_takes_extensions_of_lists_and_columns_of_numbers() -> None:
    tensors = pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.float32(), (2,)), pa.array(VECTORS.tolist(), pa.list_(pa.float32(), 2))
    )
    assert np.array_equal(read_rows(arrow({"anything": tensors}), STREAM).rows.numpy(), VECTORS)
    columns = {"x": pa.array(VECTORS[:, 0]), "y": pa.array(VECTORS[:, 1])}
    assert np.array_equal(read_rows(arrow(columns), STREAM).rows.numpy(), VECTORS)


def header(text: str, tail: bytes = b"") -> bytes:
    """Return an npy file with any header."""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + tail


def zipped(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return file.getvalue()


OBJECTS = np.array([[1, "secret"]], dtype=object)
TERABYTES = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000, 4096), }"
HOSTILE: dict[str, tuple[str, bytes]] = {
    "npy objects": (NPY, npy(OBJECTS, allow_pickle=True)),
    "npy pickle": (NPY, b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x06secret\x94."),
    "npy terabytes": (NPY, header(TERABYTES, b"\0" * 64)),
    "npy overflow": (NPY, header(TERABYTES.replace("4096", "4611686018427387904"), b"\0" * 64)),
    "npy negative": (NPY, header(TERABYTES.replace("1000000000", "-1"))),
    "npy nested": (NPY, header("(" * 9_000)),
    "npy truncated": (NPY, npy(VECTORS)[:-1]),
    "npy trailing": (NPY, npy(VECTORS) + b"\0"),
    "npy 3-D": (NPY, npy(VECTORS[None])),
    "npy 1-D": (NPY, npy(VECTORS[0])),
    "npy 0-D": (NPY, npy(np.float32(1))),
    "npy no rows": (NPY, npy(VECTORS[:0])),
    "npy no dimensions": (NPY, npy(VECTORS[:, :0])),
    "npy whole": (NPY, npy(VECTORS.astype(np.int64))),
    "npy complex": (NPY, npy(VECTORS.astype(np.complex64))),
    "npy records": (NPY, npy(np.zeros(3, dtype=[("secret", "f4")]))),
    "npy long": (NPY, npy(VECTORS.astype(np.longdouble))),
    "npy empty": (NPY, b""),
    "npz empty": (NPZ, b""),
    "npz no vectors": (NPZ, npz(secret=VECTORS)),
    "npz objects": (NPZ, zipped(vectors=npy(OBJECTS, allow_pickle=True))),
    "npz bomb": (NPZ, zipped(vectors=header(TERABYTES, b"\0" * (64 << 20)))),
    "npz terabytes": (NPZ, zipped(vectors=header(TERABYTES))),
    "npz truncated": (NPZ, npz(vectors=VECTORS)[:-30]),
    "npz text beyond Unicode": (
        NPZ,
        zipped(
            vectors=npy(VECTORS),
            labels=header("{'descr': '<U1', 'fortran_order': False, 'shape': (3,), }", b"\xff" * 12),
        ),
    ),
    "json NaN": (JSON, b"[[NaN]]"),
    "json Infinity": (JSON, b'{"vectors": [[-Infinity]]}'),
    "json deep": (JSON, b"[" * 50_000),
    "json huge": (JSON, b"[[" + b"9" * 5_000 + b"]]"),
    "json twice": (JSON, b'{"vectors": [[1]], "vectors": [[2]]}'),
    "json not UTF-8": (JSON, b'{"vectors": [[1]], "segment": "\xff"}'),
    "json UTF-16": (JSON, "[[1]]".encode("utf-16")),
    "json surrogate": (JSON, b'{"vectors": [[1]], "segment": "\\ud800"}'),
    "json trailing": (JSON, b"[[1]] [[2]]"),
    "json texts": (JSON, b'[["1"]]'),
    "json true": (JSON, b"[[true]]"),
    "json ragged": (JSON, b"[[1], [1, 2]]"),
    "json 3-D": (JSON, b"[[[1]]]"),
    "json no rows": (JSON, b"[]"),
    "json no dimensions": (JSON, b"[[]]"),
    "json other name": (JSON, b'{"vectors": [[1]], "secret": 1}'),
    "json number": (JSON, b"1"),
    "json ids twice": (JSON, b'{"vectors": [[1], [2]], "ids": [1, 1]}'),
    "json ids below 0": (JSON, b'{"vectors": [[1]], "ids": [-1]}'),
    "json ids beyond": (JSON, b'{"vectors": [[1]], "ids": [9223372036854775808]}'),
    "json ids true": (JSON, b'{"vectors": [[1]], "ids": [true]}'),
    "json ids missing": (JSON, b'{"vectors": [[1], [2]], "ids": [1]}'),
    "json labels": (JSON, b'{"vectors": [[1]], "labels": [1]}'),
    "json label long": (JSON, json.dumps({"vectors": [[1]], "labels": ["secret" * 100]}).encode()),
    "json label list": (JSON, b'{"vectors": [[1]], "labels": [["a"]]}'),
    "json segment": (JSON, b'{"vectors": [[1]], "segment": 3}'),
    "arrow dictionary": (STREAM, arrow({**COLUMNS, "labels": pa.array(LABELS).dictionary_encode()})),
    "arrow compressed": (STREAM, arrow(COLUMNS, compression="zstd")),
    "arrow null": (STREAM, arrow({"vectors": pa.nulls(1_000_000)})),
    "arrow nested": (STREAM, arrow({"vectors": pa.array([[[1.0]]])})),
    "arrow whole": (STREAM, arrow({"vectors": pa.array([[1, 2]])})),
    "arrow ragged": (STREAM, arrow({"vectors": pa.array([[1.0], [1.0, 2.0]])})),
    "arrow no rows": (STREAM, arrow({"vectors": pa.array([], pa.list_(pa.float32()))})),
    "arrow ambiguous": (STREAM, arrow({"secret": COLUMNS["vectors"], "b": COLUMNS["vectors"]})),
    "arrow ids": (STREAM, arrow({**COLUMNS, "ids": pa.array([1.0, 2.0, 3.0])})),
    "arrow id missing": (STREAM, arrow({**COLUMNS, "ids": pa.array([1, None, 3])})),
    "arrow truncated": (STREAM, SOUND[STREAM][:-60]),
    "arrow empty": (STREAM, b""),
    "arrow segment": (STREAM, arrow(COLUMNS, metadata={"segment": b"\xff"})),
}


def refused(read: Callable[[], object]) -> str:
    """Return the one line that answers a body, which showed nothing of it and took little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as error:
            read()
        assert tracemalloc.get_traced_memory()[1] < SMALL
    finally:
        tracemalloc.stop()
    text = str(error.value)
    assert "\n" not in text
    assert "; " in text, "it says what to do"
    assert len(text) < 300
    assert "secret" not in text
    return text


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_rows_are_answered_in_one_line(name: str) -> None:
    kind, body = HOSTILE[name]
    refused(lambda: read_rows(body, kind, limits=LIMITS))


@pytest.mark.parametrize("kind", SOUND)
def test_a_body_cut_off_anywhere_is_answered(kind: str) -> None:
    for end in range(0, len(SOUND[kind]) - 1, 7):
        try:
            read_rows(SOUND[kind][:end], kind, limits=LIMITS)
        except InputError:
            continue
        assert kind in (STREAM, FILE), "only Arrow may lose what lies behind its last rows"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (npy(np.zeros((101, 1), np.float32)), NPY),
        (npy(np.zeros((1, 65), np.float32)), NPY),
        (npy(np.zeros((100, 4_000))), NPY),
        (b" " * (LIMITS.json + 1), JSON),
    ],
)
def test_too_much_is_told_apart(body: bytes, kind: str) -> None:
    with pytest.raises(TooLarge, match="at most"):
        read_rows(body, kind, limits=LIMITS)


def test_too_many_arrow_rows_are_not_made() -> None:
    body = arrow({"vectors": pa.array(np.zeros((101, 2)).tolist())})
    assert "at most 100 rows" in refused(lambda: read_rows(body, STREAM, limits=LIMITS))


@pytest.mark.parametrize("kind", ["text/plain", "", "application/x-pickle", "application/octet-stream"])
def test_other_types_are_told_apart(kind: str) -> None:
    with pytest.raises(UnknownType, match="application/x-npy"):
        read_rows(b"", kind)


TEXT = b"rows " * 1_000
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda body: gzip.compress(body, mtime=0),
    "zstd": zstandard.compress,
}


@pytest.mark.parametrize("name", PACKED)
def test_compressed_bodies_come_out_whole(name: str) -> None:
    pack = PACKED[name]
    assert decompressed(pack(TEXT), f" {name.upper()} ", limit=len(TEXT)) == TEXT
    assert decompressed(pack(TEXT) * 3, name, limit=len(TEXT) * 3) == TEXT * 3
    noise = np.random.default_rng(0).bytes(3 << 20)
    assert decompressed(pack(noise), name, limit=len(noise)) == noise
    assert decompressed(pack(b""), name, limit=0) == b""


@pytest.mark.parametrize("name", PACKED)
def test_bombs_are_not_unpacked(name: str) -> None:
    bomb = PACKED[name](b"\0" * (256 << 20))
    tracemalloc.start()
    with pytest.raises(TooLarge, match="at most 1,000,000 bytes"):
        decompressed(bomb, name, limit=1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < SMALL


@pytest.mark.parametrize("name", PACKED)
def test_damaged_compression_is_answered(name: str) -> None:
    whole = PACKED[name](TEXT)
    for body in (b"", whole[:-1], whole + b"x", whole[1:], whole + whole[:-2], PACKED[name](b"") * 1_001):
        assert f"whole {name}" in refused(lambda body=body: decompressed(body, name, limit=1 << 20))  # type: ignore[misc]


def test_a_zstd_window_of_gigabytes_is_not_made() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
    frame = zstandard.ZstdCompressor(compression_params=parameters).compressobj()  # size unknown: the window counts
    body = frame.compress(TEXT) + frame.flush()
    refused(lambda: decompressed(body, "zstd", limit=1 << 20))


@pytest.mark.parametrize("name", ["deflate", "br", "gzip, gzip", "secret"])
def test_other_encodings_are_told_apart(name: str) -> None:
    with pytest.raises(UnknownType, match="gzip, zstd, identity"):
        decompressed(zlib.compress(TEXT), name, limit=1 << 20)


def test_identity_is_limited_as_well() -> None:
    assert decompressed(TEXT, "", limit=len(TEXT)) == TEXT
    with pytest.raises(TooLarge):
        decompressed(TEXT, "identity", limit=len(TEXT) - 1)


@pytest.mark.parametrize("body", [b"", b"EWPARCEL", b"EWPARCEL\xff\xff\xff\xff{}", b"\x80\x04secret."])
def test_what_is_no_parcel_is_answered(body: bytes) -> None:
    assert "parcel" in refused(lambda: read_parcel(body))
