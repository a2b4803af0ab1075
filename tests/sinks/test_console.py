"""What a person sees: aligned, wrapped, without control characters of others."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console as Terminal

from embedwatch.core import Evidence, Exhibit, Limit, Metric, Provenance, Snapshot, Space, Verdict
from embedwatch.sinks._blame import format_number
from embedwatch.sinks.console import Console

SPACE = Space("新闻\x1b[31m\n模型", "vectors")


def verdict(status: str, title: str, value: float | None) -> Verdict:
    limit = Limit(warn=0.5, fail=0.9)
    return Verdict(
        check=title.replace(" ", "_"),
        title=title,
        space=SPACE,
        status=status,  # type: ignore[arg-type]
        evidence=Evidence(value, limit, 10, exhibits=("guilty",)),
        threshold=None if value is None else limit.threshold(value),
        reason="Because [bold]of[/bold] {this}.",
        meaning="It means " + "a lot " * 40,
        remedy="Do this.",
    )


def printed(*, width: int = 80, **options: bool) -> str:
    stream = io.StringIO()
    sink = Console(terminal=Terminal(file=stream, width=width, highlight=False), **options)
    measurements = (
        Metric("mean_cosine", "A.").measure(0.12345),
        Metric("uniformity", "B.").measure(-3.5, error=0.04),
        Metric("id", "C.", labels=("estimator",)).measure(12.0, estimator="mle"),
        Metric("hidden", "D.", headline=False).measure(7),
    )
    guilty = Exhibit.build(
        "guilty",
        "table",
        "Rows.",
        ("row", "name", "norm"),
        [(7, "词\x07" * 50, 9.5), (8, None, None), *[(9, "x", 1.0)] * 9],
    )
    snapshot = Snapshot(SPACE, measurements, Provenance(0.0, 1234, 8, fingerprint="0123456789", notes=("Said.",)))
    verdicts = [
        verdict("ok", "short", 0.1),
        verdict("unknown", "未知 check", None),
        verdict("fail", "a longer title", 1.0),
    ]
    sink.write(snapshot, verdicts, [guilty])
    return stream.getvalue()


def test_gravest_first_with_reason_blame_meaning_and_remedy() -> None:
    lines = [line.strip() for line in printed().splitlines()]
    assert lines[0].endswith("1,234 rows · 8-d · fingerprint 01234567")
    assert lines[1] == "Said."
    assert lines[2].startswith("fail")
    assert lines[3] == "Because [bold]of[/bold] {this}."
    assert lines[4].startswith("rows 7 “词 词")
    assert "→ Do this." in lines
    order = [line.split()[0] for line in lines if line.split()[:1] in (["fail"], ["unknown"], ["ok"], ["info"])]
    assert order == ["fail", "unknown", "ok", "info", "info", "info"]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_texts_wrap_and_columns_align(width: int) -> None:
    lines = printed(width=width).splitlines()
    assert all(cell_len(line) <= width for line in lines if line.startswith(" " * 10))
    judged = [line for line in lines if "healthy" in line]
    assert len({cell_len(line[: line.index("healthy")]) for line in judged}) == 1
    assert all(line == line.rstrip() for line in lines)


def test_names_of_others_cannot_command_the_terminal() -> None:
    text = printed()
    assert "\x1b" not in text
    assert "\x07" not in text


def test_verbose_and_quiet() -> None:
    assert "hidden" in printed(verbose=True)
    assert "hidden" not in printed()
    quiet = printed(quiet=True)
    assert "a longer title" in quiet
    assert "short" not in quiet
    assert "info" not in quiet


def test_numbers() -> None:
    assert format_number(-3.5) == "-3.5"
    assert format_number(12_345_678) == "12,345,678"
    assert format_number(1e30) == "1e+30"
    assert format_number(float("inf")) == "inf"
    assert format_number(0.0) == "0"
