"""Names by which Grafana finds our dashboards, whatever they are called."""

from __future__ import annotations

__all__ = ["ALIGNMENT", "ATTENTION", "DAEMON", "GEOMETRY", "NORMS", "OVERVIEW", "TRAINING"]

OVERVIEW = "embedwatch-overview"
NORMS = "embedwatch-norms"
GEOMETRY = "embedwatch-geometry"
ATTENTION = "embedwatch-attention"
ALIGNMENT = "embedwatch-alignment"
TRAINING = "embedwatch-training"
DAEMON = "embedwatch-daemon"
