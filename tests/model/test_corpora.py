"""Corpora as people have them: other encodings, nothing inside, one line, one huge line, sides that do not fit."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from embedwatch_model import corpora
from embedwatch_model.corpora import fingerprint, read_documentation, read_pairs, read_table, read_text
from embedwatch_model.errors import ModelError


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


class TestText:
    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            ("one line without an end", "one line without an end"),
            ("a\r\nb\rc\n", "a\nb\nc\n"),
            ("\ufeffsigned", "signed"),
            ("\n\n", None),
            ("", None),
        ],
    )
    def test_reads_what_people_write(self, content: str, expected: str | None, tmp_path: Path) -> None:
        path = write(tmp_path / "text.txt", content)
        if expected is None:
            with pytest.raises(ModelError, match="must hold text, got an empty file"):
                list(read_text(path))
        else:
            assert "".join(read_text(path)) == expected

    @pytest.mark.parametrize("size", [3, 4, 5, 7])
    def test_a_character_or_line_end_may_lie_across_two_blocks(
        self, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(corpora, "PIECE", size)
        text = "äöü\r\n慢慢慢\r\n𝄞𝄞\r\nend"
        assert "".join(read_text(write(tmp_path / "t", text))) == text.replace("\r\n", "\n")

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"caf\xe9 au lait", "got byte 0xE9 at 3; convert"),
            ("中文".encode("gb18030"), "got byte 0xD6 at 0; convert"),
            ("text".encode("utf-16"), "got UTF-16; convert it with `iconv"),
            (b"\x00\x01\xff\x00", "got byte 0xFF at 2; it is binary"),
            ("schön".encode()[:4], "got byte 0xC3 at 3"),
        ],
    )
    def test_says_where_another_encoding_shows(self, content: bytes, words: str, tmp_path: Path) -> None:
        with pytest.raises(ModelError) as caught:
            list(read_text(write(tmp_path / "t", content)))
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_counts_bytes_over_blocks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(corpora, "PIECE", 4)
        with pytest.raises(ModelError, match="byte 0xE9 at 10"):
            list(read_text(write(tmp_path / "t", b"0123456789\xe9abc")))

    @pytest.mark.parametrize("line", ["", "\n"])
    def test_a_huge_line_is_read_in_bounded_memory(self, line: str, tmp_path: Path) -> None:
        path = tmp_path / "huge"
        with path.open("w") as file:
            for _ in range(32):
                file.write("abcdefgh" * (1 << 17) + line)
        tracemalloc.start()
        try:
            length = sum(len(piece) for piece in read_text(path))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert length == path.stat().st_size
        assert peak < 12 * corpora.PIECE

    def test_refuses_what_is_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match="got a folder"):
            list(read_text(tmp_path))
        with pytest.raises(ModelError, match="got nothing"):
            list(read_text(tmp_path / "none"))


class TestPairs:
    def test_two_files_are_read_line_by_line(self, tmp_path: Path) -> None:
        left, right = write(tmp_path / "de", "eins\n\nzwei\ndrei\n"), write(tmp_path / "en", "one\nnone\ntwo\nthree")
        assert list(read_pairs(left, right)) == [("eins", "one"), ("zwei", "two"), ("drei", "three")]

    def test_a_table_is_read_by_tabs(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.tsv", "eins\tone\tmore\n\n\tmissing\nzwei\ttwo\n")
        assert list(read_table(path)) == [("eins", "one"), ("zwei", "two")]

    def test_refuses_files_of_unequal_length(self, tmp_path: Path) -> None:
        left, right = write(tmp_path / "de", "eins\nzwei\n"), write(tmp_path / "en", "one\n")
        with pytest.raises(ModelError, match=r"en` must have a line for each of .*de`, got 1 and then"):
            list(read_pairs(left, right))

    @pytest.mark.parametrize(
        ("content", "words"), [("\nno tab", "none in line 2"), ("x\t\n\t\n", "none with two sides")]
    )
    def test_refuses_a_table_without_pairs(self, content: str, words: str, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match=words):
            list(read_table(write(tmp_path / "t", content)))

    def test_refuses_a_line_that_is_no_sentence(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t", "x" * (1 << 21))
        with pytest.raises(ModelError, match="must have a sentence in each line"):
            list(read_table(path))


class TestDocumentation:
    def test_is_parsed_not_run_and_each_text_comes_once(self, tmp_path: Path) -> None:
        text = "A sentence that is long enough to be worth reading."
        write(tmp_path / "a.py", f'"""{text}"""\nraise SystemExit\ndef f():\n    """{text}"""\n')
        write(tmp_path / "b.py", 'def f():\n    """short"""\nclass A:\n    """' + "another sentence " * 4 + '"""\n')
        write(tmp_path / "c.py", "this is no Python")
        (tmp_path / "test").mkdir()
        write(tmp_path / "test" / "d.py", '"""' + "left out " * 9 + '"""')
        assert list(read_documentation(tmp_path)) == [text, "another sentence " * 4]

    def test_refuses_a_library_without_any(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match="give a corpus of your own"):
            list(read_documentation(tmp_path))


def test_the_fingerprint_follows_content_and_order(tmp_path: Path) -> None:
    a, b, c = (write(tmp_path / name, text) for name, text in (("a", "x"), ("b", "y"), ("c", "x")))
    assert fingerprint([a]) == fingerprint([c]) != fingerprint([b])
    assert fingerprint([a, b]) != fingerprint([b, a])
