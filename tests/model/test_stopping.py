"""When a text ends."""

from __future__ import annotations

import pytest

from embedwatch_model.errors import ModelError
from embedwatch_model.stopping import Stop
from embedwatch_model.text import decode, encode, train_tokenizer

PIECES = ["a", "b", "\n", "\n\n", ".\n", "<eos>"]


def spell(ids: list[int] | tuple[int, ...]) -> str:
    return "".join(PIECES[each] for each in ids)


@pytest.mark.parametrize(
    "ids",
    [[0, 3], [0, 2, 2], [0, 4, 2], [0, 4, 3], [3, 0]],
    ids=["one token", "two tokens", "begins inside a token", "ends inside a token", "earlier"],
)
def test_a_text_is_found_across_token_borders(ids: list[int]) -> None:
    assert Stop(texts=["\n\n"], decode=spell).reached(ids)


def test_it_is_found_no_sooner_than_it_is_complete() -> None:
    stop = Stop(texts=[".\n\n", "ba"], decode=spell)
    assert [stop.reached([0, 4, 2][:n]) for n in range(4)] == [False, False, False, True]
    assert not stop.reached([0, 1])
    assert stop.reached([1, 0])


def test_bytes_of_one_character_over_several_tokens() -> None:
    tokenizer = train_tokenizer(["plain text"], vocabulary=260)
    ids = encode(tokenizer, "ab慢c")
    stop = Stop(texts=["慢"], decode=lambda row: decode(tokenizer, row))
    assert [stop.reached(ids[:n]) for n in range(len(ids) + 1)] == [n >= 5 for n in range(len(ids) + 1)]


def test_sequences_are_compared_at_the_end_only() -> None:
    stop = Stop(tokens=[5], sequences=[[1, 2], [3]])
    assert stop.reached([0, 1, 2])
    assert stop.reached((3,))
    assert stop.reached([5])
    assert not stop.reached([1, 2, 0])
    assert not stop.reached([2])
    assert not stop.reached([])
    assert not Stop().reached([1, 2])


def test_cut_takes_the_first_of_several() -> None:
    stop = Stop(texts=["end", "the"], decode=spell)
    assert stop.cut("in the end") == "in "
    assert stop.cut("nothing here") == "nothing here"
    assert stop.cut("") == ""


def test_misuse() -> None:
    with pytest.raises(ModelError, match="got the single text 'end'; put it in a list"):
        Stop(texts="end", decode=spell)
    with pytest.raises(ModelError, match="`texts` must each hold something"):
        Stop(texts=[""], decode=spell)
    with pytest.raises(ModelError, match="`sequences` must each hold something"):
        Stop(sequences=[[]])
    with pytest.raises(ModelError, match="`decode` must be a function"):
        Stop(texts=["end"])
