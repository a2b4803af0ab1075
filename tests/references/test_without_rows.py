"""A reference that may keep no rows is made without what is nothing without them, and says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from embedwatch import Reference, compare, create_reference, load_reference, save_reference
from tests.topics import stream

ABSENT = "nearest_reference"


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    np.save(tmp_path / "healthy.npy", stream(600, seed=0).numpy())
    return tmp_path / "healthy.npy"


@pytest.fixture
def bare(healthy: Path) -> Reference:
    return create_reference(healthy, keep_rows=False)


def test_it_holds_all_but_that(healthy: Path, bare: Reference) -> None:
    whole = create_reference(healthy)
    assert whole.maps.keys() - bare.maps.keys() == {ABSENT}
    assert whole.unknown_without_rows() == []


def test_what_is_missing_is_named_before_and_after_it_was_saved(bare: Reference, tmp_path: Path) -> None:
    save_reference(bare, tmp_path / "bare")
    for reference in (bare, load_reference(tmp_path / "bare")):
        assert {"nearest_reference_ratio", "nearest_reference_beyond_ratio"} <= set(reference.unknown_without_rows())


def test_windows_are_compared_without_it(bare: Reference, tmp_path: Path) -> None:
    np.save(tmp_path / "new.npy", stream(400, seed=1).numpy())
    found = compare(bare, tmp_path / "new.npy")
    assert found.status == "ok"
    assert found.snapshot.number("sliced_wasserstein_ratio") is not None
    assert not any(name.startswith(ABSENT) for name in (measurement.name for measurement in found.snapshot))


def test_one_like_another_that_keeps_rows_keeps_none_of_them(healthy: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "more.npy", stream(400, seed=1).numpy())
    more = create_reference(tmp_path / "more.npy", like=create_reference(healthy), keep_rows=False)
    assert ABSENT not in more.maps
    assert ABSENT not in more.calibrating
    assert not any(array.startswith("rows.") for arrays in more.maps.values() for array in arrays)


def test_two_without_rows_merge(bare: Reference, tmp_path: Path) -> None:
    np.save(tmp_path / "more.npy", stream(400, seed=1).numpy())
    merged = bare.merge(create_reference(tmp_path / "more.npy", like=bare, keep_rows=False))
    assert merged.maps.keys() == bare.maps.keys()
    assert "nearest_reference_ratio" in merged.unknown_without_rows()
