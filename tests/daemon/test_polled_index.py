"""A FAISS index among polled files: its vectors and itself are judged, again when what it is asked with changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from embedwatch.daemon.config import Source
from embedwatch.daemon.config_file import ConfigError, load_config
from embedwatch.daemon.heart import Heart, HeartSettings
from embedwatch.daemon.polled_items import Polled
from embedwatch.daemon.polling import Polling
from embedwatch.index_health import IndexQuestions
from embedwatch.sinks.memory import Memory
from tests.ann.index_makers import built, rows, written

NEVER = 1e6


def test_an_index_is_judged_again_when_the_model_writes_something_else(tmp_path: Path) -> None:
    x, present = rows(), tmp_path / "present.npy"
    index = built("IVF8,Flat", x)
    index.nprobe = 8
    path = written(tmp_path, index)
    np.save(present, x)
    memory, now = Memory(), [0.0]
    heart = Heart(HeartSettings(None, interval=NEVER), sinks=[(memory, False)])
    heart.start()
    polled = Polled("files", path, "docs", index=IndexQuestions(present=present))
    polling = Polling(heart, [polled], settle=5.0, ticks=lambda: now[0])
    try:
        for share in (0, 300):
            x[:share] = rows(seed=9)[:share]
            np.save(present, x)
            for _ in range(70):
                polling.look()
                now[0] += 10.0
            heart.close_windows()
        found = [
            (str(snapshot.space), verdict.status)
            for snapshot, verdicts, _ in memory.deliveries
            for verdict in verdicts
            if verdict.check == "index_stale"
        ]
        assert found == [("docs/index", "ok"), ("docs/index", "fail")]
        spaces = {str(snapshot.space) for snapshot, _, _ in memory.deliveries if snapshot.space.model == "docs"}
        assert spaces == {"docs/vectors", "docs/index"}
    finally:
        polling.close()
        heart.close()


def test_the_configuration_names_what_an_index_is_asked_with(tmp_path: Path) -> None:
    path = tmp_path / "embedwatch.yaml"
    source = "sources:\n- {kind: files, path: docs.faiss, name: docs, queries: q.npy, present: p.npy}\n"
    path.write_text(source)
    (found,) = load_config(path).sources
    assert isinstance(found, Source)
    assert found.queries is not None
    assert found.present is not None
    path.write_text(source.replace("kind: files", "kind: checkpoints"))
    with pytest.raises(ConfigError, match="queries` must be left out for checkpoints"):
        load_config(path)
