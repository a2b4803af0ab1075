"""Planted faults are found and named by the command, and healthy twins pass. Each fault alone in sound vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from embedwatch.cli import main

ROWS, DIMENSION = 4_000, 96
Array = NDArray[Any]


def healthy(rows: int = ROWS, dimension: int = DIMENSION, *, seed: int = 0) -> Array:
    """Vectors with a centre, clusters and a falling spectrum, as encoders make them."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(20, dimension))
    spectrum = np.arange(1, dimension + 1) ** -0.3
    rotation = np.linalg.qr(generator.normal(size=(dimension, dimension)))[0]
    spread = generator.normal(size=(rows, dimension)) * spectrum
    return ((centres[generator.integers(0, 20, rows)] * 0.4 + spread) @ rotation + 0.1).astype(np.float32)


def audit(path: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Run the command and return its exit status and what it printed."""
    result = CliRunner().invoke(main, ["audit", str(path), "--json", *options])
    assert result.stdout, result.output
    return result.exit_code, json.loads(result.stdout)


def verdicts(report: dict[str, Any]) -> dict[str, str]:
    """Status by check."""
    return {verdict["check"]: verdict["status"] for verdict in report["spaces"][0]["verdicts"]}


def named_rows(report: dict[str, Any], exhibit: str) -> list[int]:
    """Row numbers that an exhibit names."""
    return [row[0] for item in report["spaces"][0]["exhibits"] if item["name"] == exhibit for row in item["rows"]]


def save(folder: Path, rows: Array) -> Path:
    """Write the vectors to a file."""
    path = folder / "vectors.npy"
    np.save(path, rows)
    return path


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("unit", [False, True], ids=["free", "unit"])
def test_healthy_vectors_pass(tmp_path: Path, seed: int, unit: bool) -> None:
    rows = healthy(seed=seed)
    if unit:
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    status, report = audit(save(tmp_path, rows), "--fail-on", "warn")
    assert status == 0
    assert set(verdicts(report).values()) == {"ok"}


def test_one_nan_row_in_a_hundred_thousand(tmp_path: Path) -> None:
    rows = healthy(100_000, 32)
    rows[70_001, 5] = np.nan
    status, report = audit(save(tmp_path, rows))
    assert status == 1
    assert verdicts(report)["nonfinite_rows"] == "fail"
    assert named_rows(report, "nonfinite_rows") == [70_001]


def test_one_percent_of_zero_rows(tmp_path: Path) -> None:
    rows = healthy()
    rows[100::100] = 0.0
    status, report = audit(save(tmp_path, rows))
    assert status == 1
    assert verdicts(report)["zero_rows"] == "fail"
    assert named_rows(report, "zero_rows")[:3] == [100, 200, 300]


def test_a_constant_with_a_little_noise(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rows = (generator.normal(size=DIMENSION) + 1e-3 * generator.normal(size=(ROWS, DIMENSION))).astype(np.float32)
    status, report = audit(save(tmp_path, rows))
    assert status == 1
    assert verdicts(report)["collapse"] == "fail"


def test_a_duplicated_block_of_half_a_percent(tmp_path: Path) -> None:
    rows = healthy(100_000, 32)
    rows[50_000:50_500] = rows[1_000:1_500]
    _, report = audit(save(tmp_path, rows))
    assert verdicts(report)["duplicate_rows"] == "warn"
    (verdict,) = (item for item in report["spaces"][0]["verdicts"] if item["check"] == "duplicate_rows")
    assert verdict["value"] == pytest.approx(0.005, rel=0.3)
    (exhibit,) = (item for item in report["spaces"][0]["exhibits"] if item["name"] == "duplicate_rows")
    assert all(last - first == 49_000 for first, last, _ in exhibit["rows"])


def test_one_dimension_fifty_times_the_others(tmp_path: Path) -> None:
    rows = healthy()
    rows[:, 17] *= 50
    status, report = audit(save(tmp_path, rows))
    assert status == 1
    assert verdicts(report)["dominating_dimension"] == "fail"
    assert named_rows(report, "largest_dimensions")[0] == 17


def test_ten_rows_with_a_hundred_times_the_norm(tmp_path: Path) -> None:
    rows = healthy()
    guilty = [7, 400, 800, 1200, 1600, 2000, 2400, 2800, 3200, 3999]
    rows[guilty] *= 100
    status, report = audit(save(tmp_path, rows))
    assert status == 1
    assert verdicts(report)["extreme_norms"] == "fail"
    assert sorted(named_rows(report, "largest_norms")[:10]) == guilty


def test_rank_ten_in_many_dimensions(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rows = (generator.normal(size=(2_000, 10)) @ generator.normal(size=(10, 384))).astype(np.float32)
    status, report = audit(save(tmp_path, rows))
    assert status == 1
    assert verdicts(report)["rank_collapse"] == "fail"
    assert verdicts(report)["null_directions"] == "fail"


def test_float16_overflow(tmp_path: Path) -> None:
    rows = healthy() * 2_000
    rows[::500] *= 1_000
    with np.errstate(over="ignore"):
        narrow = rows.astype(np.float16)
    status, report = audit(save(tmp_path, narrow))
    assert status == 1
    assert verdicts(report)["nonfinite_rows"] == "fail"
    assert named_rows(report, "nonfinite_rows")[:3] == [0, 500, 1000]
    (verdict,) = (item for item in report["spaces"][0]["verdicts"] if item["check"] == "nonfinite_rows")
    assert "Inf in 8" in verdict["reason"]


def test_dead_dimensions(tmp_path: Path) -> None:
    rows = healthy()
    rows[:, 80:] = 0.25
    status, report = audit(save(tmp_path, rows))
    assert status == 1
    assert verdicts(report)["dead_dimensions"] == "fail"
    assert named_rows(report, "dead_dimensions") == list(range(80, 96))


def test_labels_in_another_order_than_rows(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 5, ROWS)
    rows = (healthy() + 3 * generator.normal(size=(5, DIMENSION))[labels]).astype(np.float32)
    paired, shuffled = tmp_path / "paired.txt", tmp_path / "shuffled.txt"
    paired.write_text("".join(f"topic {label}\n" for label in labels))
    shuffled.write_text("".join(f"topic {label}\n" for label in generator.permutation(labels)))
    path = save(tmp_path, rows)
    assert verdicts(audit(path, "--labels", str(paired))[1])["groups_apart"] == "ok"
    assert verdicts(audit(path, "--labels", str(shuffled))[1])["groups_apart"] in ("warn", "fail")


def test_too_few_rows_are_unknown_and_not_ok(tmp_path: Path) -> None:
    _, report = audit(save(tmp_path, healthy(100)))
    assert verdicts(report)["rank_collapse"] == "unknown"
    (verdict,) = (item for item in report["spaces"][0]["verdicts"] if item["check"] == "rank_collapse")
    assert "needs 192" in verdict["reason"]


def test_an_empty_file_of_vectors_cannot_be_judged(tmp_path: Path) -> None:
    status, report = audit(save(tmp_path, np.zeros((0, 8), np.float32)))
    assert status == 1
    assert report["status"] == "unknown"


def test_one_huge_number_does_not_call_the_other_dimensions_dead(tmp_path: Path) -> None:
    rows = healthy()
    rows[7, 5] = 1e8
    _, report = audit(save(tmp_path, rows))
    found = verdicts(report)
    assert (found["dead_dimensions"], found["null_directions"]) == ("ok", "ok")
    assert found["extreme_norms"] == "fail"
    assert named_rows(report, "largest_norms")[0] == 7


def test_one_row_repeated_very_often_is_named_among_many(tmp_path: Path) -> None:
    rows = healthy(200_000, 16)
    copies = np.random.default_rng(0).choice(len(rows), 4_000, replace=False)
    rows[copies] = rows[copies[0]]
    _, report = audit(save(tmp_path, rows), "--only", "duplicates")
    assert verdicts(report)["duplicate_rows"] == "warn"
    (exhibit,) = (item for item in report["spaces"][0]["exhibits"] if item["name"] == "duplicate_rows")
    first, last, times = exhibit["rows"][0]
    assert {first, last} <= set(copies.tolist())
    assert times == pytest.approx(4_000, rel=0.5)


def test_a_few_zero_rows_in_a_large_file_are_named(tmp_path: Path) -> None:
    rows = healthy(100_000, 16)
    rows[[10, 99_999]] = 0
    _, report = audit(save(tmp_path, rows), "--only", "zero_rows")
    assert verdicts(report)["zero_rows"] == "warn"
    assert named_rows(report, "zero_rows") == [10, 99_999]
