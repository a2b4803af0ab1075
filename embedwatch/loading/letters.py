"""A tokenizer of letters: for examples and tests of what needs a model with a tokenizer, and no files."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase, printable

__all__ = ["Letters"]

SPECIAL = 4
"""Ids 0 to 3 are padding, the beginning, the end, and what is unknown; as in our own vocabularies."""


class Letters:
    """Each character is a token, behind the doors that tokenizers of transformers have.

    Example:
        >>> letters = Letters()
        >>> letters.decode(letters("a cat")["input_ids"])
        'a cat'
    """

    pad_token_id, bos_token_id, eos_token_id = 0, 1, 2
    all_special_ids = tuple(range(SPECIAL))
    _characters = ascii_lowercase + "".join(sorted(set(printable) - set(ascii_lowercase)))

    def __len__(self) -> int:
        return SPECIAL + len(self._characters)

    def __call__(self, text: str, **options: object) -> dict[str, list[int]]:
        """Return the ids of a text."""
        del options
        found = (self._characters.find(character) for character in text)
        return {"input_ids": [SPECIAL + place if place >= 0 else SPECIAL - 1 for place in found]}

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of some ids; special ones are left out."""
        return "".join(self._characters[token - SPECIAL] for token in ids if SPECIAL <= token < len(self))

    def convert_ids_to_tokens(self, row: int) -> str | None:
        """Return the character of an id, `None` for one that there is not."""
        if not 0 <= row < len(self):
            return None
        return ("<pad>", "<bos>", "<eos>", "<unk>")[row] if row < SPECIAL else self._characters[row - SPECIAL]
