"""Baking: an index takes the vectors of another model and maps them before it searches."""

from __future__ import annotations

from typing import Any

import numpy as np

from embedwatch.ann._faiss import faiss
from embedwatch.ann.arrays import Matrix
from embedwatch.ann.facts import IndexRefusedError

__all__ = ["bake", "linear"]


def linear(matrix: Matrix, offset: Matrix | None = None) -> Any:
    """Return `y = A x + b` as a transform of FAISS, ready for use.

    Shape: (d_out, d_in), (d_out,).

    Example:
        >>> step = linear(np.array([[0, 2]], np.float32), np.array([1], np.float32))
        >>> step.apply(np.array([[3, 4]], np.float32)).tolist()
        [[9.0]]
    """
    outputs, inputs = matrix.shape
    moves = offset is not None and bool(np.any(offset))
    step = faiss.LinearTransform(inputs, outputs, moves)
    faiss.copy_array_to_vector(np.ascontiguousarray(matrix, np.float32).ravel(), step.A)
    if offset is not None and moves:
        faiss.copy_array_to_vector(np.ascontiguousarray(offset, np.float32), step.b)
    step.is_trained = True  # a fresh one says it is not, and every search fails
    step.set_is_orthonormal()
    return step


def bake(index: Any, matrix: Matrix, offset: Matrix, *, input_unit: bool, output_unit: bool) -> Any:
    """Return an index that maps what it is asked, and what is added, and hands it to the given one inside.

    Ids stay. What is given belongs to what is returned, and is not to be used any more.

    Args:
        index: takes vectors of `d_out` dimensions.
        matrix: A, (d_out, d_in).
        offset: b, (d_out,).
        input_unit: scale to length 1 before the map.
        output_unit: the same after it.

    Raises:
        IndexRefusedError: where the dimensions do not fit.
    """
    if matrix.shape[0] != index.d:
        raise IndexRefusedError(
            f"takes {index.d} dimensions, the map gives {matrix.shape[0]}; fit the map into the space of the index"
        )
    if isinstance(index, faiss.IndexIDMap):  # ids are looked up outside of what is searched
        inner = bake(faiss.downcast_index(index.index), matrix, offset, input_unit=input_unit, output_unit=output_unit)
        index.index, index.d, index.own_fields = inner, inner.d, False
        index.referenced_objects = [inner]  # the transforms in it live as long as Python knows of them
        return index
    steps = [linear(matrix, offset)]
    if input_unit:
        steps.insert(0, faiss.NormalizationTransform(matrix.shape[1], 2.0))
    if output_unit:
        steps.append(faiss.NormalizationTransform(matrix.shape[0], 2.0))
    baked = index if isinstance(index, faiss.IndexPreTransform) else faiss.IndexPreTransform(index)
    for step in reversed(steps):
        baked.prepend_transform(step)
        if baked.own_fields:
            step.this.disown()  # it goes with the others of the chain
    baked.ntotal = index.ntotal
    return baked
