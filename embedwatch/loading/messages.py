"""Texts from files and from other libraries, made fit for one line of ours."""

from __future__ import annotations

__all__ = ["LONGEST", "first_line", "printable"]

LONGEST = 200
"""Characters of a file or of another library's message that go into one of ours."""


def printable(text: str) -> str:
    r"""Return a text with everything that a terminal would act on written out.

    Example:
        >>> print(printable("a tab\tand a line\n"))
        a tab\tand a line\n
    """
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def first_line(error: BaseException) -> str:
    r"""Return the first line of an exception's message, shortened; the second as well where the first only opens it.

    Example:
        >>> first_line(ValueError("Validation error for field 'x':\n    TypeError: x must be int\nmore"))
        "Validation error for field 'x': TypeError: x must be int"
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    opens = len(lines) > 1 and lines[0].endswith(":") and "error" in lines[0].lower()
    text = printable(" ".join(lines[: 1 + opens])).rstrip(".:")
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
