"""Tables of a page: exhibits and measurements."""

from __future__ import annotations

from collections.abc import Sequence

from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement
from embedwatch.report.markup import Markup, tag
from embedwatch.report.shapes import column, is_numeric
from embedwatch.report.wording import in_words, one_line, value_of

__all__ = ["exhibit_table", "measurement_table"]

MOST_ROWS = 50
"""Rows of a table on a page; the JSON has all."""
MOST_MEASUREMENTS = 400


def exhibit_table(exhibit: Exhibit) -> Markup | None:
    """Return the rows of an exhibit of shape table, the first ones; `None` for others, and where it has none."""
    if exhibit.shape != "table" or not exhibit.rows:
        return None
    numeric = [is_numeric(column(exhibit, name)) for name in exhibit.columns]
    head = [
        tag("th", in_words(name), class_="n" if right else None, scope="col")
        for name, right in zip(exhibit.columns, numeric, strict=True)
    ]
    rows = [
        tag(
            "tr",
            [tag("td", one_line(cell), class_="n" if right else "t") for cell, right in zip(row, numeric, strict=True)],
        )
        for row in exhibit.rows[:MOST_ROWS]
    ]
    more = len(exhibit.rows) - MOST_ROWS + exhibit.truncated
    told = tag("p", f"{more:,} more rows are in the JSON.", class_="muted small") if more > 0 else None
    table = tag("table", tag("thead", tag("tr", head)), tag("tbody", rows))
    return tag(
        "div", tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=in_words(exhibit.name)), told
    )


def measurement_table(measurements: Sequence[Measurement]) -> Markup | None:
    """Return every measurement with what it is and what is healthy."""
    if not measurements:
        return None
    head = [
        tag("th", title, class_=kind, scope="col")
        for title, kind in (("measurement", None), ("value", "n"), ("healthy", None), ("what it is", None))
    ]
    rows = []
    for each in measurements[:MOST_MEASUREMENTS]:
        labels = " ".join(f"{name}={one_line(value)}" for name, value in each.labels.items())
        named = f"{each.metric.title} {labels}".strip()
        rows.append(
            tag(
                "tr",
                tag("td", one_line(named), class_="t"),
                tag("td", value_of(each), class_="n"),
                tag("td", one_line(each.metric.healthy)),
                tag("td", one_line(each.metric.help)),
            )
        )
    more = len(measurements) - MOST_MEASUREMENTS
    told = tag("p", f"{more:,} more are in the JSON.", class_="muted small") if more > 0 else None
    table = tag("table", tag("thead", tag("tr", head)), tag("tbody", rows))
    return tag("div", tag("div", table, class_="scroll", tabindex="0", role="region", aria_label="measurements"), told)
