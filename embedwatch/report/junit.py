"""A report as JUnit XML, which systems of continuous integration show as tests."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from embedwatch.core.verdict import Verdict
from embedwatch.report.contents import Report
from embedwatch.report.wording import one_line, value_of_verdict

__all__ = ["to_junit"]


def to_junit(report: Report, *, fail_on: str = "fail") -> str:
    """Return the report as JUnit XML: a suite for each Space, a case for each check.

    A verdict as grave as `fail_on`, or graver, is a failure; a milder `warn` passes with its words in `system-out`;
    `unknown` is skipped. What of ours raised is an error.

    Args:
        report: what is told.
        fail_on: `warn`, `fail` or `never`.
    """
    root = ET.Element("testsuites", name=_clean(f"embedwatch {report.title}"))
    totals = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for section in report.sections:
        suite = ET.SubElement(root, "testsuite", name=_clean(str(section.space)))
        found = dict.fromkeys(totals, 0)
        for verdict in section.verdicts:
            found["tests"] += 1
            outcome = _case(suite, verdict, fail_on)
            if outcome is not None:
                found[outcome] += 1
        _count(suite, found)
        for name, count in found.items():
            totals[name] += count
    if report.errors:
        suite = ET.SubElement(root, "testsuite", name="embedwatch itself")
        for stage, name, count in report.errors:
            case = ET.SubElement(suite, "testcase", classname=_clean(stage), name=_clean(name))
            ET.SubElement(case, "error", message=f"failed, {count} in all; what it would say is missing")
        number = len(report.errors)
        _count(suite, {"tests": number, "failures": 0, "errors": number, "skipped": 0})
        totals["tests"] += number
        totals["errors"] += number
    _count(root, totals)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=False).join(
        ('<?xml version="1.0" encoding="utf-8"?>\n', "\n")
    )


def _case(suite: ET.Element, verdict: Verdict, fail_on: str) -> str | None:
    """Add a case, and return what it counts as beside being one."""
    case = ET.SubElement(suite, "testcase", classname=_clean(str(verdict.space)), name=_clean(verdict.check))
    text = _clean("\n".join(part for part in (verdict.reason, verdict.meaning, f"Remedy: {verdict.remedy}") if part))
    grave = verdict.status == "fail" or (verdict.status == "warn" and fail_on == "warn")
    if verdict.status in ("warn", "fail") and grave and fail_on != "never":
        said = _clean(f"{verdict.title}: {value_of_verdict(verdict)}")
        ET.SubElement(case, "failure", message=said, type=verdict.status).text = text
        return "failures"
    if verdict.status == "unknown":
        ET.SubElement(case, "skipped", message=_clean(verdict.reason))
        return "skipped"
    if verdict.status != "ok":
        ET.SubElement(case, "system-out").text = f"{verdict.status}: {text}"
    return None


def _count(element: ET.Element, found: dict[str, int]) -> None:
    for name, count in found.items():
        element.set(name, str(count))


def _clean(text: str) -> str:
    """Return text that XML can hold: it has no control characters, and no halves of surrogate pairs."""
    lines = [one_line(each) for each in text.split("\n")]
    return "\n".join("".join(c for c in each if c not in "\ufffe\uffff") for each in lines)
