"""Rules about dashboards, after those of grafana/dashboard-linter: each returns one line for each breach."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from embedwatch.operations import Query, dashboard_queries, expressions
from embedwatch.operations.queries import panels
from embedwatch.operations.uids import ALIGNMENT, ATTENTION, DAEMON, GEOMETRY, NORMS, OVERVIEW, TRAINING

Dashboard = dict[str, Any]
Rule = Callable[[Dashboard], list[str]]

UNITS = {"none", "short", "percentunit", "s", "sci", "bytes"}
"""Names of Grafana's units that we use."""
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
CHAIN = ("job", "instance", "model", "place", "segment")
ANNOTATIONS = ["Alerts", "References", "Checkpoints"]
UIDS = {OVERVIEW, NORMS, GEOMETRY, ATTENTION, ALIGNMENT, TRAINING, DAEMON}
RATES = ("rate", "increase")
COUNTER_ENDINGS = ("_total", "_bucket", "_sum", "_count")
MATCHERS = r'(?:[^{}"]|"(?:[^"\\]|\\.)*")*'
SELECTOR = re.compile(
    rf"(?:(?P<function>\w+)\()?(?P<metric>[a-zA-Z_]\w*)\{{(?P<matchers>{MATCHERS})\}}(?P<range>\[\S+?\])?"
)
NAME = re.compile(r"\b(?:embedwatch_\w+|process_\w+|scrape_\w+|ALERTS|up)\b")
MOST_SERIES = 12


@dataclass(frozen=True)
class Selector:
    """One metric in an expression, with its matchers as written, its range, and the function around it."""

    metric: str
    matchers: dict[str, str]
    range: str
    function: str


def selectors(expr: str) -> list[Selector]:
    """Return every selector with braces."""
    return [
        Selector(
            found["metric"],
            dict(re.findall(r'(\w+)((?:=~|!~|!=|=)"[^"]*")', found["matchers"])),
            (found["range"] or "").strip("[]"),
            found["function"] or "",
        )
        for found in SELECTOR.finditer(expr)
    ]


def names(expr: str) -> list[str]:
    """Return the name of every metric in an expression, with or without braces."""
    without_texts = re.sub(r'"[^"]*"', '""', expr)
    return NAME.findall(without_texts)


def uneditable(dashboard: Dashboard) -> list[str]:
    """A provisioned dashboard is changed at its source, and found again by a fixed uid."""
    found = [] if dashboard["editable"] is False else ["the dashboard is editable"]
    if dashboard["id"] is not None or not re.fullmatch(r"embedwatch-[a-z]+", dashboard["uid"]):
        found.append("the dashboard has a number of its own, or no uid")
    return found


def template_datasource(dashboard: Dashboard) -> list[str]:
    """The data source is chosen on the dashboard."""
    first = dashboard["templating"]["list"][0]
    wanted = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
    return [f"the first variable has {key} {first.get(key)!r}" for key in wanted if first.get(key) != wanted[key]]


def template_chain(dashboard: Dashboard) -> list[str]:
    """From job to segment: several or all of each, asked again when the time changes, each within the last."""
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    found = [] if list(variables)[1:] == list(CHAIN) else [f"the variables are {list(variables)}"]
    for position, name in enumerate(CHAIN):
        variable = variables.get(name)
        if variable is None:
            continue
        wanted = {"type": "query", "label": name.capitalize(), "multi": True, "includeAll": True, "allValue": ".+"}
        wanted |= {"refresh": 2, "datasource": DATASOURCE}
        found += [
            f"variable {name} has {key} {variable.get(key)!r}" for key in wanted if variable.get(key) != wanted[key]
        ]
        query = variable["query"]["query"]
        if not re.fullmatch(rf"label_values\(.+, {name}\)", query):
            found.append(f"variable {name} does not list its own label")
        asked = {label for selector in selectors(query) for label in selector.matchers}
        if asked != set(CHAIN[:position]):
            found.append(f"variable {name} depends on {sorted(asked)}")
    return found


def panel_texts(dashboard: Dashboard) -> list[str]:
    """Each panel has a title of its own and a description that says what good looks like."""
    found = []
    titles = [panel["title"] for panel in dashboard["panels"]]
    found += [f"title {title!r} occurs twice" for title in sorted({each for each in titles if titles.count(each) > 1})]
    for panel in panels(dashboard):
        if not panel["title"]:
            found.append("a panel has no title")
        if not re.search(r"\. Healthy: .+\.$", panel["description"]):
            found.append(f"{panel['title']}: the description does not say what good looks like")
    return found


def panel_units(dashboard: Dashboard) -> list[str]:
    """Each panel has a unit that Grafana knows."""
    return [
        f"{panel['title']}: unit {panel['fieldConfig']['defaults'].get('unit')!r}"
        for panel in panels(dashboard)
        if panel["fieldConfig"]["defaults"].get("unit") not in UNITS
    ]


def panel_datasource(dashboard: Dashboard) -> list[str]:
    """Panels, queries and annotations use the chosen data source."""
    found = [panel["title"] for panel in panels(dashboard) if panel["datasource"] != DATASOURCE]
    found += [
        f"{panel['title']} {query['refId']}"
        for panel in panels(dashboard)
        for query in panel["targets"]
        if query["datasource"] != DATASOURCE
    ]
    found += [each["name"] for each in dashboard["annotations"]["list"] if each["datasource"] != DATASOURCE]
    return [f"{place}: another data source" for place in found]


def annotations(dashboard: Dashboard) -> list[str]:
    """Alerts that fire, other references and checkpoints are marked, each with a question."""
    found = dashboard["annotations"]["list"]
    names = [each["name"] for each in found]
    wrong = [f"{each['name']}: nothing is asked" for each in found if not each.get("expr")]
    return wrong if names == ANNOTATIONS else [*wrong, f"the annotations are {names}"]


def links(dashboard: Dashboard) -> list[str]:
    """One list leads to all other dashboards, and panels to those that exist; both keep the time and what is chosen."""
    lists = [each for each in dashboard["links"] if each["type"] == "dashboards"]
    kept = [
        each for each in lists if each["includeVars"] and each["keepTime"] and each["tags"] == dashboard["tags"][:1]
    ]
    found = [] if len(kept) == 1 else ["no list of the other dashboards"]
    for panel in panels(dashboard):
        for link in panel.get("links", []):
            uid, _, kept_text = link["url"].removeprefix("/d/").partition("?")
            if uid not in UIDS:
                found.append(f"{panel['title']}: leads to {link['url']}")
            wanted = {"${__url_time_range}", *(f"${{{name}:queryparam}}" for name in ("datasource", *CHAIN))}
            if set(kept_text.split("&")) != wanted:
                found.append(f"{panel['title']}: its link does not keep what is chosen")
    return found


def panel_targets(dashboard: Dashboard) -> list[str]:
    """Each panel asks something, each question with a letter of its own."""
    found = [f"{panel['title']}: no query" for panel in panels(dashboard) if not panel["targets"]]
    for panel in panels(dashboard):
        refs = [query["refId"] for query in panel["targets"]]
        if len(set(refs)) < len(refs):
            found.append(f"{panel['title']}: a letter twice")
    return found


def panel_grid(dashboard: Dashboard) -> list[str]:
    """Panels lie beside each other, with numbers of their own."""
    cells: dict[tuple[int, int], str] = {}
    found = []
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                if (x, y) in cells or x >= 24:
                    found.append(f"{panel['title']} lies over {cells.get((x, y), 'the edge')}")
                cells[x, y] = panel["title"]
    numbers = [panel["id"] for panel in dashboard["panels"]]
    return sorted(set(found)) + (["a number twice"] if len(set(numbers)) < len(numbers) else [])


def _of_targets(dashboard: Dashboard) -> Iterator[tuple[Query, Selector]]:
    for query in expressions(dashboard):
        for selector in selectors(query.expr):
            yield query, selector


def target_matchers(dashboard: Dashboard) -> list[str]:
    """Every metric is narrowed by the chosen jobs and instances; a variable stands only behind `=~`."""
    found = []
    for query in expressions(dashboard):
        if len(names(query.expr)) != len(selectors(query.expr)):
            found.append(f"{query.place}: a metric without matchers")
    for query, selector in _of_targets(dashboard):
        for name in ("job", "instance"):
            if selector.matchers.get(name) != f'=~"${name}"':
                found.append(f'{query.place}: {selector.metric} lacks {name}=~"${name}"')
        for name, matcher in selector.matchers.items():
            if "$" in matcher and matcher != f'=~"${name}"':
                found.append(f"{query.place}: {name}{matcher}")
    return found


def target_rates(dashboard: Dashboard) -> list[str]:
    """Ranges follow the zoom, and counters are never shown as they are."""
    found = []
    for query, selector in _of_targets(dashboard):
        if selector.range and selector.range != "$__rate_interval":
            found.append(f"{query.place}: range {selector.range}")
        is_rate = selector.function in RATES
        if selector.metric.endswith(COUNTER_ENDINGS) != is_rate or is_rate != bool(selector.range):
            found.append(f"{query.place}: {selector.function or 'no function'} of {selector.metric}")
    return found


def target_legends(dashboard: Dashboard) -> list[str]:
    """A legend names only labels that its series have."""
    found = []
    for query in dashboard_queries(dashboard):
        kept = {label for labels in re.findall(r"by \(([^)]*)\)", query.expr) for label in labels.split(", ")} - {"le"}
        for label in re.findall(r"\{\{(\w+)\}\}", query.legend):
            if label not in kept:
                found.append(f"{query.place}: legend {label}, but series have {sorted(kept)}")
    return found


def target_series(dashboard: Dashboard) -> list[str]:
    """A panel over time shows no more lines than can be told apart."""
    found = []
    for panel in panels(dashboard):
        if panel["type"] != "timeseries":
            continue
        most = 0
        for query in panel["targets"]:
            top = re.match(r"(?:topk|bottomk)\((\d+), ", query["expr"])
            if top:
                most += int(top.group(1))
            elif re.match(r"max by \(severity\) \(embedwatch_threshold\{", query["expr"]):
                most += 2
            else:
                found.append(f"{panel['title']}: unbounded number of lines")
        if most > MOST_SERIES:
            found.append(f"{panel['title']}: {most} lines")
    return found


RULES: tuple[Rule, ...] = (
    uneditable,
    template_datasource,
    template_chain,
    panel_texts,
    panel_units,
    panel_datasource,
    annotations,
    links,
    panel_targets,
    panel_grid,
    target_matchers,
    target_rates,
    target_legends,
    target_series,
)
