"""Waits for what will come: asks again and again until a deadline, and never sleeps blindly."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

__all__ = ["DEADLINE", "poll"]

DEADLINE = 30.0
"""Seconds that a loaded machine may take for what usually takes one."""
PAUSE = 0.02


def poll(attempt: Callable[[], Any], *, until: Callable[[Any], bool] = bool, deadline: float = DEADLINE) -> Any:
    """Return the first answer that is wanted; fail with the last one when the deadline has passed."""
    end = time.monotonic() + deadline
    while True:
        answer: Any = None
        try:
            answer = attempt()
            if until(answer):
                return answer
        except (OSError, ValueError, LookupError) as error:
            answer = error
        if time.monotonic() > end:
            raise AssertionError(f"after {deadline:g} s the answer still was {answer!r}")
        time.sleep(PAUSE)
