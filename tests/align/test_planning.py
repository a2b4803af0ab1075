"""Plans: each stage by hand, and a mixed index that must be refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from embedwatch.align.aligner import Aligner
from embedwatch.align.planning import MigrationPlan, fused, plan_migration
from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.source import Source
from embedwatch.geometry.retrieval import reciprocal_rank_fusion
from embedwatch.sources import open_source
from embedwatch.testing.spaces import two_spaces
from tests.align.spaces import aligner, fitted, unit
from tests.ann.index_makers import built, written

COUNT, K = 1_600, 10


@pytest.fixture(scope="module")
def spaces() -> tuple[Any, Any]:
    """A new model in a narrow cone on the left, an old one on the right."""
    return two_spaces(COUNT, mean=0.9)


@pytest.fixture(scope="module")
def maps(spaces: tuple[Any, Any]) -> dict[str, Aligner]:
    left, right = spaces
    return {
        "query": fitted(left[:1000], right[:1000], "query"),
        "corpus": fitted(right[:1000], left[:1000]),
    }


def saved(folder: Path, name: str, rows: Any) -> Source:
    np.save(folder / name, rows)
    return open_source(folder / name)


def planned(
    maps: dict[str, Aligner], which: str, spaces: tuple[Any, Any], folder: Path, **options: Any
) -> MigrationPlan:
    new, old = spaces
    return plan_migration(maps[which], saved(folder, "old.npy", old), saved(folder, "new.npy", new), **options)


@pytest.mark.parametrize("side", ["query", "corpus"])
def test_stages_are_what_a_search_by_hand_finds(
    side: str, maps: dict[str, Aligner], spaces: tuple[Any, Any], tmp_path: Path
) -> None:
    new, old = spaces
    asked, rest = np.arange(1400, COUNT), np.arange(1400)
    plan = planned(
        maps, side, (new[rest], old[rest]), tmp_path,
        queries=saved(tmp_path, "q.npy", new[asked]), old_queries=saved(tmp_path, "o.npy", old[asked]),
    )  # fmt: skip
    truth = np.argsort(-new[asked] @ new[rest].T, 1)[:, :K]
    if side == "query":
        scores = maps["query"].transform(new[asked], check=False) @ old[rest].T
    else:
        scores = new[asked] @ maps["corpus"].transform(old[rest], check=False).T
    found = np.argsort(-scores, 1)[:, :K]
    by_hand = np.mean([len(set(a) & set(b)) / K for a, b in zip(found.tolist(), truth.tolist(), strict=True)])
    bridge, cutover, today = plan.stage("bridge"), plan.stage("cutover"), plan.stage("today")
    assert plan.side == side
    assert bridge is not None
    assert bridge.recall == pytest.approx(by_hand, abs=1e-6)
    assert bridge.low < bridge.recall < bridge.high
    assert cutover is not None
    assert cutover.recall == 1.0
    assert today is not None
    assert [stage.name for stage in plan.stages] == ["today", "bridge", *["two indexes"] * 3, *["mixed"] * 3, "cutover"]
    half = [stage for stage in plan.stages if (stage.name, stage.embedded) == ("two indexes", 0.5)]
    assert bridge.recall - 0.05 < half[0].recall < 1
    assert half[0].recall < plan.stages[4].recall + 0.3


def test_a_mixed_index_that_starves_old_documents_is_refused(spaces: tuple[Any, Any], tmp_path: Path) -> None:
    """An uncentred map into a cone leaves old documents outside it: they never come up, and nothing else tells."""
    new, old = spaces
    away = aligner(old, new, np.linalg.svd(old.T @ (new - new.mean(0)), full_matrices=False)[0] @ np.eye(64, 96))
    plan = plan_migration(away, saved(tmp_path, "old.npy", old), saved(tmp_path, "new.npy", new))
    mixed = [stage for stage in plan.stages if stage.name == "mixed"]
    assert plan.mixing_refused
    assert all(stage.old_share is not None and stage.old_share < 0.01 for stage in mixed)
    assert all(stage.old_recall == pytest.approx(0, abs=0.01) for stage in mixed)
    assert mixed[1].fair_share == pytest.approx(0.5, abs=0.06)
    assert "they do not come up; keep two indexes" in mixed[1].refused


def test_a_map_that_loses_nothing_may_be_mixed(tmp_path: Path) -> None:
    new, _ = two_spaces(600, mean=0.2)
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((96, 96)))[0].astype(np.float32)
    old = new @ turn
    plan = plan_migration(aligner(old, new, turn.T), saved(tmp_path, "old.npy", old), saved(tmp_path, "new.npy", new))
    assert not plan.mixing_refused
    assert plan.stage("bridge").recall == pytest.approx(1.0)  # type: ignore[union-attr]
    assert all(stage.recall == pytest.approx(1.0) for stage in plan.stages if stage.name == "mixed")


def test_relevant_documents_decide_where_they_are_known(
    maps: dict[str, Aligner], spaces: tuple[Any, Any], tmp_path: Path
) -> None:
    new, _ = spaces
    noisy = unit(new[:200] + 0.02 * np.random.default_rng(0).standard_normal((200, 96))).astype(np.float32)
    options = {"queries": saved(tmp_path, "q.npy", noisy), "relevant": list(range(200))}
    plan = planned(maps, "query", spaces, tmp_path, **options)
    assert plan.truth == "the relevant document is among the first 10"
    ranks = np.argsort(-noisy @ new.T, 1)[:, :K]
    assert plan.stages[-1].recall == pytest.approx(np.mean([i in row for i, row in enumerate(ranks.tolist())]))
    few = planned(maps, "query", spaces, tmp_path, documents=500, **options)
    assert 500 <= few.documents <= 700
    assert "with more of them, less is found" in few.notes[0]


@pytest.mark.parametrize(("noise", "told"), [(0.6, False), (1.7, None), (3.0, True)])
def test_the_bridge_is_judged_beside_the_old_model_where_the_relevant_are_known(
    noise: float, told: bool | None, spaces: tuple[Any, Any], tmp_path: Path
) -> None:
    """The rule of BCT: `noise` is how badly the old model reads queries; the map has few anchors."""
    new, old = spaces
    maps = {"query": fitted(new[:70], old[:70], "query")}
    random = np.random.default_rng(1)
    queries, asked = unit(new[:300] + 0.02 * random.standard_normal((300, 96))), old[:300]
    asked = unit(asked + noise * unit(random.standard_normal((300, 64))))
    options = {"queries": saved(tmp_path, "q.npy", queries.astype(np.float32)), "relevant": list(range(300))}
    plan = planned(maps, "query", spaces, tmp_path, **options)
    assert plan.gain is None
    assert plan.compatible is None
    plan = planned(
        maps, "query", spaces, tmp_path, old_queries=saved(tmp_path, "o.npy", asked.astype(np.float32)), **options
    )
    assert plan.gain is not None
    bridge, today = plan.stage("bridge"), plan.stage("today")
    assert bridge is not None
    assert today is not None
    assert plan.gain[0] == pytest.approx(bridge.recall - today.recall)
    assert plan.compatible is told, plan.gain
    words = {False: "a bridge, not an upgrade", None: "within chance", True: "compatible by the rule of BCT"}
    assert any(words[told] in note for note in plan.notes)


def test_fusion_is_reciprocal_rank_fusion() -> None:
    generator = torch.Generator().manual_seed(0)
    native, bridged = torch.rand(20, 90, generator=generator), torch.rand(20, 90, generator=generator)
    for share in (0.05, 0.5, 1.0):
        again = torch.rand(90, generator=generator) < share
        lists = [
            torch.nonzero(inside)[:, 0][scores[:, inside].argsort(1, descending=True)[:, :30]]
            for scores, inside in ((native, again), (bridged, ~again))
            if inside.any()
        ]
        assert torch.equal(fused(native, bridged, again, K), reciprocal_rank_fusion(lists, K))


def test_an_index_is_a_store_too(maps: dict[str, Aligner], spaces: tuple[Any, Any], tmp_path: Path) -> None:
    new, old = spaces
    flat = plan_migration(
        maps["query"], open_source(written(tmp_path, built("HNSW8", old))), saved(tmp_path, "new.npy", new)
    )
    assert flat.to_json() == planned(maps, "query", spaces, tmp_path).to_json()
    assert json.loads(json.dumps(flat.to_json()))["mixing_refused"] == flat.mixing_refused


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"side": "corpus"}, UsageError, "`aligner` must lead between .* for the corpus side"),
        ({"relevant": [0]}, UsageError, "`relevant` must come with `queries`"),
        ({"shares": [0.5, 1.0]}, UsageError, "`shares` must lie between 0 and 1"),
    ],
)
def test_what_does_not_fit_is_refused(
    options: dict[str, Any], error: type[Exception], words: str, maps: dict[str, Aligner], spaces: Any, tmp_path: Path
) -> None:
    with pytest.raises(error, match=words):
        planned(maps, "query", spaces, tmp_path, **options)


def test_rows_that_do_not_pair_are_refused(maps: dict[str, Aligner], spaces: Any, tmp_path: Path) -> None:
    new, old = spaces
    with pytest.raises(InputError, match=r"new\.npy must have one row for each of old\.npy, got 1500 for 1600"):
        planned(maps, "query", (new[:1500], old), tmp_path)
    with pytest.raises(UsageError, match="`queries` must have 96 dimensions"):
        planned(maps, "query", spaces, tmp_path, queries=saved(tmp_path, "q.npy", old[:9]))
    with pytest.raises(UsageError, match="`relevant` must have a row for each of 9 queries, got 2"):
        planned(maps, "query", spaces, tmp_path, queries=saved(tmp_path, "q.npy", new[:9]), relevant=[1, 2])
    with pytest.raises(InputError, match=r"must come from the model of"):
        planned(maps, "query", (new[:, ::-1].copy(), old), tmp_path)
