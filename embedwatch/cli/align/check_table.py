"""Prints what two spaces are to one another, on a few lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console as Terminal
from rich.text import Text

from embedwatch.sinks._blame import blamed, one_line
from embedwatch.sinks.console import STYLES, Console, print_paragraph

if TYPE_CHECKING:
    from embedwatch.align.checking import Compatibility
    from embedwatch.core.exhibit import Exhibit
    from embedwatch.geometry.recall_curve import Foretold

__all__ = ["print_compatibility"]

WIDTH = 17
WORDS = {
    "identical": "identical",
    "degraded": "drop-in, degraded",
    "mismatch": "configuration mismatch",
    "alignable": "alignable",
    "weak": "weak",
    "unrelated": "unrelated",
    "mispaired": "mispaired",
    "invalid": "invalid input",
}
INTERCHANGEABLE = ("identical", "degraded")
AS_IS, MAPPED = ("none", "expect as is"), ("rotation", "expect mapped")
SHOWN = 5


def print_compatibility(
    terminal: Terminal,
    found: Compatibility,
    given: tuple[str, str],
    status: int,
    *,
    verbose: bool,
    quiet: bool,
) -> None:
    """Print the sides, how they search one another as they are, what they have in common, the verdict, what to do."""
    if quiet and found.status == "ok":
        return
    names = [one_line(Path(side).name or side) for side in given]
    if not quiet:
        terminal.print(_heading(found, names), style="dim", markup=False, soft_wrap=True)
        for title, told in _rows(found):
            terminal.print(Text(f"  {title:<{WIDTH}}{told}"), soft_wrap=True)
    style = STYLES[found.status]
    cause = f" ({found.cause})" if found.cause and found.cause not in WORDS[found.verdict] else ""
    verdict = Text(f"  {'verdict':<{WIDTH}}").append(f"{WORDS[found.verdict]}{cause}", style=style)
    terminal.print(verdict, soft_wrap=True)
    print_paragraph(terminal, found.finding.told, "", indent=2 + WIDTH)
    if found.finding.remedy:
        print_paragraph(terminal, f"→ {found.finding.remedy}", "bold", indent=2)
    if verbose:
        Console(terminal=terminal, verbose=True).write(found.snapshot, (), ())
        for exhibit in found.exhibits:
            for line in _shown(exhibit):
                print_paragraph(terminal, line, "", indent=2)
    for note in () if quiet or verbose else found.snapshot.provenance.notes:
        print_paragraph(terminal, note, "dim", indent=2)
    terminal.print(f"{found.status}  (exit {status})", style="bold")


def _heading(found: Compatibility, names: list[str]) -> str:
    chance, sides = found.number("mutual_null_ratio"), [found.number("dimension", side=s) for s in ("left", "right")]
    told = [f"{name} {'?' if width is None else f'{width:.0f}'}-d" for name, width in zip(names, sides, strict=True)]
    known = "" if chance is None else f" · 10 neighbours (chance {chance:.3f})"
    return f"  {' · '.join(told)} · {found.snapshot.provenance.rows:,} pairs{known}"


def _rows(found: Compatibility) -> Iterator[tuple[str, str]]:
    if found.verdict == "invalid":
        return
    overlap, recall = found.number("overlap_ratio"), [found.number("recall_ratio", k=k) for k in ("1", "10")]
    word = "interchangeable" if found.verdict in INTERCHANGEABLE else "not interchangeable"
    if overlap is None or None in recall:
        yield "as they are", f"other dimensions   {word}"
    else:
        yield "as they are", f"overlap@10 {overlap:.3f}   recall@1 {recall[0]:.3f}   recall@10 {recall[1]:.3f}   {word}"
        own, other = ((found.number(name, pairs=p) or 0.0) for p in ("own", "other") for name in ("cosine",))
        spread = found.number("cosine_spread", pairs="other") or 0.0
        yield "cosine", f"{own:.3f} of an item with itself   {other:.3f} ± {spread:.3f} of two items"
    mutual, cka = found.number("mutual_ratio"), found.number("cka")
    if mutual is not None and cka is not None:
        rsa, cca = found.number("rank_agreement"), found.number("canonical_correlation")
        rest = f"   RSA {rsa:.2f}" if rsa is not None else ""
        rest += f"   CCA {cca:.2f} (held out)" if cca is not None else ""
        yield "similar", f"mutual k-NN {mutual:.2f}   CKA {cka:.2f} (debiased){rest}"
    lengths = [found.number("mean_length", side=side) for side in ("left", "right")]
    if None not in lengths:
        yield "mean vectors", f"length {lengths[0]:.2f} and {lengths[1]:.2f} of 1 (anisotropy)"
    mapped = found.number("aligned_recall_ratio", k="10")
    if mapped is not None:
        first, gallery = found.number("aligned_recall_ratio", k="1") or 0.0, found.number("aligned_gallery_rows") or 0
        rotation = found.number("rotation_ratio")
        told = "" if rotation is None else f"   a rotation explains {max(0.0, rotation):.0%}"
        yield "with a map", f"recall@1 {first:.3f}   recall@10 {mapped:.3f} of {gallery:,.0f} held-out items{told}"
    yield from _towers(found)
    name, title = MAPPED if found.verdict in ("alignable", "weak") else AS_IS
    if name in found.expected and found.verdict not in ("unrelated", "mispaired"):
        yield title, _expected(found.expected[name], found.gallery)


def _towers(found: Compatibility) -> Iterator[tuple[str, str]]:
    if not found.towers:
        return
    gap, alignment = found.number("modality_gap"), found.number("alignment")
    if gap is None or alignment is None:
        yield "towers", "of other dimensions have no common space"
        return
    spread = [found.number("uniformity", side=side) for side in ("left", "right")]
    even = " and ".join("–" if value is None else f"{value:.2f}" for value in spread)
    yield "towers", f"modality gap {gap:.3f}   alignment {alignment:.3f}   uniformity {even}"


def _expected(foretold: Foretold, gallery: int) -> str:
    how = "derived, from smaller galleries" if foretold.derived else "measured"
    return (
        f"{foretold.share:.2f} ({foretold.low:.2f} to {foretold.high:.2f}) keep native's first hit in the first 10 of "
        f"{gallery:,} rows; {how}"
    )


def _shown(exhibit: Exhibit) -> Iterator[str]:
    if exhibit.shape == "table":
        for line in blamed([exhibit.name], {exhibit.name: exhibit}):
            yield f"{exhibit.caption} {line}"
        return
    yield exhibit.caption
    for row in exhibit.rows[:SHOWN]:
        cells = zip(exhibit.columns, row, strict=True)
        yield "  " + "   ".join(
            f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in cells
        )
