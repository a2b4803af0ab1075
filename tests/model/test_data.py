"""Batches: functions of their number, whole epochs, nothing of what is held out."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from embedwatch_model.data import Pairs, Windows, seeded, unigram_entropy
from embedwatch_model.errors import ModelError
from embedwatch_model.objectives import IGNORE
from embedwatch_model.text import SPECIAL
from embedwatch_model.token_files import open_tokens, write_tokens

TOKENS = torch.arange(4, 4 + 403, dtype=torch.int32)


def windows(objective: str = "causal", seed: int = 0, batch: int = 3) -> Windows:
    return Windows(TOKENS, length=4, batch=batch, objective=objective, vocabulary=500, seed=seed)


def pairs(seed: int = 0) -> Pairs:
    rows = [torch.full((1 + n % 9,), 4 + n) for n in range(100)]
    return Pairs(rows, [torch.cat([row, row])[:9] for row in rows], length=12, batch=4, seed=seed)


class TestWindows:
    def test_an_epoch_reads_each_window_once_and_none_that_is_held_out(self) -> None:
        data = windows()
        held_out = {row[0] for batch in data.validation() for row in batch.ids.tolist()}
        per_epoch = math.ceil(95 / 3)
        for epoch in (0, 1):
            first = [row[0] for n in range(per_epoch) for row in data.batch(epoch * per_epoch + n).ids.tolist()]
            assert sorted([*first, *held_out]) == list(range(4, 4 + 400, 4))
        assert data.batch(0).ids.tolist() != data.batch(per_epoch).ids.tolist()

    @pytest.mark.parametrize("objective", ["causal", "masked"])
    def test_a_batch_is_a_function_of_its_number(self, objective: str) -> None:
        forwards = [windows(objective).batch(n) for n in range(40)]
        data = windows(objective)
        for n in (39, 3, 20, 0):
            assert torch.equal(data.batch(n).ids, forwards[n].ids)
            assert torch.equal(data.batch(n).targets, forwards[n].targets)
        assert not torch.equal(windows(objective, seed=1).batch(0).ids, forwards[0].ids)

    def test_masks_change_between_epochs_but_not_in_validation(self) -> None:
        data = windows("masked", batch=95)
        assert (data.batch(0).targets != IGNORE).sum() != (data.batch(1).targets != IGNORE).sum()
        first, second = next(data.validation()), next(data.validation())
        assert torch.equal(first.ids, second.ids)

    def test_refuses_a_stream_too_short_to_hold_anything_out(self) -> None:
        with pytest.raises(ModelError, match="must fill 2 windows of 300 tokens, got 403 tokens"):
            Windows(TOKENS, length=300, batch=1, objective="causal", vocabulary=500)
        with pytest.raises(ModelError, match="causal or masked"):
            windows("other")
        with pytest.raises(ModelError, match="`batch` must be at least 1"):
            windows(batch=0)


class TestPairs:
    def test_an_epoch_reads_each_pair_once_beside_others_of_like_length(self) -> None:
        data = pairs()
        per_epoch = math.ceil(95 / 4)
        batches = [data.batch(n) for n in range(per_epoch)]
        seen = [row[0] for batch in batches for row in batch.source.tolist()]  # type: ignore[union-attr]
        held_out = [4 + row for row in data.held_out()]
        assert sorted([*seen, *held_out]) == list(range(4, 104))
        padded = sum(int((batch.targets == IGNORE).sum()) for batch in batches)
        assert padded < 0.1 * sum(batch.targets.numel() for batch in batches)

    def test_a_batch_is_a_function_of_its_number(self) -> None:
        forwards = [pairs().batch(n) for n in range(60)]
        data = pairs()
        assert all(torch.equal(data.batch(n).ids, forwards[n].ids) for n in (59, 1, 30))

    def test_long_pairs_are_left_out_and_counted(self) -> None:
        rows = [torch.ones(n, dtype=torch.long) for n in (1, 2, 3, 4)]
        assert Pairs(rows, rows, length=4, batch=1).dropped == 1
        with pytest.raises(ModelError, match="2 pairs of fewer than 2 tokens, got 1 of 4"):
            Pairs(rows, rows, length=2, batch=1)


def test_tokens_come_back_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens.bin"
    assert write_tokens(path, ([1, 2], [], [70_000])) == 3
    assert open_tokens(path).tolist() == [1, 2, 70_000]


@pytest.mark.parametrize("content", [None, b"", b"abc"])
def test_refuses_files_that_hold_no_tokens(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "tokens.bin"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match="train into a new directory"):
        open_tokens(path)


def test_unigram_entropy_is_that_of_the_frequencies() -> None:
    assert unigram_entropy(torch.arange(8)) == pytest.approx(math.log(8))
    assert unigram_entropy(torch.zeros(5, dtype=torch.long)) == pytest.approx(0.0)


def test_generators_of_different_purposes_differ() -> None:
    draws = {torch.rand(1, generator=seeded(*purpose)).item() for purpose in ((0, "a"), (0, "b"), (1, "a"), (0, "a"))}
    assert len(draws) == 3
    assert len(SPECIAL) == 4
