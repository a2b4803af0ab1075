"""`embedwatch compare --by`: the whole, the mix and the segments, in a table and in JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from embedwatch.cli import main
from tests.test_segmenting import labels_of, rows_of, table


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    labels = labels_of(3_000, (1, 1, 0), seed=0)
    return table(tmp_path_factory.mktemp("by") / "old.csv", rows_of(labels, seed=0), labels)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["compare", *map(str, arguments)])


def test_the_segment_that_drifted_is_shown_and_the_others_in_a_line(tmp_path: Path, old: Path) -> None:
    labels = labels_of(3_000, (5, 5, 0.2), seed=1)
    rows = rows_of(labels, seed=1)
    rows[labels == 1] *= 1.3
    new = table(tmp_path / "new.csv", rows, labels)
    result = run(old, new, "--by", "segment")
    assert result.exit_code == 1, result.output
    text = " ".join(result.output.split())
    assert re.search(r"new\.csv/vectors\S*en", text)
    assert "ok segment de: " in text
    assert "left out segment fr: only in what is compared: " in text
    assert "mix of segments" in text
    data = json.loads(run(old, new, "--by", "segment", "--json").output)
    assert (data["by"], data["exit"]) == ("segment", 1)
    assert {name: part["status"] for name, part in data["segments"].items()} == {"de": "ok", "en": "fail"}


def test_a_column_that_is_not_there_is_one_line(old: Path) -> None:
    result = run(old, old, "--by", "language")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "language" in result.stderr
