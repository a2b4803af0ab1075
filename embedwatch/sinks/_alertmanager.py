"""What Alertmanager posts to a webhook, in version 4 of its format: firing alerts and resolved ones as JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

__all__ = ["NEVER", "Alert", "Told", "message"]

VERSION = "4"
NEVER = "0001-01-01T00:00:00Z"
"""When an alert that still fires ends, as Go writes no time at all."""
RECEIVER = "embedwatch"
SEPARATOR = b"\xff"
"""No UTF-8 text holds this byte, so that no two sets of labels run together alike."""
FINGERPRINT_BYTES = 8
GROUPED_BY = ("alertname", "model", "place", "segment", "head", "check")
"""Labels of a group: all that tell alerts apart but how grave they are."""


@dataclass(frozen=True)
class Alert:
    """One alert: what it is about, what people read, and since when.

    Args:
        labels: what tells it from others.
        annotations: texts.
        starts: seconds since the epoch.
    """

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts: float

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that are the same for the same labels."""
        digest = hashlib.blake2b(digest_size=FINGERPRINT_BYTES)
        for name, value in sorted(self.labels.items()):
            digest.update(SEPARATOR.join(text.encode("utf-8", "backslashreplace") for text in (name, value, "")))
        return digest.hexdigest()

    def to_json(self, ends: float | None) -> dict[str, Any]:
        """Return it as it stands in a message; firing unless it has ended."""
        return {
            "status": "firing" if ends is None else "resolved",
            "labels": dict(self.labels),
            "annotations": dict(self.annotations),
            "startsAt": _time(self.starts),
            "endsAt": NEVER if ends is None else _time(ends),
            "generatorURL": "",
            "fingerprint": self.fingerprint,
        }


Told = tuple[Alert, float | None]
"""An alert, and when it ended; `None` while it fires."""


def message(alerts: Sequence[Told], *, external_url: str = "") -> bytes:
    """Return a notification about one group of alerts: those that share all labels of `GROUPED_BY`.

    Example:
        >>> alert = Alert({"alertname": "EmbedwatchCollapse", "model": "bert", "severity": "info"}, {}, 0.0)
        >>> data = json.loads(message([(alert, None)]))
        >>> data["status"], data["groupKey"], data["alerts"][0]["startsAt"]
        ('firing', '{}:{alertname="EmbedwatchCollapse", model="bert"}', '1970-01-01T00:00:00.000Z')
    """
    labels = [alert.labels for alert, _ in alerts]
    group = {name: value for name, value in _common(labels).items() if name in GROUPED_BY}
    written = ", ".join(f"{name}={json.dumps(group[name], ensure_ascii=False)}" for name in sorted(group))
    data = {
        "version": VERSION,
        "groupKey": f"{{}}:{{{written}}}",
        "truncatedAlerts": 0,
        "status": "firing" if any(ends is None for _, ends in alerts) else "resolved",
        "receiver": RECEIVER,
        "groupLabels": group,
        "commonLabels": _common(labels),
        "commonAnnotations": _common([alert.annotations for alert, _ in alerts]),
        "externalURL": external_url,
        "alerts": [alert.to_json(ends) for alert, ends in alerts],
    }
    return json.dumps(data, ensure_ascii=False).encode("utf-8", "backslashreplace")


def _common(texts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    first, *others = texts
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}


def _time(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
