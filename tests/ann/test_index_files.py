"""Index files: every way in which FAISS ends the process or gives garbage, and what happens here instead."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

from embedwatch.ann.baking import linear
from embedwatch.ann.child import ChildEndedError, borrowed
from embedwatch.ann.indexes import building, opened
from embedwatch.ann.live import LiveIndex
from embedwatch.ann.recipes import fitting_recipe
from embedwatch.ann.vectors import StoredVectors
from embedwatch.core.errors import InputError, UsageError
from tests.ann.index_makers import DIMENSION, ROWS, built, rows, written

EXACT = ("Flat", "IVF8,Flat", "HNSW8", "NSG8", "L2norm,Flat", "IVF8,PQ4x4np,RFlat", "PCA8,IVF4,PQ4x4np,RFlat")
ROUNDED = {"SQ8": 0.012, "SQbf16": 0.004, "SQfp16": 0.001, "IVF8,SQ8": 0.012, "HNSW8_SQ8": 0.012}
LOSSY = (
    "PQ4x4np",
    "IVF8,PQ4x4np",
    "OPQ4,IVF8,PQ4x4np",
    "PCA8,Flat",
    "SQ4",
    "PQ4x4fs",
    "RaBitQ",
    "IVF8,RaBitQ",
    "RQ4x4",
)
RANDOM = np.random.default_rng(7)


@pytest.fixture(scope="module")
def x() -> Any:
    return rows()


def read(path: Path) -> Any:
    with opened(path) as index:
        return index.rows(0, index.facts.rows), index.ids(0, index.facts.rows), index.facts


@pytest.mark.parametrize("recipe", EXACT)
def test_kinds_that_keep_vectors_give_them_back(recipe: str, x: Any, tmp_path: Path) -> None:
    got, ids, facts = read(written(tmp_path, built(recipe, x)))
    assert np.abs(got - x).max() < 1e-6
    assert ids.tolist() == list(range(ROWS))
    assert (facts.rows, facts.dimension, facts.metric) == (ROWS, DIMENSION, "inner product")
    assert not facts.lossy
    assert not facts.own_ids


@pytest.mark.parametrize("recipe", ROUNDED)
def test_kinds_that_round_say_so(recipe: str, x: Any, tmp_path: Path) -> None:
    got, _, facts = read(written(tmp_path, built(recipe, x)))
    assert np.linalg.norm(got - x, axis=1).max() < ROUNDED[recipe] * 2
    assert facts.rounded
    assert not facts.lossy


@pytest.mark.parametrize("recipe", LOSSY)
def test_kinds_that_lose_say_so(recipe: str, x: Any, tmp_path: Path) -> None:
    index = built(recipe, x, metric=faiss.METRIC_L2)
    got, _, facts = read(written(tmp_path, index))
    assert facts.lossy
    assert 0.02 < np.linalg.norm(got - x, axis=1).mean() < 1.2


@pytest.mark.parametrize("recipe", ["IDMap,Flat", "IDMap2,Flat", "IDMap2,HNSW8", "IDMap,IVF8,Flat"])
def test_an_id_map_is_never_reconstructed_through(recipe: str, x: Any, tmp_path: Path) -> None:
    """`reconstruct_n` of an id map ends the process where an id is missing, and without IDMap2 always."""
    ids = RANDOM.choice(10**9, ROWS, replace=False).astype(np.int64)
    got, found, facts = read(written(tmp_path, built(recipe, x, ids)))
    assert np.array_equal(got, x)
    assert np.array_equal(found, ids)
    assert facts.own_ids


def test_removed_ids_leave_an_id_map_over_flat_aligned(x: Any, tmp_path: Path) -> None:
    index = built("IDMap2,Flat", x, np.arange(ROWS) * 10)
    index.remove_ids(np.array([0, 10, 50, 5990]))
    got, ids, _ = read(written(tmp_path, index))
    assert np.array_equal(got, x[ids // 10])
    assert len(ids) == ROWS - 4


@pytest.mark.parametrize("recipe", ["IVF8,Flat", "IVF8,SQfp16"])
def test_lists_with_ids_of_their_own_are_walked(recipe: str, x: Any, tmp_path: Path) -> None:
    """`IndexIVF.reconstruct_n` gives uninitialised rows for such ids, and after `remove_ids`, without an error."""
    ids = (RANDOM.permutation(ROWS) * 3 + 10**7).astype(np.int64)
    index = built(recipe, x, ids)
    gone = ids[[1, 5, 100]]
    index.remove_ids(gone)
    got, found, _ = read(written(tmp_path, index))
    assert found.tolist() == sorted(set(ids.tolist()) - set(gone.tolist()))
    where = {number: place for place, number in enumerate(ids.tolist())}
    assert np.abs(got - x[[where[number] for number in found.tolist()]]).max() < 1e-3


def test_lists_behind_a_transform_need_no_direct_map(x: Any, tmp_path: Path) -> None:
    got, ids, facts = read(written(tmp_path, built("OPQ4,IVF8,PQ4x4np", x)))
    assert facts.kind == "OPQ4,IVF8,PQ4x4np"
    assert ids.tolist() == list(range(ROWS))
    assert (got * x).sum(1).mean() > 0.5


def test_an_id_twice_is_told(x: Any, tmp_path: Path) -> None:
    ids = np.arange(ROWS)
    ids[:10] = 7
    _, found, facts = read(written(tmp_path, built("IVF8,Flat", x, ids)))
    assert facts.repeated_ids == 10
    assert sorted(found.tolist()) == sorted(ids.tolist())


def test_ids_that_slipped_are_refused(x: Any, tmp_path: Path) -> None:
    """`remove_ids` through an id map over lists leaves holes there, so that ids stand beside other vectors."""
    index = built("IDMap,IVF8,Flat", x, np.arange(ROWS) * 2)
    index.remove_ids(np.array([0, 2]))
    with pytest.raises(InputError, match=r"docs\.faiss gives its vectors ids that are no longer theirs.*add_with_ids"):
        read(written(tmp_path, index))


@pytest.mark.parametrize(
    ("recipe", "why"),
    [
        ("LSH", "hashes of signs"),
        ("ITQ,LSH", "hashes of signs"),
        ("IVF8,PQ4x4fs", "cannot give back"),  # from a file, reconstructing ends the process (FAISS 1.15.1)
        ("IVF8,FlatDedup", "cannot give back"),
    ],
)
def test_kinds_without_vectors_are_refused_with_the_remedy(recipe: str, why: str, x: Any, tmp_path: Path) -> None:
    path = written(tmp_path, built(recipe, x, metric=faiss.METRIC_L2))
    with pytest.raises(InputError, match=rf"docs\.faiss .*{why}.*; give the vectors that it was built from"):
        read(path)
    with opened(path, "closed") as index:  # it can be searched all the same
        assert index.search(x[:3], 2)[1].shape == (3, 2)


def test_bits_are_refused(tmp_path: Path) -> None:
    index = faiss.IndexBinaryFlat(64)
    index.add(np.zeros((5, 8), np.uint8))
    path = tmp_path / "bits.faiss"
    faiss.write_index_binary(index, str(path))
    with pytest.raises(InputError, match=r"bits\.faiss holds vectors of bits, not of floats; "):
        read(path)


def test_an_untrained_index_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, faiss.index_factory(8, "IVF8,Flat"))
    with pytest.raises(InputError, match="was not trained"):
        read(path)


@pytest.mark.parametrize("part", [0.1, 0.5, 0.999])
def test_cut_off(part: float, x: Any, tmp_path: Path) -> None:
    path = written(tmp_path, built("IVF8,Flat", x))
    os.truncate(path, int(path.stat().st_size * part))
    with pytest.raises(InputError, match=r"docs\.faiss ends early or is damaged .*; copy it again"):
        read(path)


def test_a_graph_that_ends_the_process_is_one_line(x: Any, tmp_path: Path) -> None:
    """All edges lead to the last row: FAISS takes that for sound and reads beyond its lists. Only a child ends."""
    index = built("HNSW4", x)
    edges = faiss.vector_to_array(index.hnsw.neighbors).astype(np.int32)
    path = written(tmp_path, index)
    data = path.read_bytes()
    at = data.find(edges.tobytes())
    edges[edges >= 0] = ROWS - 1
    path.write_bytes(data[:at] + edges.tobytes() + data[at + edges.nbytes :])
    with opened(path) as hostile:
        assert np.array_equal(hostile.rows(0, ROWS), x)
        with pytest.raises(InputError, match=r"docs\.faiss ended by SIG.*this one is not; .*write it again"):
            hostile.search(x, 3)
    assert read(written(tmp_path, built("Flat", x), "next.faiss"))[2].rows == ROWS


def test_memory_is_limited(x: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, built("IVF8,Flat", rows(20_000)))
    monkeypatch.setenv("EMBEDWATCH_INDEX_MEMORY", "100000")
    with pytest.raises(InputError, match=r"docs\.faiss (ends early|takes more memory|cannot be read|ended|is damaged)"):
        read(path)
    monkeypatch.delenv("EMBEDWATCH_INDEX_MEMORY")
    assert read(path)[2].rows == 20_000


def test_time_is_limited(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "never")
    with borrowed() as child:
        with pytest.raises(ChildEndedError, match="took over 0 s"):
            child.ask("open", seconds=0.2, path=str(tmp_path / "never"), key=[1], view="added", bytes_more=1 << 30)
        assert not child.usable


def test_a_child_does_not_spin() -> None:
    """Threads that spin took five times the time on a busy machine."""
    with borrowed() as child:
        child.ask("drop", seconds=60.0)  # it runs
        environment = Path(f"/proc/{child._process.pid}/environ")
        if environment.exists():
            assert b"OMP_WAIT_POLICY=PASSIVE" in environment.read_bytes().split(b"\0")


def test_two_files_are_open_at_once(x: Any, tmp_path: Path) -> None:
    first, second = written(tmp_path, built("Flat", x)), written(tmp_path, built("Flat", -x), "other.faiss")
    with opened(first) as a, opened(second) as b:
        assert np.array_equal(a.rows(3, 2), -b.rows(3, 2))


@pytest.mark.parametrize(
    ("queries", "error"), [(rows(2, 8), UsageError), (np.full((1, DIMENSION), np.nan), InputError)]
)
def test_queries_that_fit_not_are_refused(queries: Any, error: type[Exception], x: Any, tmp_path: Path) -> None:
    """FAISS answers a wrong dimension with an empty AssertionError, and NaN with ids of -1."""
    with opened(written(tmp_path, built("Flat", x))) as index, pytest.raises(error, match=r"docs\.faiss"):
        index.search(queries, 2)


def test_queries_of_other_types_and_strides_are_converted(x: Any, tmp_path: Path) -> None:
    with opened(written(tmp_path, built("Flat", x))) as index:
        wide = np.asfortranarray(x.astype(np.float64))[::2]
        assert index.search(wide, 1)[1][:, 0].tolist() == list(range(0, ROWS, 2))


def test_lengths_are_looked_at(x: Any, tmp_path: Path) -> None:
    lengths = np.linspace(0.5, 2.0, ROWS, dtype=np.float32)[:, None]
    facts = read(written(tmp_path, built("Flat", x * lengths)))[2]
    assert (facts.shortest, facts.longest) == pytest.approx((0.5, 2.0), rel=1e-5)
    assert not facts.unit
    assert read(written(tmp_path, built("Flat", x)))[2].unit


def test_a_recipe_never_trains_polysemous_codes() -> None:
    """Without `np` the training of a product quantiser takes a hundred times as long."""
    assert StoredVectors(built("IVF4,PQ4x4np", rows(300))).layers.recipe == "IVF4,PQ4x4np"
    assert fitting_recipe("OPQ6,IVF4,PQ6x8np", 32) == "OPQ8,IVF4,PQ8x8np"
    assert fitting_recipe("IDMap2,HNSW16,Flat", 32) == "HNSW16,Flat"


def test_what_faiss_warns_of_stays_in_the_child(capfd: pytest.CaptureFixture[str]) -> None:
    """Fewer than 39 points for each centroid are a warning on standard error."""
    with building("new", recipe="IVF8,Flat", dimension=4, metric="euclidean", sample=rows(20, 4)) as builder:
        builder.add(rows(20, 4), np.arange(20))
        assert builder.rows == 20
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("recipe", ["Nonsense", "PQ7x8np"])
def test_a_recipe_that_cannot_be_built_is_refused(recipe: str) -> None:
    with (
        pytest.raises(InputError, match=r"new cannot be built as .*; name another with `--kind`"),
        building("new", recipe=recipe, dimension=16, metric="euclidean", sample=rows(300)),
    ):
        pass


def test_a_live_index_is_asked_alike(x: Any) -> None:
    live = LiveIndex(built("IDMap2,Flat", x, np.arange(ROWS) + 5), "live")
    assert np.array_equal(live.rows_at(np.array([3, 1])), x[[3, 1]])
    assert live.ids(0, 2).tolist() == [5, 6]
    with pytest.raises(UsageError, match="`index` must be a FAISS index"):
        LiveIndex(faiss.IndexBinaryFlat(8))
    with pytest.raises(InputError, match="live keeps hashes of signs"):
        LiveIndex(built("LSH", x, metric=faiss.METRIC_L2), "live")


def test_codes_of_a_vector_are_those_that_the_index_would_keep(x: Any, tmp_path: Path) -> None:
    for recipe in ("PQ4x4np", "OPQ4,IVF8,PQ4x4np", "IVF8,SQ8", "HNSW8,Flat", "PCA8,IVF4,PQ4x4np,RFlat"):
        with opened(written(tmp_path, built(recipe, x, metric=faiss.METRIC_L2))) as index:
            assert np.abs(index.coded(x) - index.rows(0, ROWS)).max() < 1e-5, recipe


@pytest.mark.parametrize(
    ("scale", "bias", "unit", "sound"),
    [(1.0, 0.0, False, True), (1.0, 0.1, False, True), (1.5, 0.0, False, False), (1.0, 0.1, True, False)],
)
def test_a_map_is_undone_only_where_its_transpose_does(
    scale: float,
    bias: float,
    unit: bool,
    sound: bool,
    x: Any,
    tmp_path: Path,
) -> None:
    """FAISS 1.15.1 takes every linear map from a file for a rotation, and gives garbage without an error."""
    matrix = np.linalg.qr(np.random.default_rng(0).standard_normal((DIMENSION, DIMENSION)))[0] * scale
    index = faiss.IndexPreTransform(faiss.IndexFlatL2(DIMENSION))
    steps = [linear(matrix.astype(np.float32), np.full(DIMENSION, bias, np.float32))]
    steps += [faiss.NormalizationTransform(DIMENSION, 2.0)] if unit else []
    for step in reversed(steps):
        index.prepend_transform(step)
    index.add(x)
    path = written(tmp_path, index)
    if sound:
        assert np.abs(read(path)[0] - x).max() < 1e-5
        return
    with pytest.raises(InputError, match=r"docs\.faiss maps its vectors by what cannot be undone .*`--select stored`"):
        read(path)
    with opened(path, "stored") as stored:
        assert np.abs(stored.rows(0, ROWS) - index_rows(index)).max() < 1e-6


def index_rows(index: Any) -> Any:
    """Vectors as a flat index keeps them behind a transform."""
    return faiss.downcast_index(index.index).reconstruct_n(0, ROWS)
