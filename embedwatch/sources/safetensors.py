"""safetensors: one tensor out of a `.safetensors` file."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import torch

from embedwatch.core.errors import InputError
from embedwatch.sources._file_source import Block, FileSource
from embedwatch.sources._files import has_suffix, head, reading, require_file
from embedwatch.sources._messages import (
    check_shape,
    choose,
    clean,
    count_of,
    first_line,
    is_shape,
    label_of,
    listed,
    shown,
)
from embedwatch.sources._stored import StoredMatrix

__all__ = ["SafetensorsSource"]

LENGTH_BYTES = 8
MAX_HEADER = 100_000_000
"""The format's own limit."""
FLOAT_TYPES = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}

Entry = tuple[str, tuple[int, ...], int, int]
"""Type, shape, begin and end of a tensor, the positions counted from the start of the file."""


class SafetensorsSource(FileSource):
    """One matrix (N, D) of floats out of a safetensors file: float16, bfloat16, float32 or float64.

    `select` names the tensor where several are matrices of floats, as in a model's checkpoint (its token table is
    often called `embeddings.word_embeddings.weight` or `model.embed_tokens.weight`). The file is read without the
    `safetensors` package: that maps the file, and a map of a file that is cut while it is read kills the process.

    References:
        https://huggingface.co/docs/safetensors, "Format".
    """

    name = "safetensors"
    title = "safetensors"
    suffixes = (".safetensors",)

    @classmethod
    def accepts(cls, path: Path) -> bool:
        """Return whether it ends in `.safetensors`, or begins with a length that fits in the file and a JSON object."""
        if has_suffix(path, cls.suffixes):
            return True
        start = head(path, LENGTH_BYTES + 2)
        length = int.from_bytes(start[:LENGTH_BYTES], "little")
        return start[LENGTH_BYTES:] == b'{"' and length <= MAX_HEADER

    @classmethod
    def open(cls, path: Path, *, select: str | None = None, labels: str | None = None) -> SafetensorsSource:
        """Read the header."""
        cls.refuse_options(labels=labels)
        label = label_of(path)
        entries = _read_entries(path, label, require_file(path))
        matrices = {name: entry for name, entry in entries.items() if len(entry[1]) == 2 and entry[0] in FLOAT_TYPES}
        if not matrices and select is None and len(entries) != 1:
            held = [f"{name} {entry[0]} {entry[1]}" for name, entry in entries.items()]
            raise InputError(
                f"{label} holds no 2-D tensor of floats ({listed(held) or 'nothing'}); save the vectors as one"
            )
        known = matrices if matrices and select is None else entries
        # Token tables first: of a checkpoint's hundreds of matrices they are what people look for.
        known = dict(sorted(known.items(), key=lambda item: "embed" not in item[0]))
        chosen, entry = choose(label, "tensor", known, select)
        return cls(path, f"{label} ({clean(chosen, 60)})", entry, select=select)

    def __init__(self, path: Path, what: str, entry: Entry, *, select: str | None = None) -> None:
        kind, shape, begin, _ = entry
        if kind not in FLOAT_TYPES:
            raise InputError(f"{what} holds {kind}, vectors must be F16, BF16, F32 or F64; convert with tensor.float()")
        rows, dimension = check_shape(what, shape)
        self.matrix = StoredMatrix(path, what, begin, rows, dimension, FLOAT_TYPES[kind])
        super().__init__(path, rows=rows, dimension=dimension, select=select)

    def blocks(self, size: int) -> Generator[Block, None, None]:
        """Read the rows where they lie."""
        for rows in self.matrix.blocks(size):
            yield Block(rows)


def _read_entries(path: Path, label: str, size: int) -> dict[str, Entry]:
    with reading(path), path.open("rb") as file:
        prefix = file.read(LENGTH_BYTES)
        length = int.from_bytes(prefix, "little")
        data = LENGTH_BYTES + length
        if len(prefix) < LENGTH_BYTES or length > min(size - LENGTH_BYTES, MAX_HEADER):
            raise InputError(
                f"{label} has {count_of(size, 'byte')}, its first eight promise a header of {length:,}; copy it again"
            )
        text = file.read(length)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{label} has a header that is not JSON ({first_line(error)}); copy it again") from error
    if not isinstance(header, dict):
        raise InputError(f"{label} has a header that is no JSON object, got {shown(header)}; copy it again")
    header.pop("__metadata__", None)
    entries = {name: _entry(label, name, fields, data) for name, fields in header.items()}
    end = max((entry[3] for entry in entries.values()), default=data)
    if end > size:
        raise InputError(f"{label} ends after {size:,} bytes, its header promises {end:,}; copy it again")
    return entries


def _entry(label: str, name: str, fields: Any, data: int) -> Entry:
    try:
        kind, shape, (begin, end) = fields["dtype"], fields["shape"], fields["data_offsets"]
    except (TypeError, KeyError, ValueError):
        kind, shape, begin, end = None, None, None, None
    if not isinstance(kind, str) or not is_shape(shape) or not is_shape([begin, end]):
        raise InputError(
            f"{label} has no dtype, shape and offsets for {shown(name)}, got {shown(fields)}; copy it again"
        )
    if kind in FLOAT_TYPES:
        expected = FLOAT_TYPES[kind].itemsize
        for axis in shape:
            expected *= axis
        if end - begin != expected:
            raise InputError(
                f"{label} gives {end - begin:,} bytes to {shown(name)}, {kind} {shown(tuple(shape))} needs "
                f"{expected:,}; its header is damaged, copy it again"
            )
    elif end < begin:
        raise InputError(f"{label} has {shown(name)} end before it begins; its header is damaged, copy it again")
    return kind, tuple(shape), data + begin, data + end
