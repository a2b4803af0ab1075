"""Files of a Parquet data set: finding them, opening one, reading some names from one."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from embedwatch.core.errors import EmbedwatchError, InputError
from embedwatch.sources._files import reading, require_file
from embedwatch.sources._messages import first_line, label_of
from embedwatch.sources._vector_columns import texts_of

__all__ = ["SUFFIXES", "has_parts", "opened", "parts_of", "read_names"]

SUFFIXES = (".parquet", ".pq")
READ_BUFFER = 1 << 20
"""Column chunks are read through a buffer of this size, not whole."""
LOOKED_AT = 1000
"""`has_parts` looks at so many entries of a folder."""
NAME_ROWS = 8192


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open one Parquet file; what Arrow says of a damaged one becomes an `InputError`."""
    require_file(path)
    try:
        with reading(path):
            file = path.open("rb")
        with file:
            yield pa.parquet.ParquetFile(
                file, pre_buffer=False, buffer_size=READ_BUFFER, page_checksum_verification=True
            )
    except EmbedwatchError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, OverflowError) as error:
        raise InputError(f"{label_of(path)} is damaged Parquet ({first_line(error)}); copy it again") from error


def parts_of(path: Path) -> list[Path]:
    """Return the file itself, or the Parquet files in a folder in the order of their names."""
    with reading(path):
        if not stat.S_ISDIR(path.stat().st_mode):
            return [path]
        found = [part for part in path.rglob("*") if part.name.lower().endswith(SUFFIXES)]
    parts = sorted(
        part for part in found if not any(name.startswith(("_", ".")) for name in part.relative_to(path).parts)
    )
    if not parts:
        raise InputError(
            f"{label_of(path)} is a folder without Parquet files; name a file, or the folder that has them"
        )
    return parts


def has_parts(path: Path) -> bool:
    """Return whether a folder has Parquet files, as far as a short look tells."""
    seen = 0
    try:
        for _, _, files in os.walk(path):
            if any(file.lower().endswith(SUFFIXES) for file in files):
                return True
            seen += len(files) + 1
            if seen > LOOKED_AT:
                break
    except (OSError, ValueError):
        pass
    return False


def read_names(file: Any, column: str, start: int, rows: list[int]) -> dict[int, str]:
    """Return the names of some rows of a file, reading only the row groups that they are in."""
    found: dict[int, str] = {}
    for index in range(file.metadata.num_row_groups):
        end = start + file.metadata.row_group(index).num_rows
        wanted = [row for row in rows if start <= row < end]
        row = start
        batches = file.iter_batches(NAME_ROWS, row_groups=[index], columns=[column], use_threads=False)
        while wanted and wanted[-1] >= row:
            batch = next(batches)
            chosen = [number for number in wanted if row <= number < row + len(batch)]
            texts = texts_of(batch.column(column).take(pa.array([number - row for number in chosen], pa.int64())))
            found.update(
                {number: str(number) if text is None else text for number, text in zip(chosen, texts, strict=True)}
            )
            row += len(batch)
        start = end
    return found
