"""A recording becomes courses with what the checks found on them."""

from __future__ import annotations

from pathlib import Path

from embedwatch.recording import read_recording
from embedwatch.report.recorded import MOST_LARGE, report_of_recording
from tests.recordings import broken, healthy, record


def test_findings_are_drawn_where_they_were(tmp_path: Path) -> None:
    def sometimes(step: int):  # type: ignore[no-untyped-def]
        return broken(step) if 40 <= step <= 60 else healthy(step)

    record(tmp_path, range(10, 110, 10), sometimes)
    recording = read_recording(tmp_path)
    report = report_of_recording(recording)
    assert (report.kind, report.title, report.status) == ("run", tmp_path.name, recording.status)
    assert report.counts() == recording.counts()
    (section,) = report.sections
    spans = [(chart.name, span) for chart in section.charts for span in chart.data["spans"]]
    assert [(span["from"], span["to"], span["status"]) for _, span in spans] == [(30, 60, "fail")]
    assert "nonfinite" in spans[0][0]  # on what the check reads
    assert section.charts[0].data["limits"] == [{"value": 1, "status": "fail", "text": "fail"}]
    assert section.charts[0].data["x"] == {"name": "step", "type": "value"}
    steps = [step for step, _ in section.charts[0].data["series"][0]["data"]]
    assert steps == list(range(10, 110, 10))
    assert sum(not chart.minor for chart in section.charts) <= MOST_LARGE + 1


def test_what_never_changes_has_no_course(tmp_path: Path) -> None:
    record(tmp_path, [10, 20], lambda step: healthy(1))
    assert report_of_recording(read_recording(tmp_path)).sections[0].charts == ()
