"""How the heart of the daemon works: limits, and where its state lies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from embedwatch.calibration import USUAL_BUDGET, Budget
from embedwatch.core.errors import UsageError

__all__ = ["PENDING_BYTES", "SLOT_BYTES", "WINDOW_BYTES", "HeartSettings"]

SLOT_BYTES = 64 << 20
"""Three states at D = 1,536, the largest that are exact, of 19 MB each; or one at D = 16,384."""
PENDING_BYTES = 128 << 20
WINDOW_BYTES = 2 << 30
"""Open windows of a hundred Spaces at D = 1,536, or of a thousand at D = 384."""


@dataclass(frozen=True)
class HeartSettings:
    """How the daemon works.

    Args:
        storage: folder of the state; `None` keeps none: what is in no window is lost with the process.
        interval: seconds after which windows are closed.
        pending_bytes: the most bytes that wait to go into windows.
        slot_bytes: the most that wait for one Space.
        window_bytes: the most that open windows of all Spaces can come to take.
        max_spaces: the most Spaces; parcels for further ones are refused, since rows of different places have no
            geometry in common.
        only, skip: names of statistics, measurements or checks to keep, to leave out.
        alarms: false alarms of `drift` that are accepted over time, in all Spaces together.
        expires: seconds after which a Space that is not heard of is forgotten; `None` keeps it.

    Raises:
        UsageError: if a number is out of range.
    """

    storage: Path | None = None
    interval: float = 60.0
    pending_bytes: int = PENDING_BYTES
    slot_bytes: int = SLOT_BYTES
    window_bytes: int = WINDOW_BYTES
    max_spaces: int = 1000
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    alarms: str = USUAL_BUDGET
    expires: float | None = None

    def __post_init__(self) -> None:
        for name in ("interval", "pending_bytes", "slot_bytes", "window_bytes", "max_spaces", "expires"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"`{name}` must be above 0, got {value!r}; leave it out for the default")
        Budget.parse(self.alarms, name="alarms")
