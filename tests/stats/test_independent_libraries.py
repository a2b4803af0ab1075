"""Numbers agree with numpy, scipy, scikit-learn, scikit-dimension and IsoScore on clustered, uneven vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats
import skdim
import sklearn.metrics
import sklearn.neighbors
import torch
from IsoScore.IsoScore import IsoScore

from embedwatch.batch import VectorBatch
from embedwatch.core import Statistic
from embedwatch.core.registry import get
from embedwatch.sketches import example_batches

ROWS, DIMENSION, GROUPS = 1_500, 24, 6


@pytest.fixture(scope="module")
def batches() -> list[VectorBatch]:
    return example_batches(3, dimension=DIMENSION, sizes=(700, 1, ROWS - 701), groups=GROUPS)


@pytest.fixture(scope="module")
def rows(batches: list[VectorBatch]) -> np.ndarray[Any, Any]:
    return torch.cat([batch.rows for batch in batches]).double().numpy()


@pytest.fixture(scope="module")
def unit(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def measured(name: str, batches: list[VectorBatch]) -> dict[str, Any]:
    statistic = get(Statistic, name)()  # type: ignore[type-abstract]
    for batch in batches:
        statistic.update(batch)
    return {measurement.key: measurement.value for measurement in statistic.compute()}


def test_norms(batches: list[VectorBatch], rows: np.ndarray[Any, Any]) -> None:
    found, norms = measured("norms", batches), np.linalg.norm(rows, axis=1)
    assert found["norm_mean"] == pytest.approx(norms.mean(), rel=1e-6)
    assert found["norm_std"] == pytest.approx(norms.std(ddof=1), rel=1e-6)
    assert found["norm_min"] == pytest.approx(norms.min(), rel=1e-6)
    assert found["norm_max"] == pytest.approx(norms.max(), rel=1e-6)
    for q in (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99):
        assert found[f"norm_quantile{{q={q}}}"] == pytest.approx(np.quantile(norms, q, method="lower"), rel=0.0056)
    top = np.sort(norms)[-15:].sum() / norms.sum()
    assert found["norm_top_share_ratio"] == pytest.approx(top, rel=0.006)
    histogram = found["norm"]
    counts, _ = np.histogram(norms, bins=[0.0, *histogram.bounds, np.inf])
    assert list(histogram.counts) == list(counts)


def test_centroid_and_cosine(batches: list[VectorBatch], rows: np.ndarray[Any, Any]) -> None:
    assert measured("centroid", batches)["centroid_norm"] == pytest.approx(np.linalg.norm(rows.mean(0)), rel=1e-6)
    cosines = sklearn.metrics.pairwise.cosine_similarity(rows)
    pairs = cosines[~np.eye(ROWS, dtype=bool)]
    assert measured("mean_cosine", batches)["mean_cosine"] == pytest.approx(pairs.mean(), rel=1e-5)


def test_spectrum(batches: list[VectorBatch], rows: np.ndarray[Any, Any]) -> None:
    found = measured("spectrum", batches)
    singular = scipy.linalg.svdvals(rows)
    assert found["rankme"] == pytest.approx(np.exp(scipy.stats.entropy(singular)), rel=1e-5)
    centred = scipy.linalg.svdvals(rows - rows.mean(0))
    assert found["effective_rank"] == pytest.approx(np.exp(scipy.stats.entropy(centred)), rel=1e-5)
    variances = np.linalg.eigvalsh(np.cov(rows.T))
    assert found["participation_ratio"] == pytest.approx(variances.sum() ** 2 / (variances**2).sum(), rel=1e-5)
    assert found["condition_number"] == pytest.approx(np.linalg.cond(rows - rows.mean(0)), rel=1e-4)
    assert found["isoscore"] == pytest.approx(float(IsoScore(rows)), rel=1e-5)
    alike = np.linalg.eigvalsh(np.corrcoef(rows.T))
    assert found["correlation_rank_ratio"] == pytest.approx(
        np.exp(scipy.stats.entropy(np.sqrt(alike))) / DIMENSION, rel=1e-5
    )


def test_what_rows_do_not_share(batches: list[VectorBatch], unit: np.ndarray[Any, Any]) -> None:
    products = np.einsum("id,kd->dik", unit, unit)
    pairs = products[:, ~np.eye(len(unit), dtype=bool)].mean(1)
    spread = np.sort(1 - pairs / np.square(unit).mean(0))[(DIMENSION - 1) // 2]
    assert measured("dimensions", batches)["dimension_spread_ratio"] == pytest.approx(spread, rel=1e-5)


def test_uniformity(batches: list[VectorBatch], unit: np.ndarray[Any, Any]) -> None:
    statistic = get(Statistic, "uniformity")()  # type: ignore[type-abstract]
    for batch in batches:
        statistic.update(batch)
    (found,) = statistic.compute()
    exact = np.log(np.exp(-2 * scipy.spatial.distance.pdist(unit, "sqeuclidean")).mean())
    assert found.error is not None
    assert found.error < 0.2
    assert found.number == pytest.approx(exact, abs=4 * found.error)


def test_neighbours(batches: list[VectorBatch], unit: np.ndarray[Any, Any]) -> None:
    found = measured("neighbours", batches)
    graph = sklearn.neighbors.NearestNeighbors(n_neighbors=21).fit(unit)
    distances, index = graph.kneighbors(unit)
    distances, index = distances[:, 1:], index[:, 1:]
    counts = np.bincount(index[:, :10].ravel(), minlength=ROWS)
    assert found["hubness_skewness"] == pytest.approx(scipy.stats.skew(counts), rel=1e-3)
    assert found["antihub_rows_ratio"] == pytest.approx((counts == 0).mean(), abs=1e-3)
    assert found["hubness_robin_hood_ratio"] == pytest.approx(np.abs(counts - 10).sum() / (2 * counts.sum()), rel=1e-3)
    near = sklearn.metrics.pairwise.cosine_similarity(unit) - 2 * np.eye(ROWS)
    assert found["near_duplicate_rows_ratio"] == pytest.approx((near.max(1) >= 0.99).mean(), abs=1e-3)
    mle = skdim.id.MLE().fit(unit, precomputed_knn_arrays=(distances, index)).dimension_
    assert found["intrinsic_dimension{estimator=mle}"] == pytest.approx(mle, rel=1e-3)
    two = skdim.id.TwoNN(discard_fraction=0.1).fit(unit).dimension_
    assert found["intrinsic_dimension{estimator=two_nn}"] == pytest.approx(two, rel=5e-3)


def test_cohesion(batches: list[VectorBatch], unit: np.ndarray[Any, Any]) -> None:
    found = measured("cohesion", batches)
    labels = torch.cat([batch.labels for batch in batches if batch.labels is not None]).numpy()
    for name, space in (("kept", unit), ("removed", unit - unit.mean(0))):
        cosines = sklearn.metrics.pairwise.cosine_similarity(space)
        off = ~np.eye(ROWS, dtype=bool)
        inside = [
            cosines[np.ix_(labels == g, labels == g)][off[np.ix_(labels == g, labels == g)]].mean()
            for g in range(GROUPS)
        ]
        between = cosines[labels[:, None] != labels[None, :]].mean()
        assert found[f"cohesion{{mean={name}}}"] == pytest.approx(np.mean(inside), rel=1e-4)
        assert found[f"separation{{mean={name}}}"] == pytest.approx(between, rel=1e-4, abs=1e-6)
    assert found["silhouette"] == pytest.approx(
        sklearn.metrics.silhouette_score(unit, labels, metric="cosine"), rel=1e-4
    )


def test_duplicates(rows: np.ndarray[Any, Any]) -> None:
    doubled = np.concatenate([rows, rows[:200], np.repeat(rows[:1], 50, axis=0)]).astype(np.float32)
    batch = VectorBatch(torch.tensor(doubled), torch.arange(len(doubled)))
    wanted = 1 - len(np.unique(doubled, axis=0)) / len(doubled)
    assert measured("duplicates", [batch])["duplicate_rows_ratio"] == pytest.approx(wanted)
