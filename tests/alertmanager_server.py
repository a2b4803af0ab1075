"""A real Alertmanager for tests, its data and log in a folder of the test."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from tests.polling import DEADLINE
from tests.server_process import ServerProcess

__all__ = ["AlertmanagerServer"]

LASTS = timedelta(hours=1)


class AlertmanagerServer(ServerProcess):
    """Takes alerts until the `with` block ends.

    Args:
        program: where it is.
        folder: for its data and log.
        config: its configuration.
    """

    def __init__(self, program: str, folder: Path, config: Path) -> None:
        super().__init__(program, folder)
        self._config = config

    def arguments(self, address: str) -> Sequence[str]:
        """Return its command line for an address to listen on; an empty one for a cluster opens no port."""
        return (
            f"--config.file={self._config}",
            f"--storage.path={self._folder / 'alertmanager'}",
            f"--web.listen-address={address}",
            "--cluster.listen-address=",
        )

    def post(self, alerts: Sequence[Mapping[str, str]], *, resolved: bool = False) -> None:
        """Say that alerts of these labels fire, or that they are over."""
        now = datetime.now(timezone.utc)
        ends = now - timedelta(seconds=1) if resolved else now + LASTS
        entries = [
            {"labels": dict(labels), "startsAt": (now - LASTS).isoformat(), "endsAt": ends.isoformat()}
            for labels in alerts
        ]
        request = urllib.request.Request(
            f"{self.url}/api/v2/alerts", json.dumps(entries).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            assert answer.status == 200

    def alerts(self) -> list[dict[str, Any]]:
        """Return all alerts that it knows, those that are inhibited too."""
        with urllib.request.urlopen(f"{self.url}/api/v2/alerts", timeout=DEADLINE) as answer:
            found: list[dict[str, Any]] = json.load(answer)
            return found
