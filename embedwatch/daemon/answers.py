"""Answers: JSON of one line, errors of one sentence, and the headers that every answer has."""

from __future__ import annotations

import json
import math
from http import HTTPStatus
from typing import Any

from fastapi.responses import Response

__all__ = ["SAFE_HEADERS", "Refusal", "again_after", "answer", "refusal"]

SAFE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
LONGEST = 500


class Refusal(Exception):
    """A request that gets an error instead of what it asked for.

    Args:
        status: of HTTP.
        message: one sentence; what was sent is not repeated.
        headers: beside the usual ones.
    """

    def __init__(self, status: HTTPStatus, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers or {}


def again_after(seconds: float) -> dict[str, str]:
    """Return the header that says when to try again, in whole seconds."""
    return {"Retry-After": str(max(1, math.ceil(seconds)))}


def answer(data: Any, status: int = HTTPStatus.OK) -> Response:
    """Return JSON; a number that JSON does not know becomes null."""
    try:
        text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(data), allow_nan=False, separators=(",", ":"))
    return Response(text + "\n", status, media_type="application/json")


def refusal(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """Return an error as JSON."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in message).split())[:LONGEST]
    found = answer({"error": line}, status)
    found.headers.update(headers or {})
    return found


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _finite(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
