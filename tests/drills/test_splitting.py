"""Rows are dealt in blocks, no row twice, and one topic is held out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from embedwatch.core.errors import InputError
from embedwatch.drills.changes import topics_of
from embedwatch.drills.splitting import Pool, read_pool, split
from embedwatch.reading import RowReader, open_rows
from tests.topics import stream


def reader(tmp_path: Path, rows: Tensor) -> RowReader:
    np.save(tmp_path / "rows.npy", rows.numpy())
    ((name, source),) = open_rows([tmp_path / "rows.npy"])
    return RowReader(name, source)


def pool(tmp_path: Path, rows: Tensor, *, window: int = 300, shuffle: bool = False) -> Pool:
    return read_pool(reader(tmp_path, rows), window=window, seed=0, shuffle=shuffle)


def numbered(count: int, *, stay: float = 0.0) -> Tensor:
    """Rows whose first number tells their place."""
    rows = stream(count, seed=0, stay=stay)
    rows[:, 0] = torch.arange(count) / count
    return rows


def test_all_rows_of_a_short_source_take_part_in_order(tmp_path: Path) -> None:
    rows = numbered(1_500)
    found = pool(tmp_path, rows)
    assert torch.equal(found.rows, rows)
    assert (found.block, found.length, found.nonfinite) == (10, 1.0, 0)
    assert found.blocks.tolist() == [place // 10 for place in range(1_500)]


def test_blocks_of_a_long_source_come_whole_and_from_everywhere(tmp_path: Path) -> None:
    found = pool(tmp_path, numbered(9_000))
    assert len(found.rows) == 1_500
    places = (found.rows[:, 0] * 9_000).round().long()
    assert torch.equal(places // 10, found.blocks)
    assert set(torch.bincount(found.blocks).tolist()) == {0, 10}
    assert int(places.max()) > 8_000
    assert int(places.min()) < 1_000


def test_a_stream_that_keeps_to_its_topics_is_dealt_in_longer_blocks(tmp_path: Path) -> None:
    found = pool(tmp_path, stream(4_000, seed=0, stay=0.9))
    assert 5 < found.length < 20
    assert found.block >= 5 * found.length
    assert pool(tmp_path, stream(4_000, seed=0, stay=0.9), shuffle=True).block == 1


def test_rows_with_nan_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = stream(1_000, seed=0)
    rows[::10] = torch.nan
    found = pool(tmp_path, rows)
    assert (found.nonfinite, len(found.rows)) == (100, 900)


def test_half_precision_becomes_float32(tmp_path: Path) -> None:
    assert pool(tmp_path, stream(1_000, seed=0).half()).rows.dtype == torch.float32


def test_too_few_rows_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^`source` must have at least 500 finite rows for a window of 300, got 400"):
        pool(tmp_path, stream(400, seed=0))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_row_is_in_two_parts_and_blocks_stay_whole(tmp_path: Path, seed: int) -> None:
    rows = numbered(2_000)
    parts = split(pool(tmp_path, rows), window=300, seed=seed)
    places = [(part[:, 0] * 2_000).round().long() for part in (parts.reference, parts.window, parts.stock.spare)]
    held = (parts.stock.topic[:, 0] * 2_000).round().long()
    every = torch.cat([*places, held]).tolist()
    assert len(every) == len(set(every))
    assert [len(part) for part in places[1:]] == [300, 300]
    reference_blocks = set((places[0] // 10).tolist())
    assert not reference_blocks & set((torch.cat(places[1:]) // 10).tolist())


def test_the_topic_that_is_held_out_is_nowhere_else(tmp_path: Path) -> None:
    found = pool(tmp_path, stream(3_000, seed=0))
    parts = split(found, window=300, seed=4)
    (topic,) = topics_of(parts.stock.topic, found.centres).unique().tolist()
    assert len(parts.stock.topic) >= 30
    for part in (parts.reference, parts.window, parts.stock.spare):
        assert topic not in topics_of(part, found.centres).unique().tolist()


def test_rows_are_dealt_anew_for_each_seed_and_alike_for_one(tmp_path: Path) -> None:
    found = pool(tmp_path, stream(2_000, seed=0))
    one, same, other = (split(found, window=300, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.window, same.window)
    assert torch.equal(one.reference, same.reference)
    assert not torch.equal(one.window, other.window)


def test_a_short_source_spares_nothing_and_keeps_its_reference(tmp_path: Path) -> None:
    parts = split(pool(tmp_path, stream(800, seed=0)), window=300, seed=0)
    assert not len(parts.stock.spare)
    assert len(parts.reference) >= 200


def test_rows_that_are_all_alike_hold_no_topic_out(tmp_path: Path) -> None:
    parts = split(pool(tmp_path, torch.ones(800, 4)), window=300, seed=0)
    assert not len(parts.stock.topic)
