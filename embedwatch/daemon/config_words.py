"""Words for what is wrong with a configuration: `key` must be REQUIREMENT, got VALUE; FIX. In one line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from embedwatch.core.errors import did_you_mean
from embedwatch.daemon.config import Config

__all__ = ["Place", "dotted", "known_names", "shown", "told"]

Place = tuple[str | int, ...]
"""Where a value stands: names of sections, numbers in lists."""
LONGEST = 60
"""Characters of a value, or a name, that are shown."""
ADDRESS = re.compile(r"://[^\s'\"]*")
"""Of a sink; it may hold a secret."""
SECRETS = ("web", "auth")
"""Where somebody may have written a secret; only what sort of value it is is told."""
SORTS = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list", dict: "names"}
OWN = re.compile(r"^(?:a|an) (?P<what>size|duration|address|socket) must (?P<rule>be|have) ")
"""How errors of ours begin that know no key."""
GOT = re.compile(r", got .*; ")
Words = Callable[[Mapping[str, Any], Place], tuple[str, str]]
"""From the context of an error, and its place: what the value must be, and what to do."""


def _section(_: Mapping[str, Any], place: Place) -> tuple[str, str]:
    names = known_names(place)
    return "be names with values", f"write one of {', '.join(names)} below it" if names else "write names below it"


def _fixed(rule: str, fix: str) -> Words:
    return lambda _, place: (rule, fix)


WORDS: Mapping[str, Words] = {
    "bool_type": _fixed("be true or false", "write one of them"),
    "dict_type": _section,
    "greater_than_equal": lambda context, _: (f"be at least {context['ge']:,}", "choose a larger one"),
    "int_type": _fixed("be a whole number", "write digits alone"),
    "less_than_equal": lambda context, _: (f"be at most {context['le']:,}", "choose a smaller one"),
    "list_type": _fixed("be a list", "write what belongs into it in [ ]"),
    "literal_error": lambda context, _: (f"be {context['expected']}", "choose one of them"),
    "missing": _fixed("be given", "add it"),
    "model_type": _section,
    "path_type": _fixed("be a path", "write it as text"),
    "string_pattern_mismatch": _fixed(
        "be one line of up to 200 letters, without control characters, that begins with neither a space nor a slash",
        "choose another name",
    ),
    "string_type": _fixed("be a text", "put it in quotes"),
    "too_long": lambda context, _: (f"hold at most {context['max_length']:,} entries", "leave some out"),
    "too_short": lambda context, _: (f"hold at least {context['min_length']:,} entry", "add one, or leave it out"),
}
"""Types of errors of pydantic to what a person reads instead."""


def told(error: Any) -> str:
    """Return what is wrong with one value, for an error of pydantic."""
    place: Place = tuple(error["loc"])
    if error["type"] == "extra_forbidden":
        return _unknown(place)
    raised = error.get("ctx", {}).get("error")
    if raised is not None:
        message = str(raised)
        if _is_secret(place):
            message = GOT.sub(f", got {shown(error['input'], place)}; ", message)
        found = OWN.match(message)
        if found is None:
            return _with_key(message, place)
        return f"`{dotted(place)}` must {found['rule']} {_article(found['what'])}: {message[found.end() :]}"
    rule, fix = WORDS[error["type"]](error.get("ctx", {}), place) if error["type"] in WORDS else _any(error)
    if error["type"] == "literal_error":
        fix = did_you_mean(str(error["input"]), re.findall(r"'(\w+)'", str(error["ctx"]["expected"]))) or fix
    got = "nothing" if error["type"] == "missing" else shown(error["input"], place)
    return f"`{dotted(place)}` must {rule}, got {got}; {fix}"


def _with_key(message: str, place: Place) -> str:
    """Return a message of a section, whose own keys it may name, with the place of the section."""
    if message.startswith("`"):
        return f"`{dotted(place)}.{message[1:]}" if place else message
    return f"`{dotted(place)}` {message}" if message.startswith("must ") else f"`{dotted(place)}`: {message}"


def _article(what: str) -> str:
    return f"an {what}" if what == "address" else f"a {what}"


def _any(error: Any) -> tuple[str, str]:
    """Return what pydantic says, where nobody thought of it."""
    rule = re.sub(r"^(?:Input|Value) should ", "", str(error["msg"]))
    return rule[:1].lower() + rule[1:], "`embedwatch config schema` says what is taken"


def _unknown(place: Place) -> str:
    names = known_names(place[:-1])
    guess = did_you_mean(str(place[-1]), names)
    owner = f"`{dotted(place[:-1])}`" if place[:-1] else "the configuration"
    return f"{owner} has no `{_short(place[-1])}`; {guess or 'it has ' + ', '.join(names)}"


def _is_secret(place: Place) -> bool:
    return place[: len(SECRETS)] == SECRETS


def shown(value: Any, place: Place = ()) -> str:
    """Return a value as it is repeated in a message: short, in one line, without addresses of sinks and secrets.

    Example:
        >>> shown("x" * 100)[-6:], shown(None), shown(True), shown({"webhook": "https://u:secret@host"})
        ("xx...'", 'nothing', 'true', "{'webhook': 'https://...'}")
    """
    if value is None:
        return "nothing"
    if _is_secret(place):
        return SORTS.get(type(value), "something else")
    if isinstance(value, bool):
        return str(value).lower()
    text = ADDRESS.sub("://...", " ".join(repr(value).split()))
    quote = text[-1] if isinstance(value, str) else ""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]}...{quote}"


def known_names(place: Place) -> Sequence[str]:
    """Return the names that the section at a place has."""
    model: Any = Config
    for name in place:
        if isinstance(name, int):
            continue
        field = model.model_fields.get(name)
        annotation = None if field is None else field.annotation
        inner = [each for each in (annotation, *getattr(annotation, "__args__", ())) if _is_section(each)]
        if not inner:
            return ()
        model = inner[0]
    return tuple(model.model_fields)


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def dotted(place: Place) -> str:
    """Return a place as people write it.

    Example:
        >>> dotted(("sources", 1, "kind"))
        'sources[1].kind'
    """
    return "".join(f"[{each}]" if isinstance(each, int) else f".{_short(each)}" for each in place).lstrip(".")


def _short(name: object) -> str:
    return " ".join(str(name)[:LONGEST].split())
