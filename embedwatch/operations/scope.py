"""Scope: what an operator changes about the rules: which series they look at, and where their runbooks are."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from embedwatch.core.errors import UsageError
from embedwatch.exposition import RUNBOOKS
from embedwatch.operations.own_alerts import JOBS

__all__ = ["PAGE", "Scope", "matchers"]

PAGE = "{alert}"
"""Stands in an address for the name of an alert; where it does not, `/NAME.md` is put at the end."""
TEXT = r'"(?:[^"\\]|\\.)*"'
METRIC = re.compile(rf"{TEXT}|\b(?:embedwatch_\w+|process_\w+|scrape_\w+|up)\b(?P<braces>\{{(?:[^{{}}\"]|{TEXT})*\}})?")
"""A quoted text, in which nothing is a metric; or one of ours, of a process or of a scrape, with its matchers."""
TEMPLATE = re.compile(r"`[^`]*`")
"""A query inside an annotation: everything else there is prose."""
MATCHER = re.compile(rf"\s*([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*({TEXT})\s*(?:,|\Z)")


@dataclass(frozen=True, slots=True)
class Scope:
    """Which series the rules look at, and where their runbooks are.

    Args:
        job: the scrape jobs of embedwatch, as a regular expression of their names.
        selector: matchers that every selector gets besides, such as `cluster="a",team=~"ml.*"`.
        runbooks: address of the folder of the runbooks, or an address with `{alert}` in it.

    Raises:
        UsageError: if the selector is not one, or the expression cannot be compiled.

    Example:
        >>> Scope(selector='team="ml"').expression('up{job="a"} == 0 and embedwatch_rows > 1')
        'up{job="a",team="ml"} == 0 and embedwatch_rows{team="ml"} > 1'
    """

    job: str = JOBS
    selector: str = ""
    runbooks: str = RUNBOOKS

    def __post_init__(self) -> None:
        matchers(self.selector)
        try:
            re.compile(self.job)
        except re.error as error:
            raise UsageError(
                f"`job` must be a regular expression, got {self.job!r} ({error}); write for example {JOBS!r}"
            ) from error

    def applied(self, rules: Mapping[str, Any]) -> dict[str, Any]:
        """Return a rule file within this scope."""
        groups = [{**group, "rules": [self._rule(rule) for rule in group["rules"]]} for group in rules["groups"]]
        return {**rules, "groups": groups}

    def _rule(self, rule: Mapping[str, Any]) -> dict[str, Any]:
        changed = {**rule, "expr": self.expression(rule["expr"])}
        if "annotations" in rule:
            changed["annotations"] = self.annotations(rule["annotations"], rule["alert"])
        return changed

    def annotations(self, annotations: Mapping[str, str], alert: str) -> dict[str, str]:
        """Return annotations whose queries look at these series, and whose link leads to these runbooks."""
        texts = {name: TEMPLATE.sub(self._query, text) for name, text in annotations.items()}
        return {**texts, "runbook_url": self.runbook(alert)}

    def _query(self, match: re.Match[str]) -> str:
        """Return a query that Go formats: a `%` of the selector is doubled."""
        return _with(self.selector.replace("%", "%%"), match.group())

    def expression(self, expr: str) -> str:
        """Return an expression whose every selector has the matchers of this scope."""
        jobs = expr.replace(f"job=~{json.dumps(JOBS)}", f"job=~{json.dumps(self.job, ensure_ascii=False)}")
        return _with(self.selector, jobs)

    def runbook(self, alert: str) -> str:
        """Return the address of the page about an alert."""
        if PAGE in self.runbooks:
            return self.runbooks.replace(PAGE, alert)
        return f"{self.runbooks.rstrip('/')}/{alert}.md"

    def dashboard(self, value: Any) -> Any:
        """Return a dashboard, or a part of one, whose every query has the matchers of this scope."""
        return _mapped(value, lambda text: _with(self.selector, text))


def matchers(selector: str) -> dict[str, tuple[str, str]]:
    """Return label to operator and value of a selector without braces.

    Raises:
        UsageError: if it is not one.

    Example:
        >>> matchers('team="ml",zone!~"b.*"')
        {'team': ('=', 'ml'), 'zone': ('!~', 'b.*')}
    """
    found: dict[str, tuple[str, str]] = {}
    rest = selector
    while rest.strip():
        match = MATCHER.match(rest)
        if match is None or "`" in rest:
            raise UsageError(
                f"`selector` must be matchers in double quotes, got {selector!r}; "
                """write for example 'team="ml",zone=~"a|b"', without braces"""
            )
        name, operator, value = match.groups()
        found[name] = (operator, json.loads(value))
        rest = rest[match.end() :]
    return found


def _with(selector: str, expr: str) -> str:
    if not selector:
        return expr

    def extended(match: re.Match[str]) -> str:
        text, braces = match.group(), match["braces"]
        if text.startswith('"'):
            return text
        return f"{text[:-1]},{selector}}}" if braces and braces != "{}" else f"{text.removesuffix('{}')}{{{selector}}}"

    return METRIC.sub(extended, expr)


QUERIES = ("expr", "definition", "query")
"""Keys of a dashboard whose texts are queries."""


def _mapped(value: Any, change: Callable[[str], str], key: str = "") -> Any:
    if isinstance(value, Mapping):
        return {name: _mapped(inner, change, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_mapped(inner, change, key) for inner in value]
    return change(value) if isinstance(value, str) and key in QUERIES else value
