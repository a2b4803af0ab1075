"""Which rows are looked at: few enough, the same for the same seed, each as often as any other, and no padding."""

from __future__ import annotations

import pytest
import torch
from scipy import stats
from torch import Tensor

from embedwatch.observe.sampling import ROW_BITS, sample_rows
from tests.observe import tiny

FEW = 4
UNLIKELY = 1e-3
"""One fair sample in so many looks as uneven as this."""


def rows(shape: tuple[int, ...] = (8, 16)) -> Tensor:
    """Return vectors that say where they stood."""
    at = torch.arange(int(torch.tensor(shape).prod())).reshape(shape)
    return torch.stack([at, at], -1).float()  # (..., 2)


def places(forward: int, *, seed: int = 0, valid: Tensor | None = None, count: int = FEW) -> list[int]:
    sample = sample_rows(rows(), count, forward=forward, seed=seed, valid=valid)
    return [int(row) for row in sample.rows[:, 0]]


@pytest.mark.parametrize("count", [1, 4, 127, 128, 129, 1000])
def test_at_most_as_many_rows_as_asked_for_each_once(count: int) -> None:
    sample = sample_rows(rows(), count, forward=3, seed=0)
    assert len(sample.rows) == len(sample.rows.unique(dim=0)) == min(count, rows()[..., 0].numel())
    assert torch.equal(sample.numbers & ((1 << ROW_BITS) - 1), sample.rows[:, 0].long())
    assert set((sample.numbers >> ROW_BITS).tolist()) == {3}


def test_the_same_seed_chooses_the_same_and_another_step_or_seed_others() -> None:
    assert places(5) == places(5)
    assert sorted(places(5)) != sorted(places(6))
    assert sorted(places(5)) != sorted(places(5, seed=1))


def test_it_is_a_copy() -> None:
    for count in (FEW, tiny.ALL):
        output = rows()
        sample = sample_rows(output, count, forward=0, seed=0)
        before = sample.rows.clone()
        output.zero_()
        assert torch.equal(sample.rows, before)


def evenness(counts: Tensor) -> float:
    """Return how likely counts as uneven as these are where each row is as likely as any other."""
    return float(stats.chisquare(counts.numpy()).pvalue)


@pytest.mark.parametrize("padded", [False, True], ids=["all real", "padded"])
@pytest.mark.parametrize("seed", [0, 7])
def test_each_row_is_chosen_equally_often(seed: int, padded: bool) -> None:
    valid = torch.ones(8, 16, dtype=torch.bool)
    if padded:
        valid[::2, 5:] = False
    counts = torch.zeros(valid.numel(), dtype=torch.long)
    for forward in range(3000):
        counts[places(forward, seed=seed, valid=valid)] += 1
    assert counts[~valid.reshape(-1)].sum() == 0
    # Drawn without replacement counts are a little more even than independent ones: only too uneven is wrong.
    assert evenness(counts[valid.reshape(-1)]) > UNLIKELY
    counts[0] *= 2
    assert evenness(counts[valid.reshape(-1)]) < UNLIKELY


def test_rows_are_not_chosen_together_more_often_than_by_chance() -> None:
    pairs = torch.zeros(32, 32)
    for forward in range(4000):
        chosen = sample_rows(rows((32,)), 2, forward=forward, seed=0).rows[:, 0].long()
        pairs[chosen.min(), chosen.max()] += 1
    counts = pairs[torch.ones_like(pairs).triu(1).bool()]
    assert evenness(counts) > UNLIKELY


def test_where_too_few_are_real_the_rest_is_marked() -> None:
    valid = torch.zeros(8, 16, dtype=torch.bool)
    valid[0, 0] = valid[3, 3] = True
    sample = sample_rows(rows(), FEW, forward=0, seed=0, valid=valid)
    assert sample.valid is not None
    assert sorted(sample.rows[sample.valid][:, 0].tolist()) == [0, 3 * 16 + 3]


@pytest.mark.parametrize("count", [FEW, 1 << 20])
def test_what_a_row_was_made_of_goes_with_it_as_a_copy(count: int) -> None:
    inputs = torch.arange(8 * 16)
    sample = sample_rows(rows(), count, forward=0, seed=0, inputs=inputs)
    assert sample.inputs is not None
    assert sample.inputs.tolist() == sample.rows[:, 0].long().tolist()
    inputs.zero_()
    assert sample.inputs.tolist() == sample.rows[:, 0].long().tolist()


@pytest.mark.parametrize("kind", ["bert", "t5-lm", "own-encoder_decoder", "torch-encoder-positions-first"])
def test_a_watched_model_gives_few_rows_none_twice_and_none_of_padding(kind: str) -> None:
    model = tiny.shared(kind)
    batch = tiny.inputs(kind)
    with tiny.eyes(model, rows=FEW) as eyes, tiny.eyes(model) as all_eyes, torch.inference_mode():
        for _ in range(5):
            model(**batch)
        assert set(eyes.seen()) == set(all_eyes.seen()) != set()
        for name in eyes.seen():
            every = all_eyes.looks(name)
            for looks, whole in zip(eyes.looks(name), every, strict=True):
                assert len(looks) == min(FEW, len(whole))
                assert all(bool((whole == row).all(1).any()) for row in looks)
            given = torch.cat(eyes.numbers(name))
            assert len(given.unique()) == len(given)


def test_watching_anew_with_the_same_seed_sees_the_same() -> None:
    model, batch = tiny.shared("bert"), tiny.inputs("bert")
    found = []
    for seed in (0, 0, 1):
        with tiny.eyes(model, rows=FEW, seed=seed) as eyes, torch.inference_mode():
            model(**batch)
            found.append(eyes.looks("encoder.layer.1")[0])
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
