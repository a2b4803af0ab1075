"""Slots: bounded by bytes and in number, in order, of one dimension and layout a window."""

from __future__ import annotations

import pytest
import torch

from embedwatch.batch import VectorBatch
from embedwatch.core import Space
from embedwatch.daemon.slots import Entry, Full, Refused, Slots
from embedwatch.parcels import Parcel, parcel_of_batch


def parcel(place: str = "a", *, dimension: int = 4, number: int = 0, role: str = "") -> Parcel:
    batch = VectorBatch(torch.ones(3, dimension))
    return parcel_of_batch(batch, Space("m", place), role=role, sender="s", number=number, time=1.7e9)


def entry(number: int, given: Parcel, size: int) -> Entry:
    return Entry(number, size, given, VectorBatch(torch.ones(3, given.dimension or 1)))


def slots() -> Slots:
    return Slots(slot_bytes=100, pending_bytes=150, max_spaces=2)


def test_a_full_slot_refuses_until_something_left_it_and_says_when_to_come_again() -> None:
    held, given = slots(), parcel()
    slot = held.reserve(given, 60)
    with pytest.raises(
        Full, match=r"the slot of m/a must hold at most 100 bytes, it holds 60; send it again"
    ) as caught:
        held.reserve(given, 60)
    assert 1 <= caught.value.retry_after <= 60
    assert held.put(slot, entry(1, given, 60))
    taken = held.take(slot, 1000)
    with pytest.raises(Full):  # what the evaluator works on still takes memory
        held.reserve(given, 60)
    held.done(slot, taken, 0.1)
    assert not held.more(slot)
    held.reserve(given, 60)


def test_all_slots_together_are_bounded() -> None:
    held = slots()
    held.reserve(parcel("a"), 90)
    with pytest.raises(Full, match="of all Spaces"):
        held.reserve(parcel("b"), 90)
    assert [slot.space.place for slot in held] == ["a"], "what was refused takes no place"


def test_what_can_never_fit_is_refused_for_good() -> None:
    held = slots()
    with pytest.raises(Refused, match="at most 100 bytes") as caught:
        held.reserve(parcel(), 101)
    assert caught.value.reason == "too_large"
    for place in "ab":
        held.reserve(parcel(place), 1)
    with pytest.raises(Refused, match="at most 2 Spaces") as caught:
        held.reserve(parcel("c"), 1)
    assert caught.value.reason == "too_many_spaces"


def test_another_dimension_is_refused_until_the_window_closed() -> None:
    held, given = slots(), parcel()
    slot = held.reserve(given, 10)
    held.closed(slot)  # it is still on its way to the store
    with pytest.raises(Refused, match="rows of m/a must have 4 dimensions"):
        held.reserve(parcel(dimension=5), 10)
    held.put(slot, entry(1, given, 10))
    held.done(slot, held.take(slot, 1000), 0.1)
    held.closed(slot)
    assert held.reserve(parcel(dimension=5), 10).dimension == 5


def test_another_role_or_layout_is_refused() -> None:
    held = slots()
    held.reserve(parcel(role="hidden"), 10, frozenset({("norms", "{}")}))
    with pytest.raises(Refused, match="`role` of m/a must be hidden"):
        held.reserve(parcel(role="pooled"), 10)
    with pytest.raises(Refused, match="statistics and settings of its open window"):
        held.reserve(parcel(), 10, frozenset({("norms", '{"seed": 1}')}))
    held.reserve(parcel(), 10)


def test_parcels_leave_in_their_order_and_the_evaluator_is_told_once() -> None:
    held, given = slots(), parcel()
    told = [held.put(held.reserve(given, 10), entry(number, given, 10)) for number in range(4)]
    assert told == [True, False, False, False]
    slot = next(iter(held))
    first = held.take(slot, 20)
    assert [each.number for each in first] == [0, 1]
    held.done(slot, first, 0.1)
    assert held.more(slot), "two more wait"
    assert [each.number for each in held.take(slot, 1)] == [2], "one at least"


def test_so_many_parcels_leave_at_most_and_the_role_is_that_of_the_first() -> None:
    held, given = slots(), parcel(role="hidden")
    assert held.role(given.space) == "vectors"
    for number in range(3):
        held.put(held.reserve(given, 10), entry(number, given, 10))
    assert held.role(given.space) == "hidden"
    assert [each.number for each in held.take(next(iter(held)), 1000, 2)] == [0, 1]


def test_only_a_space_that_is_silent_and_holds_nothing_is_forgotten() -> None:
    now = [0.0]
    held = Slots(slot_bytes=100, pending_bytes=150, max_spaces=2, ticks=lambda: now[0])
    busy, idle = parcel("busy"), parcel("idle")
    held.reserve(busy, 10)
    held.release(held.reserve(idle, 10), 10)
    assert held.forget(5.0) == []
    now[0] = 10.0
    assert held.forget(5.0) == [idle.space]
