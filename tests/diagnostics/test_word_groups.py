"""Word groups of a model: rows of its table, texts, tokens in a sentence; languages that it does not know."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from embedwatch.core.errors import InputError
from embedwatch.diagnosing import diagnose
from embedwatch.inquiry import Inquiry
from embedwatch.judged import Judged
from embedwatch.lexicons import Lexicon, load_lexicon
from embedwatch.loading.live import LiveSubject
from embedwatch.loading.word_vectors import contextual_words, known_words, table_words, word_tokens
from tests.meaning.models import SOME, bert, tokenizer
from tests.meaning.words import fresh, planted

ENGLISH = load_lexicon("en")


@pytest.fixture(scope="module")
def healthy() -> LiveSubject:
    return bert(planted(ENGLISH))


def found(subject: Any, **asked: Any) -> Judged:
    (judged,) = diagnose(Inquiry(subject, **asked), only=["word_groups"], exhibits=True)
    return judged


def test_a_table_is_judged_without_running_the_model(healthy: LiveSubject) -> None:
    judged = found(healthy)
    assert {verdict.check: verdict.status for verdict in judged.verdicts} == {
        "meaning_related": "ok",
        "meaning_topics": "ok",
    }
    assert judged.snapshot.provenance.role == judged.snapshot.space.place == "meaning"
    assert {measurement.labels["vectors"] for measurement in judged.snapshot} == {"table"}
    assert judged.snapshot.number("word_coverage_ratio", lexicon="en", vectors="table") == 1
    assert judged.snapshot.number("word_coverage_ratio", lexicon="zh", vectors="table") == 0
    assert judged.snapshot.get("word_related_auc", lexicon="zh", vectors="table") is None
    assert {exhibit.name for exhibit in judged.exhibits} == {"loose_word_groups", "word_topics"}


def test_a_new_table_is_not_healthy() -> None:
    judged = found(bert(fresh(ENGLISH)))
    assert {verdict.check: verdict.status for verdict in judged.verdicts} == {
        "meaning_related": "fail",
        "meaning_topics": "warn",
    }


def test_texts_and_contexts_are_looked_at_when_the_model_may_run(healthy: LiveSubject) -> None:
    first, again = (found(healthy, deep=True, words=SOME) for _ in range(2))
    assert healthy.model.training
    assert [m.to_json() for m in first.snapshot] == [m.to_json() for m in again.snapshot]  # dropout was off
    for kind in ("table", "texts", "context"):
        auc = first.snapshot.number("word_related_auc", lexicon="en", vectors=kind)
        assert auc is not None
        assert auc > 0.8, kind


def test_a_model_that_writes_is_not_asked_for_words_alone() -> None:
    torch.manual_seed(0)
    knows = tokenizer(ENGLISH.words)
    config = LlamaConfig(
        vocab_size=len(knows), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    judged = found(LiveSubject(LlamaForCausalLM(config), tokenizer=knows), deep=True, words=SOME)
    assert {m.labels["vectors"] for m in judged.snapshot} == {"table", "context"}


def test_words_that_somebody_names_are_measured_though_few(healthy: LiveSubject) -> None:
    few = Lexicon("mine", ENGLISH.of("topics")[:2])  # type: ignore[arg-type]
    judged = found(healthy, words=few)
    assert judged.snapshot.number("word_groups", lexicon="mine", vectors="table") == 2


def test_without_a_tokenizer_it_is_said_that_nothing_was_examined() -> None:
    judged = found(LiveSubject(torch.nn.Embedding(10, 4), label="bare"))
    assert not judged.snapshot.measurements
    assert "must come with its tokenizer" in judged.snapshot.provenance.notes[0]


def test_words_of_several_tokens_are_means_where_few_are_one() -> None:
    knows = tokenizer(["ab", "cd", "ef", "gh"])
    table = torch.randn(len(knows), 6)
    embedding = torch.nn.Embedding.from_pretrained(table)
    subject = LiveSubject(embedding, tokenizer=knows, label="bare")
    tokens = word_tokens(knows, ["ab", "ab cd", "ef gh", "ab zz", "gh ab"])
    assert list(tokens) == ["ab", "ab cd", "ef gh", "gh ab"]  # `zz` is unknown
    vectors, pieces = table_words(subject, tokens)
    assert pieces
    assert torch.allclose(vectors.vectors[1], (table[12] + table[13]) / 2)
    single, pieces = table_words(subject, {word: tokens[word] for word in ("ab", "ab cd")})
    assert not pieces
    assert single.words == ("ab",)


def test_which_words_are_known() -> None:
    tokens = {"hot": (1,), "cold": (1, 2), "temperature": (1, 2, 3), "银行": (1, 2), "钱": (1, 2)}
    assert known_words(tokens) == ["hot", "cold", "temperature", "银行"]


def test_states_are_those_of_the_word_itself(healthy: LiveSubject) -> None:
    model, knows = healthy.model, healthy.tokenizer
    model.eval()
    words = ["apple", "dog"]
    found = contextual_words(healthy, word_tokens(knows, words), ENGLISH.templates)
    for word, vector in zip(found.words, found.vectors, strict=True):
        ids = knows(ENGLISH.templates[0].replace("{word}", word), return_tensors="pt")["input_ids"]
        place = ids[0].tolist().index(knows.convert_tokens_to_ids(word))
        assert torch.allclose(vector, model(input_ids=ids).last_hidden_state[0, place], atol=1e-5)
    model.train()


def test_a_tokenizer_that_does_not_tell_places_is_refused(healthy: LiveSubject) -> None:
    class Slow(PreTrainedTokenizerFast):
        def __call__(self, texts: Any, **options: Any) -> Any:
            if options.get("return_offsets_mapping"):
                raise NotImplementedError("slow tokenizers have no offsets")
            return super().__call__(texts, **options)

    slow = Slow(tokenizer_object=healthy.tokenizer.backend_tokenizer)
    subject = LiveSubject(healthy.model, tokenizer=slow, label="slow")
    with pytest.raises(InputError, match=r"`slow` must have a tokenizer that tells where its tokens stand"):
        contextual_words(subject, {"apple": (1,)}, ENGLISH.templates)
