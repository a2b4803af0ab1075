"""A sample in runs: whole stretches of a stream, the same in any order, split and merge."""

from __future__ import annotations

import torch

from embedwatch.sketches import RUN, RowRuns


def runs_of(numbers: torch.Tensor, *, capacity: int = 5 * RUN) -> RowRuns:
    runs = RowRuns(capacity=capacity)
    keys = RowRuns.keys_of(numbers)
    wanted = runs.wanted(keys)
    runs.add(keys[wanted], number=numbers[wanted], content=numbers[wanted])
    return runs


def test_runs_are_whole() -> None:
    kept = runs_of(torch.arange(100 * RUN)).values("number")
    runs, sizes = torch.unique(kept // RUN, return_counts=True)
    assert sizes.tolist() == [RUN] * 5
    assert len(set(runs.diff().tolist())) > 1  # by chance, and not every twentieth


def test_a_run_that_does_not_fit_keeps_its_first_rows() -> None:
    kept = runs_of(torch.arange(100 * RUN), capacity=5 * RUN + 30).values("number")
    runs, sizes = torch.unique(kept // RUN, return_counts=True)
    assert sorted(sizes.tolist()) == [30, *[RUN] * 5]
    cut = int(runs[sizes == 30])
    assert sorted(kept[kept // RUN == cut].tolist()) == list(range(cut * RUN, cut * RUN + 30))


def test_any_order_and_merge_keeps_the_same() -> None:
    numbers = torch.arange(-7 * RUN, 60 * RUN)
    whole = runs_of(numbers)
    parts = numbers[torch.randperm(len(numbers), generator=torch.Generator().manual_seed(0))].split(777)
    merged = runs_of(parts[0])
    for part in parts[1:]:
        merged.merge(runs_of(part))
    one = runs_of(parts[0])
    for part in parts[1:]:
        keys = RowRuns.keys_of(part)
        wanted = one.wanted(keys)
        one.add(keys[wanted], number=part[wanted], content=part[wanted])
    assert torch.equal(merged.values("number"), whole.values("number"))
    assert torch.equal(one.values("number"), whole.values("number"))


def test_few_rows_are_all_kept() -> None:
    assert sorted(runs_of(torch.arange(400)).values("number").tolist()) == list(range(400))
