"""Every generated file of `examples/deploy/` as text."""

from __future__ import annotations

from typing import Any

from embedwatch.operations.boards import boards
from embedwatch.operations.files import HEADER, yaml_text
from embedwatch.operations.manifests import daemon_manifests, dashboard_manifests, monitoring_manifests
from embedwatch.operations.rules import rule_file
from embedwatch.operations.settings import CONFIG_FILE, container_config

__all__ = ["deployment"]


def deployment() -> dict[str, str]:
    """Return the text of every generated file by its path below `examples/deploy/`."""
    config = HEADER + yaml_text(container_config())
    return {
        CONFIG_FILE: config,
        "kubernetes/daemon.yaml": _documents(daemon_manifests(config)),
        "kubernetes/monitoring.yaml": _documents(monitoring_manifests(rule_file())),
        "kubernetes/dashboards.yaml": _documents(dashboard_manifests(boards())),
    }


def _documents(objects: list[dict[str, Any]]) -> str:
    return HEADER + "---\n".join(yaml_text(each) for each in objects)
