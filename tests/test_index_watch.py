"""A live index is looked at now and again while it serves and grows."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

from embedwatch import IndexWatch
from embedwatch.core.errors import InputError, UsageError
from embedwatch.sinks.memory import Memory
from tests.ann.index_makers import ROWS, built, rows
from tests.polling import poll

SHORT = 0.02


@pytest.fixture(scope="module")
def x() -> Any:
    return rows()


def recalls(memory: Memory) -> list[float | None]:
    return [snapshot.number("index_recall_ratio") for snapshot, _, _ in memory.deliveries]


def test_it_looks_again_and_sees_what_became_of_the_index(x: Any) -> None:
    index, memory = built("IVF16,Flat", x), Memory()
    index.nprobe = 16
    with IndexWatch(index, every=SHORT, label="docs", sinks=[memory], on_error="raise") as watch:
        poll(lambda: watch.looks >= 2)
        assert set(recalls(memory)) == {1.0}
        index.nprobe = 1
        found = watch.look()
        assert found is not None
        assert (str(found.snapshot.space), found.snapshot.provenance.role) == ("docs/index", "index")
        assert [(verdict.check, verdict.status) for verdict in found.verdicts] == [("index_recall", "fail")]
    looks = watch.looks
    assert watch.look() is None
    assert watch.looks == looks == len(memory.deliveries)
    watch.close()


def test_rows_of_another_model_become_stale(x: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "present.npy", x)
    served = [built("Flat", x)]
    with IndexWatch(lambda: served[-1], present=tmp_path / "present.npy", sinks=[], on_error="raise") as watch:
        first = watch.look()
        served.append(built("Flat", rows(seed=9)))  # another one serves now
        second = watch.look()
    assert first is not None
    assert second is not None
    assert [found.snapshot.number("index_stale_ratio") for found in (first, second)] == [0.0, 1.0]


def test_nobody_adds_while_it_looks(x: Any) -> None:
    index, lock, stop = built("Flat", x), threading.Lock(), threading.Event()

    def serve() -> None:
        while not stop.is_set():
            with lock:
                index.add(rows(5, seed=index.ntotal))
            index.search(x[:4], 3)

    server = threading.Thread(target=serve)
    with IndexWatch(index, every=SHORT, sinks=[], lock=lock, on_error="raise") as watch:
        server.start()
        try:
            poll(lambda: watch.looks >= 4 or bool(watch.errors))
        finally:
            stop.set()
            server.join()
        assert watch.last is not None
        assert watch.last.snapshot.number("index_recall_ratio") == 1.0
        assert watch.last.snapshot.provenance.rows > ROWS


def test_what_fails_is_counted_and_tried_again(x: Any) -> None:
    served: list[Any] = [built("Flat", x)]
    with IndexWatch(lambda: served[-1], label="docs", sinks=[]) as watch:
        assert watch.look() is not None
        served.append(built("LSH", x, metric=faiss.METRIC_L2))
        assert watch.look() is None
        assert watch.errors == {("index", "docs"): 1}
        served.pop()
        assert watch.look() is not None


def test_an_old_look_is_never_told_as_a_new_one(x: Any) -> None:
    watch = IndexWatch(built("Flat", x), sinks=[])
    assert watch.look() is not None
    watch._evaluator.close()  # as in a process that was forked off: nobody looks there
    assert watch.look() is None
    watch.close()


def test_what_does_not_fit_is_refused(x: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "wrong.npy", rows(50, 8))
    with pytest.raises(UsageError, match="`every` must be a number of seconds above 0, got 0; 300 is usual"):
        IndexWatch(built("Flat", x), every=0)
    with pytest.raises(InputError, match="`queries` must have the 16 dimensions of docs, got 8 in wrong"):
        IndexWatch(built("Flat", x), queries=tmp_path / "wrong.npy", label="docs")
    with pytest.raises(UsageError, match="`index` must be a FAISS index of vectors or a path, got object"):
        IndexWatch(object())
