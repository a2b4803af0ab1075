"""Alerts on the daemon: does it use the configuration it was given, take what it is sent, and have what it kept."""

from __future__ import annotations

import json

from embedwatch.exposition import PREFIX, RELOAD_SUCCESSFUL
from embedwatch.operations.alerts import Alert, Signal, Trial
from embedwatch.operations.promql import BRIDGE, PROCESS, by, last

__all__ = ["LATER", "daemon_alerts"]

LATER = ("full", "windows", "draining")
"""Reasons of refusals that pass: the sender comes again, and nothing is lost. One that gives up says so itself."""
RECENT = 10
"""Minutes over which refusals are counted."""
OLD_DAYS = 90
"""Age of a reference from which on somebody should look whether it still is what is healthy."""
DAY = 86_400
DAEMON = {"model": "embedwatch", "place": "daemon", "segment": "all"}


def daemon_alerts() -> list[Alert]:
    """Return the alerts on `embedwatch serve`."""
    return [_config_refused(), _refused(), _state_lost(), _reference_old()]


def _config_refused() -> Alert:
    return Alert(
        name="EmbedwatchConfigRefused",
        expr=f"{last('min', PROCESS, RELOAD_SUCCESSFUL.name)} == 0",
        severity="warning",
        summary="The daemon refused the configuration that it was given last, and goes on with the one before.",
        description="{{ $labels.instance }}: the configuration read last is wrong; the one before is still in use.",
        remedy="The log says what is wrong and where. Mend it, try it with `embedwatch config check FILE`, reload.",
        trial=Trial(
            signals=(Signal(RELOAD_SUCCESSFUL.name, healthy=1, faulty=0),),
            labels={},
            description="{instance}: the configuration read last is wrong; the one before is still in use.",
        ),
        hold=10,
        bridge=BRIDGE,
    )


def _refused() -> Alert:
    metric = f"{PREFIX}parcels_refused_total"
    counted = f"increase({metric}{{reason!~{json.dumps('|'.join(LATER))}}}[{RECENT}m])"
    return Alert(
        name="EmbedwatchRefused",
        expr=by("sum", (*PROCESS, "reason"), counted) + " > 0",
        severity="warning",
        summary="The daemon refused what it was sent, so that rows of some Space are not judged.",
        description="{{ $labels.instance }}: parcels were refused, reason {{ $labels.reason }}.",
        remedy="`/api/v1/failures` names the Space and says what the sender has to change. "
        "Reason `unstorable`: the disk is full, or cannot be written.",
        trial=Trial(
            signals=(Signal(metric, {**DAEMON, "reason": "dimension"}, shape="counter"),),
            labels={"reason": "dimension"},
            description="{instance}: parcels were refused, reason dimension.",
            decoys=tuple(Signal(metric, {**DAEMON, "reason": reason}, shape="counter") for reason in LATER),
            memory=RECENT,
        ),
    )


def _state_lost() -> Alert:
    metric = f"{PREFIX}state_unrestored"
    return Alert(
        name="EmbedwatchStateLost",
        expr=f"{last('max', PROCESS, metric)} > 0",
        severity="warning",
        summary="The daemon could not read all of its state when it started.",
        description="{{ $labels.instance }}: {{ $value }} parts of the state could not be read at the start; "
        "rows, verdicts or dates are missing.",
        remedy="The log names the parts, `/api/v1/status` says whether the file was damaged. "
        "It goes on with the rest; a restart ends this alert.",
        trial=Trial(
            signals=(Signal(metric, DAEMON, faulty=2),),
            labels={},
            description="{instance}: 2 parts of the state could not be read at the start; "
            "rows, verdicts or dates are missing.",
        ),
        hold=5,
        bridge=BRIDGE,
    )


def _reference_old() -> Alert:
    metric, oldest = f"{PREFIX}reference_created_timestamp_seconds", OLD_DAYS * DAY
    return Alert(
        name="EmbedwatchReferenceOld",
        expr=f"time() - {last('min', (*PROCESS, 'model', 'place'), metric)} > {oldest}",
        severity="info",
        summary="Rows are compared with a reference that was created long ago.",
        description="{{ $labels.model }}: the reference of {{ $labels.place }} was created more than "
        f"{OLD_DAYS} days ago.",
        remedy="Is what was healthy then still what is healthy now? If not, create a new one from rows of a good week, "
        "compare it with the old one by `embedwatch compare`, and reload.",
        trial=Trial(
            signals=(
                Signal(
                    metric,
                    {"model": "bert", "place": "pooled", "segment": "all"},
                    healthy=-0.8 * oldest,
                    faulty=-oldest - 1,
                ),
            ),
            labels={"model": "bert", "place": "pooled"},
            description=f"bert: the reference of pooled was created more than {OLD_DAYS} days ago.",
        ),
        hold=60,
        bridge=BRIDGE,
    )
