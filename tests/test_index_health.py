"""Indexes judged: recall with its interval, and whether they hold what the present model writes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embedwatch import audit, examine_index
from embedwatch.core.errors import InputError, UsageError
from embedwatch.judged import Judged
from embedwatch.sinks.memory import Memory
from tests.ann.index_makers import DIMENSION, ROWS, built, rows, written

RANDOM = np.random.default_rng(2)


def statuses(judged: Judged) -> dict[str, str]:
    return {verdict.check: verdict.status for verdict in judged.verdicts}


def saved(folder: Path, x: Any, name: str = "present.npy") -> Path:
    np.save(folder / name, x)
    return folder / name


@pytest.fixture(scope="module")
def x() -> Any:
    return rows()


def test_an_index_that_skips_lists_fails_until_it_looks_into_them(x: Any) -> None:
    index = built("IVF16,Flat", x)
    assert statuses(examine_index(index)) == {"index_recall": "fail"}
    index.nprobe = 16
    found = examine_index(index, label="live")
    assert statuses(found) == {"index_recall": "ok"}
    assert str(found.snapshot.space) == "live/index"
    assert found.snapshot.provenance.role == "index"
    assert json.loads(json.dumps(found.to_json()))["verdicts"][0]["status"] == "ok"


def test_a_file_and_a_live_index_are_judged_alike(x: Any, tmp_path: Path) -> None:
    index = built("IDMap2,HNSW4", x, np.arange(ROWS) * 2)
    path, queries = written(tmp_path, index), saved(tmp_path, rows(80, seed=5), "queries.npy")
    live, file = examine_index(index, queries=queries), examine_index(path, queries=queries)
    assert [(m.name, m.value) for m in live.snapshot] == [(m.name, m.value) for m in file.snapshot]
    assert file.snapshot.number("index_recall_queries") == 80


def test_too_few_queries_are_unknown(x: Any, tmp_path: Path) -> None:
    queries = saved(tmp_path, rows(10, seed=5), "queries.npy")
    assert statuses(examine_index(built("Flat", x), queries=queries)) == {"index_recall": "unknown"}


@pytest.mark.parametrize("recipe", ["Flat", "IVF4,PQ4x4np", "SQ8", "OPQ4,IVF4,PQ4x8np,RFlat", "HNSW8", "IDMap2,Flat"])
@pytest.mark.parametrize(("share", "status"), [(0.0, "ok"), (0.05, "warn"), (0.4, "fail"), (1.0, "fail")])
def test_rows_of_another_model_are_counted(recipe: str, share: float, status: str, x: Any, tmp_path: Path) -> None:
    ids = np.arange(ROWS) if "IDMap" in recipe else None
    present = x + RANDOM.normal(0, 1e-4, x.shape).astype(np.float32)
    count = round(share * ROWS)
    present[:count] = rows(ROWS, seed=9)[:count]
    index = built(recipe, x, ids, metric=faiss.METRIC_L2)
    found = examine_index(index, present=saved(tmp_path, present), only=["index_stale"])
    assert found.snapshot.number("index_stale_ratio") == pytest.approx(share, abs=0.02 if share else 0)
    assert statuses(found) == {"index_stale": status}
    if share == 0.4:
        (exhibit,) = found.exhibits
        assert {row[0] for row in exhibit.rows} <= set(range(count))


def test_ids_come_from_a_column(x: Any, tmp_path: Path) -> None:
    ids = RANDOM.choice(10**9, ROWS, replace=False)
    index = built("IVF4,Flat", x, ids)
    some = RANDOM.permutation(ROWS)[:100]
    columns = {"id": np.append(ids[some], -5), "vector": list(np.concatenate([x[some], x[:1]]))}
    pq.write_table(pa.table({name: pa.array(column) for name, column in columns.items()}), tmp_path / "present.parquet")
    found = examine_index(index, present=tmp_path / "present.parquet")
    assert found.snapshot.number("index_stale_ratio") == 0
    assert found.snapshot.number("index_missing_ratio") == pytest.approx(1 / 101)


def test_the_younger_of_index_and_model_is_told(x: Any, tmp_path: Path) -> None:
    path, model = written(tmp_path, built("Flat", x)), tmp_path / "model"
    model.mkdir()
    weights = saved(model, x, "weights.npy")
    os.utime(path, (1_000_000, 1_000_000))
    os.utime(weights, (1_007_200, 1_007_200))
    found = examine_index(path, model=model)
    assert statuses(found)["index_stale"] == "warn"
    (verdict,) = [verdict for verdict in found.verdicts if verdict.check == "index_stale"]
    assert verdict.reason == "The model was written 2.0 h after the index; compare a sample of ids."
    os.utime(weights, (900_000, 900_000))
    assert statuses(examine_index(path, model=model))["index_stale"] == "ok"


def test_what_does_not_fit_is_noted(x: Any, tmp_path: Path) -> None:
    index = built("Flat", x)
    wrong = saved(tmp_path, rows(50, 8))
    found = examine_index(index, queries=wrong, present=wrong)
    notes = " ".join(found.snapshot.provenance.notes)
    assert f"present.npy must have {DIMENSION} dimensions like index, got 8" in notes
    assert not found.verdicts
    with pytest.raises(InputError, match="hashes of signs"):
        examine_index(built("LSH", x, metric=faiss.METRIC_L2))
    with pytest.raises(UsageError, match="`index` must be a FAISS index"):
        examine_index(object())


@pytest.mark.parametrize("name", ["queries", "present"])
def test_vectors_that_are_no_numbers_are_an_error_and_no_note(name: str, x: Any, tmp_path: Path) -> None:
    path = written(tmp_path, built("Flat", x))
    given = {name: saved(tmp_path, np.full_like(x, np.nan), "broken.npy")}
    told = rf"`{name}` must hold finite vectors, got none among \d+ that were drawn from broken\.npy; embed them anew"
    if name == "present":
        told = told.replace(r"\d+", str(ROWS))
    for judge in (examine_index, audit):
        with pytest.raises(UsageError, match=told):
            judge(path, **given)


def test_an_audit_of_an_index_judges_vectors_and_index(x: Any, tmp_path: Path) -> None:
    index = built("IVF8,Flat", x)
    index.nprobe = 8
    path, memory = written(tmp_path, index), Memory()
    found = audit(path, sinks=[memory], present=saved(tmp_path, x))
    assert [str(judged.snapshot.space) for judged in found.spaces] == ["docs.faiss/vectors", "docs.faiss/index"]
    assert statuses(found.spaces[1]) == {"index_recall": "ok", "index_stale": "ok"}
    assert len(memory.deliveries) == 2
    assert [len(audit(path, only=[name]).spaces) for name in ("norms", "index_recall")] == [1, 1]
    with pytest.raises(UsageError, match=r"`queries` must come with a FAISS index, got present\.npy"):
        audit(tmp_path / "present.npy", queries=tmp_path / "present.npy")
