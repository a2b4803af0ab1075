"""What a person must know before using a map, in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from embedwatch.align.aligner import Side
from embedwatch.align.candidates import ROTATION
from embedwatch.align.marks import ANOTHER_DOMAIN, Kinship, SpaceMark
from embedwatch.align.moments import Anchors

__all__ = ["warnings_of"]

FEW_JUDGING = 100
LOST = 0.05
"""Recall that a map without centring loses before it is said."""
WEAK = 0.9
SAME = 0.98
"""Of the ten nearest that are found without any map: then none is needed."""
CHANCES = 3.0
MANY_SUSPECTS = 0.005


def warnings_of(
    report: Mapping[str, Any],
    anchors: Anchors,
    asked: Anchors | None,
    marks: tuple[SpaceMark, SpaceMark],
    *,
    side: Side,
    near: Kinship | None,
) -> list[str]:
    """Return one sentence for each thing to know.

    Args:
        report: what was measured.
        anchors: the items.
        asked: the queries, where there are some.
        marks: of both spaces.
        side: which side is mapped.
        near: how the rows that the map is for lie beside the anchors.
    """
    return [
        *_of_anchors(report, anchors, marks),
        *_of_kind(anchors, asked, marks, side, near),
        *_of_results(report, marks),
    ]


def _of_anchors(report: Mapping[str, Any], anchors: Anchors, marks: tuple[SpaceMark, SpaceMark]) -> Iterator[str]:
    fitted, widest = report["pairs"]["fitted"], max(mark.dimension for mark in marks)
    if fitted < widest / 2:
        yield f"{fitted:,} anchors are fewer than half of {widest:,} dimensions: pair {widest:,} items or more"
    if report["pairs"]["judging"] < FEW_JUDGING:
        yield f"{report['pairs']['judging']:,} pairs judge, so the intervals are wide: pair more items"
    if report["gallery_anchors"]:
        yield (
            f"{report['gallery_anchors']:,} of {report['gallery']:,} rows that are searched are anchors, which draw "
            "mapped rows to them: you may find more"
        )
    if anchors.left_out:
        yield f"{_pairs(anchors.left_out)} with NaN, Inf or a zero row left out"
    if anchors.twins:
        yield f"{_pairs(anchors.twins)} of items that lie on both sides of the split left out: they judge nothing"
    suspects, looked = report["mispairs"]["number"], report["mispairs"]["looked_at"]
    if suspects and suspects >= MANY_SUSPECTS * looked:
        rows = ", ".join(str(row) for row in report["mispairs"]["rows"][:5])
        yield f"{suspects:,} of {looked:,} pairs look like none, rows {rows} first: are both files in one order?"


def _of_kind(
    anchors: Anchors,
    asked: Anchors | None,
    marks: tuple[SpaceMark, SpaceMark],
    side: Side,
    near: Kinship | None,
) -> Iterator[str]:
    if side == "query" and asked is None:
        yield "no queries among the anchors: give some with --queries A B, they help more than further documents"
    if asked is not None:
        shift = marks[0].kinship(asked.kept.left if len(asked.kept) else asked.held.left).shift
        yield from _shifted(shift, "queries lie")
    if near is not None and near.is_strange:
        yield from _shifted(max(near.shift, 0.0), "the rows that the map is for lie", always=True)
    for mark, unit in zip(marks, anchors.unit, strict=True):
        if not mark.is_unit:
            yield f"{1 - unit:.0%} of the rows of {mark.label} have another length than 1: the map compares by cosine"


def _shifted(shift: float, who: str, *, always: bool = False) -> Iterator[str]:
    if always or shift > ANOTHER_DOMAIN:
        yield f"{who} {shift:.2f} standard deviations off the anchors, as those of another domain do: pair some of them"


def _of_results(report: Mapping[str, Any], marks: tuple[SpaceMark, SpaceMark]) -> Iterator[str]:
    chosen, raw = report["chosen"], report["as_they_are"]
    if raw is not None and raw["overlap_10"][0] >= SAME:
        yield f"the spaces agree as they are (overlap@10 {raw['overlap_10'][0]:.3f}): no map is needed"
    turned = next((each for each in report["judged"] if each["method"] == ROTATION), None)
    if turned is not None and turned["recall_1"][0] < chosen["recall_1"][0] - LOST:
        yield (
            f"a map without centring finds {turned['recall_1'][0]:.3f} of {chosen['recall_1'][0]:.3f}: rows of "
            f"{marks[0].label} lie around a mean of length {marks[0].anisotropy:.2f}; never take the SVD of AᵀB "
            "uncentred"
        )
    if chosen["recall_10"][0] < WEAK:
        yield f"recall@10 is {chosen['recall_10'][0]:.3f} of what the target's own model finds: re-embed instead"
    shuffled, chance = report["shuffled"], 10 / report["gallery"]
    if shuffled["recall_10"][1] > CHANCES * chance:
        yield (
            f"pairs that are none find {shuffled['recall_10'][0]:.3f} where chance is {chance:.3f}: "
            "some rows are found by everybody, or items repeat"
        )


def _pairs(count: int) -> str:
    return "1 pair" if count == 1 else f"{count:,} pairs"
