"""The budget keeps watching within its share, whatever a look and a window cost."""

from __future__ import annotations

import pytest

from embedwatch.observe.budget import CREDIT, Budget

SHARE = 0.01
FORWARD, WINDOW = 0.01, 0.15
"""Seconds of a forward pass, and of the closing of a window."""
WINDOW_EVERY = 6000


@pytest.mark.parametrize("look", [0.0001, 0.002, 0.05], ids=["cheap", "dear", "dearer than the pass"])
@pytest.mark.parametrize("stolen", [1.0, 1.5], ids=["alone", "on a busy machine"])
def test_serving_spends_no_more_than_the_share_of_what_the_model_takes(look: float, stolen: float) -> None:
    budget, ours, clock, model, looks = Budget(SHARE), 0.0, 0.0, 0.0, 0
    for step in range(60_000):
        if clock >= budget.affordable_at(ours):
            ours, clock, looks = ours + look, clock + look, looks + 1
        if step % WINDOW_EVERY == WINDOW_EVERY - 1:
            ours += WINDOW
        model, clock = model + FORWARD, clock + FORWARD * stolen  # others run while the clock goes on
    assert looks > 0
    assert (ours - CREDIT - look) / model <= SHARE


def test_training_stretches_by_what_a_window_cost_and_comes_back() -> None:
    budget = Budget(SHARE)
    budget.window_over(ours=1.0, busy=2.0)  # the start does not count
    assert budget.stretch == 1
    budget.window_over(ours=1.3, busy=12.3)
    assert (budget.overhead, budget.stretch) == (pytest.approx(0.03), 4)
    budget.window_over(ours=1.31, busy=22.31)
    assert (budget.overhead, budget.stretch) == (pytest.approx(0.001), 2)


def test_without_a_share_everything_is_afforded() -> None:
    budget = Budget(None)
    budget.window_over(ours=0.0, busy=1.0)
    budget.window_over(ours=9.0, busy=10.0)
    assert budget.affordable_at(1e9) == 0
    assert budget.stretch == 1
