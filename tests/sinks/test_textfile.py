"""The textfile sink leaves a whole file that others can read, whatever happens."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

from embedwatch.core import Metric, Provenance, Snapshot, Space, UsageError
from embedwatch.core.registry import get
from embedwatch.core.sink import Sink
from embedwatch.sinks.prometheus import Prometheus
from embedwatch.sinks.textfile import Textfile
from tests.sinks.scraping import fetch

COSINE = Metric("mean_cosine", "Mean cosine of two rows.")
SEEN = Metric("rows_seen_total", "Rows seen.", "rows", "counter")


def snapshot(value: float, place: str = "pooled") -> Snapshot:
    return Snapshot(Space("m", place), (COSINE.measure(value), SEEN.measure(5)), Provenance(time=5.0, rows=100))


def test_the_file_says_what_the_other_sink_serves(tmp_path: Path) -> None:
    path = tmp_path / "embedwatch.prom"
    with Textfile(path, clock=lambda: 7.0) as sink, Prometheus(0, clock=lambda: 7.0) as other:
        assert not path.exists()
        for each in (sink, other):
            each.expect([snapshot(0.0)])
            each.write(snapshot(0.25), [])
            each.write(snapshot(0.5, "tokens"), [])
        assert path.read_bytes() == fetch(other.url).body
    assert b'place="pooled",segment="all"} 0.25\n' in path.read_bytes()
    assert [each.name for each in tmp_path.iterdir()] == ["embedwatch.prom"]


def test_expected_spaces_are_in_the_file_before_a_window_is(tmp_path: Path) -> None:
    path = tmp_path / "embedwatch.prom"
    with Textfile(path) as sink:
        sink.expect([snapshot(0.0)])
        assert b'embedwatch_rows_seen_total{model="m",place="pooled",segment="all"} 0.0\n' in path.read_bytes()


def test_somebody_else_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "embedwatch.prom"
    before = os.umask(0o022)
    try:
        Textfile(path).write(snapshot(0.5), [])
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_reader_never_sees_half_of_it(tmp_path: Path) -> None:
    path = tmp_path / "embedwatch.prom"
    sink = Textfile(path)
    sink.write(snapshot(0.5), [])
    done = threading.Event()
    sizes: set[int] = set()

    def read() -> None:
        while not done.is_set():
            text = path.read_text(encoding="utf-8")
            assert text.endswith("\n")
            sizes.add(sum(len(f.samples) for f in parse_text(text) if f.name == "embedwatch_mean_cosine"))

    reader = threading.Thread(target=read)
    reader.start()
    for place in range(100):
        sink.write(snapshot(0.5, str(place)), [])
    done.set()
    reader.join()
    assert max(sizes) > 1
    assert 0 not in sizes


def test_a_file_that_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "embedwatch.prom"
    sink = Textfile(path)
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        sink.write(snapshot(0.5), [])
    assert [each.name for each in tmp_path.iterdir()] == ["embedwatch.prom"]
    path.rmdir()
    sink.write(snapshot(0.5), [])
    assert b"embedwatch_rows_seen_total{" in path.read_bytes()


@pytest.mark.parametrize("target", ["out.txt", "out", "folder.prom", "nowhere/out.prom"])
def test_a_place_that_nobody_would_read_is_refused_at_once(tmp_path: Path, target: str) -> None:
    (tmp_path / "folder.prom").mkdir()
    with pytest.raises(UsageError, match=r"ends in \.prom|make the folder first"):
        get(Sink, "textfile").open(str(tmp_path / target))
