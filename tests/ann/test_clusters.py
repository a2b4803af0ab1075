"""K-means finds what is apart, and the same each time."""

from __future__ import annotations

import pytest
import torch

from embedwatch.ann import cluster_centres
from embedwatch.core import UsageError


def test_centres_of_clusters_that_are_apart() -> None:
    truth = torch.tensor([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0]])
    rows = truth.repeat(200, 1) + torch.randn(600, 2, generator=torch.Generator().manual_seed(0))
    found = cluster_centres(rows, 3, seed=0)
    distances = torch.cdist(found, truth)
    assert sorted(distances.argmin(1).tolist()) == [0, 1, 2]
    assert float(distances.min(1).values.max()) < 0.3
    assert torch.equal(found, cluster_centres(rows, 3, seed=0))


def test_no_more_centres_than_rows() -> None:
    assert cluster_centres(torch.randn(2, 4), 5, seed=0).shape == (2, 4)
    assert cluster_centres(torch.randn(0, 4), 5, seed=0).shape == (0, 4)
    with pytest.raises(UsageError, match="ask for one centre or more"):
        cluster_centres(torch.randn(5, 4), 0, seed=0)


@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_rows_whose_squares_leave_the_range_of_float32(scale: float) -> None:
    truth = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    rows = truth.repeat(200, 1) + 0.01 * torch.randn(400, 2, generator=torch.Generator().manual_seed(0)).double()
    found = cluster_centres(rows * scale, 2, seed=0).double() / scale
    assert float(torch.cdist(found, truth).min(1).values.max()) < 0.01
    assert not cluster_centres(torch.zeros(5, 2), 2, seed=0).any()
