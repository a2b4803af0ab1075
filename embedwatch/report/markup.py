"""HTML without a way to forget escaping: what is not Markup is text."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

__all__ = ["Child", "Markup", "join", "tag"]


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | int | float | None | Iterable["Child"]
EMPTY = ("br", "input", "meta")
"""Elements without an end."""


def tag(name: str, /, *children: Child, **attributes: str | bool | None) -> Markup:
    """Return an element; text and attributes are escaped, `None` is left out, `class_` is `class`, `_` is `-`.

    Example:
        >>> tag("p", "a < b", tag("b", "!"), class_="x", hidden=True, data_n="1")
        '<p class="x" hidden data-n="1">a &lt; b<b>!</b></p>'
    """
    written = "".join(
        f" {_name(key)}" if value is True else f' {_name(key)}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    end = "" if name in EMPTY else f"{join(children)}</{name}>"
    return Markup(f"<{name}{written}>{end}")


def join(children: Iterable[Child]) -> Markup:
    """Return children one after the other, each escaped unless it is Markup.

    Example:
        >>> join(["</script>", Markup("<br>")])
        '&lt;/script&gt;<br>'
    """
    return Markup("".join(map(_child, children)))


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str | int | float):
        return escape(str(child))
    return join(child)


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")
