"""Tokens of a file of texts, counted."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from embedwatch.core.errors import InputError

__all__ = ["check_corpus", "count_tokens"]

LINES = 512
"""So many lines are cut into tokens at once."""
TOKENS_AT_MOST = 5_000_000
PROBE = 1 << 16
"""So many bytes are looked at before anything is counted."""
LONGEST_LINE = 1 << 16
"""Characters of a line that are read; the rest is left out."""


def check_corpus(path: Path) -> None:
    """Refuse a file that holds no text.

    Raises:
        InputError: in one line.
    """
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise InputError(f"`corpus` must be a regular file, got a pipe or device, {path.name}; write it to a file")
        with path.open("rb") as file:
            start = file.read(PROBE)
            if not start.strip():
                raise InputError(f"`corpus` must hold texts, got the empty file {path.name}; name another")
            if b"\0" in start:
                raise InputError(f"`corpus` must hold texts, got bytes that are none in {path.name}; name another")
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> InputError:
    what = getattr(error, "strerror", None) or type(error).__name__
    return InputError(f"`corpus` must be a readable file of texts, got {path.name}: {what}; check the path")


def count_tokens(path: Path, tokenizer: Any, rows: int) -> Tensor:
    """Return how often each token comes in a file of UTF-8 texts, one a line; at most 5,000,000 tokens are counted.

    Shape: (V,) int64.

    Raises:
        InputError: if the file cannot be read.
    """
    counts = torch.zeros(rows, dtype=torch.int64)
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            while lines := [line[:LONGEST_LINE].rstrip("\n") for line in islice(file, LINES)]:
                found = tokenizer(lines, add_special_tokens=False, return_attention_mask=False)["input_ids"]
                ids = torch.tensor([row for part in found for row in part if row < rows], dtype=torch.int64)
                counts += torch.bincount(ids, minlength=rows)
                if int(counts.sum()) >= TOKENS_AT_MOST:
                    break
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    return counts
