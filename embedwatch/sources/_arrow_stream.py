"""Arrow's IPC format, as a stream or a file in memory: record batches of vectors from somebody else.

Nothing is believed before it is checked: dictionaries are refused, and so are buffers compressed inside the format,
which say themselves how much memory they want.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from embedwatch.core.errors import EmbedwatchError, InputError
from embedwatch.sources._vector_columns import find_columns, first_length, matrix_of, texts_of

__all__ = ["ArrowRows", "read_arrow"]

FILE_MAGIC = b"ARROW1\x00\x00"
"""An IPC file is a stream between these bytes and a footer, which a reader of the stream does not need."""
VECTORS, IDS, LABELS, SEGMENT = "vectors", "ids", "labels", b"segment"
MOST_COLUMNS = 10_000
WHAT = "the Arrow stream"
HEADER_FIELD, COMPRESSION_FIELD = 2, 3
"""Numbers of the fields in the tables Message and RecordBatch of Arrow's Message.fbs."""

ArrowRows = tuple[Tensor, list[int] | None, list[str | None] | None, str | None]
"""Rows (N, D), ids, labels, segment."""


def read_arrow(body: bytes, *, most_rows: int, most_bytes: int) -> ArrowRows:
    """Return the vectors of an Arrow IPC stream or file.

    The vectors are the column `vectors` of lists of floats, or the only such column, or else all columns of floats.
    Columns `ids` (whole numbers) and `labels` (texts), and `segment` in the schema's metadata, are optional.

    Args:
        body: all of it.
        most_rows: of all record batches.
        most_bytes: that the rows may take in memory.

    Raises:
        InputError: if it is damaged, holds no vectors or too many.
    """
    try:
        stream = memoryview(body)[len(FILE_MAGIC) :] if body.startswith(FILE_MAGIC) else memoryview(body)
        return _read(stream, most_rows, most_bytes)
    except InputError:
        raise
    except (EmbedwatchError, pa.ArrowException, OSError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        kind = "vectors that can be told from the rest" if isinstance(error, EmbedwatchError) else "a sound stream"
        raise InputError(f"{WHAT} must hold {kind}, got none; send a column `vectors` of lists of float32") from None
    except struct.error:
        raise InputError(f"{WHAT} must hold a sound stream, got damaged messages; write it again") from None


def _read(stream: memoryview, most_rows: int, most_bytes: int) -> ArrowRows:
    buffer = pa.py_buffer(stream)
    _check_messages(buffer)
    with pa.ipc.open_stream(buffer, options=pa.ipc.IpcReadOptions(use_threads=False)) as reader:
        schema = reader.schema
        _check_schema(schema)
        labelled = LABELS if LABELS in schema.names else None
        try:
            select = VECTORS if VECTORS in schema.names else None
            columns = find_columns(WHAT, schema, select=select, labels=labelled)
        except InputError:
            raise InputError(
                f"{WHAT} must hold a column of lists of floats, got none; call it `vectors`, of float32"
            ) from None
        parts: list[Tensor] = []
        ids: list[int] = []
        labels: list[str | None] = []
        count, dimension = 0, columns.dimension
        for batch in reader:
            batch.validate(full=True)
            count += len(batch)
            if dimension is None:
                dimension = first_length(batch.column(columns.vectors[0]))
            if count > most_rows or count * (dimension or 1) * columns.dtype.itemsize > most_bytes:
                raise InputError(f"{WHAT} must hold at most {most_rows:,} rows, of {most_bytes:,} bytes; send less")
            if not len(batch):
                continue
            if dimension is None:
                raise InputError(f"{WHAT} must hold vectors, got none in its first rows; leave missing ones out")
            parts.append(_matrix(batch, columns, dimension))
            if IDS in schema.names:
                ids += _whole(batch.column(IDS))
            if labelled:
                labels += texts_of(batch.column(labelled))
    if not parts:
        raise InputError(f"{WHAT} must hold at least one row, got 0; send none at all")
    segment = (schema.metadata or {}).get(SEGMENT)
    return (
        torch.cat(parts),
        ids if IDS in schema.names else None,
        labels if labelled else None,
        None if segment is None else segment.decode("utf-8"),
    )


def _matrix(batch: Any, columns: Any, dimension: int) -> Tensor:
    try:
        return matrix_of(batch, columns, dimension, WHAT, 0)
    except InputError:
        raise InputError(f"{WHAT} must hold vectors of one length, got several; send one Space at a time") from None


def _whole(column: Any) -> list[int]:
    if not pa.types.is_integer(column.type) or column.null_count:
        raise InputError(f"{WHAT} must have whole numbers in `ids`, none missing, got others; leave the column out")
    found: list[int] = column.to_pylist()
    return found


def _check_schema(schema: Any) -> None:
    if len(schema) > MOST_COLUMNS:
        raise InputError(f"{WHAT} must have at most {MOST_COLUMNS:,} columns, got more; send one column of lists")
    if len(set(schema.names)) < len(schema):
        raise InputError(f"{WHAT} must have one column of each name, got two; rename one")
    for name, wanted in ((LABELS, (pa.string(), pa.large_string())),):
        if name in schema.names and schema.field(name).type not in wanted:
            raise InputError(f"{WHAT} must have texts in `{name}`, got another type; cast the column to string")


def _check_messages(buffer: Any) -> None:
    """Refuse what would make the reader allocate by what the stream says of itself."""
    for message in _messages(buffer):
        if message.type == "dictionary":
            raise InputError(f"{WHAT} must hold plain columns, got a dictionary; cast it to its values")
        if message.type == "record batch" and _is_compressed(message.metadata.to_pybytes()):
            raise InputError(f"{WHAT} must hold plain buffers, got compressed ones; compress the whole body instead")


def _messages(buffer: Any) -> Iterator[Any]:
    reader = pa.ipc.MessageReader.open_stream(buffer)
    while True:
        try:
            yield reader.read_next_message()
        except StopIteration:
            return


def _is_compressed(message: bytes) -> bool:
    """Whether a flatbuffer Message holds a RecordBatch with the field `compression`."""
    root = struct.unpack_from("<I", message, 0)[0]
    header = _field(message, root, HEADER_FIELD)
    if header is None:
        return False
    batch = header + struct.unpack_from("<I", message, header)[0]
    return _field(message, batch, COMPRESSION_FIELD) is not None


def _field(message: bytes, table: int, number: int) -> int | None:
    """Return the position of a field in a table of a flatbuffer, `None` where it is not there."""
    vtable = table - struct.unpack_from("<i", message, table)[0]
    size = struct.unpack_from("<H", message, vtable)[0]
    place = 4 + 2 * number
    offset = struct.unpack_from("<H", message, vtable + place)[0] if place + 2 <= size else 0
    return table + offset if offset else None
