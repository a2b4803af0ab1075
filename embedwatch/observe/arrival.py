"""When numbers have arrived: a device works by itself, and whoever reads on another thread must wait for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["Arriving", "arrival", "arriving", "wait_for"]


def arrival(device: torch.device) -> Any:
    """Return the event at which all work that was given to a device so far is done; `None` for the processor itself.

    It is recorded on the stream that this thread uses on that very device, whatever the current device is.
    """
    if device.type != "cuda":
        return None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event


def wait_for(event: Any) -> None:
    """Wait for an event; `None` is over."""
    if event is not None:
        event.synchronize()


class Arriving:
    """A number that is on its way on a device; as a float it is waited for.

    Args:
        value: one element, computed by work that this thread has given to its device.
    """

    def __init__(self, value: Tensor) -> None:
        self._value, self._event = value, arrival(value.device)

    def __float__(self) -> float:
        wait_for(self._event)
        return float(self._value)


def arriving(value: Tensor) -> Tensor | Arriving:
    """Return a number that another thread may read: as it is where it is there already.

    Example:
        >>> float(arriving(torch.tensor(2.5)))
        2.5
    """
    return Arriving(value) if value.is_cuda else value
