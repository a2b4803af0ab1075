"""Large bytes without holding up the other threads: copied in pieces, and tensors written and read as safetensors.

Python copies bytes, and the library safetensors copies tensors, while no other thread of Python runs: a copy of
19 MB held scrapes up for 10 to 20 ms. Here no copy holds the interpreter's lock for more than a piece.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["PIECE", "Bytes", "joined", "pieces", "tensors_from", "tensors_to_bytes"]

PIECE = 1 << 20
"""Bytes that are copied at once: a fraction of a millisecond."""
Bytes = bytes | memoryview
PREFIX = struct.Struct("<Q")
"""Length of the header of safetensors."""
ALIGNMENT = 8
"""Of the first tensor in a file, and of the largest numbers in it."""
METADATA = "__metadata__"
MOST_AXES = 8
KINDS: Mapping[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""Names of the types of numbers that are written and read, as safetensors has them."""
NAMES = {kind: name for name, kind in KINDS.items()}


def pieces(data: Bytes) -> Iterator[bytes]:
    """Yield copies of `PIECE` bytes at the most; what is short enough is not copied.

    Example:
        >>> [len(piece) for piece in pieces(memoryview(bytes(PIECE + 5)))]
        [1048576, 5]
    """
    if isinstance(data, bytes) and len(data) <= PIECE:
        yield data
        return
    view = memoryview(data)
    for start in range(0, len(view), PIECE):
        yield bytes(view[start : start + PIECE])


def joined(parts: Iterable[Bytes]) -> bytes:
    """Return all parts as one.

    Example:
        >>> joined([b"one ", memoryview(b"two")])
        b'one two'
    """
    # `join` lets others run while it copies, though only if each part is bytes: bytes alone never change meanwhile
    whole = [part if isinstance(part, bytes) else b"".join(pieces(part)) for part in parts]
    return whole[0] if len(whole) == 1 else b"".join(whole)


def tensors_to_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """Return tensors in the format of safetensors, the largest numbers first.

    Args:
        tensors: of the types in `KINDS`.
        metadata: texts beside them.

    Raises:
        KeyError: for another type of numbers.

    Example:
        >>> data = tensors_to_bytes({"x": torch.ones(2)}, {"about": "two ones"})
        >>> tensors_from(memoryview(data), json.loads(data[8:-8]))
        {'x': tensor([1., 1.])}
    """
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    header: dict[str, Any] = {METADATA: dict(metadata)}
    parts: list[bytes] = []
    end = 0
    for name, tensor in ordered:
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
        parts += pieces(_memory(tensor))
    text = json.dumps(header, allow_nan=False).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return b"".join([PREFIX.pack(len(text)), text, *parts])


def _memory(tensor: Tensor) -> memoryview:
    """Return the numbers of a tensor as bytes, without a copy where it lies on the CPU in its order."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")


def tensors_from(data: Bytes, header: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, each in memory of its own.

    Args:
        data: the whole file.
        header: its header, as JSON says it.

    Raises:
        ValueError: if the header does not describe the rest of the file, byte for byte.
    """
    numbers = memoryview(data)[PREFIX.size + PREFIX.unpack_from(data)[0] :]
    found: dict[str, Tensor] = {}
    places: list[tuple[int, int]] = []
    for name, entry in header.items():
        if name == METADATA:
            _check(isinstance(entry, dict) and all(isinstance(text, str) for text in entry.values()))
            continue
        kind, shape, begin, end = _entry(entry)
        _check(end <= len(numbers) and end - begin == math.prod(shape) * kind.itemsize)
        places.append((begin, end))
        copied = np.array(np.frombuffer(numbers[begin:end], np.uint8))
        found[name] = torch.from_numpy(copied).view(kind).reshape(shape) if end > begin else _empty(kind, shape)
    last = 0
    for begin, end in sorted(places):
        _check(begin == last)
        last = end
    _check(last == len(numbers))
    return found


def _empty(kind: torch.dtype, shape: list[int]) -> Tensor:
    return torch.empty(shape, dtype=kind, device="cpu")


def _entry(entry: Any) -> tuple[torch.dtype, list[int], int, int]:
    """Return type, shape and place of one tensor."""
    _check(isinstance(entry, dict) and entry.keys() == {"dtype", "shape", "data_offsets"})
    name, shape, place = entry["dtype"], entry["shape"], entry["data_offsets"]
    _check(isinstance(name, str) and name in KINDS and isinstance(shape, list) and isinstance(place, list))
    _check(all(type(number) is int and 0 <= number < 1 << 63 for number in (*shape, *place)))
    _check(len(shape) <= MOST_AXES and len(place) == 2 and place[0] <= place[1])
    return KINDS[name], shape, *place


def _check(held: bool) -> None:  # noqa: FBT001 -- a condition
    if not held:
        raise ValueError("the header does not describe the file")
