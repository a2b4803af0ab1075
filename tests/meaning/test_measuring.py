"""Word groups in planted spaces: known answers, the cone taken out, hostile rows, one formula with labelled groups."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
import torch

from embedwatch.batch import VectorBatch
from embedwatch.lexicons import Lexicon, WordGroup, load_lexicon
from embedwatch.loading.word_vectors import WordVectors
from embedwatch.meaning.measuring import METRICS, measure
from embedwatch.meaning.study import study_words
from embedwatch.stats.cohesion import Cohesion
from tests.meaning.words import fresh, planted, shuffled

ENGLISH = load_lexicon("en")


def numbers(rows: torch.Tensor, lexicon: Lexicon = ENGLISH) -> dict[str, float | None]:
    measurements, _ = measure(lexicon.words, rows, lexicons=lexicon)
    return {measurement.key: measurement.number for measurement in measurements}


def key(name: str, **labels: str) -> str:
    inner = ",".join(f"{label}={value}" for label, value in {"lexicon": "en", "vectors": "rows", **labels}.items())
    return f"{name}{{{inner}}}"


@pytest.fixture(scope="module")
def healthy() -> dict[str, float | None]:
    return numbers(planted(ENGLISH))


def test_what_belongs_together_is_found(healthy: dict[str, float | None]) -> None:
    assert healthy[key("word_coverage_ratio")] == 1
    assert healthy[key("word_groups")] == len(ENGLISH.groups)
    assert (healthy[key("word_related_auc")] or 0) > 0.85
    assert healthy[key("word_related_p_value")] == pytest.approx(1 / 300)
    assert healthy[key("word_topics_loose_ratio")] == 0
    assert 0.5 < (healthy[key("word_related_auc_chance")] or 0) < 0.56
    for relation in ("synonyms", "contrasts", "topics"):
        for removed in ("nothing", "mean", "top"):
            labels = {"relation": relation, "removed": removed}
            cosine, random = (
                healthy[key("word_cosine", **{**labels, "relation": each})] for each in (relation, "random")
            )
            assert cosine is not None
            assert random is not None
            assert healthy[key("word_margin", **labels)] == pytest.approx(cosine - random)
            assert (healthy[key("word_gap", **labels)] or 0) > 1


def test_a_cone_changes_raw_cosines_and_no_verdict(healthy: dict[str, float | None]) -> None:
    leaning = numbers(planted(ENGLISH, cone=4.0))
    random = key("word_cosine", relation="random", removed="nothing")
    assert (leaning[random] or 0) > 0.75 > 0.1 > abs(healthy[random] or 1)
    assert leaning[key("word_related_auc")] == pytest.approx(healthy[key("word_related_auc")], abs=0.02)
    assert (leaning[key("word_classic_ratio", relation="synonyms")] or 0) > 0.99
    assert leaning[key("word_classic_ratio", relation="contrasts")] == 0


@pytest.mark.parametrize("seed", [3])
def test_spaces_without_meaning_are_chance(seed: int) -> None:
    for rows in (fresh(ENGLISH, seed=seed), shuffled(planted(ENGLISH), seed=seed)):
        found = numbers(rows)
        assert found[key("word_related_auc")] == pytest.approx(0.5, abs=0.05)
        assert (found[key("word_related_p_value")] or 0) > 0.003
        assert (found[key("word_topics_loose_ratio")] or 0) > 0.7


def test_topics_have_the_cosines_of_labelled_groups() -> None:
    lexicon = Lexicon("xx", tuple(WordGroup("topics", f"t{n}", tuple(f"w{n}{m}" for m in range(9))) for n in range(6)))
    rows = planted(lexicon)
    measurements, exhibits = measure(lexicon.words, rows, lexicons=lexicon)
    found = {measurement.key: measurement.number for measurement in measurements}
    statistic = Cohesion()
    groups = [group.name for group in lexicon.groups]
    labels = torch.tensor([number for number in range(6) for _ in range(9)])
    statistic.update(VectorBatch(rows, labels=labels, groups=groups))
    labelled = {measurement.key: measurement.number for measurement in statistic.compute()}
    ours = "lexicon=xx,vectors=rows"
    for removed, mean in (("nothing", "kept"), ("mean", "removed")):
        for relation, name in (("topics", "cohesion"), ("random", "separation")):
            assert found[f"word_cosine{{{ours},relation={relation},removed={removed}}}"] == pytest.approx(
                labelled[f"{name}{{mean={mean}}}"], abs=1e-6
            )
        assert found[f"word_margin{{{ours},relation=topics,removed={removed}}}"] == pytest.approx(
            labelled[f"cohesion_margin{{mean={mean}}}"], abs=1e-6
        )
    diagonal = [row[-1] for row in exhibits[1].rows if row[2] == row[3]]
    assert sum(map(float, diagonal)) / 6 == pytest.approx(labelled["cohesion{mean=removed}"], abs=1e-6)


def test_exhibits_name_who_is_to_blame() -> None:
    rows = planted(ENGLISH)
    place = {word: row for row, word in enumerate(ENGLISH.words)}
    insects = next(group for group in ENGLISH.of("topics") if group.name == "insects")
    rows[[place[word] for word in insects.words]] = 7 * torch.randn(len(insects.words), rows.shape[1])
    rows[place["whale"]] = -rows[place["shark"]]
    _, (loose, matrix) = measure(ENGLISH.words, rows, lexicons="en")
    topics = [row for row in loose.rows if row[4] == "topics"]
    assert topics[0][0] == "insects"
    assert next(row for row in topics if row[0] == "fish and sea")[-1] == "whale"
    aucs = [float(row[1]) for row in topics]
    assert aucs == sorted(aucs)
    names = len(ENGLISH.of("topics"))
    assert len(matrix.rows) == names * (names + 1) // 2
    assert matrix.truncated == loose.truncated == 0


def test_rows_that_say_nothing_are_left_out() -> None:
    rows = planted(ENGLISH)
    rows[0], rows[1], rows[2, 3], rows[3] = math.nan, math.inf, math.nan, 0.0
    rows[4] = 3e38
    found = numbers(rows)
    assert (found[key("word_related_auc")] or 0) > 0.85
    assert found[key("word_groups")] is not None


@pytest.mark.parametrize("fill", [0.0, 1.0, math.nan, 3e38])
def test_a_space_of_one_point_has_no_meaning(fill: float) -> None:
    found = numbers(torch.full((len(ENGLISH.words), 8), fill))
    assert found.get(key("word_related_auc"), None) in (None, 0.5)
    json_values = [value for value in found.values() if value is not None]
    assert all(math.isfinite(value) for value in json_values)


def test_unknown_words_leave_their_coverage() -> None:
    measurements, exhibits = measure(["a", "b"], torch.eye(2), lexicons="en")
    assert {measurement.key: measurement.value for measurement in measurements} == {key("word_coverage_ratio"): 0.0}
    assert exhibits == []
    assert {metric.name for metric in METRICS} >= {"word_coverage_ratio", "word_related_auc"}


def test_words_that_share_a_token_are_no_pair() -> None:
    words = tuple(f"{first}{second}" for first, second in combinations("abcdefgh", 2))
    groups = tuple(WordGroup("topics", letter, tuple(w for w in words if letter in w)) for letter in "abcdefgh")
    tokens = tuple((ord(word[0]), ord(word[1])) for word in words)
    letters = torch.randn(128, 16, generator=torch.Generator().manual_seed(0))
    rows = torch.stack([letters[list(ids)].mean(0) for ids in tokens])  # alike by their letters alone
    blind = study_words(Lexicon("xx", groups), WordVectors(words, rows))
    assert blind is not None
    assert (blind.views["mean"].related or 0) > 0.9
    assert study_words(Lexicon("xx", groups), WordVectors(words, rows, tokens)) is None
