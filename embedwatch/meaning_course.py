"""Meaning over a training: word groups in one checkpoint after another."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embedwatch.core.errors import InputError
from embedwatch.core.exhibit import Exhibit
from embedwatch.diagnosing import diagnose
from embedwatch.inquiry import Inquiry
from embedwatch.judged import Judged
from embedwatch.loading import load_subject

__all__ = ["MeaningCourse", "meaning_course"]

STEP = re.compile(r"(\d+)(?=\D*$)")
"""The last number in a name is the step: `step-00000200`, `checkpoint-500`."""
RUN_FOLDER = "checkpoints"
PLACE, DIAGNOSTIC = "meaning", "word_groups"
CURVES = (
    ("word_related_auc", {}),
    ("word_related_auc_chance", {}),
    *(("word_cosine", {"relation": name, "removed": "mean"}) for name in ("synonyms", "contrasts", "topics", "random")),
    *(("word_auc", {"relation": name, "removed": "mean"}) for name in ("synonyms", "contrasts", "topics")),
    ("word_topics_loose_ratio", {}),
)
"""Measurements that are drawn over steps, with the labels that choose among them."""


@dataclass(frozen=True)
class MeaningCourse:
    """What word groups came to, checkpoint by checkpoint.

    Args:
        steps: of each checkpoint, rising.
        judged: what was found in each.
    """

    steps: tuple[int, ...]
    judged: tuple[Judged, ...]

    def values(self, name: str, /, **labels: str) -> list[tuple[int, float | None]]:
        """Return one measurement at each step; `None` where there is no value."""
        found = (judged.snapshot.number(name, **labels) for judged in self.judged)
        return list(zip(self.steps, found, strict=True))

    def exhibit(self) -> Exhibit:
        """Return the curves over steps."""
        return Exhibit.build(
            "meaning_course",
            "curve",
            "Word groups over the steps of a training, the common mean removed; an AUC of 0.5 is chance.",
            ("step", "lexicon", "vectors", "curve", "value"),
            self._points(),
        )

    def _points(self) -> Iterator[tuple[int, str, str, str, float | None]]:
        for step, judged in zip(self.steps, self.judged, strict=True):
            for measurement in judged.snapshot:
                labels = dict(measurement.labels)
                where = labels.pop("lexicon", ""), labels.pop("vectors", "")
                if (measurement.name, labels) in CURVES:
                    name = " ".join([measurement.name, *(value for key, value in labels.items() if key != "removed")])
                    yield step, *where, name, measurement.number


def meaning_course(
    checkpoints: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    words: Any = None,
    deep: bool = False,
    seed: int = 0,
) -> MeaningCourse:
    """Measure word groups in the checkpoints of a training, one after another, each opened and closed again.

    Args:
        checkpoints: folder of a run or of checkpoints, or the checkpoints themselves. The last number in a name is its
            step.
        words: groups of words, as `embedwatch.lexicons.load_lexicons` takes them.
        deep: whether models are run as well: words as texts, and within sentences.
        seed: of the null distribution.

    Raises:
        InputError: if there is no checkpoint, or one cannot be read.

    Example:
        >>> meaning_course("no/such/run")
        Traceback (most recent call last):
        ...
        embedwatch.core.errors.InputError: `no/such/run` must hold checkpoints, got none; give the folder of a run, ...
    """
    paths = _checkpoints(checkpoints)
    judged = [_judged(path, step, words=words, deep=deep, seed=seed) for step, path in paths]
    return MeaningCourse(tuple(step for step, _ in paths), tuple(judged))


def _judged(path: Path, step: int, *, words: Any, deep: bool, seed: int) -> Judged:
    inquiry = Inquiry(load_subject(path), words=words, deep=deep, seed=seed)
    found = diagnose(inquiry, only=[DIAGNOSTIC], places=[PLACE], exhibits=True, step=step)
    if not found or not found[0].snapshot.measurements:
        notes = "; ".join(note for each in found for note in each.snapshot.provenance.notes)
        raise InputError(f"`{path}` must know words, got {notes or 'no measurement'}; save its tokenizer beside it")
    return found[0]


def _checkpoints(given: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Sequence[tuple[int, Path]]:
    if isinstance(given, str | os.PathLike):
        folder = Path(given)
        folder = folder / RUN_FOLDER if (folder / RUN_FOLDER).is_dir() else folder
        children = folder.iterdir() if folder.is_dir() else iter(())
        paths = [
            path for path in children if path.is_dir() and not path.name.startswith(".") and STEP.search(path.name)
        ]
        label = str(given)
    else:
        paths = [Path(path) for path in given]
        label = "checkpoints"
    found = []
    for path in paths:
        step = STEP.search(path.name)
        if step is None:
            raise InputError(f"`{path}` must have its step in its name, got none; name it step-{0:08d} or so")
        found.append((int(step[1]), path))
    if not found:
        raise InputError(
            f"`{label}` must hold checkpoints, got none; give the folder of a run, or their folders one by one"
        )
    return sorted(found)
