"""When a text ends: at a token, at a sequence of tokens, or at a piece of text wherever the token borders lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .errors import ModelError

__all__ = ["Stop"]


@dataclass(frozen=True)
class Stop:
    r"""What ends a text. It looks at what was generated only, never at the prompt.

    Tokens and sequences are compared id by id. A text is searched for in the decoded text, because the same characters
    can be cut into tokens in several ways: ".\n\n" may be one token, and "\n\n" ends the text all the same. What was
    generated is decoded anew at every step then: some tenths of a millisecond for a thousand tokens.

    The token or sequence that ended a text stays part of its ids, and so of its probability; `cut` takes the text
    before it.

    Args:
        tokens: ids that each end a text.
        sequences: lists of ids that each end a text.
        texts: pieces of text that each end a text.
        decode: from ids to text; needed with `texts`. It may leave out special tokens.

    Example:
        >>> stop = Stop(tokens=[0], sequences=[[7, 8]], texts=["end"], decode=lambda ids: "".join(map(chr, ids)))
        >>> stop.reached([5, 0]), stop.reached([7, 8]), stop.reached([8, 7]), stop.reached([1, *b"the end."])
        (True, True, False, True)
        >>> stop.cut("the end of it")
        'the '
    """

    tokens: Sequence[int] = ()
    sequences: Sequence[Sequence[int]] = ()
    texts: Sequence[str] = ()
    decode: Callable[[Sequence[int]], str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.texts, str):
            raise ModelError(
                f"`texts` must be a sequence of texts, got the single text {self.texts!r}; put it in a list"
            )
        for name in ("sequences", "texts"):
            if any(len(each) == 0 for each in getattr(self, name)):
                raise ModelError(
                    f"`{name}` must each hold something, got an empty one; it would end every text at once"
                )
        if self.texts and self.decode is None:
            raise ModelError("`decode` must be a function from ids to text where `texts` are given, got None; pass it")
        object.__setattr__(self, "tokens", frozenset(self.tokens))

    def reached(self, ids: Sequence[int]) -> bool:
        """Whether the last of the generated ids ends the text."""
        if not ids:
            return False
        if ids[-1] in self.tokens or any(list(ids[-len(each) :]) == list(each) for each in self.sequences):
            return True
        if not self.texts or self.decode is None:
            return False
        written = self.decode(ids)
        return any(text in written for text in self.texts)

    def cut(self, text: str) -> str:
        """Return what stands before the first of the `texts`."""
        return text[: min((place for each in self.texts if (place := text.find(each)) >= 0), default=len(text))]
