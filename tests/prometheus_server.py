"""A real Prometheus for tests, its configuration, data and log in a folder of the test."""

from __future__ import annotations

import json
import shutil
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.polling import DEADLINE, poll
from tests.server_process import ServerProcess

__all__ = ["PrometheusServer", "Sample", "require"]

Sample = dict[str, Any]
RESEND = "5s"
"""Alertmanagers are found some seconds after the start: what fired before must not wait a minute to be told again."""


def require(program: str) -> str:
    """Return where a program of Debian's `prometheus` package is; skip the test where it is not installed."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed; it comes with Debian's package `prometheus`")
    return found


class PrometheusServer(ServerProcess):
    """Scrapes targets until the `with` block ends.

    Args:
        folder: for its configuration, data and log.
        targets: `host:port` of what it scrapes, under the job `embedwatch`.
        rules: rule files that it evaluates.
        interval: between scrapes, and between evaluations.
        alertmanagers: `host:port` of those that it tells.
        more: further settings of the scrape job.
    """

    def __init__(
        self,
        folder: Path,
        targets: Sequence[str],
        *,
        rules: Sequence[Path] = (),
        interval: str = "200ms",
        alertmanagers: Sequence[str] = (),
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(require("prometheus"), folder)
        configuration = {
            "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
            "rule_files": [str(path) for path in rules],
            "scrape_configs": [{"job_name": "embedwatch", **(more or {}), **_static(targets)}],
            "alerting": {"alertmanagers": [_static(alertmanagers)]},
        }
        folder.joinpath("prometheus.yml").write_text(json.dumps(configuration))  # JSON is YAML

    def arguments(self, address: str) -> Sequence[str]:
        """Return its command line for an address to listen on."""
        return (
            f"--config.file={self._folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address={address}",
            f"--rules.alert.resend-delay={RESEND}",
        )

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of its HTTP API."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=DEADLINE) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[Sample]:
        """Return the samples of an instant query: each has `metric` and `value`."""
        found: list[Sample] = self.get("query", query=expression)["result"]
        return found

    def value(self, expression: str) -> float:
        """Return the value of a query that finds one sample."""
        (sample,) = self.query(expression)
        return float(sample["value"][1])

    def wait_for(self, expression: str, predicate: Callable[[list[Sample]], bool] = bool) -> list[Sample]:
        """Return the samples once they are as wanted."""
        found: list[Sample] = poll(lambda: self.query(expression), until=predicate)
        return found


def _static(targets: Sequence[str]) -> dict[str, Any]:
    return {"static_configs": [{"targets": list(targets)}]}
