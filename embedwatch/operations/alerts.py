"""Alert: one alerting rule together with what provokes it, so that a rule and its test come from one declaration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from embedwatch.core.errors import UsageError
from embedwatch.exposition import RUNBOOKS

__all__ = ["RUNBOOKS", "SEVERITIES", "Alert", "Shape", "Signal", "Trial"]

SEVERITIES = ("critical", "warning", "info", "none")
"""A page, a ticket, only for looking, and for the watchdog, which is no complaint."""
Shape = Literal["gauge", "counter", "clock", "moment"]


@dataclass(frozen=True, slots=True)
class Signal:
    """One time series of a trial, while all is well and while it is not.

    Args:
        metric: its name.
        labels: its labels beside job and instance.
        healthy, faulty: value of a gauge; the best is a pair on both sides of a limit. A counter stands still while all
            is well and grows by one a minute otherwise; a clock holds the time in seconds and stops when it is not;
            a moment holds the time at which it last was not, and is missing before.
        shape: which of these it is.
    """

    metric: str
    labels: Mapping[str, str] = field(default_factory=dict)
    healthy: float = 0.0
    faulty: float = 1.0
    shape: Shape = "gauge"


@dataclass(frozen=True, slots=True)
class Trial:
    """What provokes an alert, and what it then says.

    Args:
        signals: the series that it depends on. Without any it fires always.
        labels: labels of the alert beside its name, severity, job and instance.
        description: the description with everything filled in; `{instance}` stands for the instance.
        decoys: series that look alike and must not matter; they show `faulty` all the time, where all is well.
        lag: minutes from the fault until the expression sees it.
        memory: minutes for which the expression still sees it once it is over.
    """

    signals: tuple[Signal, ...]
    labels: Mapping[str, str]
    description: str
    decoys: tuple[Signal, ...] = ()
    lag: int = 0
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Alert:
    """One alerting rule.

    Args:
        name: in camel case, `Embedwatch` first.
        expr: PromQL.
        severity: one of `SEVERITIES`.
        summary: one sentence that is the same whenever it fires.
        description: a template: which one, and how bad.
        remedy: what to do.
        trial: what provokes it.
        hold: minutes for which the expression must hold before it fires.
        keep: minutes for which it goes on firing afterwards, against flapping.
        bridge: minutes over which the expression looks past missing data.
    """

    name: str
    expr: str
    severity: str
    summary: str
    description: str
    remedy: str
    trial: Trial
    hold: int = 0
    keep: int = 0
    bridge: int = 0

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise UsageError(
                f"`severity` of {self.name} must be one of {', '.join(SEVERITIES)}, got {self.severity!r}; choose one"
            )
        if not self.summary.endswith("."):
            raise UsageError(
                f"`summary` of {self.name} must be a sentence, got {self.summary!r}; end it in a full stop"
            )

    def annotations(self, description: str) -> dict[str, str]:
        """Return the annotations, with a description that is a template or filled in."""
        texts = {"summary": self.summary, "description": description, "remedy": self.remedy}
        return {**{name: " ".join(text.split()) for name, text in texts.items()}, "runbook_url": self.runbook}

    @property
    def runbook(self) -> str:
        """Address of the page that says more."""
        return f"{RUNBOOKS}/{self.name}.md"

    def rule(self) -> dict[str, Any]:
        """Return the rule as it stands in a rule file."""
        rule: dict[str, Any] = {"alert": self.name, "expr": self.expr}
        if self.hold:
            rule["for"] = f"{self.hold}m"
        if self.keep:
            rule["keep_firing_for"] = f"{self.keep}m"
        return {**rule, "labels": {"severity": self.severity}, "annotations": self.annotations(self.description)}
