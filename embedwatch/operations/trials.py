"""Unit tests of the rules for `promtool test rules`: each alert is provoked, and is silent where it should be.

Up to four instances of embedwatch play in a test. On `healthy` all is well. On `faulty` the fault begins at minute
`START`, lasts until the alert has fired for a while, and ends; where the rule looks past missing data, some scrapes
fail in between. On `brief` it ends just too early. On `gone` the process dies while it is failing. At each minute that
tells rules apart, exactly those alerts must fire that should, with exactly these labels and annotations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from embedwatch.operations.alerts import Alert, Signal
from embedwatch.operations.promql import BRIDGE, select
from embedwatch.operations.series import STALE, notation, values

__all__ = ["RULES", "START", "actors", "trial_file"]

RULES = "embedwatch.rules.yml"
JOB = "embedwatch"
START = 20
"""Minute at which a fault begins: all was well for longer than most rules look back."""
LASTS = 10
"""Minutes for which an alert fires before its cause ends."""
GAP = (2, 3)
"""Minutes after the fault began at which scrapes fail."""
TAIL = 4
"""Minutes played after the last change."""


@dataclass(frozen=True, slots=True)
class Actor:
    """One instance in a test, and when its alert fires: surely from `first` to `last`, surely not from `silent` on.

    In between, the edges of ranges decide, which not every version of Prometheus draws alike.
    """

    name: str
    is_bad: Callable[[int], bool]
    first: int | None = None
    last: int = 0
    silent: int = 0
    gaps: frozenset[int] = field(default_factory=frozenset)
    end: int | None = None

    @property
    def instance(self) -> str:
        """The label by which Prometheus knows it."""
        return f"{self.name}:9477"

    def fires(self, minute: int) -> bool | None:
        """Return whether its alert fires at a minute; `None` where that is not sure."""
        if self.first is None or minute < self.first or minute >= self.silent:
            return False
        return True if minute <= self.last else None


def actors(alert: Alert) -> list[Actor]:
    """Return the instances that play in the test of an alert."""
    first = START + alert.trial.lag + alert.hold
    stop = first + LASTS
    linger = alert.trial.memory + alert.keep
    faulty = Actor(
        "faulty",
        lambda minute: START <= minute < stop,
        first,
        last=stop - 1 + max(0, linger - 1),
        silent=stop + linger + (2 if linger else 0),
        gaps=frozenset(START + minute for minute in GAP) if alert.bridge else frozenset(),
    )
    found = [faulty, Actor("healthy", lambda minute: False)]
    if alert.hold:
        found.append(Actor("brief", lambda minute: START <= minute < first))
    if alert.bridge:
        until = stop - 1 + alert.bridge
        found.append(
            Actor(
                "gone", lambda minute: minute >= START, first, until - 1 + alert.keep, until + alert.keep + 2, end=stop
            ),
        )
    return found


def trial_file(alerts: Sequence[Alert]) -> dict[str, Any]:
    """Return the test file of a rule file that holds these alerts."""
    tests = [_constant(alert) if not alert.trial.signals else _test(alert) for alert in alerts]
    names = {alert.name: alert for alert in alerts}
    bridged = next((alert for alert in alerts if alert.bridge and alert.keep), None)
    if bridged and "EmbedwatchDown" in names:
        tests.append(_handover(bridged, names["EmbedwatchDown"]))
    return {"rule_files": [RULES], "evaluation_interval": "1m", "tests": tests}


def _test(alert: Alert) -> dict[str, Any]:
    cast = actors(alert)
    minutes = sorted(_telling(cast))
    length = minutes[-1] + TAIL
    return {
        "name": alert.name,
        "interval": "1m",
        "input_series": [line for actor in cast for line in _lines(alert, actor, length)],
        "alert_rule_test": [_expect(alert, minute, cast) for minute in minutes],
    }


def _telling(cast: Sequence[Actor]) -> set[int]:
    """Return the minutes just before and after each change at which it is sure what every actor's alert does."""
    minutes = {START - 1}
    for actor in cast:
        if actor.first is not None:
            minutes |= {actor.first - 1, actor.first, actor.last, actor.silent, *(gap for gap in actor.gaps)}
            minutes |= {actor.first + LASTS // 2}
    return {minute for minute in minutes if all(actor.fires(minute) is not None for actor in cast)}


def _lines(alert: Alert, actor: Actor, length: int) -> Iterator[dict[str, str]]:
    """Yield the series of one actor; decoys only where all is well, so that they alone could make the alert fire."""
    for signal in alert.trial.signals:
        yield _line(signal, actor, length)
    if actor.name == "healthy":
        always = Actor(actor.name, lambda minute: True)
        for decoy in alert.trial.decoys:
            yield _line(decoy, always, length)


def _line(signal: Signal, actor: Actor, length: int) -> dict[str, str]:
    labels = {"job": JOB, "instance": actor.instance, **signal.labels}
    played = values(signal, actor.is_bad, length, gaps=actor.gaps, end=actor.end)
    return {"series": select(signal.metric, labels), "values": notation(played)}


def _expect(alert: Alert, minute: int, cast: Sequence[Actor]) -> dict[str, Any]:
    firing = [_firing(alert, actor) for actor in cast if actor.fires(minute)]
    return {"eval_time": f"{minute}m", "alertname": alert.name, "exp_alerts": firing}


def _firing(alert: Alert, actor: Actor) -> dict[str, Any]:
    return {
        "exp_labels": {
            "severity": alert.severity,
            "job": JOB,
            "instance": actor.instance,
            **alert.trial.labels,
        },
        "exp_annotations": alert.annotations(alert.trial.description.replace("{instance}", actor.instance)),
    }


def _constant(alert: Alert) -> dict[str, Any]:
    """Return the test of an alert that fires whatever happens."""
    firing = {
        "exp_labels": {"severity": alert.severity},
        "exp_annotations": alert.annotations(alert.trial.description),
    }
    minutes = (0, START)
    return {
        "name": alert.name,
        "interval": "1m",
        "input_series": [],
        "alert_rule_test": [
            {"eval_time": f"{minute}m", "alertname": alert.name, "exp_alerts": [firing]} for minute in minutes
        ],
    }


def _handover(alert: Alert, down: Alert) -> dict[str, Any]:
    """Return the test that a process which dies while it is failing is never without an alert."""
    gone = next(actor for actor in actors(alert) if actor.name == "gone")
    died = gone.end or 0
    up = [1.0] * died + [0.0] * (gone.silent - died)
    played = [_line(signal, gone, gone.silent) for signal in alert.trial.signals]
    minutes = range(died, died + BRIDGE - 1)
    is_down = Actor("gone", gone.is_bad, died + down.hold, gone.silent, gone.silent)
    return {
        "name": f"{alert.name} hands over to {down.name}",
        "interval": "1m",
        "input_series": [
            *played,
            {"series": select("up", {"job": JOB, "instance": gone.instance}), "values": notation([*up, STALE])},
        ],
        "alert_rule_test": [
            expected
            for minute in minutes
            for expected in (_expect(alert, minute, [gone]), _expect(down, minute, [is_down]))
        ],
    }
