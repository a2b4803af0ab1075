"""The tensors of a model's safetensors files: shapes from the headers, values by slices."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from embedwatch.core.errors import InputError
from embedwatch.loading.find import FORMATS, read_json, short
from embedwatch.loading.messages import first_line, printable

__all__ = ["DTYPES", "SINGLE", "Stored", "Weights"]

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PIECE = 1 << 22
"""So many bytes of a tensor are read at once: a multiple of the size of every type."""
BLOCK = 4096
BLOCKS = 8
"""A fingerprint reads this many blocks of this many bytes of each tensor, spread evenly."""


@dataclass(frozen=True)
class Stored:
    """Where one tensor lies: its file, its type and shape, and its first and last byte in the file."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


class Weights:
    """All tensors of one directory, by name. Opening it reads headers only.

    Args:
        directory: holds `model.safetensors`, or `model.safetensors.index.json` and its shards.

    Raises:
        InputError: if there are no such files, if one is missing, damaged or not what its header says.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._open: dict[Path, Any] = {}
        self._stored = self._headers()

    def __contains__(self, name: object) -> bool:
        return name in self._stored

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def __getitem__(self, name: str) -> Stored:
        return self._stored[name]

    @property
    def parameters(self) -> int:
        """Number of floating-point numbers in the files; a tensor that two layers share counts once."""
        return sum(prod(stored.shape) for stored in self._stored.values() if stored.dtype.startswith(("F", "BF")))

    @property
    def dtype(self) -> torch.dtype:
        """The type of floating-point numbers that most of them have."""
        numbers: dict[str, int] = {}
        for stored in self._stored.values():
            if stored.dtype in DTYPES:
                numbers[stored.dtype] = numbers.get(stored.dtype, 0) + prod(stored.shape)
        return DTYPES[max(numbers, key=lambda name: numbers[name])] if numbers else torch.float32

    def tensor(self, name: str) -> Tensor:
        """Return a whole tensor, mapped from the file where possible."""
        tensor: Tensor = self._file(self._stored[name].file).get_tensor(name)
        return tensor

    def read(self, name: str, start: int, stop: int) -> Tensor:
        """Return rows `start` to `stop` of a tensor, in its own type and in memory of their own."""
        rows: Tensor = self._file(self._stored[name].file).get_slice(name)[start:stop]
        return rows.clone()  # a slice may be a view of the mapped file, which the next reader would find changed

    def pieces(self, name: str) -> Iterator[Tensor]:
        """Yield all entries of a floating-point tensor in their own type, read from the file. Shape: (N,) each."""
        stored = self._stored[name]
        with stored.file.open("rb") as file:
            file.seek(stored.start)
            for left in range(stored.stop - stored.start, 0, -PIECE):
                piece = bytearray(min(left, PIECE))
                if file.readinto(piece) != len(piece):
                    raise InputError(
                        f"`{short(stored.file)}` must be a whole safetensors file, got one that was cut while it was "
                        "read; download or save it again"
                    )
                yield torch.frombuffer(piece, dtype=DTYPES[stored.dtype])

    def sample(self, name: str) -> bytes:
        """Return the name, type and shape of a tensor and evenly spaced blocks of its bytes, all where it is small."""
        stored = self._stored[name]
        size = stored.stop - stored.start
        few = size <= BLOCK * BLOCKS
        starts = [0] if few else [(size - BLOCK) * block // (BLOCKS - 1) for block in range(BLOCKS)]
        parts = [json.dumps([name, stored.dtype, stored.shape]).encode()]
        with stored.file.open("rb") as file:
            for start in starts:
                file.seek(stored.start + start)
                parts.append(file.read(size if few else BLOCK))
        return b"".join(parts)

    def _file(self, path: Path) -> Any:
        from safetensors import SafetensorError, safe_open

        if path not in self._open:
            try:
                self._open[path] = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise InputError(
                    f"`{short(path)}` must be a whole safetensors file, got "
                    f"{first_line(error)}; download or save it again"
                ) from error
        return self._open[path]

    def _headers(self) -> dict[str, Stored]:
        if (self.directory / SINGLE).is_file():
            return self._header(self.directory / SINGLE)
        if (self.directory / INDEX).is_file():
            return self._shards(read_json(self.directory / INDEX).get("weight_map"))
        raise InputError(self._absent())

    def _header(self, path: Path) -> dict[str, Stored]:
        self._file(path)  # safetensors proves that the offsets fit the shapes and the shapes the file
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            entries = json.loads(file.read(length))
        entries.pop("__metadata__", None)
        first = 8 + length
        return {
            name: Stored(
                path,
                entry["dtype"],
                tuple(entry["shape"]),
                first + entry["data_offsets"][0],
                first + entry["data_offsets"][1],
            )
            for name, entry in entries.items()
        }

    def _shards(self, places: Any) -> dict[str, Stored]:
        label = short(self.directory / INDEX)
        if not isinstance(places, dict) or not all(isinstance(file, str) for file in places.values()):
            raise InputError(f"`{label}` must map tensors to files under `weight_map`; restore the file")
        files = sorted(set(places.values()))
        outside = [file for file in files if Path(file).name != file or not file.endswith(".safetensors")]
        if outside:
            raise InputError(f"`{label}` must name safetensors files beside it, got {outside[0]!r}; restore the file")
        missing = [file for file in files if not (self.directory / file).is_file()]
        if missing:
            raise InputError(
                f"`{label}` names {len(files)} files, {len(missing)} of them missing, first {printable(missing[0])}; "
                "download the rest"
            )
        found = {file: self._header(self.directory / file) for file in files}
        absent = [name for name, file in places.items() if name not in found[file]]
        if absent:
            raise InputError(
                f"`{label}` places {printable(absent[0])} in {places[absent[0]]}, which does not hold it; "
                "the files are of different models, download them together"
            )
        return {name: found[file][name] for name, file in places.items()}

    def _absent(self) -> str:
        label = f"`{printable(str(self.directory))}` must hold {SINGLE}"
        there = sorted(file.name for file in self.directory.iterdir() if file.suffix.lower() in FORMATS)
        if not there:
            return f"{label}, got no weights at all; download or save the whole model"
        return (
            f"{label}, got only {printable(there[0])}, {FORMATS[Path(there[0]).suffix.lower()]}; "
            "where you trust it, save it again with `save_pretrained`, which writes safetensors"
        )
