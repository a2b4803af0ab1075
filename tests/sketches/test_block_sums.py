"""Sums over blocks are the same in any order, and bounded; frozen arrays are told apart by their bits."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch

from embedwatch.core import MergeError, UsageError
from embedwatch.sketches import BlockSums, Frozen


def filled(numbers: list[int], *, most: int = 4) -> BlockSums:
    sums = BlockSums(2, unit=5, most=most)
    for number in numbers:
        sums.add(torch.tensor([number]), torch.tensor([[1.0, float(number)]]).double())
    return sums


def test_any_order_and_any_merge_gives_the_same_blocks() -> None:
    numbers = [0, 3, 7, 26, 90, -4]
    wanted = filled(numbers)
    for order in permutations(numbers):
        found = filled(list(order[:2]))
        found.merge(filled(list(order[2:])))
        assert found.size == wanted.size
        for have, want in zip(found.blocks, wanted.blocks, strict=True):
            torch.testing.assert_close(have, want)


def test_blocks_are_joined_in_pairs_until_they_are_few_enough() -> None:
    sums = filled(list(range(0, 400, 5)))
    assert (sums.size, len(sums.blocks.keys)) == (160, 3)
    assert sums.blocks.rows.tolist() == [32, 32, 16]
    assert sums.blocks.sums[:, 0].tolist() == [32.0, 32.0, 16.0]


def test_blocks_from_a_row_on() -> None:
    assert filled([0, 5, 10, 15]).without(6).keys.tolist() == [2, 3]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("size", torch.tensor(7)),
        ("size", torch.tensor(15)),
        ("size", torch.tensor(0)),
        ("rows", torch.tensor([0, 1])),
        ("keys", torch.tensor([3, 1])),
        ("keys", torch.arange(9)),
    ],
)
def test_a_damaged_state_is_refused(name: str, value: torch.Tensor) -> None:
    state = filled([0, 9]).state()
    with pytest.raises(MergeError):
        filled([]).load({**state, name: value}, 2)


def test_frozen_arrays_are_equal_by_their_bits() -> None:
    arrays = {"a": torch.zeros(3), "b": torch.arange(2)}
    frozen = Frozen(arrays)
    assert frozen == Frozen(dict(reversed(arrays.items())))
    assert hash(frozen) == hash(Frozen(arrays))
    for other in ({**arrays, "a": -torch.zeros(3)}, {**arrays, "a": torch.zeros(3).double()}, {"a": torch.zeros(3)}):
        assert frozen != Frozen(other)
    assert repr(frozen) == f"Frozen({frozen.fingerprint})"
    with pytest.raises(UsageError, match="must hold tensors, got others in a"):
        Frozen({"a": [1.0]})  # type: ignore[dict-item]
