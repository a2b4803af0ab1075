"""A real training, scraped by a real Prometheus: dashboard and alerts in health, in trouble, and after the end."""

from __future__ import annotations

import re
import socket
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics import parser
from prometheus_client.parser import text_string_to_metric_families as parse_text

import embedwatch
from embedwatch.core import Exhibit, Sink, Snapshot, Statistic, Verdict
from embedwatch.core.registry import registered
from embedwatch.exposition import CHECK_FAILED_TIME, CHECK_FAILING, PREFIX, alert_name, catalogue
from embedwatch.operations import rule_expressions, shipped
from embedwatch.operations.check_alerts import ONCE, can_fail
from embedwatch.operations.daemon_alerts import daemon_alerts
from embedwatch.sinks._encoding import OPENMETRICS
from embedwatch.sinks.memory import Memory
from embedwatch.sinks.prometheus import Prometheus
from tests.dashboards.grafana import Board, chosen, crowded
from tests.dashboards.linter import names
from tests.dashboards.tools import committed_dashboards, committed_rules, needs_promtool, promtool
from tests.end_to_end.hurried_rules import MINUTE, hurried
from tests.end_to_end.live_training import LiveTraining
from tests.polling import poll
from tests.prometheus_server import PrometheusServer, Sample, require
from tests.sinks.scraping import fetch

pytestmark = pytest.mark.slow
parse_openmetrics: Callable[[str], Iterable[Any]] = parser.text_string_to_metric_families

SCRAPE = 1.0
"""Seconds between scrapes, and between evaluations of the rules."""
EVERY, WINDOW, ROWS = 4, 40, 256
HEALTHY_SECONDS = 36 * MINUTE
"""Longer than the longest `for` of the rules, so that what was wrong from the start fires."""
DEADLINE = 60.0
MODEL = "Transformer"
FIRING = 'ALERTS{alertname=~"Embedwatch.*",alertstate="firing"}'
PUMP, LONG, SOUND = 1.05, 80.0, 2.0
"""Growth of a row in a step; times the median row at which it stops; those at which it is sound."""
SCRAPES, SWIFT = 50, 0.1
"""So many scrapes, whose median takes less than so many seconds however busy the machine is."""
VERSIONS = 10
"""So many contents of the text file are read."""
MOST_SERIES = 1_500
"""A model of two layers has fewer series."""
TOKENS = "embedding.tokens.weight"
VERDICT = re.compile(r'check="(\w+)"')
REASONS = {
    "needs a reference": ("Drift", "WhatChanged"),
    "needs fixed texts": ("Canary",),
    "needs labels": ("GroupsApart",),
    "counted in vectors that are kept": ("DuplicateRows",),
    "needs a loss on what is held out": ("Overfitting",),
    "needs two spaces": ("AlignmentLost", "Compatibility"),
    "needs an index": ("IndexRecall", "IndexStale"),
    "needs a model that is run, which a training is not beside itself": (
        *("GenerationLoops", "GenerationRepetition", "InitialLogits", "SilentUnits", "TokensAlike"),
        *("PositionBase", "PositionFalloff", "UntrainedUse"),
    ),
    "needs a table of positions": (
        *("PositionCopies", "PositionDead", "PositionRepeats", "PositionTableEnd"),
        "LookupBalance",
    ),
    "needs rotated positions, or a model of transformers": (
        *("PositionAlias", "PositionFrequencyRounding", "PositionTemperature"),
        *("LookupTwice", "ScaleAsConfigured", "UnreachableTokens"),
    ),
    "needs gains that were trained": ("NormBiases", "NormDeadDimensions", "NormGains"),
    "needs words in its vocabulary": ("MeaningRelated",),
}
FOREIGN = {f"Embedwatch{name}" for names in REASONS.values() for name in names}
"""Alerts on checks of which a training is not asked."""
LATER = {"EmbedwatchFreshLayers"}
"""Asked once the model as a whole was trained."""
ABSENT = {
    *("validation_loss", "gradient_norm_limit"),
    *("attention_last_ratio", "attention_next_ratio"),  # a causal model looks at no later token
    "attention_learned_sink_ratio",
}
"""Metrics of live statistics of which this training has none."""
BRIEF = {
    *("initial_loss_ratio", "loss_wave_period"),
    *("attention_long_range_ratio", "attention_start_over_middle_ratio"),
}
"""Only the first window has the first, which may be over before the first scrape, and only a wave the second. The rest
needs a query that sees 64 keys: one in 64 of this causal model's, so that a window may lack it."""
EMPTY_IN_HEALTH = {
    "Checks at or past a limit": "none is",
    "Firing alerts": "the watchdog, which fires always, has no job",
    "annotation Alerts": "as above",
}
"""Queries of the overview that find nothing while all is well, and why."""
ELSEWHERE = {
    "Difference from the reference, likely by chance": "needs a reference",
    "Neighbours that the other side finds": "needs two spaces",
    "annotation References": "needs a reference",
    "annotation Checkpoints": "the table is examined at the start only",
}
"""Those that find nothing in this training; `test_live_dashboards` has what they look at."""


class Failing(Sink, register=False):
    """Raises while it is told to."""

    name = "failing"
    broken = False

    def write(self, snapshot: Snapshot, verdicts: Sequence[Verdict], exhibits: Sequence[Exhibit] = ()) -> None:
        if self.broken:
            raise OSError("the disk is full")


@dataclass
class Live:
    """The training with its sinks, and the Prometheus that scrapes it."""

    training: LiveTraining
    server: PrometheusServer
    sink: Prometheus
    failing: Failing
    memory: Memory
    textfile: Path

    def wait(self, expression: str) -> list[Sample]:
        """Return what a query finds, once it finds anything."""
        found: list[Sample] = poll(lambda: self.query(expression), deadline=DEADLINE)
        return found

    def query(self, expression: str) -> list[Sample]:
        self.training.check()
        return self.server.query(expression)

    def alert(self, name: str, /, **labels: str) -> dict[str, Any]:
        """Return an alert once it fires."""

        def firing() -> dict[str, Any] | None:
            self.training.check()
            for alert in self.server.get("alerts")["alerts"]:
                wanted = {"alertname": name, **labels}.items()
                if alert["state"] == "firing" and wanted <= alert["labels"].items():
                    return dict(alert)
            return None

        found: dict[str, Any] = poll(firing, deadline=DEADLINE)
        return found

    def resolved(self, name: str) -> None:
        """Wait until an alert fires no more."""
        poll(lambda: not self.query(f'ALERTS{{alertname="{name}"}}'), deadline=DEADLINE)

    def board(self) -> Board:
        dashboard = committed_dashboards()["embedwatch-overview.json"]
        return Board(dashboard, self.server, scrape=SCRAPE, seconds=20.0)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A training that has been healthy for so long that what was wrong would have fired."""
    require("prometheus")
    folder = tmp_path_factory.mktemp("live")
    rules, textfile = hurried(folder), folder / "embedwatch.prom"
    failing, memory = Failing(), Memory()
    with ExitStack() as stack:
        sink = stack.enter_context(Prometheus(0))
        server = PrometheusServer(folder, [f"127.0.0.1:{sink.port}"], rules=[rules], interval=f"{SCRAPE:g}s")
        stack.enter_context(server)
        sinks: list[Sink | str] = [failing, sink, memory, f"textfile:{textfile}"]
        training = stack.enter_context(LiveTraining(sinks, every=EVERY, rows=ROWS, window=WINDOW))
        made = Live(training, server, sink, failing, memory, textfile)
        made.wait(f"time() - min_over_time(timestamp({PREFIX}build_info)[10m:{SCRAPE:g}s]) > {HEALTHY_SECONDS}")
        made.wait(f'{PREFIX}check_unknown{{check="token_norm_growth"}} == 0')
        yield made


@needs_promtool
class TestHealth:
    def test_only_the_watchdog_has_fired(self, live: Live) -> None:
        fired = live.query(f"count by (alertname, place, check) (max_over_time({FIRING}[10m]))")
        assert [sample["metric"] for sample in fired] == [{"alertname": "EmbedwatchWatchdog"}]

    def test_hurried_rules_are_rules(self, tmp_path: Path) -> None:
        code, said = promtool("check", "rules", "--lint=all", "--lint-fatal", hurried(tmp_path))
        assert code == 0, said

    def test_every_rule_is_evaluated_without_an_error(self, live: Live) -> None:
        rules = [rule for group in live.server.get("rules")["groups"] for rule in group["rules"]]
        assert len(rules) == len(rule_expressions(committed_rules()))
        assert [rule["lastError"] for rule in rules if rule["health"] != "ok"] == []

    def test_the_dashboard_shows_everything(self, live: Live) -> None:
        board = live.board()
        results = [*board.results(), *board.others()]
        assert len(results) > 20
        assert [fault for result in results for fault in result.faults()] == []
        assert crowded(results) == []
        assert {result.query.place for result in results if not result.series} == {*EMPTY_IN_HEALTH, *ELSEWHERE}

    def test_variables_narrow_what_is_shown(self, live: Live) -> None:
        board = live.board()
        choices = board.choices()
        places = set(choices["place"])
        assert choices["model"] == [MODEL]
        assert {"embedding", "embedding.tokens", "layers.0", "monitor", "token_table", "training"} <= places
        for few in (["layers.0"], ["embedding.tokens", "norm"]):
            filled = {name: chosen(values) for name, values in choices.items()}
            results = board.results({**filled, "place": chosen(few)})
            shown = {sample["metric"].get("place") for result in results for sample in result.series}
            assert shown - {None} == set(few)

    def test_rules_look_at_what_exists(self, live: Live) -> None:
        roles = {each.provenance.role for each in snapshots(live)}
        measured = {found.name for each in snapshots(live) for found in each if found.value is not None}
        foreign = {
            alert_name(check.name)
            for check in shipped()
            if can_fail(check)
            and not (measured.issuperset(check.reads) and (not check.roles or roles.intersection(check.roles)))
        }
        of_daemon = {alert.name for alert in daemon_alerts()}
        blind = set()
        for query in rule_expressions(committed_rules()):
            metrics = [name for name in names(query.expr) if name != CHECK_FAILED_TIME.name]  # there once one failed
            judged = [f'{CHECK_FAILING.name}{{check="{check}"}}' for check in VERDICT.findall(query.expr)]
            if not all(live.query(each) for each in (*metrics, *judged)):
                blind.add(query.place)
        assert blind - {alert_name(check) for check in ONCE} - of_daemon - LATER == foreign == FOREIGN

    def test_every_live_statistic_arrives(self, live: Live) -> None:
        found = live.query(f'count by (__name__) (last_over_time({{__name__=~"{PREFIX}.+"}}[10m]))')
        arrived = {sample["metric"]["__name__"] for sample in found}
        live_ones = [cls for cls in registered(Statistic).values() if cls.live and not cls.needs_reference]
        told = [cls for cls in live_ones if cls.consumes != "pairs"]  # of fixed texts, then and now
        families = [catalogue()[PREFIX + metric.name] for cls in told for metric in cls.metrics]
        missing = {family.name.removeprefix(PREFIX) for family in families if not arrived.intersection(family.series)}
        assert missing - BRIEF == ABSENT
        assert len(told) >= 10


@needs_promtool
class TestNumbers:
    def test_counters_only_grow(self, live: Live) -> None:
        families = list(parse_text(fetch(live.sink.url).body.decode()))
        series = {sample.name for family in families if family.type != "gauge" for sample in family.samples}
        assert {f"{PREFIX}{name}" for name in ("norm_bucket", "norm_sum", "errors_total", "steps_total")} <= series
        for name in series:
            assert {float(sample["value"][1]) for sample in live.query(f"resets({name}[10m])")} == {0.0}, name
        assert live.query(f"changes({PREFIX}steps_total[10m]) >= 3")

    def test_totals_are_those_of_the_windows(self, live: Live) -> None:
        def counted() -> tuple[list[Snapshot], dict[str, float]]:
            live.training.monitor.flush()
            families = parse_text(fetch(live.sink.url).body.decode())
            samples = [sample for family in families for sample in family.samples]
            labels = {"model": MODEL, "place": "layers.0", "segment": "all"}
            found = {sample.name: sample.value for sample in samples if sample.labels == labels}
            return snapshots(live, "layers.0"), found

        windows, found = live.training.do(counted)
        norms: list[Any] = [window.get("norm") for window in windows]
        assert found[f"{PREFIX}norm_count"] == sum(norm.value.n for norm in norms) > 0
        assert found[f"{PREFIX}norm_sum"] == pytest.approx(sum(norm.value.sum for norm in norms))
        assert found[f"{PREFIX}window_rows"] == windows[-1].provenance.rows

    def test_histograms_rate_properly(self, live: Live) -> None:
        """Rows by step are as the Monitor was told, and the quantile lies in the bucket of the median or beside it.

        A scrape may come after the rows of a window and before its steps.
        """
        at = '{place="layers.0"}'
        rates = [f"sum(rate({PREFIX}{name}[20s]))" for name in (f"norm_count{at}", "steps_total")]
        assert live.server.value(" / ".join(rates)) == pytest.approx(ROWS / EVERY, rel=0.3)
        estimate = live.server.value(f"histogram_quantile(0.5, sum by (le) (rate({PREFIX}norm_bucket{at}[20s])))")
        (median,) = live.query(f'{PREFIX}norm_quantile{{place="layers.0",q="0.5"}}')
        edges = sorted(float(sample["metric"]["le"]) for sample in live.query(f"{PREFIX}norm_bucket{at}"))
        below = [edge for edge in edges if edge < float(median["value"][1])]
        above = [edge for edge in edges if edge >= float(median["value"][1])]
        assert below[-2] <= estimate <= above[1]

    def test_the_exposition_is_clean(self, live: Live) -> None:
        text = fetch(live.sink.url).body
        program = [require("promtool"), "check", "metrics"]
        done = subprocess.run(program, input=text, capture_output=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

        def counts() -> tuple[float, ...]:
            """Return how many series there are now, and how many the last scrape had been told of and got."""
            page = fetch(live.sink.url, {"Accept": OPENMETRICS}).body.decode()
            here = sum(len(family.samples) for family in parse_openmetrics(page))
            return here, live.server.value(f"{PREFIX}series"), live.server.value("scrape_samples_scraped")

        found = poll(counts, until=lambda told: len(set(told)) == 1)  # a window may close between two of them
        assert found[0] < MOST_SERIES

    def test_scrapes_do_not_wait_for_the_training_nor_it_for_them(self, live: Live) -> None:
        def scrape(number: int) -> tuple[int, float]:
            del number
            began = time.perf_counter()
            return fetch(live.sink.url, {"Accept-Encoding": "gzip"}).status, time.perf_counter() - began

        steps = live.training.steps
        with ThreadPoolExecutor(1) as scraper:
            answers = list(scraper.map(scrape, range(SCRAPES)))
        assert {status for status, _ in answers} == {200}
        seconds = [spent for _, spent in answers]
        assert statistics.median(seconds) < SWIFT
        assert max(seconds) < SCRAPE
        poll(lambda: live.training.steps > steps)

    def test_the_textfile_is_whole_at_any_time(self, live: Live) -> None:
        texts: set[bytes] = set()

        def read() -> int:
            text = live.textfile.read_bytes()
            if text not in texts:
                shown = {family.name for family in parse_text(text.decode())}
                assert {f"{PREFIX}build_info", f"{PREFIX}norm", f"{PREFIX}watch_overhead_ratio"} <= shown
                texts.add(text)
            return len(texts)

        poll(read, until=lambda number: number >= VERSIONS)


@needs_promtool
class TestTrouble:
    def test_a_token_that_runs_away(self, live: Live) -> None:
        training = live.training

        def pump() -> None:
            norms = training.table.norm(dim=1)
            if norms[training.frequent] < LONG * norms.median():
                training.table[training.frequent] *= PUMP

        training.each_step = pump
        alert = live.alert("EmbedwatchTokenNormGrowth")
        extreme = live.alert("EmbedwatchExtremeNorms", place="embedding.tokens")
        board = live.board()
        results = {result.query.place: result for result in (*board.results(), *board.others())}
        training.each_step = None
        longest = SOUND * float(training.table.norm(dim=1).median())
        assert training.do(lambda: embedwatch.renormalize_tokens(training.model, longest)) >= 1
        assert alert["labels"] == {
            "alertname": "EmbedwatchTokenNormGrowth",
            "severity": "warning",
            "job": "embedwatch",
            "instance": f"127.0.0.1:{live.sink.port}",
            "model": MODEL,
            "place": TOKENS,
            "segment": "all",
            "check": "token_norm_growth",
        }
        assert described(alert).startswith(f"{MODEL} / {TOKENS}, segment all: runaway token norm. ")
        said = described(extreme)
        value = re.search(r"embedding\.tokens, segment all: largest norm over median ([\d.]+), limit 50\.", said)
        assert value is not None
        assert 50 <= float(value[1]) <= 2 * LONG
        empty = [place for place in EMPTY_IN_HEALTH if not results[place].series]
        assert empty == []
        assert [fault for result in results.values() for fault in result.faults()] == []
        table = results["Checks at or past a limit"].series
        assert {"model": MODEL, "place": TOKENS, "segment": "all", "check": "token_norm_growth"} in [
            sample["metric"] for sample in table
        ]
        live.resolved("EmbedwatchTokenNormGrowth")
        live.resolved("EmbedwatchExtremeNorms")

    def test_a_few_steps_with_nan(self, live: Live) -> None:
        """They are over within one window, which is mostly over before the next scrape."""
        for _ in range(WINDOW // EVERY):
            live.training.do(partial(setattr, live.training, "planting", True))
        live.training.planting = False
        alert = live.alert("EmbedwatchNonfiniteRows", place="layers.0")
        loss = live.alert("EmbedwatchNonfiniteLoss", place="training")
        assert (alert["labels"]["severity"], alert["labels"]["model"]) == ("critical", MODEL)
        assert re.match(rf"{MODEL} / layers\.0, segment all: non-finite rows( \d+, limit 1)?\. One", described(alert))
        assert loss["labels"]["severity"] == "critical"
        live.resolved("EmbedwatchNonfiniteRows")

    def test_an_exception_of_ours(self, live: Live) -> None:
        part = 'stage="sink",name="failing"'
        assert live.server.value(f"{PREFIX}errors_total{{{part}}}") == 0
        live.failing.broken = True
        alert = live.alert("EmbedwatchErrors", stage="sink", name="failing")
        live.failing.broken = False
        assert described(alert) == f"{MODEL}: sink failing raised exceptions."
        assert live.server.value(f"{PREFIX}errors_total{{{part}}}") > 0
        assert live.query(f'{PREFIX}check_failing{{check="own_errors",severity="warn"}} == 1')
        live.resolved("EmbedwatchErrors")


@needs_promtool
class TestEnd:
    """Last: it ends the training."""

    def test_what_ends_is_missed(self, live: Live) -> None:
        live.training.do(live.training.monitor.detach)
        stale = live.alert("EmbedwatchStale")
        assert "layers.0, layers.0.attention, layers.1, layers.1.attention, monitor, norm, training" in described(stale)
        assert "token_table" not in described(stale)
        live.sink.close()
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", live.sink.port)) != 0
        down = live.alert("EmbedwatchDown")
        assert down["labels"]["severity"] == "critical"
        assert live.textfile.read_text().startswith("# HELP")
        poll(lambda: not live.query(f"{PREFIX}window_rows"))
        live.resolved("EmbedwatchStale")


def described(alert: dict[str, Any]) -> str:
    return str(alert["annotations"]["description"])


def snapshots(live: Live, place: str = "") -> list[Snapshot]:
    """Return what was delivered of a place, or of all."""
    return [each for each, *_ in list(live.memory.deliveries) if place in ("", each.space.place)]
