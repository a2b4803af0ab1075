"""Manifests of Kubernetes: the daemon, how Prometheus finds it, its rules and its dashboards, as plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from embedwatch.operations.settings import (
    CONFIG_FILE,
    CONFIG_FOLDER,
    GRACE,
    IMAGE,
    PORT,
    SECRETS,
    STATE,
    USER,
)

__all__ = ["daemon_manifests", "dashboard_manifests", "monitoring_manifests"]

NAME = "embedwatch"
LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "daemon"}
PORT_NAME = "http-metrics"
CONFIG_NAME, TOKENS_NAME, STATE_NAME = f"{NAME}-config", f"{NAME}-tokens", f"{NAME}-state"
STATE_SIZE = "10Gi"
MEMORY, PROCESSOR = ("1Gi", "4Gi"), "500m"
"""Memory that is asked for and that is allowed; share of a core that is asked for."""
SCRAPE_INTERVAL, SCRAPE_TIMEOUT, SAMPLES = "15s", "10s", 12_000
"""As in `dashboards/prometheus/prometheus.yml`."""
SIDECAR_LABEL = {"grafana_dashboard": "1"}
"""What the sidecar of Grafana's chart looks for."""


def daemon_manifests(config: str) -> list[dict[str, Any]]:
    """Return configuration, storage, Deployment, Service and network policy of the daemon.

    The Secret `embedwatch-tokens` is not among them: under `tokens` one token a line, of all who may send or read;
    under `scrape` the one that Prometheus shows.

    Args:
        config: text of its configuration file.
    """
    return [
        _object("v1", "ConfigMap", CONFIG_NAME, data={CONFIG_FILE: config}),
        _object("v1", "PersistentVolumeClaim", STATE_NAME, spec=_claim()),
        _object("apps/v1", "Deployment", NAME, spec=_deployment()),
        _object("v1", "Service", NAME, spec=_service()),
        _object("networking.k8s.io/v1", "NetworkPolicy", NAME, spec=_policy()),
    ]


def monitoring_manifests(rules: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return how the Prometheus operator scrapes the daemon, and the rules that its Prometheus evaluates.

    Args:
        rules: the rule file.
    """
    endpoint = {
        "port": PORT_NAME,
        "path": "/metrics",
        "interval": SCRAPE_INTERVAL,
        "scrapeTimeout": SCRAPE_TIMEOUT,
        "authorization": {"credentials": {"name": TOKENS_NAME, "key": "scrape"}},
    }
    scrape = {
        "jobLabel": "app.kubernetes.io/name",
        "selector": {"matchLabels": LABELS},
        "sampleLimit": SAMPLES,
        "endpoints": [endpoint],
    }
    return [
        _object("monitoring.coreos.com/v1", "ServiceMonitor", NAME, spec=scrape),
        _object("monitoring.coreos.com/v1", "PrometheusRule", NAME, spec={"groups": rules["groups"]}),
    ]


def dashboard_manifests(dashboards: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a ConfigMap for each dashboard: together they would be larger than an annotation of kubectl may be.

    Args:
        dashboards: by file name.
    """
    return [
        _object(
            "v1",
            "ConfigMap",
            f"{name.removesuffix('.json')}-dashboard",
            labels=SIDECAR_LABEL,
            data={name: json.dumps(dashboard, ensure_ascii=False, separators=(",", ":"))},
        )
        for name, dashboard in dashboards.items()
    ]


def _object(
    version: str, kind: str, name: str, *, labels: Mapping[str, str] | None = None, **rest: Any
) -> dict[str, Any]:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "labels": {**LABELS, **(labels or {})}},
        **rest,
    }


def _claim() -> dict[str, Any]:
    return {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": STATE_SIZE}}}


def _deployment() -> dict[str, Any]:
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": GRACE,
        "containers": [_container()],
        "volumes": [
            {"name": "config", "configMap": {"name": CONFIG_NAME}},
            {"name": "tokens", "secret": {"secretName": TOKENS_NAME, "defaultMode": 0o440}},
            {"name": "state", "persistentVolumeClaim": {"claimName": STATE_NAME}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
        ],
    }
    return {
        "replicas": 1,
        # One daemon at a time uses the state: the old one has to be gone before the new one begins.
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": pod},
    }


def _container() -> dict[str, Any]:
    wanted, allowed = MEMORY
    return {
        "name": NAME,
        "image": IMAGE,
        "ports": [{"name": PORT_NAME, "containerPort": PORT}],
        "resources": {"requests": {"cpu": PROCESSOR, "memory": wanted}, "limits": {"memory": allowed}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        # Until its state is restored it is neither alive nor dead.
        "startupProbe": {**_probe("ready"), "periodSeconds": 5, "failureThreshold": 60},
        "livenessProbe": {**_probe("healthy"), "periodSeconds": 15, "timeoutSeconds": 5, "failureThreshold": 4},
        "readinessProbe": {**_probe("ready"), "periodSeconds": 5, "timeoutSeconds": 5},
        "volumeMounts": [
            {"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True},
            {"name": "tokens", "mountPath": SECRETS, "readOnly": True},
            {"name": "state", "mountPath": STATE},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod's own
        ],
    }


def _probe(path: str) -> dict[str, Any]:
    return {"httpGet": {"path": f"/-/{path}", "port": PORT_NAME}}


def _service() -> dict[str, Any]:
    return {"selector": LABELS, "ports": [{"name": PORT_NAME, "port": PORT, "targetPort": PORT_NAME}]}


def _policy() -> dict[str, Any]:
    """Return who may connect: anybody in the cluster, with a token; the daemon itself connects to nobody."""
    return {
        "podSelector": {"matchLabels": LABELS},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": [{"port": PORT_NAME, "protocol": "TCP"}]}],
        "egress": [],
    }
