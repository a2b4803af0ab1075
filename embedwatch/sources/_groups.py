"""Groups of rows from a column of labels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["encode_groups"]


def encode_groups(labels: Sequence[str | None]) -> tuple[Tensor, list[str]]:
    """Return the code of each row's group, -1 where it has none, and the names of the groups in order of appearance.

    Shape: N texts -> (N,) int64.

    Example:
        >>> encode_groups(["de", None, "fr", "de"])
        (tensor([ 0, -1,  1,  0]), ['de', 'fr'])
    """
    codes: dict[str | None, int] = {}
    for label in labels:
        if label:
            codes.setdefault(label, len(codes))
    return torch.tensor([codes.get(label, -1) for label in labels], dtype=torch.int64), [str(group) for group in codes]
