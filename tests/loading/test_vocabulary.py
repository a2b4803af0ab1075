"""What sort each token is, and whether texts lead to it: byte pairs, word pieces, a unigram model, words."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from embedwatch.core.errors import InputError
from embedwatch.loading.corpus import count_tokens
from embedwatch.loading.vocabulary import Vocabulary
from tests.loading import tiny


def fast(words: Tokenizer, **names: str) -> transformers.PreTrainedTokenizerFast:
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, **names)


def byte_pairs() -> transformers.PreTrainedTokenizerFast:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    # "xyz" is made of "xy" and "z", and "qz" of nothing: no merge leads to it.
    pieces = [*letters, "xy", "xyz", "Ġxyz", "qz", "ä½", "<|reserved_special_token_3|>", "<|end|>"]
    merges = [("x", "y"), ("xy", "z"), ("Ġ", "xyz"), ("ä", "½")]
    words = Tokenizer(models.BPE({piece: row for row, piece in enumerate(pieces)}, merges))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    return fast(words, eos_token="<|end|>")


def word_pieces() -> transformers.PreTrainedTokenizerFast:
    pieces = ["[PAD]", "[UNK]", "[unused0]", "[unused1]", "z", "b", "c", "bc", "##c", "##.", "B", "."]
    words = Tokenizer(models.WordPiece({piece: row for row, piece in enumerate(pieces)}, unk_token="[UNK]"))
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words.decoder = decoders.WordPiece()
    return fast(words, pad_token="[PAD]", unk_token="[UNK]")


def of(tokenizer: transformers.PreTrainedTokenizerFast, rows: int) -> tuple[Vocabulary, dict[str, int]]:
    return Vocabulary(tokenizer, rows), tokenizer.get_vocab()


def test_byte_pairs_have_bytes_fragments_and_bytes_that_no_text_holds() -> None:
    tokenizer = byte_pairs()
    vocabulary, row = of(tokenizer, len(tokenizer) + 2)
    kinds = vocabulary.kinds
    assert kinds.count("reserved") == 13 + 1
    assert kinds[row["<|reserved_special_token_3|>"]] == "reserved"
    assert kinds[row["a"]] == "byte"
    assert kinds[row["ä½"]] == "fragment"
    assert kinds[row["<|end|>"]] == "special"
    assert kinds[row["xyz"]] == kinds[row["Ġxyz"]] == "ordinary"
    assert kinds[-2:] == ["beyond", "beyond"]
    assert vocabulary.texts[row["Ġxyz"]] == " xyz"


def test_a_piece_without_a_merge_is_reached_by_no_text() -> None:
    tokenizer = byte_pairs()
    vocabulary, row = of(tokenizer, len(tokenizer))
    assert {piece for piece in ("xy", "xyz", "Ġxyz", "qz") if not vocabulary.reached[row[piece]]} == {"qz"}


def test_word_pieces_are_reached_behind_a_letter_unless_texts_are_cut_before_them() -> None:
    tokenizer = word_pieces()
    vocabulary, row = of(tokenizer, len(tokenizer))
    assert vocabulary.rows_of("reserved") == [row["[unused0]"], row["[unused1]"]]
    assert {piece for piece in ("bc", "##c", "##.", "B", ".") if not vocabulary.reached[row[piece]]} == {"##.", "B"}


def test_a_unigram_model_that_knows_the_sign_of_bytes_is_not_one_of_bytes() -> None:
    pieces = [("<unk>", 0.0), ("Ġ", -2.0), ("▁", -2.0), ("▁ab", -1.0), ("a", -3.0), ("b", -3.0), ("\x01", -4.0)]
    words = Tokenizer(models.Unigram(pieces, unk_id=0))
    words.pre_tokenizer, words.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    vocabulary, row = of(fast(words, unk_token="<unk>"), len(pieces))
    assert set(vocabulary.kinds) == {"special", "ordinary"}
    assert vocabulary.texts[row["▁ab"]] == " ab"
    assert vocabulary.reached[row["▁ab"]]
    assert vocabulary.reached[row["b"]]


def test_tokens_that_came_later_are_added_and_special_ones_stay_special() -> None:
    tokenizer = tiny.tokenizer()
    tokenizer.add_tokens([AddedToken("w99"), AddedToken("w98")])
    tokenizer.add_special_tokens({"bos_token": "<start>"})
    vocabulary = Vocabulary(tokenizer, tiny.VOCABULARY)
    assert [vocabulary.pieces[row] for row in vocabulary.rows_of("added")] == ["w99", "w98"]
    assert vocabulary.kinds[tokenizer.convert_tokens_to_ids("<start>")] == "special"
    assert len(vocabulary.rows_of("beyond")) == tiny.VOCABULARY - tiny.TOKENS - 3


def test_tokens_of_a_file_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "corpus.txt"
    file.write_text("w1 w2 w1\n\nw1\n", encoding="utf-8")
    counts = count_tokens(file, tiny.tokenizer(), tiny.VOCABULARY)
    row = tiny.tokenizer().convert_tokens_to_ids("w1")
    assert (int(counts[row]), int(counts.sum())) == (3, 4)
    assert counts.dtype == torch.int64


def test_a_corpus_that_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="`corpus` must be a readable file"):
        count_tokens(tmp_path / "none.txt", tiny.tokenizer(), 60)
