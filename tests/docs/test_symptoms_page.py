"""docs/symptoms.md: every row names a check, says what that check says, and names a test that plants the fault."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

import pytest

from embedwatch.core import Check
from embedwatch.core.registry import registered
from tests.checkout import ROOT
from tests.docs.generator import DOCS

ROW = re.compile(r"^\| (?P<seen>.+?) \| \[(?P<check>\w+)\]\(checks\.md#(?P<anchor>\w+)\) \| (?P<first>.+?) \| "
                 r"\[(?P<test>test_\w+)\]\((?P<file>[\w./]+)\) \|$")  # fmt: skip
WANTED = (
    "NaN", "plateau", "oscillation", "overfitting", "constant gap", "batch size", "Clipping always", "uniform",
    "diagonal", "long range", "repetition", "frequent tokens", "Start and end", "cohesion or separation",
    "initialisation", "left out", "twice", "after weeks", "after a model change",
)  # fmt: skip
"""Symptoms for which people must find a row."""


class Row(NamedTuple):
    """One row of the table."""

    seen: str
    check: str
    anchor: str
    first: str
    test: str
    file: str


def rows() -> list[Row]:
    lines = [line for line in page().splitlines() if line.startswith("| ") and "checks.md#" in line]
    found = [ROW.match(line) for line in lines]
    assert all(found), [line for line, match in zip(lines, found, strict=True) if not match]
    return [Row(**match.groupdict()) for match in found if match]


def page() -> str:
    return DOCS.joinpath("symptoms.md").read_text(encoding="utf-8")


def one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.check}-{row.test}")
def test_a_row_holds(row: Row) -> None:
    check = registered(Check)[row.check]
    assert row.anchor == row.check
    assert one_line(check.mitigation).startswith(row.first.rstrip(".")), "the page says what the check says"
    text = (DOCS / row.file).resolve().read_text(encoding="utf-8")
    planting = next(
        (each for each in ast.parse(text).body if isinstance(each, ast.FunctionDef) and each.name == row.test), None
    )
    assert planting is not None, f"{row.file} has no {row.test}"
    own = "\n".join(ast.unparse(each) for each in (*planting.decorator_list, planting))
    names = set(re.findall(r"\w+", own))
    constants = {
        name: ast.unparse(each.value)
        for each in ast.parse(text).body
        if isinstance(each, ast.Assign | ast.AnnAssign) and each.value is not None
        for name in (ast.unparse(each.targets[0] if isinstance(each, ast.Assign) else each.target),)
    }
    said = own + "".join(value for name, value in constants.items() if name in names)
    assert row.check in said, f"{row.test} says nothing of {row.check}"


@pytest.mark.parametrize("words", WANTED)
def test_people_find_their_symptom(words: str) -> None:
    assert any(words in row.seen for row in rows())


def test_rows_of_several_models_have_their_command_and_its_test() -> None:
    assert "embedwatch align mixed" in page()
    text = ROOT.joinpath("tests", "align", "test_mixed.py").read_text(encoding="utf-8")
    assert "def test_each_cause_has_its_group_with_the_ids(" in text
