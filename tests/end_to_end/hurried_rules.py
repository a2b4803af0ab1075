"""The shipped rules with their minutes made short, so that what takes a quarter of an hour takes seconds."""

from __future__ import annotations

import re
from pathlib import Path

from embedwatch.operations.own_alerts import OVERHEAD, SECONDS, STALE_AFTER
from tests.dashboards.tools import PROMETHEUS

__all__ = ["MINUTE", "hurried"]

SHIPPED = PROMETHEUS / "embedwatch.rules.yml"
MINUTE = 0.5
"""Seconds that a minute of the rules takes: `for`, `keep_firing_for`, ranges, the age of what is stale or failed."""
OVERHEAD_ALLOWED = 10.0
"""Windows of a second instead of a minute, and no budget: what a window costs cannot be made short with it."""
DURATION = re.compile(r"(?<=\[)(\d+)m(?=\])|(?<=for: )(\d+)m$", re.MULTILINE)


def hurried(folder: Path, source: Path = SHIPPED, *, minute: float = MINUTE) -> Path:
    """Write rules into a folder, those that are shipped or others of their kind; return where they are."""
    text = source.read_text(encoding="utf-8")
    text, durations = DURATION.subn(lambda found: f"{int(found[1] or found[2]) * minute * 1000:g}ms", text)
    text, ages = re.subn(rf"([<>]) {STALE_AFTER * SECONDS}\b", rf"\1 {STALE_AFTER * minute:g}", text)
    text, shares = re.subn(rf"> {OVERHEAD}\b", f"> {OVERHEAD_ALLOWED:g}", text)
    if not (durations and ages and shares):
        raise AssertionError(f"the rules are written otherwise: {durations} durations, {ages} ages, {shares} shares")
    path = folder / "hurried.rules.yml"
    path.write_text(text, encoding="utf-8")
    return path
