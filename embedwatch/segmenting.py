"""Comparison by segments: each segment by itself, the mix of them, and the whole at the shares that it had."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from embedwatch.checks.segment_mix import SegmentMix as MixCheck
from embedwatch.comparison import Comparison, Segmented
from embedwatch.core.boundary import Boundary
from embedwatch.core.errors import EmbedwatchError, InputError
from embedwatch.core.source import Source
from embedwatch.diagnostics.segment_mix import Mix, SegmentMix
from embedwatch.hashing import combine, hash_text
from embedwatch.judging import Judge
from embedwatch.sources.chosen import ChosenRows

__all__ = ["LEAST_NEW", "LEAST_OLD", "compare_segments"]

LEAST_OLD, LEAST_NEW = 400, 200
"""Rows of a segment in the reference and in what is compared: with fewer a full comparison is never possible."""
THINNING = "embedwatch.segmenting"
Compare = Callable[[Source, Source, float], Comparison]


@dataclass(frozen=True)
class _Labelled:
    """A source with the segment of each row: its index among the names, -1 for none."""

    name: str
    source: Source
    labels: Tensor

    def count(self, segment: int) -> int:
        return int((self.labels == segment).sum())

    def part(self, chosen: Tensor) -> Source:
        return ChosenRows(self.source, chosen)


def compare_segments(
    opened: Sequence[tuple[str, Source]], by: str, compare: Compare, *, level: float, permutations: int, seed: int
) -> Comparison:
    """Return the comparison of the whole at the old shares of its segments, with that of each segment, and the mix.

    Args:
        opened: the reference, and what is compared with it, with their names.
        by: column that holds the segments.
        compare: compares two sources at a level.
        level: for the whole, for the mix, and for all segments together.
        permutations: of the blocks of labels.
        seed: of these.

    Raises:
        InputError: if one has no such segments, or none has enough rows in both.
    """
    names, (old, new) = _labelled(opened, by)
    counts = {name: (old.count(place), new.count(place)) for place, name in enumerate(names)}
    left_out = {name: reason for name, pair in counts.items() if (reason := _too_few(*pair))}
    enough = [place for place, name in enumerate(names) if name not in left_out]
    if not enough:
        raise InputError(
            f"`by` must name segments with at least {LEAST_OLD} rows in {old.name} and {LEAST_NEW} in {new.name}, got "
            f"none of {len(names):,} in {by}; name a coarser column, or give more rows"
        )
    kept = _standardised(old, new, enough)
    whole = compare(old.part(_among(old.labels, enough)), new.part(kept), level)
    segments: dict[str, Comparison] = {}
    for place in enough:
        name = names[place]
        try:
            found = compare(old.part(old.labels == place), new.part(new.labels == place), level / len(enough))
        except EmbedwatchError as error:  # constant rows, or hardly a finite one
            left_out[name] = str(error)
            continue
        segments[name] = _in_segment(found, name)
    mix = Mix(names, _known(old.labels), _known(new.labels), permutations, seed)
    measured, exhibits = SegmentMix().examine(mix)
    notes = tuple(_notes(by, old, new, kept, left_out, segments))
    snapshot = replace(
        whole.snapshot,
        measurements=(*whole.snapshot.measurements, *measured),
        provenance=replace(whole.snapshot.provenance, notes=(*whole.snapshot.provenance.notes, *notes)),
    )
    verdicts = Judge([MixCheck(level=level)], boundary=Boundary(on_error="raise")).judge(snapshot)
    return replace(
        whole,
        snapshot=snapshot,
        verdicts=(*verdicts, *whole.verdicts),
        exhibits=(*exhibits, *whole.exhibits),
        segmented=Segmented(by, segments, left_out),
    )


def _labelled(opened: Sequence[tuple[str, Source]], by: str) -> tuple[list[str], list[_Labelled]]:
    """Return the names of all segments, and both sources with the segment of each row."""
    read = [(name, source, *_read(name, source, by)) for name, source in opened]
    names = sorted({segment for _, _, _, groups in read for segment in groups})
    place = {name: number for number, name in enumerate(names)}
    found = []
    for name, source, labels, groups in read:
        table = torch.tensor([place[group] for group in groups] + [-1])
        found.append(_Labelled(name, source, table[labels]))
    return names, found


def _read(name: str, source: Source, by: str) -> tuple[Tensor, list[str]]:
    """Return the label of each row of a source, and the names that they index into."""
    groups: dict[str, int] = {}
    parts: list[Tensor] = []
    for batch in source.batches(source.batch_rows):
        if batch.labels is None:
            raise InputError(f"`by` must name labels that {name} has, got {by!r} and none there; open it with labels")
        table = torch.tensor([groups.setdefault(group, len(groups)) for group in batch.groups] + [-1])
        parts.append(table[batch.labels])
    if not groups:
        raise InputError(f"`by` must name labels that {name} has, got {by!r} without a value; name another column")
    return torch.cat(parts), list(groups)


def _too_few(old: int, new: int) -> str:
    if not new or not old:
        return f"only in {'the reference' if old else 'what is compared'}: {old or new:,} rows"
    if old < LEAST_OLD or new < LEAST_NEW:
        return f"{old:,} and {new:,} rows are too few: it takes {LEAST_OLD} and {LEAST_NEW}"
    return ""


def _among(labels: Tensor, segments: Sequence[int]) -> Tensor:
    return torch.isin(labels, torch.tensor(segments))


def _known(labels: Tensor) -> Tensor:
    return labels[labels >= 0]


def _standardised(old: _Labelled, new: _Labelled, segments: Sequence[int]) -> Tensor:
    """Return which new rows to keep so that segments have their old shares: of each those with the smallest hashes.

    As many as possible: `M = min_s n_s / p_s` rows, of which `⌊p_s M⌋` are of segment s.
    """
    before = torch.tensor([old.count(segment) for segment in segments], dtype=torch.float64)
    now = torch.tensor([new.count(segment) for segment in segments], dtype=torch.float64)
    rows = float((now * before.sum() / before).min())
    keys = combine(torch.arange(len(new.labels)), hash_text(THINNING))
    kept = torch.zeros(len(new.labels), dtype=torch.bool)
    for segment, share in zip(segments, (before / before.sum()).tolist(), strict=True):
        places = (new.labels == segment).nonzero()[:, 0]
        kept[places[keys[places].argsort()[: round(share * rows)]]] = True
    return kept


def _in_segment(found: Comparison, name: str) -> Comparison:
    """Return a comparison as that of one segment."""
    space = replace(found.snapshot.space, segment=name)
    verdicts = tuple(replace(verdict, space=space) for verdict in found.verdicts)
    return replace(found, snapshot=replace(found.snapshot, space=space), verdicts=verdicts)


def _notes(
    by: str,
    old: _Labelled,
    new: _Labelled,
    kept: Tensor,
    left_out: Mapping[str, str],
    segments: Mapping[str, Comparison],
) -> Iterator[str]:
    yield (
        f"by {by}: segments have the shares that they have in {old.name}; of {len(new.labels):,} rows of {new.name} "
        f"that leaves {int(kept.sum()):,}"
    )
    yield f"{len(segments)} segments are compared by themselves, at {len(segments)} times the sureness"
    for side in (old, new):
        missing = int((side.labels < 0).sum())
        if missing:
            yield f"{missing:,} rows of {side.name} have no segment and are left out"
    if left_out:
        yield f"left out: {'; '.join(f'{name} ({reason})' for name, reason in left_out.items())}"[:1_000]
