"""Rows out of bodies: npy, npz, JSON and Arrow. Nothing is unpickled, and nothing allocated that a header promises."""

from __future__ import annotations

import io
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from embedwatch.core.errors import InputError
from embedwatch.core.strict_json import strict_json
from embedwatch.daemon.json_rows import numbers_of, split_rows
from embedwatch.large_bytes import PIECE

# Helpers of sources, which read the same formats from files.
from embedwatch.sources._npy_header import read_header

__all__ = ["Fields", "from_arrow", "from_json", "from_npy", "from_npz"]

MEMBERS = ("vectors", "ids", "labels", "segment")
MOST_MEMBERS = 1_000
LAST_CODE = 0x10FFFF
FLOATS = {2: np.float16, 4: np.float32, 8: np.float64}
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, RuntimeError, ValueError)


@dataclass(frozen=True)
class Fields:
    """What a body holds, before it is compared.

    Args:
        rows: (N, D) floating point.
        ids, labels: one for each row, of whatever was sent.
        segment: of whatever was sent.
    """

    rows: Tensor
    ids: list[Any] | None = None
    labels: list[Any] | None = None
    segment: Any = None


def from_npy(body: bytes, limit: int) -> Fields:
    """Read one matrix as numpy.save writes it."""
    return Fields(_matrix(_array(body, limit)))


def from_npz(body: bytes, limit: int) -> Fields:
    """Read a zip of arrays as numpy.savez writes it; only those with known names, of `limit` bytes together."""
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            arrays = _members(archive, limit)
        ids, labels, segment = (arrays.get(name) for name in MEMBERS[1:])
        return Fields(
            _matrix(arrays["vectors"]),
            None if ids is None else _listed(ids),
            None if labels is None else _listed(labels),
            None if segment is None else segment.reshape(1).item(),
        )
    except KeyError:
        raise _refusal("an array `vectors`", "none") from None
    except InputError:
        raise
    except _DAMAGE:
        raise _refusal("a whole npz archive", "one that is damaged or cut off") from None


def _members(archive: zipfile.ZipFile, limit: int) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    members = archive.infolist()
    if len(members) > MOST_MEMBERS or len({info.filename for info in members}) < len(members):
        raise _refusal("a few arrays of different names", "others")
    for info in members:
        name = info.filename.removesuffix(".npy")
        if name in MEMBERS:
            data = _unpacked(archive, info, limit)
            limit -= len(data)
            arrays[name] = _array(data, len(data))
    return arrays


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo, limit: int) -> bytes:
    if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _refusal("arrays as numpy.savez_compressed packs them", "others")
    with archive.open(info) as file:
        parts = []
        while part := file.read(min(PIECE, limit + 1)):  # one read of all of it lets nothing else run meanwhile
            parts.append(part)
            limit -= len(part)
            if limit < 0:
                raise _refusal("less when unpacked", "too much")
    return b"".join(parts)


def _listed(array: NDArray[Any]) -> list[Any]:
    if array.ndim != 1 or array.dtype.kind not in "iuU":
        raise _refusal("`ids` of whole numbers and `labels` of texts, 1-D", "others")
    found: list[Any] = array.tolist()
    return found


def _array(data: bytes, limit: int) -> NDArray[Any]:
    """Return the array in an npy file; its header must promise as many bytes as there are."""
    file = io.BytesIO(data)
    try:
        header = read_header(file, "the body")
    except InputError:
        raise _refusal("an array as numpy.save writes it", "something else") from None
    if header.dtype.hasobject:
        raise _refusal("an array of floats", "Python objects, which only unpickling could read")
    if header.dtype.kind not in "fiuU" or header.dtype.itemsize == 0:
        raise _refusal("an array of floats", "values of another kind")
    if header.end > limit or header.end != len(data):
        raise _refusal("as many bytes as its header promises", "more or fewer")
    if header.end == header.offset:
        raise _refusal("at least one row", "0")
    values = np.frombuffer(data, header.dtype, offset=header.offset)
    if header.dtype.kind == "U" and values.view(header.dtype.str[0] + "u4").max() > LAST_CODE:
        raise _refusal("texts", "characters that Unicode does not have")
    return values.reshape(header.shape, order="F" if header.column_major else "C")


def _matrix(array: NDArray[Any]) -> Tensor:
    if array.dtype.kind != "f" or array.dtype.itemsize not in FLOATS:
        raise _refusal("floats of 2, 4 or 8 bytes", "numbers of another kind")
    if array.ndim != 2 or not array.shape[1]:
        raise _refusal("a matrix (N, D)", f"{array.ndim} axes or no dimensions")
    native = FLOATS[array.dtype.itemsize]
    with np.errstate(over="ignore"):
        return torch.from_numpy(np.array(array, dtype=native, order="C"))  # memory of its own


def from_json(body: bytes) -> Fields:
    """Read a list of vectors, or an object that holds them as `vectors`; null is a number that is missing."""
    rest, rows = split_rows(_text(body), "vectors")
    data = strict_json(rest, "the body")
    if isinstance(data, list):
        data = {"vectors": data}
    if not isinstance(data, dict) or not {"vectors"} <= data.keys() <= set(MEMBERS):
        raise _refusal(f"an object with `vectors`, and of {', '.join(MEMBERS[1:])} what there is", "others")
    matrix = numbers_of(rows, "the body") if rows and data["vectors"] == [] else None
    if matrix is None and (rows or data["vectors"] != []):
        raise _refusal("`vectors` as a list of lists of numbers, all of one length", "others")
    lists = (data.get("ids"), data.get("labels"))
    if not all(isinstance(values, list | None) for values in lists):
        raise _refusal("`ids` and `labels` as lists", "others")
    if any(isinstance(value, list | dict) for values in (*lists, [data.get("segment")]) for value in values or ()):
        raise _refusal("plain values in `ids`, `labels` and `segment`", "others")
    return Fields(_matrix(np.zeros((0, 1)) if matrix is None else matrix), *lists, data.get("segment"))


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        raise _refusal("JSON in UTF-8", "another coding") from None


def from_arrow(body: bytes, most_rows: int, most_bytes: int) -> Fields:
    """Read an Arrow IPC stream or file."""
    from embedwatch.sources._arrow_stream import read_arrow  # pyarrow takes its time to load

    return Fields(*read_arrow(body, most_rows=most_rows, most_bytes=most_bytes))


def _refusal(want: str, got: str) -> InputError:
    return InputError(f"the body must hold {want}, got {got}; send it as the description of the interface says")
