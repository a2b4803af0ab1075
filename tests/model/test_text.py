"""Byte-level BPE: any text comes back, the same corpus gives the same tokens, names of special tokens are text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from embedwatch_model.errors import ModelError
from embedwatch_model.text import (
    BEGIN,
    END,
    MASK,
    PADDING,
    SMALLEST,
    SPECIAL,
    decode,
    encode,
    open_tokenizer,
    save_tokenizer,
    train_tokenizer,
)

TEXTS = ["the cat sat on the mat, the dog did not", "der Hund saß; 猫坐在垫子上"] * 5
TOKENIZER = train_tokenizer(TEXTS, vocabulary=300)


@settings(max_examples=50)
@given(st.text(max_size=60))
def test_every_text_comes_back(text: str) -> None:
    assert decode(TOKENIZER, encode(TOKENIZER, text)) == text


def test_the_special_tokens_have_their_places() -> None:
    assert [TOKENIZER.id_to_token(row) for row in (PADDING, BEGIN, END, MASK)] == list(SPECIAL)


def test_names_of_special_tokens_in_a_text_stay_text(tmp_path: Path) -> None:
    save_tokenizer(TOKENIZER, tmp_path)
    for tokenizer in (TOKENIZER, open_tokenizer(tmp_path)):
        ids = encode(tokenizer, "a <eos> b<pad>")
        assert min(ids) >= len(SPECIAL)
        assert decode(tokenizer, ids) == "a <eos> b<pad>"


def test_frequent_words_become_one_token() -> None:
    assert len(encode(TOKENIZER, " the")) == 1
    assert TOKENIZER.get_vocab_size() <= 300


def test_is_the_same_in_another_process() -> None:
    code = (
        "from tests.model.test_text import TEXTS\nfrom embedwatch_model.text import train_tokenizer\n"
        "import sys; sys.stdout.write(train_tokenizer(TEXTS, vocabulary=300).to_str())"
    )
    root = Path(__file__).parents[2]
    printed = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, check=True).stdout
    assert printed.decode() == TOKENIZER.to_str()


def test_transformers_opens_what_was_saved(tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    save_tokenizer(TOKENIZER, tmp_path)
    theirs = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert theirs("the cat")["input_ids"] == encode(TOKENIZER, "the cat")
    assert theirs.pad_token_id == PADDING


def test_refuses_a_vocabulary_without_room_for_bytes() -> None:
    with pytest.raises(ModelError, match=f"at least {SMALLEST}, got 200"):
        train_tokenizer(TEXTS, vocabulary=200)


@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff\xfe", b"[1, 2]"])
def test_refuses_what_is_no_tokenizer(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        open_tokenizer(tmp_path)


def test_refuses_a_tokenizer_of_another_kind(tmp_path: Path) -> None:
    from tokenizers import models

    (tmp_path / "tokenizer.json").write_text(Tokenizer(models.BPE()).to_str())
    with pytest.raises(ModelError, match="must begin with <pad>"):
        open_tokenizer(tmp_path)
