"""Indexes for another model: baked, rotated, migrated; ids stay, and what was written is looked at again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
import torch

from embedwatch.align.aligner import Aligner
from embedwatch.align.indexing import align_index
from embedwatch.align.migrating import Migration
from embedwatch.ann.indexes import IndexBuilder, opened
from embedwatch.core.errors import InputError, UsageError
from embedwatch.sources import open_source
from tests.align.spaces import aligner, rotation, unit
from tests.ann.index_makers import DIMENSION, ROWS, built, rows, written

NEW = 24
RANDOM = np.random.default_rng(3)
FORWARD = RANDOM.standard_normal((DIMENSION, NEW)).astype(np.float32)
BRIDGE = RANDOM.standard_normal((NEW, DIMENSION)).astype(np.float32)
OFFSET = np.full(DIMENSION, 0.1, np.float32)
IDS = np.arange(ROWS, dtype=np.int64) * 3 + 10**7


@pytest.fixture(scope="module")
def x() -> Any:
    return rows()


@pytest.fixture(scope="module")
def turn(x: Any) -> Aligner:
    return aligner(x, x @ rotation(DIMENSION), rotation(DIMENSION))


@pytest.fixture(scope="module")
def forward(x: Any) -> Aligner:
    return aligner(x, x @ FORWARD, FORWARD)


@pytest.fixture(scope="module")
def bridge(x: Any) -> Aligner:
    return aligner(rows(ROWS, NEW, seed=5), x, BRIDGE, OFFSET, side="query")


def ids_for(recipe: str) -> Any:
    return IDS if "IDMap" in recipe or recipe.startswith("IVF") else None


def contents(path: Path) -> dict[int, Any]:
    with opened(path) as index:
        count = index.facts.rows
        return dict(zip(index.ids(0, count).tolist(), index.rows(0, count), strict=True))


@pytest.mark.parametrize(
    "recipe", ["Flat", "IDMap2,HNSW8", "IDMap,Flat", "IVF8,Flat", "OPQ4,IVF8,PQ4x4np,RFlat", "PQ4x4fs"]
)
def test_a_baked_copy_answers_as_the_old_one_to_mapped_queries(
    recipe: str, x: Any, bridge: Aligner, tmp_path: Path
) -> None:
    old = built(recipe, x, ids_for(recipe) if "RFlat" not in recipe else None, metric=faiss.METRIC_L2)
    path = written(tmp_path, old)
    before = path.read_bytes()
    copy = align_index(bridge, path, tmp_path / "new.faiss")
    assert (copy.mode, copy.same_answers, copy.rows) == ("bake", 1.0, ROWS)
    assert path.read_bytes() == before
    new = faiss.read_index(str(tmp_path / "new.faiss"))
    queries = rows(50, NEW, seed=9) * 3
    mapped = unit(unit(queries) @ BRIDGE + OFFSET).astype(np.float32)
    assert np.array_equal(new.search(queries, 5)[1], old.search(mapped, 5)[1])
    assert new.d == NEW


def test_what_is_added_to_a_baked_copy_is_mapped_too(x: Any, bridge: Aligner, tmp_path: Path) -> None:
    copy = align_index(bridge, written(tmp_path, built("Flat", x)), tmp_path / "new.faiss")
    assert any("what is added to it" in note for note in copy.notes)
    new = faiss.read_index(str(tmp_path / "new.faiss"))
    document = rows(1, NEW, seed=11)
    new.add(document)
    assert new.search(document, 1)[1].tolist() == [[ROWS]]
    stored = faiss.downcast_index(faiss.downcast_index(new).index).reconstruct(ROWS)
    assert np.allclose(stored, unit(unit(document) @ BRIDGE + OFFSET)[0], atol=1e-5)


def test_a_baked_copy_gives_its_vectors_only_as_they_are_stored(x: Any, bridge: Aligner, tmp_path: Path) -> None:
    """Reconstructing through a map that is no rotation raises in FAISS."""
    new = tmp_path / "new.faiss"
    align_index(bridge, written(tmp_path, built("IDMap2,Flat", x, IDS)), new)
    with pytest.raises(InputError, match=r"new\.faiss maps its vectors .*`--select stored`"):
        open_source(new)
    source = open_source(new, select="stored")
    (batch,) = source.batches(ROWS)
    assert np.array_equal(batch.rows.numpy(), x)
    assert source.names([0, 1]) == [str(IDS[0]), str(IDS[1])]


def test_a_baked_copy_can_be_baked_again(x: Any, bridge: Aligner, tmp_path: Path) -> None:
    align_index(bridge, written(tmp_path, built("Flat", x)), tmp_path / "new.faiss")
    again = aligner(rows(ROWS, 12, seed=6), rows(ROWS, NEW, seed=5), RANDOM.standard_normal((12, NEW)), side="query")
    copy = align_index(again, tmp_path / "new.faiss", tmp_path / "newer.faiss", mode="bake")
    assert (copy.same_answers, copy.dimension_after) == (1.0, 12)


@pytest.mark.parametrize("metric", [faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2])
@pytest.mark.parametrize("recipe", ["Flat", "HNSW8", "IVF8,Flat", "IDMap,Flat", "IDMap2,HNSW8"])
def test_a_rotation_in_place_is_exact(recipe: str, metric: int, x: Any, turn: Aligner, tmp_path: Path) -> None:
    old = built(recipe, x * 2, ids_for(recipe), metric=metric)
    path = written(tmp_path, old)
    before = path.read_bytes()
    copy = align_index(turn, path, tmp_path / "new.faiss", mode="rotate")
    assert copy.cosine_least == pytest.approx(1.0, abs=1e-6)
    assert path.read_bytes() == before
    new = faiss.read_index(str(tmp_path / "new.faiss"))
    asked = rows(50, seed=4)
    distances, ids = old.search(asked, 5)
    turned, found = new.search(asked @ rotation(DIMENSION), 5)
    assert np.array_equal(ids, found)
    assert np.abs(distances - turned).max() < 2e-6 * 10


@pytest.mark.parametrize(
    ("recipe", "why"),
    [("PQ4x4np", "holds codes"), ("L2norm,Flat", "transforms"), ("IVF8_HNSW4,Flat", "cannot be turned")],
)
def test_what_cannot_be_turned_is_refused(recipe: str, why: str, x: Any, turn: Aligner, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"`mode` rotate needs vectors that lie open, got .*{why}.*migrate"):
        align_index(turn, written(tmp_path, built(recipe, x)), tmp_path / "new.faiss", mode="rotate")
    assert not (tmp_path / "new.faiss").exists()


@pytest.mark.parametrize(("matrix", "offset"), [(rotation(DIMENSION) * 1.01, None), (rotation(DIMENSION), OFFSET)])
def test_what_does_more_than_turn_is_no_rotation(matrix: Any, offset: Any, x: Any, tmp_path: Path) -> None:
    other = aligner(x, x @ matrix, matrix, offset)
    with pytest.raises(UsageError, match="`aligner` must be a rotation to rotate in place"):
        align_index(other, written(tmp_path, built("Flat", x)), tmp_path / "new.faiss", mode="rotate")


@pytest.mark.parametrize("recipe", ["Flat", "IDMap2,HNSW8", "IVF8,Flat", "IDMap,Flat", "SQ8", "L2norm,HNSW8"])
def test_migrated_vectors_are_mapped_and_keep_their_ids(recipe: str, x: Any, forward: Aligner, tmp_path: Path) -> None:
    old = built(recipe, x, ids_for(recipe))
    if recipe.startswith("IVF"):
        old.remove_ids(IDS[[0, 7, 8]])
        old.nprobe = 5
    path = written(tmp_path, old)
    copy = align_index(forward, path, tmp_path / "new.faiss")
    before, after = contents(path), contents(tmp_path / "new.faiss")
    assert copy.mode == "migrate"
    assert sorted(before) == sorted(after)
    expected = unit(unit(np.array([before[number] for number in sorted(before)])) @ FORWARD)
    got = np.array([after[number] for number in sorted(before)])
    assert np.abs(got - expected).max() < (0.02 if recipe == "SQ8" else 1e-5)
    assert copy.recall is not None
    assert copy.recall > (0.5 if "IVF" in recipe else 0.9)
    with opened(path) as a, opened(tmp_path / "new.faiss") as b:
        assert (a.facts.settings, a.facts.metric) == (b.facts.settings, b.facts.metric)


@pytest.mark.parametrize("recipe", ["PQ4x4np", "IVF8,PQ4x4np", "PCA8,Flat", "RaBitQ"])
def test_lossy_vectors_are_migrated_only_when_asked(recipe: str, x: Any, forward: Aligner, tmp_path: Path) -> None:
    path = written(tmp_path, built(recipe, x, metric=faiss.METRIC_L2))
    new = tmp_path / "new.faiss"
    with pytest.raises(InputError, match=r"docs\.faiss keeps .*`--mode bake`.*`--allow-lossy`"):
        align_index(forward, path, new)
    np.save(tmp_path / "docs.npy", x)
    kind = "HNSW8,Flat" if recipe in ("RaBitQ",) else None
    copy = align_index(forward, path, new, allow_lossy=True, originals=open_source(tmp_path / "docs.npy"), kind=kind)
    assert copy.loss_mean is not None
    assert 0.3 < copy.loss_mean < 1
    assert any("mapped from what the old index gives back" in note for note in copy.notes)
    assert sorted(contents(new)) == sorted(contents(path))


def test_a_kind_of_its_own_keeps_ids(x: Any, forward: Aligner, tmp_path: Path) -> None:
    path = written(tmp_path, built("IVF8,Flat", x, IDS))
    copy = align_index(forward, path, tmp_path / "new.faiss", kind="HNSW8")
    assert copy.after == "IDMap2,HNSW8,Flat"
    assert sorted(contents(tmp_path / "new.faiss")) == IDS.tolist()
    back = align_index(
        aligner(unit(x @ FORWARD), x, FORWARD.T), tmp_path / "new.faiss", tmp_path / "back.faiss", kind="IVF4,Flat"
    )
    assert back.after == "IVF4,Flat"


def test_a_product_quantiser_that_does_not_divide_is_widened(x: Any, tmp_path: Path) -> None:
    wide = RANDOM.standard_normal((DIMENSION, 26)).astype(np.float32)
    copy = align_index(
        aligner(x, x @ wide, wide), written(tmp_path, built("PQ4x4np", x)), tmp_path / "new.faiss", allow_lossy=True
    )
    assert copy.after == "PQ13x4np"
    assert any("does not divide" in note for note in copy.notes)


def test_an_interrupted_migration_goes_on(
    x: Any, forward: Aligner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = rows(20_000)
    path, new = written(tmp_path, built("IVF8,Flat", many, np.arange(20_000) * 2)), tmp_path / "new.faiss"
    part, about = Migration.files(new)
    added, add = [0], IndexBuilder.add

    def failing(self: IndexBuilder, some: Any, ids: Any) -> None:
        if added[0] == 2:
            raise KeyboardInterrupt
        added[0] += 1
        add(self, some, ids)

    monkeypatch.setattr(IndexBuilder, "add", failing)
    with pytest.raises(KeyboardInterrupt):
        align_index(forward, path, new, part_rows=8192)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["docs.faiss", part.name, about.name]
    monkeypatch.setattr(IndexBuilder, "add", add)
    with pytest.raises(UsageError, match=r"new\.faiss\.part of another migration"):
        align_index(forward, path, new, kind="Flat")
    copy = align_index(forward, path, new, part_rows=8192)
    assert any("went on after 16,384 rows" in note for note in copy.notes)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["docs.faiss", "new.faiss"]
    once = align_index(forward, path, tmp_path / "once.faiss")
    assert once.recall == copy.recall
    assert sorted(contents(new)) == list(range(0, 40_000, 2))


def test_rows_without_a_direction_keep_their_ids(x: Any, forward: Aligner, tmp_path: Path) -> None:
    zeros = x.copy()
    zeros[:3] = 0
    align_index(forward, written(tmp_path, built("Flat", zeros)), tmp_path / "new.faiss")
    after = contents(tmp_path / "new.faiss")
    assert [bool(after[number].any()) for number in (0, 2, 3)] == [False, False, True]


def test_rows_that_are_no_numbers_are_told_and_do_not_hinder(
    x: Any, forward: Aligner, turn: Aligner, tmp_path: Path
) -> None:
    broken = x.copy()
    broken[:3], broken[3] = np.nan, 0
    path = written(tmp_path, built("Flat", broken))
    told = f"4 of {ROWS} vectors hold NaN, Inf or nothing but zeros: they keep their ids, as zeros"
    assert any(told in note for note in align_index(forward, path, tmp_path / "new.faiss").notes)
    turned = align_index(turn, path, tmp_path / "turned.faiss", mode="rotate")
    assert turned.cosine_least == pytest.approx(1.0, abs=1e-6)
    assert np.isnan(contents(tmp_path / "turned.faiss")[0]).all()


def test_a_net_can_only_migrate(x: Any, forward: Aligner, tmp_path: Path) -> None:
    hidden = {
        "hidden_in": torch.zeros(DIMENSION, 4), "hidden_bias": torch.zeros(4), "hidden_out": torch.zeros(4, DIMENSION)
    }  # fmt: skip
    eye = aligner(x, x, np.eye(DIMENSION))
    net = Aligner("net", "query", eye.source, eye.target, eye.matrix, eye.offset, hidden)
    path = written(tmp_path, built("Flat", x))
    with pytest.raises(UsageError, match=r"`aligner` must be linear to bake, got one with a net"):
        align_index(net, path, tmp_path / "new.faiss")
    assert align_index(net, path, tmp_path / "new.faiss", mode="migrate").cosine_least == pytest.approx(1.0)


def test_the_side_decides_where_dimensions_do_not(x: Any, tmp_path: Path) -> None:
    path = written(tmp_path, built("Flat", x))
    for side, mode in (("query", "bake"), ("corpus", "migrate")):
        made = aligner(x, x, np.eye(DIMENSION), side=side)  # type: ignore[arg-type]
        assert align_index(made, path, tmp_path / f"{side}.faiss").mode == mode


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"mode": "bake"}, UsageError, "`aligner` must lead into the space of the index to bake"),
        ({"mode": "turn"}, UsageError, "`mode` must be one of bake, rotate, migrate, got 'turn'"),
        ({"kind": "Flat", "mode": "rotate"}, UsageError, "must be a rotation|`kind` must be left out with rotate"),
        ({"kind": "Nonsense"}, InputError, "cannot be built as 'Nonsense'"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_left(
    change: dict[str, Any], error: type[Exception], words: str, x: Any, forward: Aligner, tmp_path: Path
) -> None:
    path = written(tmp_path, built("Flat", x))
    with pytest.raises(error, match=words):
        align_index(forward, path, tmp_path / "new.faiss", **change)
    assert [file.name for file in tmp_path.iterdir()] == ["docs.faiss"]


def test_an_output_that_is_there_is_never_replaced(x: Any, forward: Aligner, tmp_path: Path) -> None:
    path = written(tmp_path, built("Flat", x))
    with pytest.raises(UsageError, match=r"`out` must not be there yet, got docs\.faiss"):
        align_index(forward, path, path)
    with pytest.raises(UsageError, match="`out` must lie in a folder that exists"):
        align_index(forward, path, tmp_path / "no" / "new.faiss")


def test_another_dimension_or_model_is_refused(x: Any, forward: Aligner, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="`aligner` must lead from or into 8 dimensions"):
        align_index(forward, written(tmp_path, built("Flat", rows(50, 8))), tmp_path / "new.faiss")
    narrow = (rows(800, DIMENSION) * np.arange(1, DIMENSION + 1) ** -1.0).astype(np.float32)
    known = aligner(narrow, narrow, np.eye(DIMENSION))
    foreign = narrow[:, ::-1].copy()
    with pytest.raises(InputError, match=r"docs\.faiss must come from the model of left, got a kinship of"):
        align_index(known, written(tmp_path, built("Flat", foreign)), tmp_path / "new.faiss")


def test_it_is_plain_json(x: Any, forward: Aligner, tmp_path: Path) -> None:
    copy = align_index(forward, written(tmp_path, built("Flat", x)), tmp_path / "new.faiss")
    assert json.loads(json.dumps(copy.to_json()))["rows"] == ROWS


@pytest.mark.slow
def test_a_large_quantised_index_keeps_its_ids_and_tells_its_loss(tmp_path: Path) -> None:
    count, dimension = 100_000, 64
    spread = np.arange(1, dimension + 1) ** -0.5
    x = unit(np.random.default_rng(0).standard_normal((count, dimension)) * spread).astype(np.float32)
    ids = (np.random.default_rng(1).permutation(count) * 7 + 10**9).astype(np.int64)
    index = built("IVF128,PQ16x8np", x, ids, metric=faiss.METRIC_L2)
    index.nprobe = 32
    index.remove_ids(ids[:500])
    path = written(tmp_path, index)
    np.save(tmp_path / "docs.npy", x[np.argsort(ids)][~np.isin(np.sort(ids), ids[:500])])
    matrix = np.random.default_rng(2).standard_normal((dimension, 96)).astype(np.float32)
    forward = aligner(x[:5000], x[:5000] @ matrix, matrix)
    copy = align_index(
        forward, path, tmp_path / "new.faiss", allow_lossy=True, originals=open_source(tmp_path / "docs.npy"),
        part_rows=30_000,
    )  # fmt: skip
    with opened(tmp_path / "new.faiss") as new:
        assert np.array_equal(np.sort(new.ids(0, new.facts.rows)), np.sort(ids[500:]))
    assert copy.loss_mean is not None
    assert copy.cosine_mean is not None
    assert copy.recall is not None
    assert 0.8 < copy.loss_mean < 0.99
    assert 0.8 < copy.cosine_mean < 0.999
    assert 0.3 < copy.recall < 0.95
