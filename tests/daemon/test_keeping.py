"""Keeping: closing ends, however fast senders are, and the evaluator is told of a slot once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from embedwatch.batch import VectorBatch
from embedwatch.core.snapshot import Space
from embedwatch.daemon.heart_settings import HeartSettings
from embedwatch.daemon.keeping import Keeping
from embedwatch.daemon.own_report import Tally
from embedwatch.daemon.slots import Entry, Slot, Slots
from embedwatch.parcels import parcel_of_batch
from embedwatch.sinks.memory import Memory

ROWS = 400
DIMENSION = 256
SIZE = ROWS * DIMENSION * 4
"""Bytes of a parcel: a turn takes two of them."""
MOST = 50
"""Parcels that a sender has; it never waits."""


@dataclass
class Pressed(Slots):
    """Slots of a sender that is as fast as the evaluator: whenever parcels went into the window, as many come."""

    sent: int = 0
    put_to: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(slot_bytes=1 << 30, pending_bytes=1 << 30, max_spaces=3)

    def send(self) -> None:
        batch = VectorBatch(torch.ones(ROWS, DIMENSION))
        parcel = parcel_of_batch(batch, Space("m", "p"), role="", sender="s", number=self.sent, time=1.7e9)
        self.sent += 1
        self.put(self.reserve(parcel, SIZE), Entry(self.sent, SIZE, parcel, batch))

    def done(self, slot: Slot, entries: list[Entry], seconds: float) -> None:
        super().done(slot, entries, seconds)
        for _ in entries if self.sent < MOST else ():
            self.send()


def pressed(waiting: int) -> tuple[Pressed, Keeping, Memory, list[Callable[[], None]]]:
    slots, memory, jobs = Pressed(), Memory(), list[Callable[[], None]]()
    keeping = Keeping(HeartSettings(), [memory], slots, Tally(), put=jobs.append, spent=lambda: 0.0, clock=time.time)
    for _ in range(waiting):
        slots.send()
    return slots, keeping, memory, jobs


def test_a_window_holds_what_waited_when_closing_began() -> None:
    slots, keeping, memory, _ = pressed(5)
    keeping.close_windows()
    assert [found.provenance.rows for found, _, _ in memory.deliveries if found.space.model == "m"] == [5 * ROWS]
    assert (slots.sent, slots.parcels) == (10, 5)


def test_closing_puts_no_work_twice() -> None:
    _, keeping, _, jobs = pressed(5)
    for _ in range(3):
        keeping.close_windows()
    assert jobs == [], "the sender that came first has told the evaluator already"


def test_a_turn_comes_back_while_more_wait() -> None:
    slots, keeping, _, jobs = pressed(1)
    (slot,) = slots
    keeping.turn(slot)
    while jobs:
        jobs.pop()()
        assert len(jobs) <= 1
    assert slots.sent == MOST
    assert not slot.busy
