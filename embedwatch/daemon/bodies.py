"""Bodies of requests: compressed or not, rows in one of four formats, or a parcel. Hostile until checked."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import EmbedwatchError, InputError, MissingExtraError
from embedwatch.daemon.row_bodies import Fields, from_arrow, from_json, from_npy, from_npz

__all__ = [
    "ENCODINGS",
    "PARCEL_TYPE",
    "ROW_TYPES",
    "Limits",
    "TooLarge",
    "UnknownType",
    "decompressed",
    "read_rows",
]

PARCEL_TYPE = "application/vnd.embedwatch.parcel"
ENCODINGS = ("gzip", "zstd", "identity")
GZIP = 31
"""What zlib calls the window of a gzip member, with its header and checksum."""
CHUNK = 1 << 16
MOST_MEMBERS = 1_000
"""Members of a gzip body, or frames of a zstd body: millions of empty ones take long and say nothing."""
ZSTD_CHUNK = 256
"""A block of 128 KiB can hide in 4 bytes: so many bytes of input make 8 MB at most."""
ZSTD_WINDOW = 1 << 23
"""What RFC 8878 recommends that every decoder supports, and more than no stranger can ask for."""


class TooLarge(InputError):
    """A body, or what is packed in it, is larger than what is taken (HTTP 413)."""


class UnknownType(InputError):
    """A body is of a type or encoding that is not read (HTTP 415)."""


@dataclass(frozen=True)
class Limits:
    """What a body may hold.

    Args:
        body: bytes, unpacked, and bytes of rows in float32.
        json: bytes of a body of JSON, which takes up to twenty times as much while it is read.
        rows: of one body.
        dimension: D.
        groups: different labels.
        name: characters of a label.
    """

    body: int = 32 << 20
    json: int = 4 << 20
    rows: int = 1 << 18
    dimension: int = 1 << 16
    groups: int = 10_000
    name: int = 256


LIMITS = Limits()


def decompressed(body: bytes, encoding: str, *, limit: int) -> bytes:
    """Return a body without its `Content-Encoding`; at most `limit` bytes are ever made.

    Raises:
        TooLarge: if it would be larger.
        UnknownType: for an encoding that is not read.
        InputError: if it is damaged, cut off, or followed by something else.
        MissingExtraError: if the package for zstd is missing.

    Example:
        >>> import gzip
        >>> decompressed(gzip.compress(b"rows"), "gzip", limit=100)
        b'rows'
    """
    name = encoding.strip().lower()
    if name in ("gzip", "x-gzip"):
        return _gunzipped(body, limit)
    if name == "zstd":
        return _unzstd(body, limit)
    if name not in ("", "identity"):
        raise UnknownType(f"the body must be encoded as one of {', '.join(ENCODINGS)}, got another; choose one")
    _within(len(body), limit)
    return body


def _within(size: int, limit: int) -> None:
    if size > limit:
        raise TooLarge(f"the body must have at most {limit:,} bytes unpacked, got more; send fewer rows at a time")


class _Unpacked:
    """What was unpacked so far, in parts: joining them at the end lets others run, growing one does not."""

    def __init__(self, limit: int) -> None:
        self._limit, self._size, self._parts = limit, 0, list[bytes]()

    def add(self, part: bytes) -> None:
        if part:
            self._size += len(part)
            _within(self._size, self._limit)
            self._parts.append(part)

    def whole(self) -> bytes:
        return b"".join(self._parts)


def _gunzipped(body: bytes, limit: int) -> bytes:
    found, place = _Unpacked(limit), 0
    for _ in range(MOST_MEMBERS):
        member = zlib.decompressobj(GZIP)
        try:
            while not member.eof:
                waiting = member.unconsumed_tail
                fed = waiting or body[place : place + CHUNK]
                place += 0 if waiting else len(fed)
                made = member.decompress(fed, CHUNK)
                if not (fed or made or member.eof):
                    raise _damaged("gzip")
                found.add(made)
        except zlib.error:
            raise _damaged("gzip") from None
        place -= len(member.unused_data)
        if place == len(body):
            return found.whole()
    raise _damaged("gzip")


def _unzstd(body: bytes, limit: int) -> bytes:
    try:
        import zstandard
    except ModuleNotFoundError:
        raise MissingExtraError("bodies in zstd need the package zstandard; pip install 'embedwatch[daemon]'") from None
    found, place = _Unpacked(limit), 0
    for _ in range(MOST_MEMBERS):
        frame = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj()
        try:
            while not frame.eof:
                fed = body[place : place + ZSTD_CHUNK]
                if not fed:
                    raise _damaged("zstd")
                place += len(fed)
                found.add(frame.decompress(fed))
        except zstandard.ZstdError:
            raise _damaged("zstd") from None
        place -= len(frame.unused_data)
        if place == len(body):
            return found.whole()
    raise _damaged("zstd")


def _damaged(name: str) -> InputError:
    return InputError(f"the body must be whole {name}, got bytes that are damaged or cut off; send it again")


_READERS: dict[str, Callable[[bytes, Limits], Fields]] = {
    "application/x-npy": lambda body, limits: from_npy(body, limits.body),
    "application/x-npz": lambda body, limits: from_npz(body, limits.body),
    "application/json": lambda body, limits: from_json(body),
    "application/vnd.apache.arrow.stream": lambda body, limits: from_arrow(body, limits.rows, limits.body),
    "application/vnd.apache.arrow.file": lambda body, limits: from_arrow(body, limits.rows, limits.body),
}
"""Content type to what reads it."""
ROW_TYPES = tuple(_READERS)


def read_rows(body: bytes, content_type: str, *, limits: Limits = LIMITS, source: str = "") -> VectorBatch:
    """Return the rows of a body, in float32; NaN and Inf stay, since statistics count them.

    - `application/x-npy`: one matrix (N, D) of floats
    - `application/x-npz`: an array `vectors`; `ids`, `labels` and `segment` are optional
    - `application/json`: a list of vectors, or `{"vectors": [[…]], "ids": […], "labels": […], "segment": "…"}`
    - Arrow IPC, stream or file: a column `vectors`; `ids` and `labels`, and `segment` in the metadata, are optional

    Args:
        body: unpacked.
        content_type: as in the request; parameters are left out of account.
        limits: what it may hold.
        source: what tells these ids from those of others.

    Raises:
        TooLarge: if it holds too much.
        UnknownType: if nothing here reads its type.
        InputError: if it is not what it claims to be. No message shows what was sent.

    Example:
        >>> batch = read_rows(b'{"vectors": [[1, 2], [3, 4]], "labels": ["a", null]}', "application/json")
        >>> batch.rows.shape, batch.labels.tolist(), batch.groups
        (torch.Size([2, 2]), [0, -1], ['a'])
    """
    name = content_type.partition(";")[0].strip().lower()
    if name not in ROW_TYPES:
        raise UnknownType(f"the body must be of a type among {', '.join(ROW_TYPES)}, got another; name one of them")
    _within(len(body), min(limits.json, limits.body) if name == "application/json" else limits.body)
    fields = _READERS[name](body, limits)
    count, dimension = fields.rows.shape
    if not count:
        raise InputError("the body must hold at least one row, got 0; send none at all")
    if count > limits.rows or dimension > limits.dimension:
        raise TooLarge(
            f"the body must hold at most {limits.rows:,} rows of at most {limits.dimension:,} dimensions, "
            f"got {count:,} of {dimension:,}; send fewer at a time"
        )
    labels, groups = _coded(fields, count, limits)
    try:
        return VectorBatch(
            fields.rows.to(torch.float32), _ids(fields, count), labels, groups, source, _segment(fields, limits)
        )
    except InputError:
        raise
    except EmbedwatchError:
        raise InputError("the body must hold vectors (N, D) of floats, got something else; reshape them") from None


def _ids(fields: Fields, count: int) -> Tensor | None:
    if fields.ids is None:
        return None
    try:
        ids = torch.tensor(fields.ids, dtype=torch.int64)
    except (OverflowError, RuntimeError, TypeError, ValueError):
        ids = torch.zeros(0, dtype=torch.int64)
    whole = set(map(type, fields.ids)) <= {int}
    if not whole or ids.shape != (count,) or bool((ids < 0).any()) or len(ids.unique()) < count:
        raise InputError("`ids` must be one whole number from 0 for each row, each once, got others; leave them out")
    return ids


def _coded(fields: Fields, count: int, limits: Limits) -> tuple[Tensor | None, list[str]]:
    """Return the labels as numbers of groups, and the names of these."""
    if fields.labels is None:
        return None, []
    groups = {label: number for number, label in enumerate(dict.fromkeys(filter(_is_some, fields.labels)))}
    if len(fields.labels) != count or len(groups) > limits.groups or not all(_is_name(name, limits) for name in groups):
        raise InputError(
            f"`labels` must be one text of at most {limits.name} characters, or null, for each row, at most "
            f"{limits.groups:,} different ones, got others; name the group of each row"
        )
    codes = [groups.get(label, -1) if label is not None else -1 for label in fields.labels]
    return torch.tensor(codes, dtype=torch.int64), list(groups)


def _is_some(label: object) -> bool:
    return label is not None


def _is_name(name: object, limits: Limits) -> bool:
    if not isinstance(name, str) or len(name) > limits.name:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _segment(fields: Fields, limits: Limits) -> str:
    if fields.segment is None:
        return "all"
    if not _is_name(fields.segment, limits) or not fields.segment:
        raise InputError(f"`segment` must be a text of 1 to {limits.name} characters, got another; leave it out")
    return str(fields.segment)
