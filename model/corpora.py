"""Corpora as streams: plain text, parallel text, and the documentation of the running Python."""

from __future__ import annotations

import ast
import codecs
import hashlib
import io
import sysconfig
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from .errors import ModelError

__all__ = ["fingerprint", "read_documentation", "read_pairs", "read_table", "read_text"]

PIECE = 1 << 20
"""Bytes read at once: the memory of a stream, also where one line is as long as the file."""
LONGEST_LINE = 1 << 16
"""Characters of a sentence in a parallel corpus: a longer line is no sentence, and the file no such corpus."""
LEFT_OUT = frozenset({"test", "tests", "idle_test", "idlelib", "site-packages", "dist-packages", "lib2to3"})
SHORTEST = 40
"""Characters of a documentation string worth reading."""


def read_text(path: Path) -> Iterator[str]:
    """Yield a UTF-8 file in pieces that end with a line where they can; line ends become newlines.

    Raises:
        ModelError: while being read, if the file cannot be opened, is empty or blank, or is in another encoding.
    """
    rest, seen = "", False
    for piece in _decoded(path):
        seen = seen or not piece.isspace()
        head, newline, tail = (rest + piece).rpartition("\n")
        if newline:
            yield head + newline
        elif len(tail) >= PIECE:  # one huge line
            yield tail
            tail = ""
        rest = tail
    if not seen:
        raise ModelError(f"`{path}` must hold text, got an empty file; give one with a few thousand words")
    if rest:
        yield rest


def read_pairs(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """Yield the sentences of two files that translate each other line by line; pairs with an empty side are left out.

    Raises:
        ModelError: while being read, if a file cannot be read as text, or one ends before the other.
    """
    found = False
    for row, (left, right) in enumerate(zip_longest(_lines(source), _lines(target)), 1):
        if left is None or right is None:
            ended, other = (source, target) if left is None else (target, source)
            raise ModelError(
                f"`{ended}` must have a line for each of `{other}`, got {row - 1:,} and then its end; align them"
            )
        if left.strip() and right.strip():
            found = True
            yield left.strip(), right.strip()
    if not found:
        raise ModelError(f"`{source}` and `{target}` must hold pairs, got none with two sides; give parallel text")


def read_table(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a TSV file, source and target side by side; further columns and empty sides are left out.

    Raises:
        ModelError: while being read, if the file cannot be read as text, or a line has no tab.
    """
    found = False
    for row, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        cells = line.split("\t")
        if len(cells) < 2:
            raise ModelError(
                f"`{path}` must have a tab in each line, got none in line {row:,}; write source, tab, target"
            )
        if cells[0].strip() and cells[1].strip():
            found = True
            yield cells[0].strip(), cells[1].strip()
    if not found:
        raise ModelError(f"`{path}` must hold pairs, got none with two sides; give parallel text")


def read_documentation(library: Path | None = None) -> Iterator[str]:
    """Yield the distinct documentation strings of the running Python's standard library, by file and line.

    Real English text that is always there, about 1.6 MB. Files are parsed, never imported; the same Python
    gives the same text.

    Args:
        library: the folder to read instead.

    Raises:
        ModelError: if there is none to read, as in a Python that ships compiled files only.
    """
    root = library or Path(sysconfig.get_path("stdlib"))
    seen: set[bytes] = set()
    for path in sorted(root.rglob("*.py")):
        if LEFT_OUT.isdisjoint(path.relative_to(root).parts):
            for text in _docstrings(path):
                digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
                if len(text) >= SHORTEST and digest not in seen:
                    seen.add(digest)
                    yield text
    if not seen:
        raise ModelError(f"`{root}` must hold Python files with documentation, got none; give a corpus of your own")


def fingerprint(paths: Sequence[Path]) -> str:
    """Return 16 hex digits that change with the content of any file or with their order.

    Raises:
        ModelError: if one cannot be opened.
    """
    digest = hashlib.blake2b(digest_size=8)
    for path in paths:
        for block in _bytes(path):
            digest.update(block)
        digest.update(b"\0end of file\0")
    return digest.hexdigest()


def _docstrings(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return  # templates, files in an encoding that is not declared
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = (ast.get_docstring(node) or "").encode("utf-8", "ignore").decode()  # "\ud800" is legal in a literal
            if text:
                yield text


def _bytes(path: Path) -> Iterator[bytes]:
    try:
        if not path.is_file():  # a pipe would wait for ever
            raise ModelError(f"`{path}` must be a file, got {'a folder' if path.is_dir() else 'nothing'}; name a text")
        with path.open("rb") as file:
            while block := file.read(PIECE):
                yield block
    except OSError as error:
        raise ModelError(f"`{path}` must be readable, got {error.strerror or error}; check its rights") from error


def _decoded(path: Path) -> Iterator[str]:
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8-sig")(), translate=True)
    done = 0  # bytes before this block
    kept = 0  # of a character that the last block cut in two
    for block in _bytes(path):
        if done == 0 and block[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise ModelError(f"`{path}` must be UTF-8, got UTF-16; convert it with `iconv -f UTF-16 -t UTF-8`")
        try:
            text = decoder.decode(block)
        except UnicodeDecodeError as error:
            raise ModelError(_wrong(path, error, done - kept)) from error
        done += len(block)
        kept = len(decoder.getstate()[0])
        yield text
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise ModelError(_wrong(path, error, done - kept)) from error


def _wrong(path: Path, error: UnicodeDecodeError, base: int) -> str:
    byte = error.object[error.start]
    hint = "it is binary" if b"\0" in error.object else "convert it with `iconv -f LATIN1 -t UTF-8` or its own encoding"
    return f"`{path}` must be UTF-8, got byte 0x{byte:02X} at {base + error.start:,}; {hint}"


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text without their ends, and refuse what is too long to be a sentence."""
    rest = ""
    row = 0
    for piece in read_text(path):
        *whole, rest = (rest + piece).split("\n")
        for line in whole:
            row += 1
            yield line
        if len(rest) > LONGEST_LINE:
            raise ModelError(
                f"`{path}` must have a sentence in each line, got {len(rest):,} characters in one; split it"
            )
    if rest:
        yield rest
