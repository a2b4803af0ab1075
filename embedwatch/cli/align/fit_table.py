"""Prints what was measured when a map was fitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console as Terminal
from rich.table import Table

from embedwatch.sinks._blame import one_line
from embedwatch.sinks.console import print_paragraph

if TYPE_CHECKING:
    from embedwatch.align.aligner import Aligner

__all__ = ["print_fit"]

COLUMNS = ("mAP", "recall@1", "95 %", "recall@10", "overlap@10", "CSLS @1")


def print_fit(terminal: Terminal, aligner: Aligner, output: str, *, quiet: bool) -> None:
    """Print every way that was tried, what the chosen one finds with fewer anchors, and what to know."""
    report = aligner.report
    if not quiet:
        _print_head(terminal, aligner, report)
        _print_candidates(terminal, report)
        _print_curve(terminal, report)
    for warning in report["warnings"]:
        print_paragraph(terminal, f"warn  {warning}", "yellow", indent=2)
    chosen = report["chosen"]
    recall = chosen["recall_10"]
    found = "of items" if report["by"] == "items" else "of what the target's own query puts first,"
    terminal.print(
        f"{aligner.method} -> {one_line(output)}: recall@10 {recall[0]:.3f} ({recall[1]:.3f} to {recall[2]:.3f}) "
        f"{found} among {report['gallery']:,} rows; it falls as they grow. "
        "A bridge while you embed again, not an upgrade.",
        style="bold",
        markup=False,
    )


def _print_head(terminal: Terminal, aligner: Aligner, report: Mapping[str, Any]) -> None:
    pairs, (left, right) = report["pairs"], (aligner.source, aligner.target)
    who = "mapped rows search" if aligner.side == "query" else "mapped rows are searched"
    print_paragraph(
        terminal,
        f"{left.label} {left.dimension}-d -> {right.label} {right.dimension}-d · {pairs['read']:,} pairs: "
        f"{pairs['fitted']:,} fit, {pairs['judging']:,} {report['by']} judge · gallery {report['gallery']:,} · {who}",
        "",
        indent=2,
    )


def _print_candidates(terminal: Terminal, report: Mapping[str, Any]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    table.add_column("way", no_wrap=True)
    for name in COLUMNS:
        table.add_column(name, justify="right")
    raw, chosen = report["as_they_are"], report["chosen"]["method"]
    lines = [("as they are", raw)] if raw is not None else []
    lines += [(each["method"], each) for each in report["judged"]]
    lines.append(("shuffled pairs", report["shuffled"]))
    for name, each in lines:
        taken = name == chosen
        table.add_row("→" if taken else "", name, *_cells(each), style="bold" if taken else "")
    terminal.print(table)


def _cells(each: Mapping[str, Any]) -> tuple[str, ...]:
    first, csls = each["recall_1"], each["csls_recall_1"]
    return (
        f"{each['average_precision'][0]:.3f}",
        f"{first[0]:.3f}",
        f"{first[1]:.3f} to {first[2]:.3f}",
        f"{each['recall_10'][0]:.3f}",
        f"{each['overlap_10'][0]:.3f}",
        "" if csls is None else f"{csls:.3f}",
    )


def _print_curve(terminal: Terminal, report: Mapping[str, Any]) -> None:
    steps = " · ".join(f"{each['anchors']:,} {each['recall_1']:.3f}" for each in report["curve"])
    print_paragraph(terminal, f"recall@1 by anchors  {steps}", "", indent=2)
