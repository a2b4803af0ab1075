"""What surrounds a training: chance of its own, and an end in good order on Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

__all__ = ["interruptible", "seeded_apart"]


@contextmanager
def seeded_apart(seed: int) -> Iterator[None]:
    """Seed torch's global generators, which dropout draws from, and give them back as they were."""
    devices = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield


@contextmanager
def interruptible(stop: Callable[[str], None]) -> Iterator[None]:
    """Turn the first SIGINT into a clean end. Only the main thread may listen to signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, frame: object) -> None:
        stop("interrupted")
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
