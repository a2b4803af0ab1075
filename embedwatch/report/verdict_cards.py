"""The first part of a page: what is wrong, why it matters, what to do; then what is unknown, and what is ok."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from embedwatch.core.snapshot import Space
from embedwatch.core.verdict import Verdict
from embedwatch.report.contents import Report
from embedwatch.report.markup import Markup, tag
from embedwatch.report.wording import MARKS, in_words, one_line, value_of_verdict

__all__ = ["grouped", "verdict_part"]

MOST_PLACES = 12
"""Places of one finding that are told one by one; the others are folded."""


def grouped(verdicts: Sequence[Verdict], *statuses: str) -> list[list[Verdict]]:
    """Return verdicts of these statuses, those of one check and status together, in the order of the statuses."""
    found: dict[tuple[str, str], list[Verdict]] = {}
    for status in statuses:
        for verdict in verdicts:
            if verdict.status == status:
                found.setdefault((status, verdict.check), []).append(verdict)
    return list(found.values())


def verdict_part(report: Report) -> Markup:
    """Return the verdicts of a report."""
    places = {section.space: place for place, section in reversed([*enumerate(report.sections)])}
    shown = {
        (place, exhibit.name)
        for place, section in enumerate(report.sections)
        for exhibit in section.exhibits
        if exhibit.rows
    }
    cards = [_card(group, places, shown) for group in grouped(report.verdicts, "fail", "warn")]
    counts = report.counts()
    if not cards:
        untold = f"; {counts['unknown']} could not be judged" if counts["unknown"] else ""
        none = (
            f"{MARKS['ok']} Nothing is wrong in what was judged{untold}."
            if counts["ok"]
            else "Nothing could be judged."
        )
        cards = [tag("div", none, class_=f"card verdict fine {'ok' if counts['ok'] else 'unknown'}")]
    rest = [
        _folded(report, "unknown", "could not be judged", places, unfolded=not counts["fail"] + counts["warn"]),
        _folded(report, "ok", "ok", places),
    ]
    heading = tag("h2", "Verdicts", id="verdicts")
    return tag("section", heading, tag("div", cards, rest, class_="cards"), aria_labelledby="verdicts")


def _card(group: Sequence[Verdict], places: Mapping[Space, int], shown: set[tuple[int, str]]) -> Markup:
    first = group[0]
    badge = tag("span", f"{MARKS[first.status]} {first.status}", class_=f"badge {first.status}")
    told = [_finding(verdict, places, shown) for verdict in group]
    found = tag("ul", told[:MOST_PLACES], class_="found")
    more = told[MOST_PLACES:]
    folded = (
        tag("details", tag("summary", f"{len(more)} more places"), tag("ul", more, class_="found")) if more else None
    )
    return tag(
        "article",
        tag("h3", badge, one_line(first.title)),
        found,
        folded,
        tag("p", one_line(first.meaning), class_="muted"),
        tag("p", one_line(first.remedy), class_="remedy") if first.remedy else None,
        class_=f"card verdict {first.status}",
    )


def _finding(verdict: Verdict, places: Mapping[Space, int], shown: set[tuple[int, str]]) -> Markup:
    """Return the place, the value beside its limit, the reason, and the way to what shows it."""
    place = places.get(verdict.space)
    name = tag("a", str(verdict.space), href=f"#space-{place}") if place is not None else str(verdict.space)
    ways = [
        [" · ", tag("a", in_words(exhibit), href=f"#exhibit-{place}-{exhibit}")]
        for exhibit in verdict.evidence.exhibits
        if place is not None and (place, exhibit) in shown
    ]
    value = value_of_verdict(verdict) if verdict.evidence.value is not None else ""
    beside = tag("span", f" · {value}", class_="muted") if value else None
    return tag("li", name, ": ", one_line(verdict.reason), beside, ways)


def _folded(
    report: Report, status: str, words: str, places: Mapping[Space, int], *, unfolded: bool = False
) -> Markup | None:
    groups = grouped(report.verdicts, status)
    if not groups:
        return None
    rows = []
    for group in groups:
        for verdict in group:
            place = places.get(verdict.space)
            where = tag("a", str(verdict.space), href=f"#space-{place}")
            rows.append(
                tag(
                    "tr",
                    tag("td", one_line(verdict.title), class_="t"),
                    tag("td", where),
                    tag("td", one_line(verdict.reason), class_="t"),
                )
            )
    head = tag("tr", [tag("th", title, scope="col") for title in ("check", "place", "why")])
    table = tag(
        "div",
        tag("table", tag("thead", head), tag("tbody", rows)),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=f"verdicts: {words}",
    )
    count = sum(map(len, groups))
    summary = tag("summary", tag("span", f"{MARKS[status]} {count} {words}", class_=f"badge {status}"))
    return tag("details", summary, table, class_="card", open=unfolded)
