"""Alerts on embedwatch itself: is it there, does it see everything, what does it cost, what does it leave out.

These compare raw numbers, since what is broken here may be the judging.
"""

from __future__ import annotations

import json

from embedwatch.exposition import PREFIX
from embedwatch.operations.alerts import Alert, Signal, Trial
from embedwatch.operations.daemon_alerts import daemon_alerts
from embedwatch.operations.promql import BRIDGE, PROCESS, SELDOM, by, last, select

__all__ = ["JOBS", "own_alerts"]

JOBS = "embedwatch.*"
"""Scrape jobs of embedwatch are told by this pattern of their names."""
SECONDS = 60
DOWN_AFTER = 5
STALE_AFTER = 15
"""Minutes without a closed window after which a place is stale."""
OVERHEAD = 0.05
"""Share of the watched time that watching may take. The defaults aim at 0.01."""
RECENT = 10
"""Minutes over which errors are counted."""
OVERFLOW_RECENT = 60
MODEL = (*PROCESS, "model")
MONITOR = {"model": "bert", "place": "monitor", "segment": "all"}


def own_alerts() -> list[Alert]:
    """Return the alerts on embedwatch itself."""
    return [
        _down(),
        _stale(),
        _blind(),
        _errors(),
        _overhead(),
        _collector_failed(),
        _label_overflow(),
        _series_dropped(),
        *daemon_alerts(),
        _watchdog(),
    ]


def _down() -> Alert:
    return Alert(
        name="EmbedwatchDown",
        expr=select("up", like={"job": JOBS}) + " == 0",
        severity="critical",
        summary="Prometheus cannot scrape embedwatch.",
        description="{{ $labels.instance }} of job {{ $labels.job }} does not answer. "
        "Nothing about its models is known from now on.",
        remedy="Is the process alive, its port open, its certificate or token valid? "
        "A run that ended as planned: take its target out.",
        trial=Trial(
            signals=(Signal("up", healthy=1, faulty=0),),
            labels={},
            description="{instance} of job embedwatch does not answer. Nothing about its models is known from now on.",
            decoys=(Signal("up", {"job": "node"}, faulty=0),),
        ),
        hold=DOWN_AFTER,
    )


def _stale() -> Alert:
    metric = f"{PREFIX}window_timestamp_seconds"
    seldom = "|".join(SELDOM)
    late = f"time() - last_over_time({select(metric, unlike={'place': seldom})}[{BRIDGE}m]) > {STALE_AFTER * SECONDS}"
    asked = f"last_over_time({metric}{{job=%q,instance=%q,model=%q,place!~{json.dumps(seldom)}}}[{BRIDGE}m])"
    query = f"max by (place) (time() - {asked}) > {STALE_AFTER * SECONDS}"
    rare = tuple(Signal(metric, {"model": "bert", "place": place, "segment": "all"}, shape="clock") for place in SELDOM)
    return Alert(
        name="EmbedwatchStale",
        expr=by("count", MODEL, late),
        severity="warning",
        summary="Places of a model have delivered no window for long, so their numbers and verdicts are old.",
        description="{{ $labels.model }}: nothing new for more than "
        f"{STALE_AFTER} minutes at {{{{ range $i, $s := printf `{query}` $labels.job $labels.instance $labels.model "
        '| query | sortByLabel "place" }}{{ if $i }}, {{ end }}{{ $s.Labels.place }}{{ end }}.',
        remedy="Does the model still run and see inputs? Where windows are meant to be longer than this, raise the "
        "number of seconds in both places of the rule.",
        trial=Trial(
            signals=(
                Signal(metric, {"model": "bert", "place": "pooled", "segment": "all"}, shape="clock"),
                Signal(metric, {"model": "bert", "place": "layers.3", "segment": "all"}, shape="clock"),
                *rare,
            ),
            labels={"model": "bert"},
            description=f"bert: nothing new for more than {STALE_AFTER} minutes at layers.3, pooled.",
            decoys=rare,
            lag=STALE_AFTER,
        ),
        hold=DOWN_AFTER,
        bridge=BRIDGE,
    )


def _blind() -> Alert:
    return Alert(
        name="EmbedwatchBlind",
        expr=f"{last('max', MODEL, PREFIX + 'places_seen')}\n<\n{last('max', MODEL, PREFIX + 'places_expected')}",
        severity="warning",
        summary="Some of the places that should be watched have never been seen.",
        description="{{ $labels.model }}: {{ $value }} places seen, fewer than expected. "
        "What happens at the others is not known.",
        remedy="Compiled models: attach before compiling, or reset the compiler. "
        "Fast paths and fused modules call no hooks: choose places that are called.",
        trial=Trial(
            signals=(
                Signal(f"{PREFIX}places_seen", MONITOR, healthy=12, faulty=11),
                Signal(f"{PREFIX}places_expected", MONITOR, healthy=12, faulty=12),
            ),
            labels={"model": "bert"},
            description="bert: 11 places seen, fewer than expected. What happens at the others is not known.",
        ),
        hold=10,
        bridge=BRIDGE,
    )


def _errors() -> Alert:
    metric = f"{PREFIX}errors_total"
    return Alert(
        name="EmbedwatchErrors",
        expr=by("sum", (*MODEL, "stage", "name"), f"increase({metric}[{RECENT}m])") + " > 0",
        severity="warning",
        summary="A part of embedwatch raised exceptions; the model ran on, the part's numbers are missing.",
        description="{{ $labels.model }}: {{ $labels.stage }} {{ $labels.name }} raised exceptions.",
        remedy="The log holds the first traceback. Switch that part off until it is mended.",
        trial=Trial(
            signals=(Signal(metric, {**MONITOR, "stage": "statistic", "name": "norms"}, shape="counter"),),
            labels={"model": "bert", "stage": "statistic", "name": "norms"},
            description="bert: statistic norms raised exceptions.",
            memory=RECENT,
        ),
    )


def _overhead() -> Alert:
    return Alert(
        name="EmbedwatchOverhead",
        expr=f"{last('max', MODEL, PREFIX + 'watch_overhead_ratio')} > {OVERHEAD}",
        severity="warning",
        summary="Watching takes a noticeable share of the model's time.",
        description="{{ $labels.model }}: watching takes {{ $value | humanizePercentage }} of the time, "
        f"more than {OVERHEAD:.0%}.",
        remedy="Raise the sampling interval, watch fewer places, or give the watched process one more core.",
        trial=Trial(
            signals=(Signal(f"{PREFIX}watch_overhead_ratio", MONITOR, healthy=OVERHEAD, faulty=OVERHEAD + 0.001),),
            labels={"model": "bert"},
            description=f"bert: watching takes {OVERHEAD + 0.001:.1%} of the time, more than {OVERHEAD:.0%}.",
        ),
        hold=15,
        bridge=BRIDGE,
    )


def _collector_failed() -> Alert:
    labels = (*PROCESS, "collector")
    return Alert(
        name="EmbedwatchCollectorFailed",
        expr=f"{last('min', labels, PREFIX + 'collector_success')} == 0",
        severity="warning",
        summary="A part of the metrics could not be written out.",
        description="{{ $labels.instance }}: collector {{ $labels.collector }} fails, so its metrics are missing.",
        remedy="The log names the reason: mostly a plug-in whose metric has an invalid name, or one that is taken.",
        trial=Trial(
            signals=(Signal(f"{PREFIX}collector_success", {"collector": "verdicts"}, healthy=1, faulty=0),),
            labels={"collector": "verdicts"},
            description="{instance}: collector verdicts fails, so its metrics are missing.",
        ),
        hold=10,
        bridge=BRIDGE,
    )


def _label_overflow() -> Alert:
    metric = f"{PREFIX}label_overflow_total"
    return Alert(
        name="EmbedwatchLabelOverflow",
        expr=by("sum", (*PROCESS, "label"), f"increase({metric}[{OVERFLOW_RECENT}m])") + " > 0",
        severity="info",
        summary="A label takes more values than are kept; the rest is folded into one.",
        description='{{ $labels.instance }}: label {{ $labels.label }} has too many values; the rest is named "other".',
        remedy="Somebody passes identifiers as places or segments: use a bounded set of names.",
        trial=Trial(
            signals=(Signal(metric, {"label": "segment"}, shape="counter"),),
            labels={"label": "segment"},
            description='{instance}: label segment has too many values; the rest is named "other".',
            memory=OVERFLOW_RECENT,
        ),
    )


def _series_dropped() -> Alert:
    return Alert(
        name="EmbedwatchSeriesDropped",
        expr=f"{last('max', PROCESS, PREFIX + 'series_dropped')} > 0",
        severity="warning",
        summary="There are more series than the limit allows; some are left out.",
        description="{{ $labels.instance }}: {{ $value }} series are left out.",
        remedy="Watch fewer places or segments, or raise the limit together with the scrape's `sample_limit`.",
        trial=Trial(
            signals=(Signal(f"{PREFIX}series_dropped", faulty=7),),
            labels={},
            description="{instance}: 7 series are left out.",
        ),
        hold=5,
        bridge=BRIDGE,
    )


def _watchdog() -> Alert:
    return Alert(
        name="EmbedwatchWatchdog",
        expr="vector(1)",
        severity="none",
        summary="This alert fires always: it proves that alerts arrive.",
        description="Let the receiver complain when it stops.",
        remedy="Nothing to do while it fires. When it stops, look at Prometheus and Alertmanager.",
        trial=Trial(signals=(), labels={}, description="Let the receiver complain when it stops."),
    )
