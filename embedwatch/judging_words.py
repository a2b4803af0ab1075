"""Words among the rows of a source are judged as those of a model are: word vectors in a file."""

from __future__ import annotations

import time
from typing import Any

from embedwatch.core.boundary import Boundary
from embedwatch.core.check import Check
from embedwatch.core.registry import registered
from embedwatch.core.snapshot import Provenance, Snapshot, Space
from embedwatch.core.source import Source
from embedwatch.judged import Judged, cited
from embedwatch.judging import Judge
from embedwatch.lexicons import load_lexicons
from embedwatch.meaning.measuring import METRICS, measure
from embedwatch.meaning.rows import named_words
from embedwatch.window import library_versions

__all__ = ["PLACE", "judge_words"]

PLACE = "meaning"
"""Place and role of their Space."""


def judge_words(
    source: Source, words: Any, *, boundary: Boundary, skip: tuple[str, ...] = (), exhibits: bool = False
) -> Judged:
    """Measure groups of words among the rows of a source that has names, and judge them.

    Args:
        source: is read once.
        words: what `embedwatch.lexicons.load_lexicons` takes.
        boundary: where exceptions of checks end.
        skip: names of checks to leave out.
        exhibits: keep all exhibits, not only those that a verdict cites.

    Raises:
        InputError: if it cannot be read.
    """
    started = time.perf_counter()
    lexicons = load_lexicons(words)
    found = named_words(source, lexicons)
    known = len({word for lexicon in lexicons for word in lexicon.words})
    measurements, shown = measure(found.words, found.vectors, lexicons=lexicons)
    provenance = Provenance(
        time=time.time(),
        rows=max(1, len(found.words)),
        dimension=source.dimension,
        fingerprint=source.fingerprint(),
        versions=library_versions(),
        notes=(f"{len(found.words):,} of {known:,} words are names of rows",),
        role=PLACE,
    )
    snapshot = Snapshot(Space(source.label, PLACE), tuple(measurements), provenance)
    names = {metric.name for metric in METRICS}
    checks = [check for name, check in registered(Check).items() if names.issuperset(check.reads) and name not in skip]
    verdicts = tuple(Judge([check() for check in checks if check.reads], boundary=boundary).judge(snapshot))
    kept = None if exhibits else set(cited(verdicts))
    evidence = tuple(exhibit for exhibit in shown if kept is None or exhibit.name in kept)
    return Judged(snapshot, verdicts, evidence, time.perf_counter() - started)
