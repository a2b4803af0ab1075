"""Guides: what the runbooks of the alerts on embedwatch itself say; those of checks come from the checks.

Each stands under the name of its alert in `own_alerts.py` or `check_alerts.py`; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from embedwatch.operations.promql import BRIDGE

__all__ = ["GUIDES", "Guide"]


@dataclass(frozen=True, slots=True)
class Guide:
    """What a runbook says beside the alert itself.

    Args:
        meaning: what is the case when it fires.
        impact: what that costs.
        diagnosis: how to find the cause.
        mitigation: what to do.
        queries: what to look at in Prometheus: words to PromQL.
        commands: what to look at on the command line: words to a command.
        silence: when it is right to silence it.
    """

    meaning: str
    impact: str
    diagnosis: str
    mitigation: str
    queries: Mapping[str, str]
    commands: Mapping[str, str]
    silence: str


_SHOW_MONITOR = {"What a recorded run says of watching": "embedwatch show RUN --place monitor --all"}

GUIDES: dict[str, Guide] = {
    "EmbedwatchWarning": Guide(
        meaning="Checks of a model have long been past their warn limit, and not past their fail limit. "
        "The description lists them with their places.",
        impact="None yet. A number moves towards where it does harm, or the model lives near that limit by nature.",
        diagnosis="Look at the course of the number: does it still move, since when, and what changed then? The page "
        "of the check's own alert, and the reference of checks, say what it means.",
        mitigation="Nothing needs to be done at once. If the number moves, act as the page of the check says before it "
        "fails. If it stands still and is understood, leave the check out for this model.",
        queries={
            "What warns and does not fail": "max by (model, place, segment, check) "
            '(embedwatch_check_failing{severity="warn"}) '
            '> 0 unless max by (model, place, segment, check) (embedwatch_check_failing{severity="fail"}) > 0',
            "Where the limits are": "embedwatch_threshold",
        },
        commands={"The numbers of a recorded run, with every verdict": "embedwatch show RUN --verdicts"},
        silence="When the warning is understood and the number stands still. Better leave the check out: "
        "`watch(model, skip=[...])`.",
    ),
    "EmbedwatchDown": Guide(
        meaning="Prometheus has not been able to scrape a process of embedwatch for several minutes.",
        impact="Nothing is known about its models: no other alert can fire, whatever happens. Alerts that were firing "
        f"look {BRIDGE} minutes past the gap, and then resolve.",
        diagnosis="Does the process still run? Does it listen on the port that Prometheus asks, at an address that "
        "Prometheus can reach (the default is this machine only)? The page Targets of Prometheus shows the error: "
        "refused means no process, a time-out means a network or a machine without air, 404 means another service.",
        mitigation="Start the process again, or mend address and port. Where a run ended as planned, take its target "
        "out of the configuration: the alert cannot know that.",
        queries={
            "Which targets do not answer": 'up{job=~"embedwatch.*"} == 0',
            "Since when": 'changes(up{job=~"embedwatch.*"}[1h])',
            "How long a scrape takes": 'scrape_duration_seconds{job=~"embedwatch.*"}',
        },
        commands={"Where a recorded run stopped": "embedwatch show RUN --last 5"},
        silence="While the process is stopped on purpose, for as long as that takes.",
    ),
    "EmbedwatchStale": Guide(
        meaning="The process answers, and places of a model have closed no window for long. "
        "What is examined at the start, at checkpoints and at the end only is no such place: the table, positions, "
        "scale, vocabulary, meaning, layers, generation.",
        impact="Their numbers and verdicts are old: a defect that came since is not seen.",
        diagnosis="Does the model run, and see inputs? A window closes after a number of steps, in serving also after "
        "some time. One place alone: its module is not called any more, or was replaced. "
        "All places: the model stands, or the evaluator is dead or far behind.",
        mitigation="Where windows are meant to be longer than this, raise the age in the rule, or close windows sooner "
        "with `watch(model, window=...)`. Where a module was replaced, watch the model anew.",
        queries={
            "Age of the last window of each place": "time() - max by (model, place) "
            "(embedwatch_window_timestamp_seconds)",
            "Rows left out since the evaluator was behind": "rate(embedwatch_rows_dropped_total[15m])",
            "Whether steps go on": "embedwatch_training_step",
        },
        commands={"When the last windows of each place were": "embedwatch show RUN --last 3"},
        silence="While a model that is only served at times has nothing to do.",
    ),
    "EmbedwatchBlind": Guide(
        meaning="Places of a model that should be watched have never been seen.",
        impact="What happens there is not known; a defect there raises no alert.",
        diagnosis="The sentences of the snapshot of the place `monitor`, and the table `blind_places`, name each "
        "place with its likely cause: compiled before it was watched, a fast path that calls no hook, a fused "
        "module, a module that this model never calls.",
        mitigation="Watch before compiling, or reset the compiler. Switch the fast path off, or choose places that are "
        "called: `watch(model, places=[...])`. A place that is never called can be left out in the same way.",
        queries={
            "Places expected and seen": "embedwatch_places_expected - embedwatch_places_seen",
            "Modules that were replaced and found again": "embedwatch_places_reattached_total",
        },
        commands=_SHOW_MONITOR,
        silence="Until the places are chosen anew; the blind spot stays meanwhile.",
    ),
    "EmbedwatchErrors": Guide(
        meaning="A part of embedwatch raised exceptions: a statistic, a check, a sink, a diagnostic, or its "
        "evaluator. The labels `stage` and `name` say which.",
        impact="The model ran on untouched. What that part would have measured, judged or delivered is missing; after "
        "several failures in a row the part is switched off.",
        diagnosis="The log of the process holds the traceback of the first failure of each part. A sink: is the disk "
        "full, the endpoint away? A statistic or check: which input does it not stand?",
        mitigation="Mend what the traceback names. Until then the part can be left out, with `skip`, or without the "
        "sink. A traceback that ends in embedwatch itself is worth a report.",
        queries={
            "Exceptions by part": "sum by (model, stage, name) (increase(embedwatch_errors_total[1h])) > 0",
            "Parts that are switched off": "embedwatch_parts_off > 0",
        },
        commands=_SHOW_MONITOR,
        silence="While a part is known to fail and cannot be mended yet; match its `stage` and `name`.",
    ),
    "EmbedwatchOverhead": Guide(
        meaning="Watching takes a noticeable share of the model's time, far more than it aims at.",
        impact="Training or serving is slower by that share, or a core is kept busy beside it.",
        diagnosis="Look at the sampling interval: it grows by itself while watching is too dear, so an interval that "
        "has grown far and an overhead that stays mean that windows themselves are dear. Many places, a large D, a "
        "busy machine, or a statistic that was named although it is not meant for live models?",
        mitigation="Watch fewer places or rows, look at fewer steps (`every`, `window`), leave dear statistics out "
        "(`skip`), or give the process one more core.",
        queries={
            "Share of the model's time": "embedwatch_watch_overhead_ratio",
            "Seconds of processor a second": "rate(embedwatch_watch_seconds_total[15m])",
            "One step in so many is looked at": "embedwatch_sampling_interval_steps",
        },
        commands=_SHOW_MONITOR,
        silence="During a start, a compilation or an examination that is known to be dear.",
    ),
    "EmbedwatchCollectorFailed": Guide(
        meaning="A part of the metrics could not be written out; the rest of the page is whole.",
        impact="Its series are missing or stand still, so that rules on them cannot fire.",
        diagnosis="The log names the reason. Mostly it is a plug-in: a metric with a name or label that Prometheus "
        "does not know, a name that somebody else has, or a value that does not fit its kind.",
        mitigation="Rename the metric or its label, or leave the plug-in out. `embedwatch metrics` fails with the same "
        "message if two names clash.",
        queries={"Which parts fail": "min by (instance, collector) (embedwatch_collector_success) == 0"},
        commands={"Every family that can be exported": "embedwatch metrics"},
        silence="Until the plug-in is mended; match its `collector`.",
    ),
    "EmbedwatchLabelOverflow": Guide(
        meaning="A label has had more values than the sink keeps apart, and further ones are folded into `other`.",
        impact="Spaces that are folded share one series: the first has its gauges, all add to the counters.",
        diagnosis="The label `label` says which. Names of places or segments are made from something unbounded: an "
        "identifier, a step, a path, a text.",
        mitigation="Use a bounded set of names. Where there really are so many, raise `max_values` of the sink "
        "together with `max_series`, and see what that costs.",
        queries={
            "Which label": "sum by (instance, label) (increase(embedwatch_label_overflow_total[1h])) > 0",
            "Which places there are": "count by (model, place) (embedwatch_window_rows)",
        },
        commands={"What many places cost": "embedwatch metrics --estimate --places 300"},
        silence="Until the names are mended; match its `label`.",
    ),
    "EmbedwatchSeriesDropped": Guide(
        meaning="There are more series than the sink exports at most, and whole families of the newest Spaces are left "
        "out.",
        impact="What is left out cannot be seen or alerted on.",
        diagnosis="How many Spaces are there, and which family has the most series? Segments multiply, and so do "
        "heads.",
        mitigation="Watch fewer places or segments, or drop measurements that nobody looks at (`skip`). Or raise "
        "`max_series` of the sink and `sample_limit` of the scrape together.",
        queries={
            "Series, and how many are left out": "embedwatch_series_dropped or embedwatch_series",
            "Families with the most series": 'topk(10, count by (__name__) ({__name__=~"embedwatch_.+"}))',
            "Spaces of each model": "count by (model) (embedwatch_window_rows)",
        },
        commands={"Where series come from": "embedwatch metrics --estimate --places 100"},
        silence="Until there are fewer; what is left out stays left out.",
    ),
    "EmbedwatchConfigRefused": Guide(
        meaning="The daemon read its configuration again, found it wrong, and went on with the one before.",
        impact="What was changed is not in use: a new token does not open, a new limit does not hold. After a restart "
        "the daemon would not start at all.",
        diagnosis="The log of the daemon says which setting is wrong and where. A file that the configuration names "
        "may be missing or unreadable for its user: tokens, users, certificates.",
        mitigation="Mend the file, check it, and let it be read again: SIGHUP, or POST /-/reload where allowed.",
        queries={
            "Which daemons refused one": "embedwatch_config_last_reload_successful == 0",
            "Age of the configuration in use": "time() - embedwatch_config_last_reload_success_timestamp_seconds",
        },
        commands={
            "What is wrong with the file": "embedwatch config check FILE",
            "Read it again": "kill -HUP PID",
        },
        silence="While the file is being worked on; the daemon goes on as before.",
    ),
    "EmbedwatchReferenceOld": Guide(
        meaning="The reference that a Space is compared with was made long ago.",
        impact="What is healthy changes slowly: an old reference alarms on change that was wanted, or hides behind so "
        "many findings that nobody reads them.",
        diagnosis="Were models, texts or settings changed on purpose since it was made? `embedwatch reference show` "
        "says when and of what; the course of `drift` says since when rows differ.",
        mitigation="Make a reference of rows that are known to be healthy now, put it in the place of the old one, and "
        "let the configuration be read again. Keep the old one to compare with.",
        queries={
            "Age of each reference": "time() - embedwatch_reference_created_timestamp_seconds",
            "What is compared with it": "embedwatch_reference_rows",
        },
        commands={
            "Of what it was made, and when": "embedwatch reference show DIR",
            "A new one in its place": "embedwatch reference create SOURCE -o DIR --replace",
            "Read the configuration again": "kill -HUP PID",
        },
        silence="Until the next reference is due, where an old one is meant to stay.",
    ),
    "EmbedwatchRefused": Guide(
        meaning="The daemon did not take what a sender gave it, and would not take it later either, or could not "
        "write it to its disk. The label `reason` says why. What is only too much for now is not counted here.",
        impact="These rows are in no window: their Space is judged without them, or not at all.",
        diagnosis="`role`, `dimension`, `layout`: a sender names a Space that has other rows, mostly one name for two "
        "models or versions. `too_many_spaces`: names are made from something unbounded. `too_large`: more rows at "
        "once than fit. `unreadable`: it is no parcel of this version. `unstorable`: the disk is full or read-only.",
        mitigation="Name another place, run one version on all senders, send fewer rows at a time, or make room on the "
        "disk; for more Spaces raise `evaluation.max_spaces`.",
        queries={
            "Refusals by reason": "sum by (instance, reason) (increase(embedwatch_parcels_refused_total[1h])) > 0",
            "What is accepted meanwhile": "sum by (instance) (rate(embedwatch_parcels_accepted_total[15m]))",
            "Answers by status": "sum by (handler, code) (rate(embedwatch_http_requests_total[15m]))",
        },
        commands={
            "The last refusals, with Space and reason": "curl http://HOST:9477/api/v1/failures",
            "Whether the limits are as they are meant": "embedwatch config check FILE",
        },
        silence="While a sender that is known to be wrong is being changed; match its `reason`.",
    ),
    "EmbedwatchStateLost": Guide(
        meaning="When the daemon started, parts of the state on its disk could not be read: a damaged file, or parts "
        "that another version wrote.",
        impact="Rows of open windows, earlier windows, or the dates of verdicts are missing. Judging goes on with what "
        "could be read and with all that comes.",
        diagnosis="The log of the start names each part. A damaged file was put aside beside the state. Was the "
        "machine without power, the disk full, or the version of embedwatch changed?",
        mitigation="Nothing has to be done for what comes now. Keep the file that was put aside until the cause is "
        "known; look at the disk.",
        queries={
            "Parts that could not be read": "embedwatch_state_unrestored > 0",
            "When the daemon started": "process_start_time_seconds",
        },
        commands={
            "How the state stands": "curl http://HOST:9477/api/v1/status",
            "A start that says more": "embedwatch serve --config.file FILE --log.level debug",
        },
        silence="When the cause is known: it stays until the next restart.",
    ),
    "EmbedwatchWatchdog": Guide(
        meaning="Nothing is wrong: this alert fires always, so that a receiver can complain when it stops coming.",
        impact="None while it fires. Where it stops, no other alert arrives either.",
        diagnosis="When it stops: does Prometheus run and evaluate the rules, does it reach Alertmanager, does "
        "Alertmanager reach the receiver?",
        mitigation="Send it to a service that expects it every few minutes, and to nobody else.",
        queries={
            "Whether it fires": 'ALERTS{alertname="EmbedwatchWatchdog",alertstate="firing"}',
            "Whether alerts are sent": "rate(prometheus_notifications_sent_total[15m])",
            "Whether they are lost": "rate(prometheus_notifications_dropped_total[15m])",
        },
        commands={"The rules as they should be loaded": "embedwatch rules"},
        silence="Never: give it a receiver of its own.",
    ),
}
