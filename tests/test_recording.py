"""A recording is read back, whatever its length and whatever happened to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedwatch.core import InputError, Snapshot, Space, UsageError
from embedwatch.recording import MOST_LAST, RECORDING_FILE, Recorded, lines, read_recording, reader
from embedwatch.recording.recorded import CAPACITY, MOST_SPELLS
from embedwatch.sinks.jsonl import JsonLines
from tests.recordings import JUDGE, TABLE, broken, collapsed, healthy, measured, record, record_scalars, scalar

LAYER = Space("tiny", "layers.0")
MEGABYTE = 2**20


def steps_of(recorded: Recorded) -> list[int | None]:
    return [snapshot.provenance.step for snapshot in recorded.history]


class TestCourse:
    def test_first_smallest_largest_and_last_of_each_measurement(self, tmp_path: Path) -> None:
        written = record(tmp_path, range(20, 200, 20))
        (recorded,) = read_recording(tmp_path).spaces
        assert (recorded.space, recorded.windows, recorded.first.step, recorded.last.step) == (TABLE, 9, 20, 180)
        for measurement in written[0]:
            found = [next(m for m in snapshot if m.key == measurement.key).number for snapshot in written]
            values = [value for value in found if value is not None]
            if values:
                trace = recorded.traces[measurement.key]
                assert (trace.first, trace.last) == (values[0], values[-1])
                assert (trace.min, trace.max) == (min(values), max(values))
                assert recorded.history.series(measurement.name, **measurement.labels) == [
                    (float(snapshot.provenance.step or 0), value)
                    for snapshot, value in zip(written, values, strict=True)
                ]
        assert "norm_quantile{q=0.5}" in recorded.traces
        assert "norm" not in recorded.traces  # a histogram

    def test_a_file_or_the_folder_that_holds_it(self, tmp_path: Path) -> None:
        record(tmp_path, [1, 2])
        assert read_recording(str(tmp_path / RECORDING_FILE)).spaces[0].windows == 2
        assert read_recording(tmp_path).path == tmp_path / RECORDING_FILE

    def test_spaces_interleave(self, tmp_path: Path) -> None:
        for step in (1, 2, 3):
            record(tmp_path, [step])
            record(tmp_path, [step], space=LAYER)
        recording = read_recording(tmp_path)
        assert [each.space for each in recording.spaces] == [TABLE, LAYER]
        assert [steps_of(each) for each in recording.spaces] == [[1, 2, 3], [1, 2, 3]]
        assert recording.notes == ()

    def test_windows_without_a_step_go_by_time(self, tmp_path: Path) -> None:
        record_scalars(tmp_path, [scalar(None, value, time=60.0 * value) for value in (3.0, 1.0, 2.0)])
        (recorded,) = read_recording(tmp_path).spaces
        assert recorded.windows == 3  # a clock that goes back makes nothing void
        assert recorded.history.series("loss") == [(180.0, 3.0), (60.0, 1.0), (120.0, 2.0)]

    def test_a_long_run_is_seen_from_end_to_end_and_its_extremes_are_exact(self, tmp_path: Path) -> None:
        count, odd = 4 * CAPACITY + 3, 2 * CAPACITY + 5
        record_scalars(tmp_path, [scalar(step, 1e6 if step == odd else float(step)) for step in range(1, count + 1)])
        (recorded,) = read_recording(tmp_path).spaces
        steps = steps_of(recorded)
        assert CAPACITY // 2 <= len(steps) <= CAPACITY
        assert (steps[0], steps[-1]) == (1, count)
        assert odd not in steps
        trace = recorded.traces["loss"]
        assert (recorded.windows, trace.windows, trace.min, trace.max, trace.last) == (count, count, 1.0, 1e6, count)

    def test_what_is_missing_in_a_window_does_not_count(self, tmp_path: Path) -> None:
        record_scalars(tmp_path, [scalar(1, None), scalar(2, 5.0), scalar(3, None)])
        trace = read_recording(tmp_path).spaces[0].traces["loss"]
        assert (trace.first, trace.last, trace.windows) == (5.0, 5.0, 1)


class TestVerdicts:
    def test_the_newest_and_how_they_changed(self, tmp_path: Path) -> None:
        record(tmp_path, [10, 20])
        record(tmp_path, [30, 40, 50], collapsed)
        record(tmp_path, [60])
        record(tmp_path, [70, 80], broken)
        recording = read_recording(tmp_path)
        (recorded,) = recording.spaces
        assert (recording.status, recording.counts()["fail"], recording.counts()["ok"]) == ("fail", 1, 1)
        assert [(s.status, s.since.step, s.until.step, s.windows) for s in recorded.spells["collapse"]] == [
            ("ok", 10, 20, 2),
            ("fail", 30, 50, 3),
            ("ok", 60, 80, 3),
        ]
        (past,) = recorded.past("collapse")
        assert past.verdict.remedy
        now = recorded.now("nonfinite_rows")
        assert now is not None
        assert (now.status, now.since.step) == ("fail", 70)
        assert recorded.past("nonfinite_rows") == []

    def test_a_verdict_comes_back_as_it_was(self, tmp_path: Path) -> None:
        (snapshot,) = record(tmp_path, [10], collapsed)
        assert list(read_recording(tmp_path).spaces[0].verdicts) == JUDGE.judge(snapshot)

    def test_a_check_that_is_no_longer_asked_says_nothing_now(self, tmp_path: Path) -> None:
        record(tmp_path, [10], collapsed)
        record_scalars(tmp_path, [scalar(20, 1.0)])
        recording = read_recording(tmp_path)
        assert recording.status == "unknown"
        assert recording.spaces[0].now("collapse") is None
        assert [spell.since.step for spell in recording.spaces[0].past("collapse")] == [10]

    def test_one_that_changes_all_the_time_is_kept_in_bounds(self, tmp_path: Path) -> None:
        good, bad = measured(1, healthy(1)), measured(1, collapsed(1))
        verdicts = {False: JUDGE.judge(good), True: JUDGE.judge(bad)}
        with JsonLines(tmp_path / RECORDING_FILE) as sink:
            for step in range(2 * MOST_SPELLS):
                sink.write(scalar(step, 1.0), verdicts[bool(step % 2)])
        recording = read_recording(tmp_path)
        assert len(recording.spaces[0].spells["collapse"]) == MOST_SPELLS
        assert recording.notes == (
            "Some checks changed their verdict so often that only the newest changes are known.",
        )


def superseded(written: list[tuple[Space, int]], place: int) -> bool:
    """Whether the Space of a line goes back later, and to its step or before it."""
    space, step = written[place]
    own = [each for other, each in written[: place + 1] if other == space]
    for other, later in written[place + 1 :]:
        if other == space:
            if later < own[-1] and later <= step:
                return True
            own.append(later)
    return False


class TestResumed:
    def test_the_later_line_wins_and_what_was_abandoned_does_not_count(self, tmp_path: Path) -> None:
        abandoned, clean = tmp_path / "resumed", tmp_path / "clean"
        record(abandoned, range(20, 201, 20), collapsed)
        record(abandoned, range(110, 300, 30))
        record(clean, range(20, 110, 20), collapsed)
        record(clean, range(110, 300, 30))
        resumed, expected = read_recording(abandoned), read_recording(clean)
        assert resumed.spaces[0].traces == expected.spaces[0].traces
        assert resumed.spaces[0].spells == expected.spaces[0].spells
        assert list(resumed.spaces[0].history) == list(expected.spaces[0].history)
        assert resumed.notes == ("The run went back to step 110; 5 windows that it had written do not count.",)

    def test_a_training_that_goes_on_at_the_step_where_it_ended_does_not_go_back(self, tmp_path: Path) -> None:
        record_scalars(tmp_path, [scalar(step, 1.0) for step in (50, 91, 91, 120)])
        recording = read_recording(tmp_path)
        assert recording.notes == ()
        assert steps_of(recording.spaces[0]) == [50, 91, 91, 120]

    def test_one_going_back_of_several_spaces_is_told_once_and_several_with_each_step(self, tmp_path: Path) -> None:
        def run(*steps: int) -> None:
            for step in steps:
                record_scalars(tmp_path, [scalar(step, 1.0, space) for space in (TABLE, LAYER)])

        run(10, 20)
        record_scalars(tmp_path, [scalar(15, 1.0, TABLE)])  # at the start the table alone is examined
        run(16, 2_000)
        assert read_recording(tmp_path).notes == (
            "The run went back to step 15; 2 windows that it had written do not count.",
        )
        record_scalars(tmp_path, [scalar(1_000, 1.0, TABLE)])
        assert read_recording(tmp_path).notes == (
            "The run went back to steps 15 and 1,000; 3 windows that it had written do not count.",
        )

    def test_many_steps_are_named_in_part(self, tmp_path: Path) -> None:
        record_scalars(tmp_path, [scalar(step, 1.0) for step in (9, 1, 9, 2, 9, 3, 9, 4)])
        (note,) = read_recording(tmp_path).notes
        assert note == "The run went back to steps 1, 2, 3 and others; 4 windows that it had written do not count."

    def test_exact_also_where_the_history_was_thinned(self, tmp_path: Path) -> None:
        last = 3 * CAPACITY
        record_scalars(tmp_path, [scalar(step, 1e9 if step > last - 5 else 1.0) for step in range(1, last)])
        record_scalars(tmp_path, [scalar(step, 2.0) for step in range(last - 10, last + 3)])
        trace = read_recording(tmp_path).spaces[0].traces["loss"]
        assert (trace.max, trace.windows) == (2.0, last + 2)

    def test_one_space_goes_back_and_another_does_not(self, tmp_path: Path) -> None:
        record_scalars(tmp_path, [scalar(step, 1.0, space) for step in (1, 2, 3) for space in (TABLE, LAYER)])
        record_scalars(tmp_path, [scalar(2, 2.0, LAYER)])
        assert [steps_of(each) for each in read_recording(tmp_path).spaces] == [[1, 2, 3], [1, 2]]

    @given(st.lists(st.tuples(st.sampled_from([TABLE, LAYER]), st.integers(0, 6)), min_size=1, max_size=30))
    def test_a_line_counts_unless_a_later_one_goes_back_to_it_or_before(
        self, tmp_path_factory: pytest.TempPathFactory, written: list[tuple[Space, int]]
    ) -> None:
        run = tmp_path_factory.mktemp("run")
        record_scalars(run, [scalar(step, float(place), space) for place, (space, step) in enumerate(written)])
        counted: dict[Space, list[tuple[float, float]]] = {}
        for place, (space, step) in enumerate(written):
            if not superseded(written, place):
                counted.setdefault(space, []).append((float(step), float(place)))
        found = {recorded.space: recorded.history.series("loss") for recorded in read_recording(run).spaces}
        assert found == counted


class TestSelection:
    def test_since_a_step(self, tmp_path: Path) -> None:
        record(tmp_path, range(10, 60, 10), collapsed)
        (recorded,) = read_recording(tmp_path, since=30).spaces
        assert (steps_of(recorded), recorded.windows, recorded.first.step) == ([30, 40, 50], 3, 30)
        assert recorded.traces["norm_mean"].windows == 3
        now = recorded.now("collapse")
        assert now is not None
        assert now.since.step == 10  # it has not begun with what is shown

    def test_since_a_time(self, tmp_path: Path) -> None:
        record(tmp_path, [10, 20, 30])
        since = datetime.fromtimestamp(1200, timezone.utc)
        assert steps_of(read_recording(tmp_path, since=since).spaces[0]) == [20, 30]

    def test_what_was_over_before_is_not_told(self, tmp_path: Path) -> None:
        record(tmp_path, [10], collapsed)
        record(tmp_path, [20, 30])
        (recorded,) = read_recording(tmp_path, since=20).spaces
        assert recorded.past("collapse") == []

    def test_the_last(self, tmp_path: Path) -> None:
        record_scalars(tmp_path, [scalar(step, float(step)) for step in range(2 * CAPACITY)])
        (recorded,) = read_recording(tmp_path, last=CAPACITY + 7).spaces
        first = float(CAPACITY - 7)
        trace = recorded.traces["loss"]
        assert (recorded.windows, trace.first, trace.min, trace.windows) == (CAPACITY + 7, first, first, CAPACITY + 7)
        assert recorded.first.step == first

    def test_the_last_of_a_resumed_run(self, tmp_path: Path) -> None:
        record_scalars(tmp_path, [scalar(step, 1.0) for step in range(1, 11)])
        record_scalars(tmp_path, [scalar(step, 2.0) for step in (5, 6)])
        assert steps_of(read_recording(tmp_path, last=4).spaces[0]) == [3, 4, 5, 6]

    def test_nothing_left_says_what_there_is(self, tmp_path: Path) -> None:
        record_scalars(tmp_path, [scalar(1200, 1.0)])
        with pytest.raises(UsageError, match=r"`since` must leave a window, got 1201; the newest is of step 1,200"):
            read_recording(tmp_path, since=1201)

    @pytest.mark.parametrize("last", [0, -1, MOST_LAST + 1])
    def test_a_last_out_of_range(self, tmp_path: Path, last: int) -> None:
        with pytest.raises(UsageError, match="from 1 to"):
            read_recording(tmp_path, last=last)


DAMAGED: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"{", "not JSON"),
    "zeros after a power cut": (b"\0" * 100, "not JSON"),
    "no UTF-8": (b'{"snapshot": "\xff"}', "not JSON"),
    "deep": (b"[" * 100_000, "not JSON"),
    "a list": (b"[1]", "holds no snapshot"),
    "another line": (b'{"mine": true}', "holds no snapshot"),
    "no snapshot": (b'{"snapshot": [1]}', "holds no snapshot"),
    "an empty snapshot": (b'{"snapshot": {}}', "not a snapshot"),
}

CHANGES: dict[str, Callable[[dict[str, Any]], None]] = {
    "schema": lambda data: data["snapshot"].update(schema=99),
    "space of numbers": lambda data: data["snapshot"]["space"].update(model=5),
    "space of lists": lambda data: data["snapshot"]["space"].update(place=[]),
    "space without a place": lambda data: data["snapshot"]["space"].pop("place"),
    "step": lambda data: data["snapshot"]["provenance"].update(step="7"),
    "no whole step": lambda data: data["snapshot"]["provenance"].update(step=1.5),
    "huge step": lambda data: data["snapshot"]["provenance"].update(step=10**400),
    "negative step": lambda data: data["snapshot"]["provenance"].update(step=-1),
    "time": lambda data: data["snapshot"]["provenance"].update(time=1e300),
    "no time": lambda data: data["snapshot"]["provenance"].update(time=float("nan")),
    "rows": lambda data: data["snapshot"]["provenance"].update(rows=float("inf")),
    "dimension": lambda data: data["snapshot"]["provenance"].update(dimension="wide"),
    "coverage": lambda data: data["snapshot"]["provenance"].update(coverage={"places_seen": "all"}),
    "notes": lambda data: data["snapshot"]["provenance"].update(notes=[{}]),
    "value": lambda data: data["snapshot"]["measurements"][0].update(value="much"),
    "huge value": lambda data: data["snapshot"]["measurements"][0].update(value=10**400),
    "digits": lambda data: data["snapshot"]["measurements"][0].update(digits="many"),
    "headline": lambda data: data["snapshot"]["measurements"][0].update(headline="yes"),
    "labels": lambda data: data["snapshot"]["measurements"][0].update(labels={"q": 0.5}),
    "unit": lambda data: data["snapshot"]["measurements"][0].update(unit=[]),
    "healthy": lambda data: data["snapshot"]["measurements"][0].update(healthy={"a": 1}),
    "no name": lambda data: data["snapshot"]["measurements"][0].update(name=None),
    "verdicts": lambda data: data.update(verdicts=3),
    "verdict": lambda data: data.update(verdicts=[1]),
    "status": lambda data: data["verdicts"][0].update(status="bad"),
    "verdict's space": lambda data: data["verdicts"][0].update(space={"model": "m"}),
    "verdict's value": lambda data: data["verdicts"][0].update(value=[1]),
    "verdict's limit": lambda data: data["verdicts"][0].update(limit={"warn": None, "fail": None, "side": "above"}),
    "verdict's side": lambda data: data["verdicts"][0]["limit"].update(side="left"),
}


class TestDamage:
    @pytest.mark.parametrize("left", [1, 10, 0.5, -2])
    def test_a_cut_last_line(self, tmp_path: Path, left: float) -> None:
        record(tmp_path, [1, 2, 3])
        file = tmp_path / RECORDING_FILE
        whole = file.read_bytes().splitlines(keepends=True)
        size = len(whole[-1])
        kept = int(size * left) if isinstance(left, float) else left % size
        file.write_bytes(b"".join(whole[:-1]) + whole[-1][:kept])
        recording = read_recording(tmp_path)
        assert recording.spaces[0].windows == 2
        assert (recording.lines, recording.lost) == (3, 1)
        assert recording.notes == ("Line 3, the last, is cut: it is being written, or its writer was killed.",)

    def test_a_whole_last_line_without_its_end_counts(self, tmp_path: Path) -> None:
        record(tmp_path, [1, 2])
        file = tmp_path / RECORDING_FILE
        file.write_bytes(file.read_bytes().rstrip())
        assert read_recording(tmp_path).spaces[0].windows == 2

    def test_a_killed_writer_and_one_that_goes_on(self, tmp_path: Path) -> None:
        record(tmp_path, [1, 2, 3])
        file = tmp_path / RECORDING_FILE
        whole = file.read_bytes()
        file.write_bytes(whole[:-500])
        record(tmp_path, [3, 4])
        recording = read_recording(tmp_path)
        assert steps_of(recording.spaces[0]) == [1, 2, 3, 4]
        assert recording.lost == 1

    def test_a_killed_writer_and_one_that_did_not_end_the_half_line(self, tmp_path: Path) -> None:
        record(tmp_path, [1, 2, 3])
        file = tmp_path / RECORDING_FILE
        whole = file.read_bytes()
        last = whole.splitlines(keepends=True)[-1]
        file.write_bytes(whole[:-500] + last)
        recording = read_recording(tmp_path)
        assert steps_of(recording.spaces[0]) == [1, 2, 3]
        assert recording.notes == ("Line 3 begins with half a line that was cut off; what follows it was read.",)
        assert recording.lost == 0
        mended = file.read_bytes()
        record(tmp_path, [4])
        file.write_bytes(mended + last[:-500] + file.read_bytes()[len(mended) :])
        notes = read_recording(tmp_path).notes
        assert notes == ("Lines 3 and 4 begin with half a line that was cut off; what follows it was read.",)

    @pytest.mark.parametrize("damage", DAMAGED)
    def test_a_damaged_line_in_the_middle(self, tmp_path: Path, damage: str) -> None:
        line, reason = DAMAGED[damage]
        record(tmp_path, [1])
        with (tmp_path / RECORDING_FILE).open("ab") as file:
            file.write(b"\n" + line + b"\n")
        record(tmp_path, [2])
        recording = read_recording(tmp_path)
        assert steps_of(recording.spaces[0]) == [1, 2]
        (found,) = recording.damaged
        assert (found.line, found.cut, recording.lost) == (3, False, 1)  # an empty line has a number
        assert found.reason.startswith(reason)
        assert recording.notes == (f"Line 3 cannot be read and is left out: {found.reason}.",)

    @pytest.mark.parametrize("change", CHANGES)
    def test_fields_of_another_type(self, tmp_path: Path, change: str) -> None:
        record(tmp_path, [1, 2])
        file = tmp_path / RECORDING_FILE
        first, second = file.read_text(encoding="utf-8").splitlines()
        data = json.loads(first)
        CHANGES[change](data)
        file.write_text(f"{json.dumps(data)}\n{second}\n", encoding="utf-8")
        recording = read_recording(tmp_path)
        assert (recording.lost, steps_of(recording.spaces[0])) == (1, [2])
        assert len(recording.damaged[0].reason) <= lines.QUOTED

    def test_a_number_that_is_none_is_missing(self, tmp_path: Path) -> None:
        file = record_scalars(tmp_path, [scalar(1, 7.0), scalar(2, 8.0)])
        file.write_text(file.read_text().replace("7.0", "NaN"))
        recording = read_recording(tmp_path)
        assert recording.lost == 0
        assert recording.spaces[0].history.series("loss") == [(2.0, 8.0)]

    def test_a_line_that_is_too_long_is_passed_over(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lines, "LONGEST_LINE", 20_000)
        monkeypatch.setattr(lines, "CHUNK", 1_000)
        record(tmp_path, [1])
        file = tmp_path / RECORDING_FILE
        with file.open("ab") as stream:
            stream.write(b"x" * 50_500 + b"\n")
        record(tmp_path, [2])
        with file.open("ab") as stream:
            stream.write(b"x" * 50_500)
        recording = read_recording(tmp_path)
        assert steps_of(recording.spaces[0]) == [1, 2]
        assert [(damage.line, damage.cut) for damage in recording.damaged] == [(2, False), (4, True)]
        assert recording.damaged[0].reason.startswith("longer than")

    def test_many_damaged_lines_are_counted_and_few_are_named(self, tmp_path: Path) -> None:
        record(tmp_path, [1])
        with (tmp_path / RECORDING_FILE).open("a") as file:
            file.write("nothing\n" * 50)
        recording = read_recording(tmp_path)
        assert recording.lost == 50
        assert len(recording.damaged) == reader.MOST_DAMAGED
        assert recording.notes[-1] == "47 more lines cannot be read; they are left out."

    def test_more_spaces_than_are_kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reader, "MOST_SPACES", 3)
        record_scalars(tmp_path, [scalar(1, 1.0, Space("m", f"p{number}")) for number in range(5)])
        recording = read_recording(tmp_path)
        assert [each.space.place for each in recording.spaces] == ["p0", "p1", "p2"]
        assert "the last are left out" in recording.notes[0]

    def test_more_measurements_than_are_kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reader, "MOST_KEPT", 3)
        record(tmp_path, [1, 2])
        recording = read_recording(tmp_path)
        assert len(recording.spaces[0].traces) + len(recording.spaces[0].spells) == 3
        assert "the last are left out" in recording.notes[0]


class TestRefusals:
    def test_a_missing_file_says_how_to_record_one(self, tmp_path: Path) -> None:
        for path in (tmp_path, tmp_path / "none.jsonl"):
            with pytest.raises(InputError, match="does not exist; record it with --sink jsonl:"):
                read_recording(path)

    def test_a_folder_of_that_name(self, tmp_path: Path) -> None:
        (tmp_path / RECORDING_FILE).mkdir()
        with pytest.raises(InputError, match="must be a regular file"):
            read_recording(tmp_path)

    def test_a_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(InputError, match="must be a regular file"):
            read_recording(tmp_path / "pipe")

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ("", "holds no line yet"),
            ("\n\n", "holds no line yet"),
            ('{"snap', "holds one line, and that is cut"),
            ("a\nb\n", "none of its 2 lines is what the jsonl sink writes, line 1: not JSON"),
        ],
    )
    def test_nothing_that_can_be_read(self, tmp_path: Path, content: str, words: str) -> None:
        (tmp_path / RECORDING_FILE).write_text(content)
        with pytest.raises(InputError, match=words):
            read_recording(tmp_path)

    def test_a_path_that_is_none(self) -> None:
        with pytest.raises(InputError, match="does not exist"):
            read_recording("a\0b")


def test_what_is_appended_meanwhile_is_left_for_the_next_reading(tmp_path: Path) -> None:
    file = record_scalars(tmp_path, [scalar(1, 1.0)])
    size = file.stat().st_size
    record_scalars(tmp_path, [scalar(2, 1.0)])
    assert [entry.line for entry in lines.read_lines(file, size)] == [1]


def peak(file: Path) -> int:
    tracemalloc.start()
    try:
        read_recording(file)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_a_recording_ten_times_as_long_takes_no_more_memory(tmp_path: Path) -> None:
    """20,000 lines take less than two megabytes, and little more than 2,000 lines."""
    base = measured(1, healthy(1))
    small: tuple[Snapshot, ...] = tuple(
        replace(base, space=space, measurements=base.measurements[:3]) for space in (TABLE, LAYER)
    )
    sizes = []
    for count in (2_000, 20_000):
        snapshots = (
            replace(small[number % 2], provenance=replace(base.provenance, step=number)) for number in range(count)
        )
        sizes.append(peak(record_scalars(tmp_path / str(count), snapshots)))
    assert sizes[1] < 2 * MEGABYTE
    assert sizes[1] < 1.25 * sizes[0]


def test_reading_and_showing_load_no_torch(tmp_path: Path) -> None:
    record(tmp_path, [1, 2])
    code = (
        "import sys\n"
        "from embedwatch.cli import main\n"
        "try:\n    main(['show', sys.argv[1]])\n"
        "except SystemExit as end:\n    status = end.code\n"
        "heavy = {'torch', 'numpy', 'faiss', 'transformers', 'pyarrow'} & set(sys.modules)\n"
        "print(status, sorted(heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "0 []"
