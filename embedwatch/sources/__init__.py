"""Sources: where recorded vectors come from. One file each; `open_source` finds the one that fits a path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from embedwatch.core.errors import UsageError
from embedwatch.core.registry import get, registered
from embedwatch.core.source import Source
from embedwatch.sources._files import head, reading, require_file
from embedwatch.sources._messages import label_of

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["open_source"]

FOREIGN = (
    ((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"), "a pickle, which is never loaded; save it with numpy.save"),
    ((b"PK\x03\x04",), "a zip of no numpy arrays, perhaps a PyTorch pickle; save the vectors with numpy.save"),
    ((b"\x1f\x8b",), "packed by gzip; unpack it with gunzip first"),
    ((b"BZh",), "packed by bzip2; unpack it with bunzip2 first"),
    ((b"\xfd7zXZ",), "packed by xz; unpack it with unxz first"),
    ((b"\x28\xb5\x2f\xfd",), "packed by zstd; unpack it with unzstd first"),
    ((b"\x89HDF",), "HDF5; save the vectors with numpy.save or as Parquet"),
    ((b"ARROW1",), "Arrow IPC (Feather); save it as Parquet"),
    ((b"\xff\xfe", b"\xfe\xff"), "UTF-16 text; convert it with `iconv -f utf-16 -t utf-8`"),
)
"""First bytes of files that people try, what these files are, and what to do."""
LONGEST_MAGIC = 8


def open_source(
    path: str | os.PathLike[str], kind: str | None = None, *, select: str | None = None, labels: str | None = None
) -> Source:
    """Open recorded vectors, whatever they lie in.

    Every registered Source is asked whether it accepts the path. Where none does, but only one claims the file's
    ending, that one opens it, so that its error says what is wrong.

    Args:
        path: a file, a folder, or whatever a Source takes for one (the name of a model).
        kind: name of a Source, to leave no choice.
        select: which array, tensor or column to read where there are several.
        labels: column that holds the group of each row, where the format has columns.

    Raises:
        UsageError: if no Source fits, or several do: the message names them and `--as`.
        InputError: if the path does not exist, or is not what it claims to be.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(
            f"the input must be a path or a Source, got {type(path).__name__}; save an array with numpy.save"
        )
    if not os.fspath(path):  # of a path it would make the folder that one happens to be in
        raise UsageError("the input must be a file, a folder or a model, got an empty name; name one")
    path = Path(path)
    source = get(Source, kind) if kind is not None else _choose(path)
    return source.open(path, select=select, labels=labels)


def _choose(path: Path) -> type[Source]:
    known = registered(Source)
    found = [source for source in known.values() if source.accepts(path)]
    if len(found) > 1:
        names = [source.name for source in found]
        choices = " or ".join(f"`--as {source.name}` ({source.title})" for source in found)
        raise UsageError(f"{label_of(path)} could be {', '.join(names[:-1])} or {names[-1]}; say which with {choices}")
    if found:
        return found[0]
    return _only_claimant(path, known)


def _only_claimant(path: Path, known: Mapping[str, type[Source]]) -> type[Source]:
    """Return the Source that nobody else shares the file's ending with, though even it does not know the content."""
    label, kinds = label_of(path), ", ".join(known)
    with reading(path):
        folder, absent = path.is_dir(), not path.exists()
    endings = tuple(ending for source in known.values() for ending in source.suffixes)
    if absent and not path.is_absolute() and not path.name.lower().endswith(endings):
        from embedwatch.loading.find import find_model

        find_model(path)  # perhaps a model's name: says what to do where that is not in the cache
    if folder:
        raise UsageError(
            f"{label} is a folder that no source takes; name a file in it, or its kind with `--as KIND` ({kinds})"
        )
    require_file(path)  # missing, empty, a pipe
    start = head(path, LONGEST_MAGIC)
    for magics, what in FOREIGN:
        if start.startswith(magics):
            raise UsageError(f"{label} is {what}, or name its kind with `--as KIND` ({kinds})")
    claiming = [source for source in known.values() if path.name.lower().endswith(source.suffixes or ("\0",))]
    if len(claiming) != 1:
        raise UsageError(f"{label} looks like no kind that is known; name it with `--as KIND` ({kinds})")
    return claiming[0]
