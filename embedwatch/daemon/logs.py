"""Logs: one line an event on standard error, as logfmt or JSON; never a vector, a text or a traceback."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from traceback import extract_tb
from typing import Any, Literal

from embedwatch.core.errors import EmbedwatchError

__all__ = ["LineFormatter", "RateLimit", "log_to_stderr"]

LOGGERS = ("embedwatch", "uvicorn")
BARE = re.compile(r"[A-Za-z0-9_./:@+-]+\Z")
LONGEST = 500
"""Letters of one value."""
REPEATS, PERIOD = 10, 60.0
"""The same event is logged so often in so many seconds; then the number of those left out."""
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "left_out"}


class LineFormatter(logging.Formatter):
    """A record as one line. Of an exception that is not ours only its type and place are told: its text may quote data.

    Args:
        form: `logfmt` or `json`.

    Example:
        >>> record = logging.makeLogRecord({"msg": "window closed", "levelname": "INFO", "rows": 5, "created": 0})
        >>> LineFormatter("logfmt").format(record)
        'ts=1970-01-01T00:00:00.000Z level=info msg="window closed" rows=5'
    """

    def __init__(self, form: Literal["logfmt", "json"]) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields = _fields(record)
        if self._form == "json":
            return json.dumps(fields, ensure_ascii=True, default=_text)
        return " ".join(f"{name}={_logfmt(value)}" for name, value in fields.items())


class RateLimit(logging.Filter):
    """Lets the same event pass a few times a minute, and says how many it held back.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged."""
        key = (record.pathname, record.lineno)
        began, count = self._seen.get(key, (self._clock(), 0))
        if self._clock() - began >= PERIOD:
            if count > REPEATS:
                record.left_out = count - REPEATS
            began, count = self._clock(), 0
        self._seen[key] = (began, count + 1)
        return count < REPEATS


def log_to_stderr(*, level: str, form: Literal["logfmt", "json"]) -> None:
    """Log what the daemon does; called again it changes level and form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(form))
    handler.addFilter(RateLimit())
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level.upper())
    if level != "debug":
        logging.getLogger("uvicorn").setLevel(logging.WARNING)


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    when = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
    fields: dict[str, Any] = {
        "ts": when.replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "msg": _text(record.getMessage()),
    }
    fields |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        fields["error"] = type(error).__name__
        frames = extract_tb(error.__traceback__)
        if frames:
            fields["at"] = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"
        if isinstance(error, EmbedwatchError | OSError):
            fields["reason"] = _text(error)
    if hasattr(record, "left_out"):
        fields["left_out"] = record.left_out
    return fields


def _text(value: Any) -> str:
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in str(value)).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _logfmt(value: Any) -> str:
    text = _text(value)
    return text if BARE.match(text) else json.dumps(text, ensure_ascii=False)
