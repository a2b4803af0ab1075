"""A real Prometheus scrapes the sink, and promtool finds nothing to say about what it reads."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from embedwatch.core import Check, Histogram, Measurement, Metric, Provenance, Snapshot, Space, Statistic
from embedwatch.core.registry import registered
from embedwatch.exposition import OWN, SPACE_LABELS, exposed_name
from embedwatch.judging import Judge
from embedwatch.sinks.prometheus import Prometheus
from embedwatch.testing import hostile_snapshots
from embedwatch.window import Window
from tests.prometheus_server import PrometheusServer, require
from tests.sinks.scraping import fetch

SPACE = Space("minilm", "hidden.3")
COSINE = Metric("mean_cosine", "Mean cosine of two rows.")
SEEN = Metric("rows_seen_total", "Rows seen.", "rows", "counter")
NORM = Metric("norm", "Distribution of the norms.", kind="histogram")


def snapshot(*measurements: Measurement, space: Space = SPACE) -> Snapshot:
    return Snapshot(space, measurements, Provenance(time=5.0, rows=100, step=7))


def everything_live() -> Snapshot:
    """What every vector statistic that runs on a live model measures on some rows, one of them with a NaN."""
    import torch

    from embedwatch.batch import VectorBatch

    live = [cls for cls in registered(Statistic).values() if cls.live and not cls.needs_reference]
    window = Window([cls() for cls in live if cls.consumes == "vectors"])
    rows = torch.randn(500, 32, generator=torch.Generator().manual_seed(0))
    rows[7, 3] = torch.nan
    window.update(VectorBatch(rows))
    window.close(1.7e9)
    return window.snapshot(SPACE, step=3)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, PrometheusServer]]:
    """A sink and the Prometheus that scrapes it, whose first scrape takes five seconds: tests use their own Spaces."""
    folder = tmp_path_factory.mktemp("prometheus")
    with Prometheus(0) as sink, PrometheusServer(folder, [f"127.0.0.1:{sink.port}"]) as server:
        yield sink, server


@pytest.fixture
def sink() -> Iterator[Prometheus]:
    with Prometheus(0) as made:
        yield made


def promtool(text: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([require("promtool"), "check", "metrics"], input=text, capture_output=True, timeout=60)


def test_promtool_has_nothing_to_say(sink: Prometheus) -> None:
    measured = everything_live()
    verdicts = Judge([cls() for cls in registered(Check).values()]).judge(measured)
    for place in ("token_table", "hidden.3"):
        sink.write(Snapshot(Space("minilm", place), measured.measurements, measured.provenance), verdicts)
    text = fetch(sink.url).body
    done = promtool(text)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert len(verdicts) >= 5
    shown = {line.split()[2] for line in text.decode().split("\n") if line.startswith("# TYPE")}
    assert {family.name for family in OWN} <= shown
    assert {exposed_name(m.metric) for m in measured if m.value is not None} <= shown


def test_promtool_would_say_something() -> None:
    assert promtool(b"# TYPE embedwatch_x_total gauge\nembedwatch_x_total 1\n").returncode != 0


def test_prometheus_scrapes_and_adds_up(scraped: tuple[Prometheus, PrometheusServer]) -> None:
    sink, server = scraped
    here = "{" + ",".join(f'{name}="{SPACE.labels()[name]}"' for name in SPACE_LABELS) + "}"
    seen = f"embedwatch_rows_seen_total{here}"
    empty = NORM.measure(Histogram((1.0, 2.0), (0, 0, 0), 0.0, 0))
    sink.expect([snapshot(SEEN.measure(0), empty)])
    server.wait_for('up{job="embedwatch"} == 1')
    server.wait_for(f"{seen} == 0")
    for window in (1, 2, 3):
        distribution = NORM.measure(Histogram((1.0, 2.0), (10, 80, 10), 150.0, 100))
        sink.write(snapshot(COSINE.measure(0.25 * window), SEEN.measure(50), distribution), [])
        server.wait_for(f"{seen} == {50 * window}")
    server.wait_for(f"embedwatch_mean_cosine{here} == 0.75")
    assert server.value(f"increase({seen}[10m])") >= 150  # nothing of the first window is lost
    assert server.value(f"histogram_quantile(0.5, embedwatch_norm_bucket{here})") == pytest.approx(1.5)
    assert server.value('embedwatch_training_step{model="minilm"}') == 7
    assert server.get("metadata", metric="embedwatch_norm")["embedwatch_norm"][0] == {
        "type": "histogram",
        "help": NORM.help,
        "unit": "",
    }
    gone = snapshot(COSINE.measure(None))
    sink.write(gone, [])
    server.wait_for(f"embedwatch_mean_cosine{here}", lambda found: not found)


def test_prometheus_reads_any_text(scraped: tuple[Prometheus, PrometheusServer]) -> None:
    sink, server = scraped
    texts = ["\x00", "a\x1b[31m\x7f", '新闻\n"\\', "\ufeff", "\r", "\u2028", "é" * 300]
    for text in texts:
        sink.write(snapshot(COSINE.measure(1.0), space=Space("any text", text)), [])
    found = server.wait_for('embedwatch_mean_cosine{model="any text"}', lambda found: len(found) == len(texts))
    assert {sample["metric"]["place"] for sample in found} == set(texts)
    assert promtool(fetch(sink.url).body).returncode == 0


def test_prometheus_reads_hostile_snapshots(scraped: tuple[Prometheus, PrometheusServer]) -> None:
    sink, server = scraped
    for each in hostile_snapshots().values():
        sink.write(each, [])
    server.wait_for("embedwatch_metric_999 == 999")
    size = server.value("embedwatch_series")
    assert size > 1000
    server.wait_for(f"scrape_samples_scraped == {size}")
