"""`embedwatch.compare_snapshots` and `embedwatch compare` of JSON: values side by side, nothing judged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from embedwatch import InputError, Snapshot, UsageError, audit, compare_snapshots, create_reference, save_reference
from embedwatch.cli import main
from embedwatch.sinks.jsonl import JsonLines
from tests.topics import stream


@pytest.fixture
def rows(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "old.npy", tmp_path / "new.npy"
    for path, scale in zip(paths, (1.0, 2.0), strict=True):
        np.save(path, (scale * stream(600, seed=0)).numpy())
    return paths


@pytest.fixture
def audits(tmp_path: Path, rows: tuple[Path, Path]) -> tuple[Path, Path]:
    found = tmp_path / "old.json", tmp_path / "new.json"
    for path, source in zip(found, rows, strict=True):
        path.write_text(json.dumps(audit(source).to_json()))
    return found


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["compare", *map(str, arguments)])


def test_values_stand_side_by_side(audits: tuple[Path, Path]) -> None:
    found = compare_snapshots(*audits)
    changes = {change.key: change for change in found.changes}
    assert changes["norm_mean"].quotient == pytest.approx(2.0)
    assert changes["norm_mean"].difference == pytest.approx(changes["norm_mean"].before or 0)
    assert changes["mean_cosine"].difference == pytest.approx(0.0, abs=1e-6)
    assert (found.only_before, found.only_after) == ((), ())
    assert "p_value" not in json.dumps(found.to_json())


def test_the_command_exits_with_0_and_says_what_it_cannot(audits: tuple[Path, Path]) -> None:
    result = run(*audits)
    assert result.exit_code == 0, result.output
    assert "without rows nobody can say how surely they differ" in " ".join(result.output.split())
    (line,) = [line for line in result.output.splitlines() if line.strip().startswith("norm mean ")]
    assert line.endswith("×2")
    data = json.loads(run(*audits, "--json").output)
    assert (data["before"], data["after"], data["exit"]) == ("old.json", "new.json", 0)
    assert len(run(*audits, "-v").output.splitlines()) > len(result.output.splitlines())


def test_a_reference_and_a_recording_are_measured_states_too(
    tmp_path: Path, rows: tuple[Path, Path], audits: tuple[Path, Path]
) -> None:
    save_reference(create_reference(rows[0]), tmp_path / "healthy")
    recording = tmp_path / "run.jsonl"
    sink = JsonLines(recording)
    for source in rows:
        snapshot = audit(source).spaces[0].snapshot
        told = Snapshot.from_json({**snapshot.to_json(), "space": {"model": "m", "place": "p", "segment": "all"}})
        sink.write(told, [])
    sink.close()
    found = {change.key: change for change in compare_snapshots(tmp_path / "healthy", recording).changes}
    assert found["norm_mean"].quotient == pytest.approx(2.0, rel=1e-6), "the newest of a Space counts"
    assert run(tmp_path / "healthy", audits[1]).exit_code == 0


def test_several_spaces_are_paired_by_place_and_segment(tmp_path: Path, audits: tuple[Path, Path]) -> None:
    parts = json.loads(audits[0].read_text())["spaces"]
    for name, segments in (("one", ("de", "en")), ("two", ("en", "fr"))):
        spaces = [json.loads(json.dumps(parts[0])) for _ in segments]
        for part, segment in zip(spaces, segments, strict=True):
            part["snapshot"]["space"]["segment"] = segment
        tmp_path.joinpath(f"{name}.json").write_text(json.dumps({"spaces": spaces}))
    found = compare_snapshots(tmp_path / "one.json", tmp_path / "two.json")
    assert {change.space.segment for change in found.changes} == {"en"}
    assert [space.segment for space in (*found.only_before, *found.only_after)] == ["de", "fr"]


def test_a_mixture_is_refused_in_one_line(rows: tuple[Path, Path], audits: tuple[Path, Path]) -> None:
    for given in ((rows[0], audits[1]), (audits[0], rows[1])):
        result = run(*given)
        assert result.exit_code == 2
        assert len(result.stderr.splitlines()) == 1
        assert "must be snapshots as JSON or a reference, like the other, got something else" in result.stderr
    result = run(*audits, "--by", "segment")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "`--by` must be left out for snapshots" in result.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "JSON"),
        ("[1]", "must hold snapshots, got other JSON"),
        ('{"a": 1}', "must hold snapshots, got other JSON"),
        ('{"snapshot": {"schema": 1}}', "not a snapshot"),
        ('{"snapshot": {"schema": 99}}', "snapshot schema must be 1, got 99"),
        ("[" * 100_000, "JSON"),
    ],
)
def test_what_is_none_is_refused(tmp_path: Path, audits: tuple[Path, Path], text: str, told: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(InputError, match=told):
        compare_snapshots(audits[0], path)
    result = run(audits[0], path)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)


def test_what_is_neither_is_refused(audits: tuple[Path, Path]) -> None:
    with pytest.raises(UsageError, match="`a` must be a Snapshot, a reference or a JSON file of these, got int"):
        compare_snapshots(3, audits[0])  # type: ignore[arg-type]
