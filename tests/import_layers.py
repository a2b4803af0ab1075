"""Which package of ours may import which others."""

from __future__ import annotations

__all__ = ["LAYERS"]

_BELOW = ("embedwatch.core", "embedwatch.geometry", "embedwatch.hashing", "embedwatch.batch", "embedwatch.sketches")
LAYERS: dict[str, tuple[str, ...]] = {
    "embedwatch.core": _BELOW[:1],
    "embedwatch.geometry": _BELOW[:2],
    "embedwatch.hashing": _BELOW[:2],
    "embedwatch.batch": _BELOW[:4],
    "embedwatch.sketches": (*_BELOW, "embedwatch.ann"),
    "embedwatch.ann": (*_BELOW[:2], "embedwatch.ann"),
    "embedwatch.stats": (*_BELOW, "embedwatch.ann"),
    "embedwatch.diagnostics": (
        *_BELOW[:2],
        "embedwatch.ann",
        "embedwatch.inquiry",
        "embedwatch.lexicons",
        "embedwatch.loading",
        "embedwatch.meaning",
        "embedwatch.observe",
    ),
    "embedwatch.lexicons": (*_BELOW[:1], "embedwatch.lexicons"),
    "embedwatch.meaning": (*_BELOW[:2], "embedwatch.lexicons", "embedwatch.loading", "embedwatch.meaning"),
    "embedwatch.calibration": (*_BELOW[:1], "embedwatch.calibration"),
    "embedwatch.checks": (*_BELOW[:1], "embedwatch.calibration"),
    "embedwatch.exposition": (*_BELOW[:1], "embedwatch.__version__"),
    "embedwatch.sinks": (
        *_BELOW[:1],
        "embedwatch.exposition",
        "embedwatch.parcels",
        "embedwatch.sinks",
        "embedwatch.whole_files",
    ),
    "embedwatch.sources": (
        *_BELOW[:4],
        "embedwatch.ann",
        "embedwatch.loading",
        "embedwatch.lexicons",
        "embedwatch.sources",
        "embedwatch.whole_files",
    ),
    "embedwatch.judging": _BELOW[:1],
    "embedwatch.observe": (*_BELOW[:4], "embedwatch.observe"),
    "embedwatch.evaluator": _BELOW[:1],
    "embedwatch.course": (
        *_BELOW[:1],
        "embedwatch.batch",
        "embedwatch.judging",
        "embedwatch.references",
        "embedwatch.window",
    ),
    "embedwatch.self_report": (*_BELOW[:1], "embedwatch.course", "embedwatch.diagnostics.watching"),
    "embedwatch.interventions": (*_BELOW[:1], "embedwatch.observe"),
    "embedwatch.integrations": (
        *_BELOW[:1],
        "embedwatch.integrations",
        "embedwatch.interventions",
        "embedwatch.monitor",
        "embedwatch.monitor_options",
        "embedwatch.observe",
        "embedwatch.recording",
        "embedwatch.rounds",
        "embedwatch.selection",
    ),
    "embedwatch.recording": (*_BELOW[:1], "embedwatch.recording"),
    "embedwatch.explaining": (*_BELOW[:1], "embedwatch.recording", "embedwatch.sinks._http_target"),
    "embedwatch.faults": ("embedwatch.drills.changes", "embedwatch.drills.fault"),
    "embedwatch.drills.fault": _BELOW[:1],
    "embedwatch.drills.changes": _BELOW[:2],
    "embedwatch.drills.results": _BELOW[:1],
}
"""Package to the packages of ours that it may import, at whatever time."""
