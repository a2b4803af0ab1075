"""Alerts on our own verdicts: one for each Check that can fail, and one for all that warn.

They fire on verdicts, never on a raw number, so that page, command line and pager agree, and limits stay with the
check. What is held over time is the verdict:

- A check with a warn limit has told already, at info, that trouble is near. Its `fail` must last for `HOLD` minutes;
  a verdict that wavers about the fail limit stays a warning. Missing data does not interrupt the count.
- A check without a warn limit counts what is one too many (a row with NaN), and a check of `ONCE` is asked once. One
  failing window fires at once and for `BRIDGE` minutes. These look at when a window failed last: a gauge of the last
  window would miss those that are over before the next scrape.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeGuard

from embedwatch.core.check import Check, RangeCheck, ThresholdCheck
from embedwatch.exposition import CHECK_FAILED_TIME, CHECK_FAILING, PREFIX, THRESHOLD, alert_name
from embedwatch.operations.alerts import Alert, Signal, Trial
from embedwatch.operations.promql import BRIDGE, IDENTITY, PROCESS, by, look_up, select

__all__ = ["alert_name", "alert_on_check", "alert_on_warnings", "can_fail"]

HOLD = {"critical": 5, "warning": 10}
"""Minutes for which a verdict must fail before anybody is told: several windows of the usual minute."""
HOLD_WARNING = 30
KEEP = 10
"""Minutes for which an alert outlives its cause, so that one healthy window among failing ones does not resolve it."""
DIGITS = 4
SECONDS = 60
ONCE = ("initial_loss",)
"""Checks that are asked of the first window only."""
GRAVE = (*IDENTITY, "check")
"""Labels of an alert on a check."""

SPACE = {"model": "bert", "place": "pooled", "segment": "all"}
"""The Space in which trials take place."""
ANOTHER = "another_check"
"""Its verdict is another's business."""


def can_fail(check: type[Check]) -> bool:
    """Return whether a Check knows a `fail`; one that only warns has no alert of its own."""
    limits = [check.limit, *([check.floor] if check.floor else [])]
    return any(limit is None or limit.fail is not None for limit in limits)


def alert_on_check(check: type[Check]) -> Alert:
    """Return the alert on the `fail` of a Check; its texts are those of the check."""
    fact = _is_fact(check)
    return Alert(
        name=alert_name(check.name),
        expr=_failed_lately(check.name) if fact else _verdict("fail", check=check.name) + " > 0",
        severity=check.severity,
        summary=_first_sentence(check.meaning),
        description=_description(check),
        remedy=check.mitigation,
        trial=_trial(check),
        hold=0 if fact else HOLD.get(check.severity, HOLD_WARNING),
        keep=0 if fact else KEEP,
        bridge=BRIDGE,
    )


def alert_on_warnings() -> Alert:
    """Return the one alert on all verdicts of `warn`, grouped by model."""
    warned = f"{_verdict('warn')} > 0\nunless\n{_verdict('fail')} > 0"
    return Alert(
        name="EmbedwatchWarning",
        expr=by("count", (*PROCESS, "model"), warned),
        severity="info",
        summary="Some checks of a model are past their warn limit, and not past their fail limit.",
        description=f"{{{{ $labels.model }}}}: at or past the warn limit are {_listed_warnings()}.",
        remedy="Look at the course of the numbers on the dashboard; nothing needs to be done at once.",
        trial=Trial(
            signals=(
                _failing("collapse", severity="warn"),
                _failing("collapse", faulty=0),
                *_failing_always("rank_collapse"),
                *_failing_always("collapse", place="layers.3"),
                *_failing_always("collapse", segment="de"),
            ),
            labels={"model": SPACE["model"]},
            description=f"{SPACE['model']}: at or past the warn limit are collapse at {SPACE['place']}.",
        ),
        hold=HOLD_WARNING,
        keep=KEEP,
        bridge=BRIDGE,
    )


def _listed_warnings() -> str:
    """Return the template that lists them. A verdict of fail is past the warn limit too, and has its own alert."""
    labels = (*PROCESS, "model")
    matchers = ",".join(f"{name}=%q" for name in labels)
    arguments = "".join(f" $labels.{name}" for name in labels)
    warn, fail = (
        f'last_over_time({CHECK_FAILING.name}{{{matchers},severity="{severity}"}}[{BRIDGE}m]) > 0'
        for severity in ("warn", "fail")
    )
    query = f"printf `{warn} unless ignoring (severity) {fail}`{arguments}{arguments} | query"
    listed = "{{ if $i }}, {{ end }}{{ $s.Labels.check }} at {{ $s.Labels.place }}"
    return f'{{{{ range $i, $s := {query} | sortByLabel "check" }}}}{listed}{{{{ end }}}}'


def _is_fact(check: type[Check]) -> bool:
    return check.name in ONCE or (check.limit is not None and check.limit.warn is None)


def _shows_value(check: type[Check]) -> TypeGuard[type[ThresholdCheck]]:
    """Return whether the number that was judged is a metric as it stands; of a counter, only its growth is judged."""
    if not issubclass(check, ThresholdCheck) or check.metric.endswith("_total"):
        return False
    judges_another = issubclass(check, RangeCheck) and check.value is not RangeCheck.value
    return check.evaluate in (ThresholdCheck.evaluate, RangeCheck.evaluate) and not judges_another


def _failed_lately(check: str) -> str:
    """Return the expression that holds for a while after a check has failed, however short that window was."""
    when = f"last_over_time({select(CHECK_FAILED_TIME.name, {'check': check})}[{BRIDGE}m])"
    return f"time() - {by('max', GRAVE, when)} < {BRIDGE * SECONDS}"


def _verdict(severity: str, *, check: str = "") -> str:
    """Return the expression that is 1 where a verdict is at least so grave. Without a check it is about all of them."""
    matchers = {**({"check": check} if check else {}), "severity": severity}
    return by("max", GRAVE, f"last_over_time({select(CHECK_FAILING.name, matchers)}[{BRIDGE}m])")


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).split(". ")[0].rstrip(".") + "."


def _description(check: type[Check]) -> str:
    """Return the template: which Space, its value beside its limit where it is known, and what that costs."""
    return (
        "{{ $labels.model }} / {{ $labels.place }}, segment {{ $labels.segment }}: "
        f"{check.title}{_value(check) if _shows_value(check) else ''}. {check.impact}"
    )


def _value(check: type[ThresholdCheck]) -> str:
    """Return the template of the value and its limit; of a fact, the largest that was scraped, if it is past that."""
    shown = f'. | first | value | printf "%.{DIGITS}g"'
    function, condition = "last_over_time", ""
    if _is_fact(check) and check.limit is not None:
        function, condition = "max_over_time", f" >= {check.limit.fail:g}"
    found = look_up(PREFIX + check.metric, IDENTITY, fixed=check.labels, function=function, condition=condition)
    limit = look_up(THRESHOLD.name, IDENTITY, fixed={"check": check.name, "severity": "fail"})
    beside = f"{{{{ with {limit} }}}}, limit {{{{ {shown} }}}}{{{{ end }}}}"
    return f"{{{{ with {found} }}}} {{{{ {shown} }}}}{beside}{{{{ end }}}}"


def _trial(check: type[Check]) -> Trial:
    threshold = check.limit.fail if check.limit else None
    fact = _is_fact(check)
    signals = [_failed(check.name) if fact else _failing(check.name)]
    said = f"{SPACE['model']} / {SPACE['place']}, segment {SPACE['segment']}: {check.title}"
    if _shows_value(check):
        value = 1.0 if threshold is None else threshold
        signals.append(Signal(PREFIX + check.metric, {**SPACE, **check.labels}, faulty=value))
        said += f" {value:.{DIGITS}g}"
        if threshold is not None:
            labels = {**SPACE, "check": check.name, "severity": "fail"}
            signals.append(Signal(THRESHOLD.name, labels, healthy=threshold, faulty=threshold))
            said += f", limit {threshold:.{DIGITS}g}"
    return Trial(
        signals=tuple(signals),
        labels={**SPACE, "check": check.name},
        description=f"{said}. {check.impact}",
        decoys=(_failed(ANOTHER),) if fact else (_failing(check.name, severity="warn"), _failing(ANOTHER)),
        memory=BRIDGE if fact else 0,
    )


def _failing_always(check: str, **labels: str) -> Iterable[Signal]:
    """Yield the verdict of a check that fails whatever else happens; it must hide no warning but its own."""
    for severity in ("warn", "fail"):
        labels = {**SPACE, "check": check, **labels, "severity": severity}
        yield Signal(CHECK_FAILING.name, labels, healthy=1, faulty=1)


def _failing(check: str, *, severity: str = "fail", faulty: float = 1) -> Signal:
    return Signal(CHECK_FAILING.name, {**SPACE, "check": check, "severity": severity}, faulty=faulty)


def _failed(check: str) -> Signal:
    return Signal(CHECK_FAILED_TIME.name, {**SPACE, "check": check}, shape="moment")
