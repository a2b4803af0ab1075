"""JSON from somebody else: one reading only, no surprises."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from embedwatch.core.errors import InputError

__all__ = ["strict_json"]

DIGITS = 19
"""An int64 has no more."""


def strict_json(text: bytes | str, what: str) -> Any:
    """Return what a JSON text says, where every reader would read the same.

    Refused are NaN and Infinity, names that an object holds twice, whole numbers beyond 64 bits, text that is not
    UTF-8 or not Unicode, and nesting that no parser follows. What was sent is never part of the message.

    Args:
        text: the whole text; its size is bounded by the caller.
        what: what it is, for the message.

    Raises:
        InputError: if it is anything else.

    Example:
        >>> strict_json(b'{"a": [1, 2.5, null]}', "the body")
        {'a': [1, 2.5, None]}
        >>> strict_json('{"a": 1, "a": 2}', "the body")
        Traceback (most recent call last):
            ...
        embedwatch.core.errors.InputError: the body must be strict JSON, got a name twice in one object; keep one
    """
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        return json.loads(
            decoded, object_pairs_hook=_object(what), parse_constant=_no_constant(what), parse_int=_whole(what)
        )
    except InputError:
        raise
    except UnicodeError:
        raise _refusal(what, "bytes that are not UTF-8", "encode it as UTF-8") from None
    except RecursionError:
        raise _refusal(what, "nesting that is too deep", "write it flat") from None
    except ValueError:
        raise _refusal(what, "text that is none", "write it with a JSON library") from None


def _refusal(what: str, got: str, fix: str) -> InputError:
    return InputError(f"{what} must be strict JSON, got {got}; {fix}")


def _object(what: str) -> Any:
    def made(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise _refusal(what, "a name twice in one object", "keep one")
        return found

    return made


def _no_constant(what: str) -> Any:
    def refuse(constant: str) -> NoReturn:
        raise _refusal(what, constant, "write null for a number that is missing")

    return refuse


def _whole(what: str) -> Any:
    def number(digits: str) -> int:
        if len(digits.lstrip("-")) > DIGITS:
            raise _refusal(what, "a whole number beyond 64 bits", "write it as a decimal number")
        return int(digits)

    return number
