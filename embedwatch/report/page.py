"""A report as one HTML file: everything inlined, nothing asked of the network, nothing of the data executed."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.resources import files
from typing import Any

from embedwatch import __version__
from embedwatch.assets import CHARTS, read_asset
from embedwatch.core.verdict import Verdict
from embedwatch.report.budget import Budget
from embedwatch.report.contents import Chart, Report, Section
from embedwatch.report.known import charts_of, histogram_charts
from embedwatch.report.markup import Markup, tag
from embedwatch.report.tables import exhibit_table, measurement_table
from embedwatch.report.verdict_cards import verdict_part
from embedwatch.report.wording import MARKS, clock, from_where, one_line

__all__ = ["MOST_BYTES", "to_page"]

MOST_BYTES = 5_000_000
"""Of the whole file: what does not fit is left out, the least telling first, and that is said."""
RESERVE = 250_000
"""Bytes for what is always there beside the chart library: verdicts, headings, the page's own code."""
FOLDED_FROM = 6
"""Spaces of one report from which sound ones are folded."""
WIDE = ("map",)
WORDS = {"audit": "Audit", "comparison": "Comparison", "pair": "Two spaces", "run": "Run"}
FIRST = (
    "space_map",
    "norm_distribution",
    "spectrum",
    "attention_heads_table",
    "word_topics",
    "groups",
    "regions",
    "pair_recall_curve",
    "position_kernel",
    "position_attention",
)
"""Charts that stand first, in this order."""


@dataclass
class _Page:
    """What is gathered while a page is written."""

    budget: Budget
    data: list[Markup] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def figure(self, chart: Chart, anchor: str | None = None) -> Markup | None:
        """Return a chart, with its data kept for the end of the page; `None` where it does not fit."""
        text = _inert(chart.to_json())
        if not self.budget.take(len(text.encode("utf-8", "replace")) + 600):
            self.left_out.append(chart.title)
            return None
        name = f"chart-{len(self.data)}"
        self.data.append(tag("script", Markup(text), type="application/json", id=name))
        caption = tag("figcaption", tag("strong", chart.title), tag("span", chart.caption, class_="muted small"))
        wide = len(chart.data.get("labels", ())) > 40 or chart.kind in WIDE
        return tag(
            "figure",
            caption,
            tag("div", class_="controls"),
            tag("div", class_="chart", role="img", aria_label=f"{chart.title}: {chart.caption}"),
            id=anchor,
            data_chart=name,
            class_="wide" if wide else None,
        )

    def table(self, made: Markup | None) -> Markup | None:
        """Return a table if it fits."""
        if made is None or self.budget.take(len(made.encode("utf-8", "replace"))):
            return made
        self.left_out.append("a table")
        return None


def to_page(report: Report, *, now: float | None = None) -> str:
    """Return the report as HTML.

    The file loads nothing: library, styles and data lie in it, and its content security policy forbids requests and
    scripts other than these. Data are text, or JSON in which `<` is escaped. Without scripts the verdicts and tables
    can be read; the charts are missing.

    Args:
        report: what is told.
        now: seconds since the epoch, of the making.
    """
    scripts = [read_asset(CHARTS).decode(), *(_own(name) for name in ("charts.js", "report.js"))]
    style = _own("report.css")
    fixed = sum(len(text.encode()) for text in (*scripts, style)) + RESERVE
    page = _Page(Budget(MOST_BYTES - fixed))
    order = sorted(range(len(report.sections)), key=lambda place: report.sections[place].status in ("ok", "unknown"))
    shared = [figure for figure in map(page.figure, report.charts) if figure is not None]
    written = {place: _section(page, report, place) for place in order}  # what is not sound takes its room first
    body = [
        _header(report, time.time() if now is None else now),
        _navigation(report),
        tag(
            "main",
            verdict_part(report),
            tag("section", tag("h2", "All together"), tag("div", shared, class_="figures"), class_="space")
            if shared
            else None,
            [written[place] for place in range(len(report.sections))],
        ),
        _footer(report, page),
    ]
    allowed = " ".join(f"'sha256-{_digest(text)}'" for text in scripts)
    policy = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:"
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="generator", content=f"embedwatch {__version__}"),
        tag("title", f"{report.status}: {one_line(report.title)} · embedwatch"),
        tag("style", Markup(style)),
    ]
    ends = [*page.data, *(tag("script", Markup(text)) for text in scripts)]
    document = tag("html", tag("head", head), tag("body", tag("div", body, class_="page"), ends), lang="en")
    return f"<!doctype html>\n{document}\n".encode("utf-8", "replace").decode()


def _own(name: str) -> str:
    """Return a script or style of ours."""
    return (files(__package__ or "embedwatch.report") / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


def _inert(data: Any) -> str:
    """Return JSON that no browser takes for markup or script."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _badge(status: str, text: str) -> Markup:
    return tag("span", f"{MARKS[status]} {text}", class_=f"badge {status}")


def _header(report: Report, now: float) -> Markup:
    counts = [tag("li", _badge(status, f"{count} {status}")) for status, count in report.counts().items() if count]
    newest = max((section.provenance.time for section in report.sections), default=0.0)
    measured = f"measured {clock(newest)}" if newest else ""
    told = " · ".join(part for part in (WORDS.get(report.kind, report.kind), measured, f"written {clock(now)}") if part)
    what = tag(
        "div",
        tag("h1", one_line(report.title)),
        tag("p", told, class_="muted small"),
        [tag("p", one_line(sentence)) for sentence in report.lead],
        class_="what",
    )
    theme = tag("button", "◐ auto", id="theme", type="button", hidden=True, aria_label="colours: auto, light or dark")
    return tag("header", what, tag("ul", counts, class_="counts", aria_label="verdicts"), theme)


def _navigation(report: Report) -> Markup | None:
    if len(report.sections) < 2:
        return None
    several = len({section.space.model for section in report.sections}) > 1
    links = [
        tag("li", tag("a", MARKS[section.status], " ", _called(section, several=several), href=f"#space-{place}"))
        for place, section in enumerate(report.sections)
    ]
    return tag("nav", tag("details", tag("summary", f"{len(links)} spaces"), tag("ul", links), open=len(links) <= 12))


def _called(section: Section, *, several: bool) -> str:
    """Return what a Space is called; the model only where there are several."""
    space = section.space
    parts = [space.place, *([space.segment] if space.segment != "all" else [])]
    return one_line(" / ".join([space.model, *parts] if several else parts))


def _section(page: _Page, report: Report, place: int) -> Markup:
    section = report.sections[place]
    provenance = section.provenance
    meta = tag(
        "p", " · ".join([section.role, *from_where(provenance), clock(provenance.time)]), class_="meta muted small"
    )
    notes = tag("ul", [tag("li", one_line(note)) for note in provenance.notes], class_="notes small")
    charts = sorted(_charts(section), key=lambda chart: _rank(section, chart))
    drawn = {
        exhibit.name: f"exhibit-{place}-{exhibit.name}" for exhibit in section.exhibits if exhibit.shape != "table"
    }
    made = [(chart, page.figure(chart, drawn.pop(chart.name, None))) for chart in charts]
    figures = [figure for chart, figure in made if figure is not None and not chart.minor]
    minor = [figure for chart, figure in made if figure is not None and chart.minor]
    tables = [
        tag(
            "details",
            tag("summary", f"{one_line(exhibit.name.replace('_', ' '))}: {one_line(exhibit.caption)}"),
            table,
            class_="more",
            id=f"exhibit-{place}-{exhibit.name}",
            open=exhibit.name in _cited(section.verdicts),
        )
        for exhibit in section.exhibits
        if (table := page.table(exhibit_table(exhibit))) is not None
    ]
    measured = page.table(measurement_table(section.measurements))
    more = [
        tag("details", tag("summary", f"{len(minor)} more charts"), tag("div", minor, class_="figures"), class_="more")
        if minor
        else None,
        tables,
        tag("details", tag("summary", f"all {len(section.measurements)} measurements"), measured, class_="more")
        if measured
        else None,
    ]
    heading = tag("h2", _called(section, several=True), " ", _badge(section.status, section.status))
    folded = len(report.sections) > FOLDED_FROM and section.status in ("ok", "unknown") and not _telling(section)
    return tag(
        "details",
        tag("summary", heading),
        meta,
        notes if provenance.notes else None,
        tag("div", figures, class_="figures") if figures else None,
        more,
        class_="space",
        id=f"space-{place}",
        open=not folded,
    )


def _telling(section: Section) -> bool:
    """Return whether a sound Space is worth a look: all but the layers of a model."""
    return section.provenance.role not in ("attention", "hidden") or section.space.place == "attention"


def _charts(section: Section) -> Iterator[Chart]:
    yield from section.charts
    for exhibit in section.exhibits:
        yield from charts_of(exhibit)
    if not any(exhibit.name == "norm_distribution" for exhibit in section.exhibits):
        yield from histogram_charts(section.measurements)


def _cited(verdicts: Sequence[Verdict]) -> set[str]:
    """Return the exhibits that a verdict names which is not ok."""
    return {name for verdict in verdicts if verdict.status in ("warn", "fail") for name in verdict.evidence.exhibits}


def _rank(section: Section, chart: Chart) -> tuple[int, int]:
    """Return where a chart stands: the map, what a verdict cites, what tells most, the rest."""
    known = FIRST.index(chart.name) if chart.name in FIRST else len(FIRST)
    return (0 if chart.kind == "map" else 1 if chart.name in _cited(section.verdicts) else 2), known


def _footer(report: Report, page: _Page) -> Markup:
    errors = [
        f"{stage} {name!r} failed, {count} in all; what it would say is missing."
        for stage, name, count in report.errors
    ]
    left = page.left_out
    if left:
        named = ", ".join(dict.fromkeys(left[:8]))
        errors.append(
            f"Left out, so that the page stays below {MOST_BYTES / 1e6:g} MB: {named}"
            f"{' and others' if len(left) > 8 else ''}; `--json` has all of it."
        )
    told = f"Written by embedwatch {__version__}. It asks nothing of the network. Charts: Apache ECharts, Apache-2.0."
    counted: dict[str, Any] = {
        "kind": report.kind,
        "title": report.title,
        "status": report.status,
        "counts": report.counts(),
    }
    verdicts = [_plain_verdict(verdict) for verdict in report.verdicts]
    embedded = tag(
        "script", Markup(_inert({**counted, "verdicts": verdicts})), type="application/json", id="verdicts-json"
    )
    without = tag("noscript", tag("p", "Charts need scripts; verdicts and tables do not."))
    return tag("footer", without, [tag("p", one_line(error)) for error in errors], tag("p", told), embedded)


def _plain_verdict(verdict: Verdict) -> dict[str, Any]:
    """Return what a verdict says, as its own JSON does, without what is the same for all of its check."""
    data = verdict.to_json()
    return {name: value for name, value in data.items() if name not in ("meaning", "title")}
