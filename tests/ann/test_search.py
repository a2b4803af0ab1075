"""Exact neighbours agree with scikit-learn, also where rounding would hide small distances."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.neighbors
import torch

from embedwatch.ann import nearest_neighbours
from embedwatch.core import UsageError


def test_agrees_with_scikit_learn() -> None:
    rows = torch.randn(700, 12, generator=torch.Generator().manual_seed(0))
    found = nearest_neighbours(rows, 7)
    distances, index = sklearn.neighbors.NearestNeighbors(n_neighbors=8).fit(rows.numpy()).kneighbors(rows.numpy())
    np.testing.assert_allclose(found.distances, distances[:, 1:], rtol=1e-5)
    assert np.mean(found.rows.numpy() == index[:, 1:]) > 0.999


def test_small_distances_survive() -> None:
    """Far from the origin ‖x‖² + ‖y‖² - 2 x·y would round these distances to zero."""
    steps = torch.arange(5, dtype=torch.float64)[:, None] * 1e-4
    rows = (torch.ones(5, 4, dtype=torch.float64) + steps).float()
    found = nearest_neighbours(rows, 1)
    torch.testing.assert_close(found.distances[:, 0], torch.full((5,), 2e-4, dtype=torch.float64), rtol=2e-3, atol=0)


def test_a_row_is_never_its_own_neighbour_even_among_twins() -> None:
    rows = torch.ones(30, 4)
    found = nearest_neighbours(rows, 5)
    assert found.rows.shape == (30, 5)
    assert not (found.rows == torch.arange(30)[:, None]).any()
    assert float(found.distances.max()) == 0.0


def test_few_rows_and_wrong_k() -> None:
    assert nearest_neighbours(torch.ones(1, 3), 5).rows.shape == (1, 0)
    assert nearest_neighbours(torch.ones(0, 3), 5).rows.shape == (0, 0)
    assert nearest_neighbours(torch.ones(3, 3), 5).rows.shape == (3, 2)
    with pytest.raises(UsageError, match="got 0"):
        nearest_neighbours(torch.ones(3, 3), 0)
