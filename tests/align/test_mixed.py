"""Mixed stores: rows that were written otherwise are found, grouped by cause, and healthy ones are left alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from embedwatch.align.mixed import find_mixed
from embedwatch.align.mixed_results import Mixed
from embedwatch.core.errors import InputError, UsageError
from embedwatch.loading import load_subject
from tests.loading import tiny

RNG = np.random.default_rng(0)
WROTE = (RNG.standard_normal((500, 48)) + 0.4).astype("float32")
WROTE /= np.linalg.norm(WROTE, axis=1, keepdims=True)


def _mixed(folder: Path, store: np.ndarray, wrote: np.ndarray = WROTE) -> Mixed:
    np.save(folder / "store.npy", store.astype("float32"))
    np.save(folder / "expected.npy", wrote)
    return find_mixed(folder / "store.npy", expected=folder / "expected.npy")


def _rows(found: Mixed) -> dict[str, tuple[int, ...]]:
    return {group.name: group.ids for group in found.groups}


def test_each_cause_has_its_group_with_the_ids(tmp_path: Path) -> None:
    store = WROTE.copy()
    store[10:30] = RNG.standard_normal((20, 48))
    store[40:50] = (np.ascontiguousarray(store[40:50]).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    store[60:65] *= 2
    store[70:72] = np.nan
    store[72] = 0
    store[[80, 81]] = store[[81, 80]]
    store[90:120] = WROTE[90:120] + 0.08
    found = _mixed(tmp_path, store)
    rows = _rows(found)
    assert rows["other"] == tuple(range(10, 30))
    assert rows["rounded"] == tuple(range(40, 50))
    assert rows["norm"] == tuple(range(60, 65))
    assert rows["broken"] == (70, 71, 72)
    assert rows["swapped"] == (80, 81)
    assert rows["recipe"] == tuple(range(90, 120))
    assert len(rows["agrees"]) == 430
    assert found.status == "fail"
    assert [group.status for group in found.groups if group.name in ("rounded", "norm")] == ["warn", "warn"]
    assert next(group for group in found.groups if group.name == "rounded").told.endswith(
        "values are bfloat16 in 100% of them"
    )
    assert sum(map(len, rows.values())) == 500
    json.dumps(found.to_json(), allow_nan=False)


@pytest.mark.parametrize("noise", [0, 1e-7, 1e-3, 1e-2, 0.03])
@pytest.mark.parametrize("seed", range(3))
def test_healthy_noise_of_any_size_is_no_finding(tmp_path: Path, noise: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = _mixed(tmp_path, WROTE + noise * rng.standard_normal(WROTE.shape))
    told = sum(group.rows for group in found.groups if group.name != "agrees")
    assert found.false_positives is not None
    assert told <= max(found.false_positives, 0.01) * len(WROTE)
    assert found.false_positives < 0.02


def test_strangers_are_found_beside_noise(tmp_path: Path) -> None:
    store = WROTE + 0.02 * RNG.standard_normal(WROTE.shape)
    store[:25] = RNG.standard_normal((25, 48))
    rows = _rows(_mixed(tmp_path, store))
    assert set(rows["other"]) | set(rows.get("recipe", ())) == set(range(25))


def test_a_store_alone_tells_only_what_shows(tmp_path: Path) -> None:
    store = WROTE.copy()
    store[5:15] *= 2
    store[20:30, 24:] = 0
    store[40] = np.nan
    np.save(tmp_path / "store.npy", store)
    found = find_mixed(tmp_path / "store.npy")
    rows = _rows(found)
    assert rows["truncated"] == tuple(range(20, 30))
    assert rows["norm"] == tuple(range(5, 15))
    assert rows["broken"] == (40,)
    assert found.false_positives is None
    assert "another model, pooling or prefix look like other content" in found.notes[0]


def test_what_reproduces_the_rows_is_named(tmp_path: Path) -> None:
    """A model of random weights writes a store, a part of it with another pooling and a part with a prefix."""
    model = tiny.save("bert", tmp_path / "model")
    subject = load_subject(model)
    words = [f"w{i % 50} w{i * 7 % 50} w{(i * 3 + i // 50) % 50}" for i in range(120)]
    (tmp_path / "texts.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    store = subject.encode(words).numpy()
    store[10:20] = subject.encode(words[10:20], pooling="max").numpy()
    store[30:40] = subject.encode(words[30:40], prefix="query: ").numpy()
    np.save(tmp_path / "store.npy", store)
    found = find_mixed(tmp_path / "store.npy", model=model, text=tmp_path / "texts.txt")
    told = {group.told.partition(": ")[2]: group.ids for group in found.groups if group.name == "recipe"}
    assert told == {"max pooling": tuple(range(10, 20)), 'prefix "query: "': tuple(range(30, 40))}
    assert found.groups[0].rows == 100
    assert found.groups[1].names[0].startswith("line ")


def test_wrong_arguments_and_files_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", WROTE)
    np.save(tmp_path / "b.npy", WROTE[:, :20])
    path = tmp_path / "a.npy"
    with pytest.raises(UsageError, match="`model` and `text` must come together, got one of them; name the other"):
        find_mixed(path, model="m")
    with pytest.raises(UsageError, match="`expected` must be left out with `model`, got both; give one of them"):
        find_mixed(path, model="m", text="t", expected=path)
    with pytest.raises(UsageError, match="`prefix` must come with `model`"):
        find_mixed(path, expected=path, prefix="query: ")
    with pytest.raises(InputError, match="must be a model, got something else"):
        find_mixed(path, model=path, text=path)
    with pytest.raises(InputError, match="must have the 48 dimensions that the model writes, got 20"):
        find_mixed(tmp_path / "b.npy", expected=path)
