"""Four workers that watch one model on four shares of the data give, in a real daemon, the numbers of one on all of it.

That is exact to rounding where every row of a step is looked at: sums and scatter matrices merge, and the one sample of
a live model (`distinct_rows`) is keyed by what rows hold. Where a step has more rows than are looked at, which of them
are depends on the number of the forward pass in its own process; then four workers see other rows than one, and the
numbers agree as two samples of one population do.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from embedwatch.core import Histogram, Measurement, Snapshot
from embedwatch.stats.distinct_rows import CAPACITY
from tests.checkout import ROOT
from tests.daemon.serving import ask, serving
from tests.daemon.watch_target import BATCH, LENGTH, MODEL, PLACES

pytestmark = pytest.mark.slow

WORKERS, STEPS = 4, 8
ROWS = BATCH * LENGTH
"""Of one step."""
FEW = 64
PRECISION = 1e-9
APART = 5.0
"""Standard errors that two samples may differ by."""
TIMEOUT = 300


def watched(folder: Path, shares: Sequence[tuple[int, int]], rows: int) -> dict[str, Snapshot]:
    """Return what a daemon measured of each place when workers have read their shares, and look at so many rows."""
    with serving(folder) as served:
        target = f"daemon:http://127.0.0.1:{served.port}"
        begun = [sys.executable, "-m", "tests.daemon.watch_target", target]
        workers = [subprocess.Popen([*begun, str(first), str(last), str(rows)], cwd=ROOT) for first, last in shares]
        assert [worker.wait(TIMEOUT) for worker in workers] == [0] * len(shares)
        served.heart.close_windows()
        assert sum(served.heart.status()["parcels"]["refused"].values()) == 0
        assert [failure["reason"] for failure in served.heart.failures()] == []
        answers = {place: ask(served.port, f"/api/v1/spaces/{MODEL}/{place}").json for place in PLACES}
    return {place: Snapshot.from_json(answer["snapshot"]) for place, answer in answers.items()}


SHARED = [(worker * STEPS, (worker + 1) * STEPS) for worker in range(WORKERS)]
ALONE = [(0, WORKERS * STEPS)]


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Snapshot]:
    return watched(tmp_path_factory.mktemp("four"), SHARED, ROWS)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Snapshot]:
    return watched(tmp_path_factory.mktemp("one"), ALONE, ROWS)


def same(found: Measurement, expected: Measurement) -> bool:
    """Return whether counts are equal, and everything else to rounding."""
    one, other = found.value, expected.value
    if isinstance(one, Histogram) and isinstance(other, Histogram):
        alike = (one.bounds, one.counts, one.n) == (other.bounds, other.counts, other.n)
        return alike and math.isclose(one.sum, other.sum, rel_tol=PRECISION)
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=PRECISION)
    return one == other


@pytest.mark.parametrize("place", PLACES)
def test_all_rows_give_the_same_numbers(four: dict[str, Snapshot], one: dict[str, Snapshot], place: str) -> None:
    found, expected = four[place], one[place]
    assert found.provenance.rows == expected.provenance.rows == WORKERS * STEPS * ROWS
    assert found.provenance.fingerprint == expected.provenance.fingerprint
    assert [measurement.key for measurement in found] == [measurement.key for measurement in expected]
    assert len(list(found)) > 20
    assert [(each, other) for each, other in zip(found, expected, strict=True) if not same(each, other)] == []


def test_a_sample_that_is_keyed_by_content_is_the_same(four: dict[str, Snapshot], one: dict[str, Snapshot]) -> None:
    found, expected = (each["layers.1"].get("distinct_rows") for each in (four, one))
    assert found is not None
    assert expected is not None
    assert found.error is not None, "it must be a sample"
    assert CAPACITY < (found.number or 0) == expected.number


def test_a_sample_of_each_step_agrees_as_samples_do(tmp_path: Path) -> None:
    sampled = [watched(tmp_path / str(len(shares)), shares, FEW) for shares in (SHARED, ALONE)]
    for place in PLACES:
        found, expected = (each[place] for each in sampled)
        assert found.provenance.rows == expected.provenance.rows == WORKERS * STEPS * FEW
        mean, other, spread = found.number("norm_mean"), expected.number("norm_mean"), expected.number("norm_std")
        assert None not in (mean, other, spread)
        assert mean != other, "other rows of the same steps"
        assert abs((mean or 0) - (other or 0)) < APART * (spread or 0) * math.sqrt(2 / found.provenance.rows)
