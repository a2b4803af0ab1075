"""word2vec binary, word2vec text and GloVe."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from embedwatch.core.errors import UsageError
from embedwatch.sources import _word_names, _word_text
from embedwatch.sources._numbers import parse_numbers
from embedwatch.sources.glove import GloveSource
from embedwatch.sources.word2vec_binary import Word2vecBinarySource
from embedwatch.sources.word2vec_text import Word2vecTextSource
from embedwatch.testing.source_contract import source_contract
from tests.sources.makers import glove, matrix, text_rows, word2vec_binary, word2vec_text
from tests.sources.refusals import message_of, refusal

WORD_SOURCES = (GloveSource, Word2vecBinarySource, Word2vecTextSource)


def write(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def rows_of(source: Word2vecTextSource | GloveSource | Word2vecBinarySource, size: int = 7) -> torch.Tensor:
    return torch.cat([batch.rows for batch in source.batches(size)])


def binary(words: list[bytes], dimension: int = 2, *, count: int | None = None, end: bytes = b"\n") -> bytes:
    header = f"{len(words) if count is None else count} {dimension}\n".encode()
    return header + b"".join(word + b" " + struct.pack("<f", i) * dimension + end for i, word in enumerate(words))


# --- word2vec binary -------------------------------------------------------------------------------------------------


def test_words_that_are_not_utf8_are_replaced(tmp_path: Path) -> None:
    source = Word2vecBinarySource.open(write(tmp_path / "x.bin", binary([b"caf\xe9", b"", "猫".encode()])))
    assert source.names([0, 1, 2]) == ["caf\ufffd", "", "猫"]


def test_long_words_make_reads_longer(tmp_path: Path) -> None:
    words = [b"w%d" % i + b"o" * (i * 37 % 4000) for i in range(50)]
    source = Word2vecBinarySource.open(write(tmp_path / "x.bin", binary(words)))
    assert rows_of(source, 9)[:, 0].tolist() == list(range(50))
    assert source.names(range(50)) == [word.decode() for word in words]


@pytest.mark.parametrize(
    "header", ["-3 5\n", "3 -5\n", f"{10**15} 5\n", f"{10**17} {10**17}\n", "3 0\n", f"3 {2**21}\n"]
)
@pytest.mark.parametrize("source", [Word2vecBinarySource, Word2vecTextSource])
def test_absurd_headers(
    source: type[Word2vecBinarySource] | type[Word2vecTextSource], header: str, tmp_path: Path
) -> None:
    refusal(source, write(tmp_path / "x.bin", header + "the 1 2 3 4 5\n"))


def test_a_header_that_promises_terabytes(tmp_path: Path) -> None:
    path = write(tmp_path / "x.bin", b"999999999999 300\n" + bytes(5000))
    assert "promises at least 1,200,999,999," in refusal(Word2vecBinarySource, path)
    path = write(tmp_path / "x.txt", b"999999999999 300\nthe 0.1\n")
    assert "promises at least 600,999,999," in refusal(Word2vecTextSource, path)


@pytest.mark.parametrize("end", [b"\n", b""])
def test_counts_that_disagree_with_the_rows(end: bytes, tmp_path: Path) -> None:
    words = [b"a" * 40] * 10
    path = write(tmp_path / "few.bin", binary(words, count=12, end=end))
    assert "ends after 10 words, its header promises 12" in refusal(Word2vecBinarySource, path)
    path = write(tmp_path / "many.bin", binary(words, count=9, end=end))
    assert "goes on after the 9 words" in refusal(Word2vecBinarySource, path)


def test_rows_that_are_out_of_step(tmp_path: Path) -> None:
    path = write(tmp_path / "step.bin", binary([b"two words", b"next", b"last"]))
    assert "words must be short" in refusal(Word2vecBinarySource, path)
    path = write(tmp_path / "blank.bin", b"2 2\nthe " + bytes(8) + b"x" * 9000)
    assert "after the word 'the'" in refusal(Word2vecBinarySource, path)


def test_a_header_alone(tmp_path: Path) -> None:
    for source, name in ((Word2vecBinarySource, "x.bin"), (Word2vecTextSource, "x.vec")):
        path = write(tmp_path / name, "0 7\n")
        assert source.accepts(path)
        opened = source.open(path)
        assert (opened.rows, opened.dimension, list(opened.batches(3)), opened.names([])) == (0, 7, [], [])


def test_no_header(tmp_path: Path) -> None:
    assert "`3000000 300`" in refusal(Word2vecBinarySource, write(tmp_path / "x.bin", b"\x80\x02}q\x00"))
    assert "--as glove" in refusal(Word2vecTextSource, write(tmp_path / "x.vec", "the 1 2\n"))


# --- text ------------------------------------------------------------------------------------------------------------


def test_words_with_blanks_and_numbers_as_words(tmp_path: Path) -> None:
    text = "the 0.1 0.2\n. . . 0.3 0.4\n2000 0.5 0.6\nto name@domain.com 0.7 0.8\n 0.9 1.0\nnan 1.1 1.2\n"
    source = GloveSource.open(write(tmp_path / "x.txt", text))
    assert source.dimension == 2
    assert source.names(range(6)) == ["the", ". . .", "2000", "to name@domain.com", "", "nan"]
    torch.testing.assert_close(rows_of(source).flatten(), torch.arange(1, 13) / 10)


def test_odd_bytes_are_part_of_words(tmp_path: Path) -> None:
    words = ["\u00a0", "\x85", "\u2028", "a\x0bb", '"', "#", "'", ","]
    path, x = tmp_path / "x.txt", matrix(8, 9)
    source = GloveSource.open(write(path, text_rows(x, words)))
    assert GloveSource.accepts(path)
    assert source.names(range(8)) == words
    torch.testing.assert_close(rows_of(source), torch.from_numpy(x))


def test_other_line_ends_and_blank_lines(tmp_path: Path) -> None:
    text = "the 1 2\r\n\r\nof 3 4 \r\n\r\nand +5 6\r\n\n\n"
    source = GloveSource.open(write(tmp_path / "x.txt", text))
    assert rows_of(source).flatten().tolist() == [1, 2, 3, 4, 5, 6]
    assert source.names([2, 0]) == ["and", "the"]
    path = write(tmp_path / "y.txt", text + "or 7\n")
    assert "line 8 has 1 number" in refusal(GloveSource, path)
    counted = Word2vecTextSource.open(write(tmp_path / "x.vec", "3 2\n" + text))
    assert rows_of(counted).flatten().tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("of 1 2", "line 13 has 2 numbers after its word, the file 3"),
        ("of 1 2 3 4", "line 13 has 4 numbers after its word, the file 3"),
        ("of the 1 2 3 4", "line 13 has 4 numbers after its word, the file 3"),
        ("of 1 x 3", "line 13 has 'x', a number must stand there"),
        ("of 1 2 1_0", "line 13 has '1_0', a number must stand there"),
        ("of 1 2 0x10", "line 13 has '0x10', a number must stand there"),
        ("of 1  2", "line 13 has 2 numbers after its word, the file 3"),
        ("of 1,5 2 3", "line 13 has '1,5', a number must stand there"),
        ("of", "line 13 has 0 numbers after its word, the file 3"),
        ("1 2 3", "line 13 has 2 numbers after its word, the file 3"),
    ],
)
def test_lines_that_do_not_fit_are_named(line: str, words: str, tmp_path: Path) -> None:
    lines = [f"word{i} {i} {i} {i}" for i in range(20)]
    lines.insert(12, line)
    assert words in refusal(GloveSource, write(tmp_path / "x.txt", "\n".join(lines) + "\n"))
    message = refusal(Word2vecTextSource, write(tmp_path / "x.vec", "\n".join(["21 3", *lines])))
    assert words.replace("13", "14") in message


def test_values_beyond_float32(tmp_path: Path) -> None:
    source = GloveSource.open(write(tmp_path / "x.txt", "a 1e39 1e-60\nb -1e400 nan\nc 1.5 -inf\n"))
    rows = rows_of(source)
    assert rows[:2, 0].tolist() == [torch.inf, -torch.inf]
    assert rows[0, 1] == 0.0
    assert rows[1, 1].isnan()


def test_rows_and_header_must_agree(tmp_path: Path) -> None:
    text = text_rows(matrix(10, 4), [f"w{i}" for i in range(10)])
    assert "ends after 10 words" in refusal(Word2vecTextSource, write(tmp_path / "x.vec", "11 4\n" + text))
    assert "10 words, its first line promises 9" in refusal(
        Word2vecTextSource, write(tmp_path / "x.vec", "9 4\n" + text)
    )


def test_no_dimension_to_be_found(tmp_path: Path) -> None:
    for text in ("hello world\n", "\n\n\n", "\0\0\0\0", "0.5\n0.5\n", "a" * 200_000):
        refusal(GloveSource, write(tmp_path / "x.txt", text))


def test_one_line_longer_than_the_sample(tmp_path: Path) -> None:
    path = write(tmp_path / "wide.txt", "word" + " 0.125" * 20_000 + "\n")
    source = GloveSource.open(path)
    assert source.dimension == 20_000
    assert rows_of(source).unique().tolist() == [0.125]


def test_a_file_without_line_ends_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_word_text, "MAX_LINE", 5000)
    path = write(tmp_path / "endless.txt", "the 1 2\n" * 9 + "x" * 100_000)
    assert "more than 5,000 bytes" in refusal(GloveSource, path)


def test_a_batch_of_text_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_word_text, "TEXT_BYTES", 100)
    source = GloveSource.open(write(tmp_path / "x.txt", text_rows(matrix(30, 3), [f"w{i}" for i in range(30)])))
    sizes = [len(batch) for batch in source.batches(1000)]
    assert max(sizes) < 6
    assert sum(sizes) == 30


@given(st.lists(st.lists(st.floats(width=32, allow_nan=False), min_size=3, max_size=3), min_size=1, max_size=9))
def test_the_fast_parser_is_exact(rows: list[list[float]]) -> None:
    parsed = parse_numbers([" ".join(map(repr, row)).encode() for row in rows], 3)
    assert parsed is None or torch.equal(parsed, torch.tensor(rows))


@given(st.lists(st.binary(max_size=12), min_size=1, max_size=4))
def test_the_fast_parser_never_finds_numbers_where_there_are_none(tails: list[bytes]) -> None:
    parsed = parse_numbers(tails, 1)
    if parsed is not None:
        assert [float(tail) for tail in tails] == pytest.approx(parsed.flatten().tolist(), rel=1e-6, nan_ok=True)


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [glove, word2vec_text, word2vec_binary])
def test_names_of_many_rows_are_read_in_blocks(make: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_word_names, "STRIDE", 4)
    monkeypatch.setattr(_word_names, "KEPT_BLOCKS", 2)
    path = make(tmp_path, matrix(50))  # type: ignore[operator]
    source_class = next(source for source in WORD_SOURCES if source.accepts(path))
    everything = source_class.open(path).names(range(50))
    assert len(set(everything)) == 50
    for size in (1, 6, 100):
        source = source_class.open(path)
        list(source.batches(size))
        for asked in ([49, 0, 49, 17], [3, 4, 5], list(range(49, -1, -1)), []):
            assert source.names(asked) == [everything[row] for row in asked]
    source_contract(source_class, path)


@pytest.mark.parametrize("make", [glove, word2vec_text, word2vec_binary])
def test_names_of_rows_that_do_not_exist(make: object, tmp_path: Path) -> None:
    path = make(tmp_path, matrix(50))  # type: ignore[operator]
    source = next(source for source in WORD_SOURCES if source.accepts(path)).open(path)
    for row in (50, 5000, -1):
        assert str(row) in message_of(lambda row=row: source.names([0, row]), path, UsageError)  # type: ignore[misc]
