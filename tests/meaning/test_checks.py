"""The checks of meaning: healthy, without meaning, partly lost, too few words, the worst of several."""

from __future__ import annotations

import json

import pytest
import torch

from embedwatch.checks.meaning_related import MeaningRelated
from embedwatch.checks.meaning_topics import MeaningTopics
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Provenance, Snapshot, Space
from embedwatch.judging import Judge
from embedwatch.lexicons import Lexicon, load_lexicon
from embedwatch.meaning.measuring import measure
from tests.meaning.words import fresh, planted, shuffled

ENGLISH = load_lexicon("en")


def snapshot(*measurements: Measurement) -> Snapshot:
    made = Snapshot(Space("m", "meaning"), measurements, Provenance(time=0.0, rows=1, role="meaning"))
    return Snapshot.from_json(json.loads(json.dumps(made.to_json())))


def statuses(*measurements: Measurement) -> dict[str, str]:
    verdicts = Judge([MeaningRelated(), MeaningTopics()]).judge(snapshot(*measurements))
    return {verdict.check: verdict.status for verdict in verdicts}


def measured(rows: torch.Tensor, lexicon: Lexicon = ENGLISH, kind: str = "rows") -> list[Measurement]:
    return measure(lexicon.words, rows, lexicons=lexicon, kind=kind)[0]


@pytest.fixture(scope="module")
def healthy() -> list[Measurement]:
    return measured(planted(ENGLISH, cone=4.0))


@pytest.fixture(scope="module")
def new() -> list[Measurement]:
    return measured(fresh(ENGLISH), kind="table")


def test_a_healthy_space_in_a_cone_is_healthy(healthy: list[Measurement]) -> None:
    assert statuses(*healthy) == {"meaning_related": "ok", "meaning_topics": "ok"}


def test_a_new_table_and_shuffled_rows_are_not(new: list[Measurement]) -> None:
    assert statuses(*new) == {"meaning_related": "fail", "meaning_topics": "warn"}
    assert statuses(*measured(shuffled(planted(ENGLISH)))) == {"meaning_related": "fail", "meaning_topics": "warn"}


def test_half_of_the_rows_lost_warns() -> None:
    assert statuses(*measured(shuffled(planted(ENGLISH), share=0.5)))["meaning_related"] == "warn"


def test_some_topics_lost_are_found_while_the_whole_looks_well() -> None:
    rows = planted(ENGLISH, noise=0.7)
    place = {word: row for row, word in enumerate(ENGLISH.words)}
    for topic in ENGLISH.of("topics")[:12]:
        rows[[place[word] for word in topic.words]] = torch.randn(len(topic.words), rows.shape[1])
    found = statuses(*measured(rows))
    assert found == {"meaning_related": "ok", "meaning_topics": "warn"}


def test_the_worst_of_several_counts_and_is_named(healthy: list[Measurement], new: list[Measurement]) -> None:
    evidence = MeaningRelated().evaluate(snapshot(*healthy, *new))
    assert evidence.value == pytest.approx(0.5, abs=0.05)
    assert "“en”, as rows of the token table," in evidence.reason
    assert "chance: up to 5" in evidence.reason
    assert "synonyms" in evidence.reason
    assert "en, table" in MeaningTopics().evaluate(snapshot(*healthy, *new)).reason


def test_few_words_say_nothing() -> None:
    few = Lexicon("en", (*ENGLISH.of("synonyms")[:3], *ENGLISH.of("topics")[:1]))
    assert statuses(*measured(fresh(few), few)) == {"meaning_related": "unknown", "meaning_topics": "unknown"}


def test_a_language_that_is_not_known_is_not_asked() -> None:
    measurements = measure(["x"], torch.ones(1, 3), lexicons="zh")[0]
    assert statuses(*measurements) == {}


def test_checks_explain_themselves() -> None:
    for check in (MeaningRelated, MeaningTopics):
        assert all((check.meaning, check.impact, check.diagnosis, check.mitigation))
