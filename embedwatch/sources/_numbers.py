"""Numbers as text: what counts as one, and parsing many at once."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.csv
import torch
from torch import Tensor

__all__ = ["is_number", "numbers_at_end", "parse_numbers"]


def is_number(token: bytes | str) -> bool:
    """Return whether a token is a number; `nan` and `inf` are, Python's `1_000` is not.

    Example:
        >>> [is_number(token) for token in ("-1.5e3", "nan", "1_000", "the", "")]
        [True, True, False, False, False]
    """
    try:
        float(token)
    except ValueError:
        return False
    return (b"_" if isinstance(token, bytes) else "_") not in token  # type: ignore[operator]


def numbers_at_end(tokens: Sequence[bytes]) -> int:
    """Return how many tokens at the end of a line are numbers.

    Example:
        >>> numbers_at_end([b"2", b"be", b"0.5", b"-1"])
        2
    """
    count = 0
    for token in reversed(tokens):
        if not is_number(token):
            break
        count += 1
    return count


def parse_numbers(tails: list[bytes], dimension: int) -> Tensor | None:
    """Parse lines of numbers between single blanks, with Arrow's parser: 5 times as fast as `float` on each.

    Returns:
        (N, D) float32; None if any line does not fit, for the caller to find out which and why.
    """
    text = b"\n".join(tails)
    if b"\r" in text:  # another end of line to Arrow
        return None
    text = text.replace(b" ", b"\n")
    try:
        column = pa.csv.read_csv(
            pa.BufferReader(text),
            read_options=pa.csv.ReadOptions(use_threads=False, column_names=["value"], block_size=max(len(text), 1)),
            parse_options=pa.csv.ParseOptions(quote_char=False),
            convert_options=pa.csv.ConvertOptions(column_types={"value": pa.float32()}, null_values=[]),
        )["value"]
    except pa.ArrowException:
        return None
    if len(column) != len(tails) * dimension:
        return None
    values = torch.empty(len(tails) * dimension, dtype=torch.float32)
    values.numpy()[:] = column.to_numpy()
    return values.view(len(tails), dimension)  # (N, D)
