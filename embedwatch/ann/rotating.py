"""Rotating: the vectors of an index are turned where they lie. Exact, and no build."""

from __future__ import annotations

from typing import Any

import numpy as np

from embedwatch.ann._faiss import faiss
from embedwatch.ann.arrays import Matrix
from embedwatch.ann.facts import IndexRefusedError
from embedwatch.ann.structure import peel
from embedwatch.ann.vectors import turnable

__all__ = ["rotate"]

CHUNK = 65_536


def rotate(index: Any, matrix: Matrix, offset: Matrix) -> None:
    """Turn all vectors of an index by `A x + b`, in place, and the centroids of its lists.

    Distances stay what they were, so that graph and lists stay right.

    Args:
        index: flat, HNSW over flat, or IVF over flat, with or without an id map.
        matrix: A, (D, D), orthogonal.
        offset: b, (D,); zero unless distances are Euclidean.

    Raises:
        IndexRefusedError: where it cannot be.
    """
    layers = peel(index)
    if why := turnable(layers):
        raise IndexRefusedError(f"cannot be rotated where it lies: {why}; use `--mode migrate`")
    if matrix.shape != (layers.core.d, layers.core.d):
        raise IndexRefusedError(
            f"holds {layers.core.d} dimensions, the map takes {matrix.shape[1]} and gives {matrix.shape[0]}; "
            "use `--mode migrate`"
        )
    core = layers.core
    if isinstance(core, faiss.IndexIVFFlat):
        _turn_flat(faiss.downcast_index(core.quantizer), matrix, offset)
        for number in range(core.nlist):
            size = core.invlists.list_size(number)
            if size:
                codes = core.invlists.get_codes(number)
                _turn(faiss.rev_swig_ptr(codes, size * core.code_size).view(np.float32).reshape(size, -1),
                      matrix, offset)  # fmt: skip
    else:
        _turn_flat(faiss.downcast_index(core.storage) if isinstance(core, faiss.IndexHNSW) else core, matrix, offset)


def _turn_flat(flat: Any, matrix: Matrix, offset: Matrix) -> None:
    rows = faiss.rev_swig_ptr(flat.get_xb(), flat.ntotal * flat.d).reshape(flat.ntotal, flat.d)
    _turn(rows, matrix, offset)


def _turn(rows: Matrix, matrix: Matrix, offset: Matrix) -> None:
    for start in range(0, len(rows), CHUNK):
        rows[start : start + CHUNK] = rows[start : start + CHUNK] @ matrix.T + offset
