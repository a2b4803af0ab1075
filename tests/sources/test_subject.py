"""Token tables and encoded texts keep the contract of sources, and say what a reader must know."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers import models as tokenizer_models
from transformers import PreTrainedTokenizerFast

from embedwatch.core.errors import EmbedwatchError, InputError, UsageError
from embedwatch.core.registry import registered
from embedwatch.core.source import Source
from embedwatch.loading import load_subject
from embedwatch.sources import open_source
from embedwatch.sources.subject import EncodedTexts, TokenTable
from embedwatch.testing.source_contract import SOURCE_CONTRACT
from tests.loading import tiny
from tests.loading.test_encoding import close

WRITTEN = "w1 w2\n\nw3 w4 w5\n   \nw6\n"
"""Three texts on lines 1, 3 and 5."""


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save("bert", tmp_path_factory.mktemp("models") / "tiny-bert")


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def get(content: str | bytes = WRITTEN, name: str = "texts.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return get


# --- The token table -------------------------------------------------------------------------------------------------

# The clause on fingerprints changes the first file of a folder, config.json; that of a table is of its rows.
CLAUSES = [name for name in SOURCE_CONTRACT if name != "fingerprint"]


@pytest.mark.parametrize("clause", CLAUSES)
def test_the_table_keeps_the_contract(clause: str, bert: Path) -> None:
    SOURCE_CONTRACT[clause](TokenTable, bert)


def test_the_table_is_chosen_for_a_model(bert: Path) -> None:
    source = open_source(bert)
    assert isinstance(source, TokenTable)
    assert (source.label, source.place) == ("tiny-bert", "token_table")
    assert (source.rows, source.dimension) == (tiny.VOCABULARY, 16)
    assert registered(Source)["model"] is TokenTable


def test_the_table_gives_its_rows(bert: Path) -> None:
    source = TokenTable.open(bert)
    batches = list(source.batches(25))
    assert [len(batch) for batch in batches] == [25, 25, 10]
    assert [batch.source for batch in batches] == ["tiny-bert"] * 3
    table = load_subject(bert).token_table()
    assert torch.equal(torch.cat([batch.rows for batch in batches]), table.read(0, 60))
    assert source.fingerprint() == table.fingerprint()


def test_rows_are_named_by_their_tokens(bert: Path) -> None:
    source = TokenTable.open(bert)
    assert source.names([5, 0, 54]) == ["w0", "[PAD]", "w49"]
    assert source.names([57]) == ["row 57 (no token)"]
    assert source.notes == ("5 of 60 rows belong to no token: they fill up the table",)


def test_a_table_without_tokenizer_has_row_numbers(tmp_path: Path) -> None:
    tiny.build("bert").save_pretrained(tmp_path)
    source = TokenTable.open(tmp_path)
    assert source.names([5, 0]) == ["5", "0"]
    assert source.notes == ("the model has no tokenizer that can be read, so its tokens have no names",)


BYTES = {"Ġ": 0, "Ġhello": 1, "ä½łå¥½": 2, "Ġä½ł": 3, "ä½": 4, "Ċ": 5, "<s>": 6, "<unk>": 7, "a": 8}
READ = ["Ġ", "Ġhello", "你好", "Ġ你", "ä½", "\\n", "<s>", "<unk>", "a"]
"""Pieces of bytes, and what people read: characters where they are whole, the piece where they are not."""


def test_pieces_of_bytes_are_named_by_their_text(tmp_path: Path) -> None:
    tiny.build("gpt2").save_pretrained(tmp_path)
    words = Tokenizer(tokenizer_models.BPE(BYTES, [], unk_token="<unk>"))
    words.pre_tokenizer, words.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", unk_token="<unk>").save_pretrained(tmp_path)
    assert TokenTable.open(tmp_path).names(range(9)) == READ


def test_a_table_has_nothing_to_select(bert: Path) -> None:
    with pytest.raises(UsageError, match="`select` must be left out for a model, got 'x'"):
        open_source(bert, select="x")
    with pytest.raises(UsageError, match="`labels` must be a file for a model, got the column 'x'"):
        open_source(bert, labels="x")


@pytest.mark.parametrize(
    "name", ["", ".", "missing", "a/b/c", "org/missing", "../x", "a\0b", "x" * 5000, "org/" + "y" * 300]
)
def test_accepts_never_raises(name: str) -> None:
    assert not TokenTable.accepts(Path(name))


def test_accepts_no_other_folder(tmp_path: Path) -> None:
    assert not TokenTable.accepts(tmp_path)
    (tmp_path / "config.json").mkdir()
    assert not TokenTable.accepts(tmp_path)
    os.mkfifo(tmp_path / "modules.json")
    assert not TokenTable.accepts(tmp_path)


# --- Encoded texts ---------------------------------------------------------------------------------------------------


def test_texts_are_rows(bert: Path, write: Callable[..., Path]) -> None:
    subject = load_subject(bert)
    source = EncodedTexts(subject, write())
    batches = list(source.batches(2))
    assert [batch.ids.tolist() for batch in batches if batch.ids is not None] == [[0, 1], [2]]
    assert close(torch.cat([batch.rows for batch in batches]), subject.encode(["w1 w2", "w3 w4 w5", "w6"]))
    assert (source.label, source.place, source.rows, source.dimension) == ("tiny-bert", "sentences", 3, 16)
    assert not EncodedTexts.accepts(write())
    assert "texts" not in registered(Source)
    with pytest.raises(UsageError, match="must come with a model that encodes it"):
        EncodedTexts.open(write())


def test_names_lead_to_the_line(bert: Path, write: Callable[..., Path]) -> None:
    source = EncodedTexts(load_subject(bert), write("\ufeffw1 w2\r\n\n" + "w3 " * 50 + "\nw4\x1b[31m w5"))
    assert source.names([2, 0]) == ["line 4: w4\\x1b[31m w5", "line 1: w1 w2"]
    assert source.names([1]) == ["line 3: " + ("w3 " * 50)[:79] + "…"]
    assert source.names([]) == []
    with pytest.raises(UsageError, match=r"`rows` must be below 3, the rows of texts\.txt, got 3"):
        source.names([3])


def test_any_row_of_a_long_file_is_found(bert: Path, write: Callable[..., Path]) -> None:
    path = write("".join(f"{'' if i % 3 else 'w1 '}{i}\n" + "\n" * (i % 2) for i in range(5000)))
    source = EncodedTexts(load_subject(bert), path)
    lines = path.read_text().split("\n")
    asked = [4999, 0, 1023, 1024, 1025, 2048, 3333, 4999]
    for row, name in zip(asked, source.names(asked), strict=True):
        number, text = name.removeprefix("line ").split(": ")
        assert text == lines[int(number) - 1]
        assert text.split()[-1] == str(row)


def test_notes_say_what_was_left_out(bert: Path, write: Callable[..., Path]) -> None:
    source = EncodedTexts(load_subject(bert), write("w1\n\n" + "w2 " * 100 + "\nw3\n"), pooling="cls")
    before = source.notes
    assert before == ("cls pooling, as asked for", "1 of 4 lines of texts.txt are blank and were skipped")
    for _ in range(2):  # counted anew each time
        list(source.batches(2))
        assert source.notes == (*before, "1 of 3 texts are longer than 64 tokens and were cut")


def test_a_prefix_reaches_the_texts(bert: Path, write: Callable[..., Path]) -> None:
    source = EncodedTexts(load_subject(bert), write("w2\n"), prefix="w1 ")
    assert close(next(iter(source.batches(9))).rows, load_subject(bert).encode(["w1 w2"]))


def test_texts_have_a_fingerprint(bert: Path, write: Callable[..., Path]) -> None:
    subject = load_subject(bert)
    kinds: list[dict[str, Any]] = [{}, {"pooling": "cls"}, {"prefix": "w1 "}]
    found = {EncodedTexts(subject, write(), **options).fingerprint() for options in kinds}
    found.add(EncodedTexts(subject, write(WRITTEN + "w7")).fingerprint())
    assert len(found) == 4
    assert EncodedTexts(subject, write(name="moved.txt")).fingerprint() in found


def test_labels_belong_to_the_texts(bert: Path, write: Callable[..., Path]) -> None:
    source = EncodedTexts(load_subject(bert), write(), labels=write("de\n\nfr\n", "labels.txt"))
    batches = list(source.batches(2))
    assert [batch.labels.tolist() for batch in batches if batch.labels is not None] == [[0, -1], [1]]
    assert [batch.groups for batch in batches] == [("de", "fr")] * 2


def test_labels_must_be_as_many_as_texts(bert: Path, write: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match=r"labels\.txt has 5 labels for the 3 texts of texts\.txt; write one line for"):
        EncodedTexts(load_subject(bert), write(), labels=write("a\nb\nc\nd\ne\n", "labels.txt"))


BAD_TEXTS: dict[str, tuple[Any, str]] = {
    "empty": (b"", r"texts\.txt is empty"),
    "blank": (b"\n \n\t\n", r"texts\.txt holds 3 blank lines and no text"),
    "Latin-1": (b"w1\nw2 caf\xe9\n", r"texts\.txt has byte 0xE9 in line 2, which is not UTF-8; convert it with `iconv"),
    "UTF-16": ("w1\n".encode("utf-16"), r"texts\.txt is UTF-16, texts must be UTF-8; convert it"),
    "binary": (b"w1\n\x00\x01\x02\n", r"texts\.txt has a zero byte in line 2, so it is no text"),
    "one endless line": (b"w1 " * (6 << 20), r"texts\.txt has a line of over 16 MiB, line 1"),
}


@pytest.mark.parametrize("bad", BAD_TEXTS)
def test_bad_texts_are_refused_in_one_line(bad: str, bert: Path, write: Callable[..., Path]) -> None:
    content, message = BAD_TEXTS[bad]
    with pytest.raises(InputError, match=message) as error:
        EncodedTexts(load_subject(bert), write(content))
    assert "\n" not in str(error.value)


def test_missing_texts_are_refused(bert: Path, tmp_path: Path) -> None:
    subject = load_subject(bert)
    for path, message in ((tmp_path / "no.txt", "does not exist"), (tmp_path, "is a folder")):
        with pytest.raises(InputError, match=message):
            EncodedTexts(subject, path)


@pytest.mark.parametrize("size", [0, -1, True, 2.0])
def test_a_size_that_is_none_is_refused_at_once(size: Any, bert: Path, write: Callable[..., Path]) -> None:
    subject = load_subject(bert)
    for source in (TokenTable(subject), EncodedTexts(subject, write())):
        with pytest.raises(EmbedwatchError, match="`size` must be a whole number"):
            source.batches(size)


def test_memory_is_flat_in_the_number_of_texts(bert: Path, write: Callable[..., Path]) -> None:
    """100,000 texts are counted and found again without being held."""
    import tracemalloc

    path = write("".join(f"w1 w2 w3 {i} {'x' * 200}\n" for i in range(100_000)))
    subject = load_subject(bert)
    subject.tokenizer  # noqa: B018 - opened before memory is watched
    tracemalloc.start()
    source = EncodedTexts(subject, path)
    assert source.names([99_999])[0].startswith("line 100000: ")
    next(iter(source.batches(10)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert path.stat().st_size > 20 << 20
    assert peak < 8 << 20


def test_a_name_that_is_not_in_the_cache_says_how_to_get_it() -> None:
    with pytest.raises(InputError, match="download it first with `hf download some-org/none`"):
        open_source("some-org/none")
