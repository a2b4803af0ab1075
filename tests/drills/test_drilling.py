"""The drill as one call, on streams of rows: faults found, healthy rows left alone, wrong input in one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import embedwatch
from embedwatch.checks.what_changed import CHANGES
from embedwatch.core.boundary import Boundary
from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.registry import registered
from embedwatch.core.snapshot import Space
from embedwatch.drills.drilling import drill
from embedwatch.drills.examining import Examiner, Subject, looks_at
from embedwatch.drills.fault import Fault
from embedwatch.drills.results import Trial
from tests.topics import stream

WINDOW = 500
LEVEL = 0.01
"""At which 999 permutations do."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("drill") / "healthy.npy", stream(3_000, seed=0))


def saved(path: Path, rows: Tensor) -> Path:
    np.save(path, rows.numpy())
    return path


def by_name(trials: tuple[Trial, ...]) -> dict[str, Trial]:
    return {trial.fault: trial for trial in trials}


@pytest.fixture(scope="module")
def whole(path: Path) -> embedwatch.Drill:
    return drill(path, window=WINDOW, level=LEVEL, on_error="raise")


class TestWhole:
    def test_every_fault_is_tried_once_at_its_usual_strength(self, whole: embedwatch.Drill) -> None:
        assert [trial.fault for trial in whole.trials] == list(registered(Fault))
        for trial in whole.trials:
            assert trial.strength == registered(Fault)[trial.fault].strength
            assert len(trial.outcomes) == 1

    def test_healthy_rows_are_left_alone(self, whole: embedwatch.Drill) -> None:
        assert whole.control.status == "ok"
        assert whole.control.outcomes[0].rows == WINDOW
        assert whole.status in ("ok", "missed")

    @pytest.mark.parametrize(
        ("fault", "check"),
        [
            ("norm_growth", "drift"),
            ("other_model", "drift"),
            ("normalisation", "drift"),
            ("truncation", "dead_dimensions"),
            ("nan_rows", "nonfinite_rows"),
            ("zero_rows", "zero_rows"),
            ("duplicates", "duplicate_rows"),
        ],
    )
    def test_the_right_check_finds_it(self, whole: embedwatch.Drill, fault: str, check: str) -> None:
        trial = by_name(whole.trials)[fault]
        assert trial.status == "found"
        assert trial.rightly == 1
        assert check in trial.checks()
        assert trial.rows_of(check) in looks_at(WINDOW)

    def test_ids_that_are_off_by_one_are_seen_by_a_canary_or_not_at_all(self, whole: embedwatch.Drill) -> None:
        trial = by_name(whole.trials)["off_by_one"]
        assert trial.checks().keys() <= {"canary"}
        assert trial.status in ("found", "blind")

    def test_json_is_plain_and_says_all(self, whole: embedwatch.Drill) -> None:
        data = json.loads(json.dumps(whole.to_json(), allow_nan=False))
        assert data["source"]["label"] == "healthy.npy"
        assert (data["window"], data["block"], data["reference_rows"]) == (WINDOW, 10, whole.reference_rows)
        assert {trial["fault"] for trial in data["trials"]} == set(registered(Fault))
        assert data["control"]["status"] == "ok"
        assert not data["errors"]


def test_the_file_is_not_touched(path: Path) -> None:
    before = path.read_bytes()
    drill(path, faults=["norm_growth"], window=WINDOW, level=LEVEL)
    assert path.read_bytes() == before


def test_seeds_reproduce_and_repeats_count_on_from_them(path: Path) -> None:
    options = {"faults": ["rotation", "lost_topic"], "window": WINDOW, "level": LEVEL}
    one, same = (drill(path, seed=3, repeats=2, **options) for _ in range(2))  # type: ignore[arg-type]
    assert one.trials == same.trials
    assert one.control == same.control
    assert [outcome.seed for outcome in one.trials[0].outcomes] == [3, 4]
    later = drill(path, seed=4, faults=["lost_topic"], window=WINDOW, level=LEVEL)
    assert later.trials[0].outcomes[0].seed == 4


def test_a_fault_does_not_depend_on_which_others_are_tried(path: Path, whole: embedwatch.Drill) -> None:
    alone = drill(path, faults=["noise"], window=WINDOW, level=LEVEL)
    assert alone.trials[0] == by_name(whole.trials)["noise"]


def test_stronger_faults_are_found_no_later(path: Path) -> None:
    found = drill(path, faults=["lost_topic"], strengths=[0.002, 0.5], window=WINDOW, level=LEVEL)
    weak, strong = found.trials
    assert (weak.told, strong.told) == ("0.2 %", "50 %")
    assert weak.status in ("missed", "noticed")
    assert weak.reason()
    assert strong.status == "found"


def test_all_strengths_of_a_fault(path: Path) -> None:
    found = drill(path, faults=["nan_rows"], strengths="all", window=WINDOW, level=LEVEL)
    assert [trial.strength for trial in found.trials] == list(registered(Fault)["nan_rows"].strengths)


def test_what_fires_in_health_counts_for_no_fault(tmp_path: Path) -> None:
    rows = stream(2_000, seed=0)
    rows[::20] = rows[1::20]
    found = drill(saved(tmp_path / "repeats.npy", rows), faults=["duplicates", "nan_rows"], window=WINDOW, level=LEVEL)
    assert found.status == "fired"
    assert "duplicate_rows" in found.control.checks()
    assert found.control.reason()
    trials = by_name(found.trials)
    assert "duplicate_rows" not in trials["duplicates"].checks()
    assert trials["duplicates"].rightly == 0
    assert trials["nan_rows"].status == "found"


def test_a_stream_with_too_few_independent_rows_is_unknown(tmp_path: Path) -> None:
    path = saved(tmp_path / "slow.npy", stream(2_000, seed=0, stay=0.98))
    found = drill(path, faults=["nan_rows"], window=WINDOW, level=LEVEL)
    assert found.status == "unknown"
    assert "too few" in found.control.reason() or "too short" in found.control.reason()
    assert drill(path, faults=["nan_rows"], window=WINDOW, level=LEVEL, shuffle=True).status == "ok"


def test_what_takes_rows_away_is_impossible_in_a_short_source(tmp_path: Path) -> None:
    found = drill(saved(tmp_path / "short.npy", stream(900, seed=0)), faults=["lost_topic"], window=WINDOW, level=LEVEL)
    assert found.trials[0].status == "impossible"
    assert "more rows are needed" in found.trials[0].reason()
    assert any("more rows would let all faults be tried" in note for note in found.notes)
    assert found.status == "ok"


def test_another_source_is_the_other_model(path: Path, tmp_path: Path) -> None:
    other = saved(tmp_path / "other.npy", torch.randn(600, 16, generator=torch.Generator().manual_seed(1)))
    (trial,) = drill(path, faults=["other_model"], other=other, window=WINDOW, level=LEVEL).trials
    assert trial.status == "found"
    assert "canary" not in trial.checks()


def test_progress_ends_at_all_trials(path: Path) -> None:
    seen: dict[str, tuple[int | None, list[int]]] = {}

    @contextmanager
    def progress(description: str, rows: int | None) -> Iterator[object]:
        done: list[int] = []
        seen[description] = (rows, done)
        yield done.append

    drill(path, faults=["nan_rows", "zero_rows"], window=WINDOW, level=LEVEL, progress=progress)  # type: ignore[arg-type]
    total, done = seen["trials"]
    assert done[-1] == total == 3


class TestWrongInput:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"faults": ["rotatoin"]}, r'^no fault "rotatoin"; did you mean "rotation"\?'),
            ({"faults": "rotation"}, "^`faults` must be a list of names"),
            ({"strengths": [0.1]}, "^`strengths` must come with the names of faults"),
            ({"strengths": "strong", "faults": ["noise"]}, '^`strengths` must be numbers or "all"'),
            ({"faults": ["rotation"], "strengths": [0.0]}, "^`strength` of rotation must be above 0"),
            ({"window": 10}, "^`window` must be from 200 to 100,000 rows, got 10"),
            ({"level": 0.0}, "^`level` must be from 0.0005 to 1, got 0"),
            ({"level": float("nan")}, "^`level` must be from 0.0005 to 1, got nan"),
            ({"repeats": 0}, "^`repeats` must be from 1 to 10,000, got 0"),
            ({"pooling": "mean"}, "^`pooling` must come with `model`"),
        ],
    )
    def test_arguments(self, path: Path, options: dict[str, object], words: str) -> None:
        with pytest.raises(UsageError, match=words):
            drill(path, **options)  # type: ignore[arg-type]

    def test_inputs(self, path: Path, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="at least 1,200 finite rows for a window of 1,000, got 600"):
            drill(saved(tmp_path / "few.npy", stream(600, seed=0)))
        with pytest.raises(InputError, match=r"must have 16 dimensions like healthy\.npy, got 5"):
            drill(path, other=saved(tmp_path / "narrow.npy", torch.randn(50, 5)))
        nothing = saved(tmp_path / "nothing.npy", torch.full((50, 16), torch.nan))
        with pytest.raises(InputError, match=r"^`other` must have finite rows, got none in nothing\.npy"):
            drill(path, other=nothing)
        with pytest.raises(InputError, match=r"absent\.npy"):
            drill(tmp_path / "absent.npy")


def test_what_has_a_name_says_which_is_right() -> None:
    known = {change.name for change in CHANGES}
    for kind in registered(Fault).values():
        assert set(kind.names) <= known
        assert bool(kind.names) == ("what_changed" in kind.found_by)


class TestExaminer:
    def test_after_enough_only_the_whole_window_is_looked_at(self) -> None:
        rows = stream(1_500, seed=0)
        subject = Subject(Space("a", "vectors"), "vectors", "ab")
        examiner = Examiner(rows[:1_000], subject, level=0.01, seed=0, boundary=Boundary(on_error="raise"))
        sizes = [100, 200, 300, 400, 500]
        looks = examiner.looks(rows[1_000:] + 3, None, sizes, enough=lambda look: bool(look.fired))
        assert [look.rows for look in looks] == [100, 500]

    def test_looks_at_more_and_more_rows(self) -> None:
        assert looks_at(200) == [100, 200]
        assert looks_at(5_000) == [100, 200, 500, 1_000, 2_000, 5_000]
        rows = stream(1_500, seed=0)
        subject = Subject(Space("a", "vectors"), "vectors", "ab")
        boundary = Boundary(on_error="raise")
        examiner = Examiner(rows[:1_000], subject, level=0.01, seed=0, boundary=boundary)
        assert {"drift", "nonfinite_rows"} <= set(examiner.checks)
        assert "drift" in examiner.comparing
        assert not set(examiner.comparing) & set(examiner.pairing)
        looks = list(examiner.looks(rows[1_000:], None, [100, 200, 500]))
        assert [look.rows for look in looks] == [100, 200, 500]
        assert all(not look.fired for look in looks)
        moved = list(examiner.looks(rows[1_000:] + 3, None, [500]))
        assert "drift" in moved[0].fired
        assert not moved[0].noticed

    def test_a_finer_level_asks_more_permutations_where_it_matters(self) -> None:
        rows = stream(1_500, seed=0)
        subject = Subject(Space("a", "vectors"), "vectors", "ab")
        examiner = Examiner(rows[:1_000], subject, level=0.0005, seed=0, boundary=Boundary(on_error="raise"))
        (look,) = examiner.looks(rows[1_000:] + 3, None, [500])
        verdict = look.verdict("drift")
        assert verdict is not None
        assert verdict.evidence.p_value is not None
        assert verdict.evidence.p_value <= 0.0005
