"""embedwatch watches the geometry of an embedding space, and says what is wrong, where, how sure, and what to do.

The public names are imported when first used, so that `import embedwatch` and `embedwatch --help` load no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from embedwatch.align.aligner import Aligner, load_aligner
    from embedwatch.align.checking import Compatibility, check_pair
    from embedwatch.align.fitting import fit_aligner
    from embedwatch.align.mixed import find_mixed
    from embedwatch.align.mixed_results import Mixed
    from embedwatch.align.probing import Bridge
    from embedwatch.auditing import Audit, audit
    from embedwatch.batch import AttentionBatch, PairBatch, TokenBatch, TrainingStep, VectorBatch
    from embedwatch.canary import Canary
    from embedwatch.comparing import Comparison, compare
    from embedwatch.core import (
        Check,
        Diagnostic,
        EmbedwatchError,
        Evidence,
        Exhibit,
        Histogram,
        History,
        InputError,
        Limit,
        Measurement,
        MergeError,
        Metric,
        MissingExtraError,
        Provenance,
        RegistrationError,
        Sink,
        Snapshot,
        Source,
        Space,
        Statistic,
        ThresholdCheck,
        UsageError,
        Verdict,
    )
    from embedwatch.drills.drilling import drill
    from embedwatch.drills.results import Drill
    from embedwatch.index_health import examine_index
    from embedwatch.index_watch import IndexWatch
    from embedwatch.interventions import renormalize_tokens
    from embedwatch.judging import Judge
    from embedwatch.loading import Subject, load_subject
    from embedwatch.monitor import Monitor, watch
    from embedwatch.recording import Recording, read_recording
    from embedwatch.references import Reference, create_reference, load_reference, save_reference
    from embedwatch.snapshot_changes import SnapshotChanges, compare_snapshots
    from embedwatch.sources import open_source
    from embedwatch.window import Window, Windows

_HOMES = {
    "embedwatch.align.aligner": ("Aligner", "load_aligner"),
    "embedwatch.align.checking": ("Compatibility", "check_pair"),
    "embedwatch.align.fitting": ("fit_aligner",),
    "embedwatch.align.mixed": ("find_mixed",),
    "embedwatch.align.mixed_results": ("Mixed",),
    "embedwatch.align.probing": ("Bridge",),
    "embedwatch.auditing": ("Audit", "audit"),
    "embedwatch.batch": ("AttentionBatch", "PairBatch", "TokenBatch", "TrainingStep", "VectorBatch"),
    "embedwatch.canary": ("Canary",),
    "embedwatch.comparing": ("Comparison", "compare"),
    "embedwatch.snapshot_changes": ("SnapshotChanges", "compare_snapshots"),
    "embedwatch.core": (
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
        "RegistrationError",
        "Sink",
        "Snapshot",
        "Source",
        "Space",
        "Statistic",
        "ThresholdCheck",
        "UsageError",
        "Verdict",
    ),
    "embedwatch.drills.drilling": ("drill",),
    "embedwatch.drills.results": ("Drill",),
    "embedwatch.index_health": ("examine_index",),
    "embedwatch.index_watch": ("IndexWatch",),
    "embedwatch.interventions": ("renormalize_tokens",),
    "embedwatch.judging": ("Judge",),
    "embedwatch.loading": ("Subject", "load_subject"),
    "embedwatch.monitor": ("Monitor", "watch"),
    "embedwatch.recording": ("Recording", "read_recording"),
    "embedwatch.references": ("Reference", "create_reference", "load_reference", "save_reference"),
    "embedwatch.sources": ("open_source",),
    "embedwatch.window": ("Window", "Windows"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Aligner",
    "AttentionBatch",
    "Audit",
    "Bridge",
    "Canary",
    "Check",
    "Comparison",
    "Compatibility",
    "Diagnostic",
    "Drill",
    "EmbedwatchError",
    "Evidence",
    "Exhibit",
    "Histogram",
    "History",
    "IndexWatch",
    "InputError",
    "Judge",
    "Limit",
    "Measurement",
    "MergeError",
    "Metric",
    "MissingExtraError",
    "Mixed",
    "Monitor",
    "PairBatch",
    "Provenance",
    "Recording",
    "Reference",
    "RegistrationError",
    "Sink",
    "Snapshot",
    "SnapshotChanges",
    "Source",
    "Space",
    "Statistic",
    "Subject",
    "ThresholdCheck",
    "TokenBatch",
    "TrainingStep",
    "UsageError",
    "VectorBatch",
    "Verdict",
    "Window",
    "Windows",
    "__version__",
    "audit",
    "check_pair",
    "compare",
    "compare_snapshots",
    "create_reference",
    "drill",
    "examine_index",
    "find_mixed",
    "fit_aligner",
    "load_aligner",
    "load_reference",
    "load_subject",
    "open_source",
    "read_recording",
    "renormalize_tokens",
    "save_reference",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'embedwatch' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
