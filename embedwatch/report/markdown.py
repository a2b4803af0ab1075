"""A report as Markdown, for a pull request: what is wrong first, the rest folded."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from embedwatch.report.contents import Report
from embedwatch.report.verdict_cards import grouped
from embedwatch.report.wording import MARKS, number, one_line

__all__ = ["to_markdown"]

MOST_PLACES = 8
MOST_ROWS = 200
MOST_BYTES = 60_000
"""A comment on a pull request holds 65,536 characters at GitHub."""


def to_markdown(report: Report) -> str:
    """Return the report as Markdown; what comes from the data is text there, never a link, a mention or HTML.

    What is wrong is told whole as far as 60,000 bytes go, what is ok is folded and left out first.
    """
    head = [*_head(report), *_grave(report)]
    folded = [*_folded(report)]
    written = "\n".join([*head, *folded]) + "\n"
    if len(written.encode()) <= MOST_BYTES:
        return written
    kept = "\n".join(head) + "\n"
    if len(kept.encode()) > MOST_BYTES:
        cut = kept.encode()[:MOST_BYTES].decode("utf-8", "ignore").rpartition("\n")[0]
        kept = f"{cut}\n\n"
    return f"{kept}\nThe rest is left out; `--json` has all of it.\n"


def _head(report: Report) -> Iterator[str]:
    counts = " · ".join(f"{count} {status}" for status, count in report.counts().items() if count)
    yield f"## {MARKS[report.status]} embedwatch: {_text(report.title)}"
    yield ""
    yield counts or "nothing could be judged"
    yield ""
    for sentence in report.lead:
        yield from (_text(sentence), "")


def _grave(report: Report) -> Iterator[str]:
    for group in grouped(report.verdicts, "fail", "warn"):
        first = group[0]
        yield f"### {MARKS[first.status]} {first.status}: {_text(first.title)}"
        yield ""
        for verdict in group[:MOST_PLACES]:
            yield f"- **{_text(str(verdict.space))}**: {_text(verdict.reason)}"
        if len(group) > MOST_PLACES:
            yield f"- and {len(group) - MOST_PLACES} more places"
        yield from ("", _text(first.meaning), "")
        if first.remedy:
            yield from (f"→ {_text(first.remedy)}", "")


def _folded(report: Report) -> Iterator[str]:
    rest = [verdict for group in grouped(report.verdicts, "unknown", "ok") for verdict in group]
    if not rest:
        return
    yield from (f"<details><summary>{escape(f'{len(rest)} more verdicts')}</summary>", "")
    yield "| | check | place | value | why |"
    yield "| --- | --- | --- | ---: | --- |"
    for verdict in rest[:MOST_ROWS]:
        cells = (verdict.title, str(verdict.space), number(verdict.evidence.value), verdict.reason)
        yield f"| {MARKS[verdict.status]} | {' | '.join(map(_text, cells))} |"
    if len(rest) > MOST_ROWS:
        yield f"| | and {len(rest) - MOST_ROWS} more | | | |"
    yield from ("", "</details>")


def _text(value: str) -> str:
    r"""Return text that Markdown shows as it is.

    Example:
        >>> _text("<b>|[x](y) @all")
        '&lt;b&gt;\\|\\[x\\]\\(y\\) &#64;all'
    """
    found = []
    for character in one_line(value):
        if character in "<>&":
            found.append(escape(character))
        elif character == "@":
            found.append("&#64;")  # nobody is called
        elif character in "\\`*_[]()|~#":
            found.append(f"\\{character}")
        else:
            found.append(character)
    return "".join(found).replace("://", ":&#47;&#47;")
