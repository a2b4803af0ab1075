"""Word groups over the checkpoints of a training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from embedwatch.core.errors import InputError
from embedwatch.lexicons import load_lexicon
from embedwatch.meaning_course import MeaningCourse, meaning_course
from tests.meaning.models import SOME, bert
from tests.meaning.words import fresh, planted
from tests.quiet import quiet_transformers

ENGLISH = load_lexicon("en")


def save(path: Path, table: Any) -> None:
    subject = bert(table)
    with quiet_transformers():
        subject.model.save_pretrained(path)
        subject.tokenizer.save_pretrained(path)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three checkpoints between chance and meaning, as a trainer keeps them, beside what is none."""
    folder = tmp_path_factory.mktemp("run")
    for step, noise in ((0, None), (90, 3.0), (500, 1.0)):
        name = folder / "checkpoints" / f"step-{step:08d}"
        save(name, fresh(ENGLISH) if noise is None else planted(ENGLISH, noise=noise))
    (folder / "checkpoints" / ".step-00000600.77").mkdir()
    (folder / "checkpoints" / "notes").mkdir()
    return folder


@pytest.fixture(scope="module")
def course(run: Path) -> MeaningCourse:
    return meaning_course(run, words=SOME)


def test_groups_draw_together_step_by_step(course: MeaningCourse) -> None:
    assert course.steps == (0, 90, 500)
    related = [value or 0 for _, value in course.values("word_related_auc", lexicon="en", vectors="table")]
    assert related == sorted(related)
    assert related[0] < 0.55 < related[-1]
    assert [judged.snapshot.provenance.step for judged in course.judged] == [0, 90, 500]
    first, *_, last = ({v.check: v.status for v in judged.verdicts} for judged in course.judged)
    assert (first["meaning_related"], last["meaning_related"]) == ("fail", "ok")


def test_the_exhibit_is_a_curve_over_steps(course: MeaningCourse) -> None:
    exhibit = course.exhibit()
    assert exhibit.shape == "curve"
    assert exhibit.columns == ("step", "lexicon", "vectors", "curve", "value")
    curves = {str(row[3]) for row in exhibit.rows}
    assert {"word_related_auc", "word_cosine random", "word_auc topics"} <= curves
    steps = [row[0] for row in exhibit.rows if row[3] == "word_cosine synonyms"]
    assert steps == [0, 90, 500]


def test_checkpoints_one_by_one_are_put_in_order(run: Path, course: MeaningCourse) -> None:
    paths = [run / "checkpoints" / f"step-{step:08d}" for step in (500, 0)]
    again = meaning_course(paths, words=SOME)
    assert again.steps == (0, 500)
    assert [m.to_json() for m in again.judged[1].snapshot] == [m.to_json() for m in course.judged[2].snapshot]


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must hold checkpoints, got none; give the folder of a run"):
        meaning_course(tmp_path)
    with pytest.raises(InputError, match=r"must have its step in its name"):
        meaning_course([tmp_path / "model"])
    (tmp_path / "step-1").mkdir()
    with pytest.raises(InputError):
        meaning_course(tmp_path)
