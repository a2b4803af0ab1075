"""Exposition: how our nouns become Prometheus names; the one source for sinks, rules and dashboards."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from embedwatch import __version__
from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.errors import RegistrationError
from embedwatch.core.measurement import Kind, Metric
from embedwatch.core.registry import registered
from embedwatch.core.statistic import Statistic

__all__ = [
    "HEAD_LABEL",
    "OWN",
    "PREFIX",
    "PROCESS",
    "RELOAD_SUCCESSFUL",
    "RELOAD_TIME",
    "REQUESTS",
    "RUNBOOKS",
    "SERVED",
    "SEVERITIES",
    "SPACE_LABELS",
    "VERSION",
    "Family",
    "alert_name",
    "catalogue",
    "clash",
    "exposed_name",
    "family_of",
    "joined",
]

VERSION = __version__
PREFIX = "embedwatch_"
RUNBOOKS = "https://example.com/embedwatch/runbooks"
"""Where the pages of `docs/runbooks/` are served, unless somebody says otherwise: one for each alert, by its name."""
SPACE_LABELS = ("model", "place", "segment")
HEAD_LABEL = "head"
"""Beside the labels of a Space, only where it is the Space of one head."""
SEVERITIES = ("warn", "fail")
RESERVED = (*SPACE_LABELS, HEAD_LABEL, "le")
"""Labels that a metric cannot have as its own."""
NAME = re.compile(r"[a-z_][a-z0-9_]*\Z")
LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*\Z")
MADE_OF: dict[Kind, tuple[str, ...]] = {"gauge": ("",), "counter": ("",), "histogram": ("_bucket", "_sum", "_count")}
"""Kind to what is appended to the family's name in the names of its series."""


@dataclass(frozen=True, slots=True)
class Family:
    """A name as Prometheus shows it, with its type, its help and the labels that its series always have.

    Example:
        >>> family_of(Metric("norm", "Distribution of the norms.", kind="histogram")).series
        ('embedwatch_norm_bucket', 'embedwatch_norm_sum', 'embedwatch_norm_count')
    """

    name: str
    help: str
    kind: Kind = "gauge"
    labels: tuple[str, ...] = ()
    unit: str = ""

    @property
    def series(self) -> tuple[str, ...]:
        """Names of its series, as queries write them."""
        return tuple(self.name + suffix for suffix in MADE_OF[self.kind])

    @property
    def claims(self) -> frozenset[str]:
        """Every name that no other family may use; OpenMetrics knows a counter without its `_total`."""
        base = self.name.removesuffix("_total") if self.kind == "counter" else self.name
        created = () if self.kind == "gauge" else (f"{base}_created",)
        return frozenset((base, self.name, *self.series, *created))


def _own(name: str, help_text: str, *labels: str, kind: Kind = "gauge", unit: str = "") -> Family:
    return Family(PREFIX + name, help_text, kind, labels, unit)


_JUDGED = (*SPACE_LABELS, "check")
BUILD_INFO = _own("build_info", "Always 1; its label is the version of embedwatch that exposes this.", "version")
WINDOW_ROWS = _own("window_rows", "Rows that the last window rests on; 0 before the first.", *SPACE_LABELS, unit="rows")
WINDOW_TIME = _own(
    "window_timestamp_seconds",
    "When the last window closed, or a polled file was last found unchanged, in seconds since 1970; absent before.",
    *SPACE_LABELS,
    unit="seconds",
)
TRAINING_STEP = _own("training_step", "Training step of the last window that knew one.", "model", unit="steps")
THRESHOLD = _own("threshold", "Where the value of a check turns unhealthy, in its own unit.", *_JUDGED, "severity")
CHECK_FAILING = _own("check_failing", "1 where a check found this severity or worse.", *_JUDGED, "severity")
CHECK_FAILED_TIME = _own(
    "check_failed_timestamp_seconds",
    "When the last window closed in which a check failed, in seconds since 1970; absent where none did.",
    *_JUDGED,
    unit="seconds",
)
CHECK_UNKNOWN = _own("check_unknown", "1 where a check could not judge: it failed, or saw too little.", *_JUDGED)
COLLECTOR_SUCCESS = _own("collector_success", "0 where part of what should be exposed is missing.", "collector")
LABEL_OVERFLOW = _own(
    "label_overflow_total",
    "Label values replaced by `other` since there were too many.",
    "label",
    kind="counter",
    unit="values",
)
SERIES = _own("series", "Series in this exposition.", unit="series")
SERIES_LIMIT = _own("series_limit", "So many series are exposed at most.", unit="series")
SERIES_DROPPED = _own(
    "series_dropped", "Series left out of this exposition since it would be too large.", unit="series"
)
LAST_PUBLICATION = _own(
    "last_publication_timestamp_seconds", "When this was written, in seconds since 1970.", unit="seconds"
)

OWN = (
    BUILD_INFO,
    WINDOW_ROWS,
    WINDOW_TIME,
    TRAINING_STEP,
    THRESHOLD,
    CHECK_FAILING,
    CHECK_FAILED_TIME,
    CHECK_UNKNOWN,
    COLLECTOR_SUCCESS,
    LABEL_OVERFLOW,
    SERIES,
    SERIES_LIMIT,
    SERIES_DROPPED,
    LAST_PUBLICATION,
)
"""Families that the sink adds to what is measured."""

REQUESTS = _own(
    "http_requests_total", "Requests that were answered.", "handler", "method", "code", kind="counter", unit="requests"
)
RELOAD_SUCCESSFUL = _own(
    "config_last_reload_successful", "1 where the configuration read last was right and is in use."
)
RELOAD_TIME = _own(
    "config_last_reload_success_timestamp_seconds",
    "When a configuration was last taken over, in seconds since 1970.",
    unit="seconds",
)
PROCESS = (
    Family("process_virtual_memory_bytes", "Virtual memory size in bytes.", unit="bytes"),
    Family("process_resident_memory_bytes", "Resident memory size in bytes.", unit="bytes"),
    Family("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", unit="seconds"),
    Family("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", "counter", unit="seconds"),
    Family("process_open_fds", "Number of open file descriptors.", unit="files"),
    Family("process_max_fds", "Maximum number of open file descriptors.", unit="files"),
)
"""What prometheus_client tells of a process, where there is a /proc; names and texts are those of all its users."""
SERVED = (REQUESTS, RELOAD_SUCCESSFUL, RELOAD_TIME, *PROCESS)
"""Families that the daemon adds to those of the sink; what it measures of itself are metrics like all others."""
OWN_NAMES = frozenset(name for family in (*OWN, *SERVED) for name in family.claims)


def exposed_name(metric: Metric) -> str:
    """Return the name under which Prometheus shows a metric.

    Example:
        >>> exposed_name(Metric("mean_cosine", "Mean cosine of two rows."))
        'embedwatch_mean_cosine'
    """
    return PREFIX + metric.name


def alert_name(check: str) -> str:
    """Return the name of the alert on a check.

    Example:
        >>> alert_name("dead_dimensions")
        'EmbedwatchDeadDimensions'
    """
    return "Embedwatch" + "".join(word.capitalize() for word in check.split("_"))


@lru_cache(maxsize=4096)
def family_of(metric: Metric) -> Family:
    """Return the family of a metric: its labels follow those of the Space.

    Raises:
        RegistrationError: if Prometheus cannot show its name or one of its labels, or the name is one of ours.
    """
    if not NAME.match(metric.name):
        raise RegistrationError(
            f"`name` of a metric must be ASCII letters, digits and underscores to be exposed, got {metric.name!r}; "
            "rename it"
        )
    wrong = [label for label in metric.labels if label in RESERVED or not LABEL.match(label)]
    if wrong:
        raise RegistrationError(
            f"`labels` of {metric.name!r} must be ASCII identifiers other than {', '.join(RESERVED)}, got {wrong}; "
            "rename them"
        )
    family = Family(exposed_name(metric), metric.help, metric.kind, (*SPACE_LABELS, *metric.labels), metric.unit)
    if not family.claims.isdisjoint(OWN_NAMES):
        raise RegistrationError(
            f"`name` of a metric must not be that of what the exposition adds, got {metric.name!r}; rename it"
        )
    return family


def catalogue() -> dict[str, Family]:
    """Return every family that can be exposed, by name: our own, those of the daemon, of statistics and diagnostics.

    It imports the modules of all statistics, and torch with them.

    Raises:
        RegistrationError: if two metrics need the same name for different things.
    """
    declared = [plugin.metrics for plugin in registered(Statistic).values()]
    declared += [plugin.metrics for plugin in registered(Diagnostic).values()]
    return joined([*OWN, *SERVED, *(family_of(metric) for metrics in declared for metric in metrics)])


def joined(families: Iterable[Family]) -> dict[str, Family]:
    """Return families by name.

    Raises:
        RegistrationError: if two of them claim the same name and are not the same.
    """
    found: dict[str, Family] = {}
    claimed: dict[str, Family] = {}
    for family in families:
        for name in sorted(family.claims):
            if claimed.setdefault(name, family) != family:
                raise clash(family, claimed[name])
        found[family.name] = family
    return found


def clash(family: Family, other: Family) -> RegistrationError:
    """Make the error that says: these two need the same name."""
    one, two = (f"{each.kind} {each.name} with the labels ({', '.join(each.labels)})" for each in (family, other))
    return RegistrationError(f"two metrics must not share a name, got the {one} and the {two}; rename one")
