"""Latest and the notes of Extremes: merge whatever the order, and damaged states are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from embedwatch.core.errors import MergeError
from embedwatch.sketches import Extremes, Latest


def latest(*notes: tuple[int, float]) -> Latest:
    sketch = Latest()
    for step, number in notes:
        sketch.note(step, number)
    return sketch


def test_merge_keeps_the_highest_step_and_averages_equal_ones() -> None:
    first, second = latest((3, 1.0), (5, 4.0)), latest((5, 1.0), (5, 1.0), (4, 9.0))
    first.merge(second)
    assert first.number == 2.0
    second.merge(latest((6, 0.5)))
    assert second.number == 0.5
    second.merge(Latest())
    assert second.number == 0.5


@pytest.mark.parametrize(
    "damage", [{"count": torch.tensor(0)}, {"total": torch.tensor(torch.nan).double()}, {"step": torch.tensor(1.0)}]
)
def test_a_damaged_state_is_refused(damage: dict[str, Any]) -> None:
    with pytest.raises(MergeError):
        Latest().load({**latest((1, 2.0)).state(), **damage}, 1)


def test_notes_go_with_their_rows() -> None:
    whole, part = Extremes(3, notes=("seen",)), Extremes(3, notes=("seen",))
    whole.add(torch.tensor([1.0, 4.0, 4.0]), torch.tensor([9, 8, 7]), seen=torch.tensor([90, 80, 70]))
    part.add(torch.tensor([2.0, 5.0]), torch.tensor([6, 5]), seen=torch.tensor([60, 50]))
    whole.merge(part)
    assert [row for row, _ in whole.entries()] == [5, 7, 8]
    assert whole.note("seen") == [50, 70, 80]
    again = Extremes(3, notes=("seen",))
    again.load(whole.state(), 1)
    assert again.note("seen") == [50, 70, 80]
    with pytest.raises(MergeError, match="seen"):
        again.load({**whole.state(), "seen": torch.tensor([1, 2])}, 1)
