"""What the daemon exports is in the catalogue, and the catalogue's own and serving families are exported."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.core import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from embedwatch.cli import main
from embedwatch.daemon.assembly import make_server
from embedwatch.daemon.config_file import load_config
from embedwatch.daemon.live import Live
from embedwatch.daemon.own_report import SHOWN
from embedwatch.diagnostics.serving import Serving
from embedwatch.diagnostics.watching import Watching
from embedwatch.exposition import HEAD_LABEL, OWN, SERVED, catalogue, exposed_name
from tests.daemon.serving import ask, send, until

UNTOLD = {metric.name for metric in Watching.metrics} - set(SHOWN)
"""What only a Monitor has."""
PARSE_OPENMETRICS: Callable[[str], Iterable[Metric]] = openmetrics.text_string_to_metric_families
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
ROWS, DIMENSION = 600, 8
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are told of by /proc")


def rows() -> bytes:
    """Return rows in which one is not finite, so that a check fails."""
    made = np.random.default_rng(0).normal(size=(ROWS, DIMENSION)).astype(np.float32)
    made[0] = np.nan
    file = io.BytesIO()
    np.save(file, made, allow_pickle=False)
    return file.getvalue()


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A daemon that has had traffic of all sorts, and looked for a file that is not there."""
    folder = tmp_path_factory.mktemp("daemon")
    flags = {
        "web": {"listen": ["127.0.0.1:0"]},
        "storage": {"path": str(folder / "state")},
        "evaluation": {"interval": "500ms"},
        "log": {"level": "error"},
        "sources": [{"kind": "files", "path": str(folder / "none.npy"), "name": "late", "every": "1s"}],
    }
    server = make_server(Live(lambda: load_config(environment={}, flags=flags)))
    server.start()
    try:
        found = server.listeners[0].address.port
        for path in ("/api/v1/ingest/m/p?step=7", "/api/v1/ingest/m/q"):
            assert send(found, rows(), path).status == 202
        assert send(found, b"no numpy", "/api/v1/ingest/m/p").status == 400
        assert ask(found, "/nowhere").status == 404
        until(lambda: b'stage="poll"' in ask(found, "/metrics").body, "a look")
        until(lambda: b"embedwatch_check_failed_timestamp_seconds{" in ask(found, "/metrics").body, "a window")
        until(lambda: b"embedwatch_state_saved_timestamp_seconds{" in ask(found, "/metrics").body, "a state")
        yield found
    finally:
        server.stop()


def test_every_family_that_is_exported_is_in_the_catalogue_word_for_word(port: int) -> None:
    known = catalogue()
    for shown in parse_text(ask(port, "/metrics").body.decode()):
        name = f"{shown.name}_total" if shown.type == "counter" else shown.name
        family = known[name]
        assert (shown.type, shown.documentation) == (family.kind, family.help), name
        for sample in shown.samples:
            assert sample.name in family.series
            assert set(sample.labels) - {"le", HEAD_LABEL} == set(family.labels), name


@needs_proc
def test_every_family_that_a_daemon_can_have_is_exported(port: int) -> None:
    told = [exposed_name(metric) for metric in (*Serving.metrics, *Watching.metrics) if metric.name not in UNTOLD]
    expected = {*(family.name for family in (*OWN, *SERVED)), *told}
    lines = ask(port, "/metrics").body.decode().splitlines()
    exported = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    with_values = {re.split(r"[{ ]", line)[0] for line in lines if not line.startswith("#")}
    assert expected <= exported
    assert exported <= set(catalogue())
    assert all(with_values & set(catalogue()[name].series) for name in expected)


def test_the_command_line_and_the_pages_list_what_is_exported(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["metrics", "--json"])
    listed = {entry["name"] for entry in json.loads(capsys.readouterr().out)}
    exported = set(re.findall(r"^# TYPE (\S+)", ask(port, "/metrics").body.decode(), re.M))
    assert exported <= listed
    page = Path(__file__).parents[2].joinpath("docs", "metrics.md").read_text(encoding="utf-8")
    assert {family.name for family in (*OWN, *SERVED)} <= set(re.findall(r"^\| `(\w+)` \|", page, re.M))


def test_openmetrics_says_the_same(port: int) -> None:
    reply = ask(port, "/metrics", Accept=OPENMETRICS)
    assert reply.headers["content-type"].startswith(OPENMETRICS)
    names = {family.name for family in PARSE_OPENMETRICS(reply.body.decode())}
    assert names == {family.name for family in parse_text(ask(port, "/metrics").body.decode())}


@needs_promtool
def test_promtool_finds_nothing_to_mend(port: int) -> None:
    text = ask(port, "/metrics").body
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr.decode()) == (0, "")
