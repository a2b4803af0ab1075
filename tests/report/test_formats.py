"""Markdown for a pull request, JUnit for continuous integration."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from embedwatch.core import Space
from embedwatch.report import Report, to_junit, to_markdown
from embedwatch.report.markdown import MOST_BYTES
from tests.report.inputs import HOSTILE, full_report, section, verdict


def test_markdown_tells_what_is_wrong_first() -> None:
    text = to_markdown(full_report())
    lines = text.splitlines()
    assert lines[0].startswith("## ✕ embedwatch: ")
    assert lines[2] == "2 fail · 1 warn · 1 unknown · 1 ok"
    assert text.index("### ✕ fail") < text.index("### ▲ warn") < text.index("<details>") < text.index("→") + 10**6
    assert "→ Do." in text


def test_markdown_holds_no_markup_of_others() -> None:
    text = to_markdown(Report("t", "audit", (section([verdict(reason=f"{HOSTILE} [x](http://y) @all `a`|b\n# c")]),)))
    assert "<img" not in text
    assert "](http" not in text
    assert "http://" not in text
    assert "@all" not in text
    assert "\n# c" not in text


def test_markdown_fits_into_a_comment() -> None:
    spaces = [Space("m", f"layers.{n}") for n in range(900)]
    many = [verdict(f"check_{n}", "warn" if n % 2 else "ok", space, "x" * 200) for n, space in enumerate(spaces)]
    text = to_markdown(Report("t", "audit", (section(many),)))
    assert len(text.encode()) < MOST_BYTES + 200
    assert text.rstrip().endswith("`--json` has all of it.")


@pytest.mark.parametrize(("fail_on", "failures"), [("fail", 2), ("warn", 3), ("never", 0)])
def test_junit_fails_what_the_exit_status_would(fail_on: str, failures: int) -> None:
    root = ET.fromstring(to_junit(full_report(), fail_on=fail_on))
    assert {name: root.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "6",
        "failures": str(failures),
        "errors": "1",
        "skipped": "1",
    }
    assert len(root.findall(".//failure")) == failures
    assert sum(int(suite.get("tests", 0)) for suite in root.findall("testsuite")) == len(root.findall(".//testcase"))


def test_junit_tells_a_milder_warning() -> None:
    root = ET.fromstring(to_junit(full_report()))
    (case,) = [case for case in root.iter("testcase") if case.get("name") == "zero_rows"]
    assert (case.findtext("system-out") or "").startswith("warn: zero_rows is 0.99")


def test_junit_can_hold_any_text() -> None:
    found = verdict(reason="nul \x00, half \ud800, end \uffff, ]]> and \x1b[31m")
    root = ET.fromstring(to_junit(Report("\x00", "audit", (section([found]),))))
    assert "nul ␀" in (root.findtext(".//failure") or "")
