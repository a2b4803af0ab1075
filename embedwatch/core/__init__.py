"""The nouns: values, base classes, registry, errors. Standard library only."""

from embedwatch.core.boundary import Boundary
from embedwatch.core.check import Check, RangeCheck, ThresholdCheck
from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.errors import (
    EmbedwatchError,
    InputError,
    MergeError,
    MissingExtraError,
    RegistrationError,
    UsageError,
)
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.history import History
from embedwatch.core.measurement import Histogram, Measurement, Metric
from embedwatch.core.sink import Sink
from embedwatch.core.snapshot import Provenance, Snapshot, Space
from embedwatch.core.source import Source
from embedwatch.core.statistic import State, Statistic
from embedwatch.core.verdict import Evidence, Limit, Verdict

__all__ = [
    "Boundary",
    "Check",
    "Diagnostic",
    "EmbedwatchError",
    "Evidence",
    "Exhibit",
    "Histogram",
    "History",
    "InputError",
    "Limit",
    "Measurement",
    "MergeError",
    "Metric",
    "MissingExtraError",
    "Provenance",
    "RangeCheck",
    "RegistrationError",
    "Sink",
    "Snapshot",
    "Source",
    "Space",
    "State",
    "Statistic",
    "ThresholdCheck",
    "UsageError",
    "Verdict",
]
