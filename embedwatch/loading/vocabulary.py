"""What sort each token of a vocabulary is, and whether any text leads to it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from embedwatch.loading.tokens import UNREADABLE

__all__ = ["Kind", "Vocabulary"]

Kind = Literal["ordinary", "added", "special", "byte", "fragment", "reserved", "beyond"]
UNUSED = re.compile(
    r"[\[<]\|?/?(?:unused|reserved|pad)[_ -]?(?:special[_ -]?token)?[_ -]?\d+\|?[\]>]|madeupword\d+", re.IGNORECASE
)
"""Names of tokens that stand for nothing: `[unused12]`, `<unused12>`, `<|reserved_special_token_12|>`,
`madeupword0001`."""
HEX = re.compile(r"<0x([0-9A-F]{2})>")
IMPOSSIBLE = (0xC0, 0xC1, *range(0xF5, 0x100))
"""Bytes that no text in UTF-8 holds."""
HOSTS_AT_MOST = 4
"""What goes on a word is looked for behind so many letters."""
PYTHON_AT_MOST = 20_000
"""A tokenizer without a fast core is asked about so many tokens, evenly spaced."""


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a tokenizer beside the rows of a table.

    Args:
        tokenizer: of transformers.
        rows: number of rows of the table.
    """

    tokenizer: Any
    rows: int

    @cached_property
    def pieces(self) -> list[str | None]:
        """The piece of each row; `None` where the tokenizer has none."""
        found: list[str | None] = [None] * self.rows
        for piece, row in self.tokenizer.get_vocab().items():
            if 0 <= row < self.rows:
                found[row] = piece
        return found

    @cached_property
    def kinds(self) -> list[Kind]:
        """What each row is: `ordinary`, or what makes it another sort of token.

        `added` came after the vocabulary was made; `special` frames texts; `byte` is one byte; `fragment` is a part of
        a character; `reserved` is held free by its name, or a byte that no text holds; `beyond` has no token.
        """
        added = getattr(self.tokenizer, "added_tokens_decoder", {})
        special = set(self.tokenizer.all_special_ids) | {row for row, token in added.items() if token.special}
        first = self._first_added(added)
        return [self._kind(row, special, added, first) for row in range(self.rows)]

    def _first_added(self, added: Any) -> int:
        """Return the first row that came after the vocabulary was made."""
        size = getattr(self.tokenizer, "vocab_size", self.rows)
        return size if isinstance(size, int) and any(row >= size for row in added) else self.rows

    def _kind(self, row: int, special: set[int], added: Any, first: int) -> Kind:
        piece = self.pieces[row]
        if piece is None:
            return "beyond"
        if UNUSED.fullmatch(piece) or row in self._impossible:
            return "reserved"
        if row in special:
            return "special"
        if row in added and row >= first:
            return "added"
        if HEX.fullmatch(piece) or (self._bytes and len(piece) == 1):
            return "byte"
        return "fragment" if UNREADABLE in self.texts[row] else "ordinary"

    @cached_property
    def texts(self) -> list[str]:
        """What each row says; empty where it has no token."""
        if self._bytes:
            return [self._decoded(piece) for piece in self.pieces]
        return ["" if piece is None else piece.replace("▁", " ") for piece in self.pieces]

    def _decoded(self, piece: str | None) -> str:
        letters = self._byte_of
        if piece is None or any(letter not in letters for letter in piece):
            return piece or ""
        return bytes(letters[letter] for letter in piece).decode("utf-8", errors="replace")

    @cached_property
    def _bytes(self) -> bool:
        """Whether pieces are of bytes, each written as one visible character: the decoder says so."""
        decoder = getattr(getattr(self.tokenizer, "backend_tokenizer", None), "decoder", None)
        return decoder is not None and '"ByteLevel"' in decoder.__getstate__().decode("utf-8", errors="replace")

    @cached_property
    def _byte_of(self) -> dict[str, int]:
        """The character that stands for each byte, turned round: visible ones stand for themselves (GPT-2)."""
        visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        hidden = [byte for byte in range(256) if byte not in visible]
        return {**{chr(byte): byte for byte in visible}, **{chr(256 + at): byte for at, byte in enumerate(hidden)}}

    @cached_property
    def _impossible(self) -> set[int]:
        vocabulary = self.tokenizer.get_vocab()
        letters = {byte: letter for letter, byte in self._byte_of.items()}
        names = [f"<0x{byte:02X}>" for byte in IMPOSSIBLE]
        if self._bytes:
            names += [letters[byte] for byte in IMPOSSIBLE]
        return {vocabulary[name] for name in names if name in vocabulary}

    def rows_of(self, *kinds: Kind) -> list[int]:
        """Return the rows of these sorts."""
        return [row for row, kind in enumerate(self.kinds) if kind in kinds]

    @cached_property
    def reached(self) -> dict[int, bool]:
        """For each ordinary or added token: whether some text was found that is cut into it.

        Tried are what it says by itself, behind a space, and behind letters that few tokens go on from. A tokenizer in
        Python is asked about some only.
        """
        rows = self.rows_of("ordinary", "added")
        if not getattr(self.tokenizer, "is_fast", False):
            rows = rows[:: max(1, -(-len(rows) // PYTHON_AT_MOST))]
        found = dict.fromkeys(rows, False)
        for host in ("", *self._hosts):
            left = [row for row, hit in found.items() if not hit]
            if not left:
                break
            for row, ids in zip(left, self._encode([host + self._spoken(row) for row in left]), strict=True):
                found[row] = row in ids
        return found

    def _spoken(self, row: int) -> str:
        """Return the text of a token as it stands in a text: without the mark of what goes on a word."""
        text = self.texts[row]
        mark = self._mark
        return text[len(mark) :] if mark and text.startswith(mark) and len(text) > len(mark) else text

    @cached_property
    def _mark(self) -> str:
        """What stands before pieces that go on a word, as `##` in BERT; empty where nothing does."""
        model = getattr(getattr(self.tokenizer, "backend_tokenizer", None), "model", None)
        mark = getattr(model, "continuing_subword_prefix", None)
        return mark if isinstance(mark, str) else ""

    @cached_property
    def _hosts(self) -> list[str]:
        """Letters and signs that are tokens, those first from which the fewest others go on."""
        words = [piece.lstrip("▁Ġ") for piece in self.pieces if piece]
        starts: dict[str, int] = {}
        for word in words:
            if word:
                starts[word[0]] = starts.get(word[0], 0) + 1
        letters = [word for word in dict.fromkeys(words) if len(word) == 1 and word.isalpha()]
        letters.sort(key=lambda letter: (starts[letter], not letter.isascii(), letter))
        return [*letters[:HOSTS_AT_MOST], "a", "1", "."]

    def _encode(self, texts: Sequence[str]) -> list[set[int]]:
        if not texts:
            return []
        found = self.tokenizer(list(texts), add_special_tokens=False, return_attention_mask=False)["input_ids"]
        return [set(ids) for ids in found]
