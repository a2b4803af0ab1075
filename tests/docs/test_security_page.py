"""SECURITY.md: each promise names a test that exists."""

from __future__ import annotations

import re

from tests.checkout import ROOT

PAGE = ROOT.joinpath("SECURITY.md").read_text(encoding="utf-8")


def test_every_promise_has_its_test() -> None:
    named = re.findall(r"\[(test_\w+)\]\((tests/[\w/.]+)\)", PAGE)
    named += [(test, file) for file, test in re.findall(r"\[tried\]\((tests/[\w/.]+)\): `(test_\w+)`", PAGE)]
    assert len(named) == 12
    for test, file in named:
        assert f"def {test}(" in ROOT.joinpath(file).read_text(encoding="utf-8"), f"{file} has no {test}"


def test_every_row_of_the_table_is_such_a_promise() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| ---")][1:]
    assert len(rows) == 10
    assert all("](tests/" in row for row in rows)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:\s]+)\)", PAGE):
        assert ROOT.joinpath(target).exists(), target
