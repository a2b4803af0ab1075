"""The example that makes real sentences out of the standard library."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "stdlib_sentences.py"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_every_example_has_a_test() -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    assert {path.name for path in SCRIPT.parent.glob("*.py") if path.stem not in tests} == set()


def test_takes_distinct_first_sentences_in_order_of_file_and_place(example: dict[str, Any], tmp_path: Path) -> None:
    tmp_path.joinpath("b.py").write_text(
        '"""Say what the module b does. And more."""\nasync def f():\n    "Twice said here."\n'
    )
    tmp_path.joinpath("a.py").write_text('class A:\n    """Be a class of\n    some kind.\n\n    More."""\n')
    tmp_path.joinpath("c.py").write_text('def f():\n    """Be a class of some kind."""\ndef g(): """too short."""\n')
    tmp_path.joinpath("broken.py").write_text("def (:\n")
    tmp_path.joinpath("test").mkdir()
    tmp_path.joinpath("test", "a.py").write_text('"""This is not part of the library."""')
    assert example["sentences"](tmp_path) == ["Be a class of some kind.", "Say what the module b does."]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Return x, e.g. 3.5 of them. More.", "Return x, e.g. 3.5 of them."),
        ("Is this a question? Yes.", "Is this a question?"),
        ("No stop after some words", ""),
        ("lower case does not begin one.", ""),
        ("", ""),
    ],
)
def test_first_sentence(example: dict[str, Any], text: str, sentence: str) -> None:
    assert example["first_sentence"](text) == sentence


@pytest.mark.parametrize(("limit", "wanted"), [(1, [0]), (3, [0, 3, 6]), (10, list(range(10))), (99, list(range(10)))])
def test_a_limit_spreads_over_everything(example: dict[str, Any], limit: int, wanted: list[int]) -> None:
    assert example["spread"](list(range(10)), limit) == wanted


def test_finds_a_thousand_distinct_sentences_here(tmp_path: Path) -> None:
    out = tmp_path / "sentences.txt"
    done = subprocess.run(
        [sys.executable, SCRIPT, out, "--limit", "1000"], capture_output=True, text=True, check=True, timeout=120
    )
    lines = out.read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(set(lines)) == 1_000
    assert done.stdout.strip().endswith("1,000 sentences")
    assert all(line == line.strip() and len(line.split()) >= 4 for line in lines)
