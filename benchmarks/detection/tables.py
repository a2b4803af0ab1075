"""The tables of docs/detection.md, made from what was measured, so that they cannot disagree."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks.detection.judging import pooled
from embedwatch.comparing import MANY_PERMUTATIONS

Line = Mapping[str, Any]
Parts = Mapping[str, Mapping[str, Any]]
MARK = re.compile(r"(<!-- table: (?P<name>\w+) -->).*?(<!-- end -->)", re.DOTALL)
NAMES = {"minilm": "MiniLM", "e5": "e5", "stdlib": "docstrings", "brown": "Brown", "glosses": "glosses"}
MONTH_MINUTES = 30 * 24 * 60
MEGA = 1e6
SHARE = 0.05
WHOLE = 0.995
"""From here on two digits are not enough for percent."""


def renewed(page: str, measured: Mapping[str, Any]) -> str:
    """Return a page with its tables renewed: what stands between `<!-- table: NAME -->` and `<!-- end -->`.

    A table whose part was not measured says so.
    """
    parts: Parts = measured["parts"]

    def table(found: re.Match[str]) -> str:
        name = found["name"]
        needed = NEEDS.get(name, (name,))
        if not all(parts.get(part, {}).get("lines") for part in needed):
            return f"{found[1]}\n\nNot measured yet.\n\n{found[3]}"
        told = [] if name == "month" else list(dict.fromkeys(provenance(parts[part]) for part in needed))
        return "\n\n".join([found[1], TABLES[name](parts), *told, found[3]])

    return MARK.sub(table, page)


def provenance(part: Mapping[str, Any]) -> str:
    """Return when and on what a part was measured."""
    versions = part.get("versions", {})
    told = "".join(f", {name} {version}" for name, version in versions.items() if name not in ("torch", "numpy"))
    return (
        f"<sub>{part['date']}; {part['machine']}, one thread; Python {part['python']}, torch {part['torch']}{told}; "
        f"{part['cpu_seconds']:,} CPU seconds.</sub>"
    )


def rows(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown."""
    every = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(each)} |" for each in every)


def percent(part: Line | None, *, interval: bool = True) -> str:
    """Return a share in percent, with its interval.

    Example:
        >>> percent({"share": 0.0125, "interval": [0.004, 0.03], "found": 10, "of": 800})
        '1.25 % (0.4 to 3)'
    """
    if part is None:
        return ""
    told = f"{100 * part['share']:.3g} %"
    ends = (f"{100 * end:.{2 if end < WHOLE else 3}g}" for end in part["interval"])
    return f"{told} ({' to '.join(ends)})" if interval else told


def alarms(parts: Parts) -> str:
    """Return false alarms on independent rows."""
    lines: list[Line] = parts["alarms"]["lines"]
    body = [[_name(line["model"]), _name(line["base"]), f"{line['trials']:,}", *_alarms(line)] for line in lines]
    total = {key: pooled(lines, key) for key in ALARM_KEYS}
    body.append(["all", "", f"{total['at_0.01']['of']:,}", *(percent(total[key]) for key in ALARM_KEYS)])
    return rows(["model", "sentences", "pairs", *ALARM_HEADS], body)


def month(parts: Parts) -> str:
    """Return what the false alarms come to in a month of one evaluation a minute."""
    total = pooled(parts["alarms"]["lines"], "warned_at_0.001")
    low, high = (each * MONTH_MINUTES for each in total["interval"])
    return (
        f"Derived, not measured: one evaluation a minute is {MONTH_MINUTES:,} in 30 days. At 0.1 %, and on other rows "
        f"each time, {total['share'] * MONTH_MINUTES:,.0f} of them ({low:,.0f} to {high:,.0f}) would tell of a change "
        f"that is none. One in 30 days needs a level of {1 / MONTH_MINUTES:.1g}, which is smaller than "
        f"{MANY_PERMUTATIONS:,} permutations can tell."
    )


def bursts(parts: Parts) -> str:
    """Return false alarms on streams that keep to a topic."""
    body = [
        [
            _name(line["model"]),
            f"{_name(line['base'])}, {line['topics']}",
            f"{line['stay']:g}",
            f"{line['window']:,}",
            f"{line['trials']:,}",
            *_alarms(line),
            f"{100 * line['unknown']:.3g} %",
        ]
        for line in parts["bursts"]["lines"]
    ]
    return rows(["model", "stream", "stays with", "rows", "pairs", *ALARM_HEADS, "`unknown`"], body)


def sources(parts: Parts) -> str:
    """Return the power against rows of another source, of independent rows and of streams."""
    lines: list[Line] = [*parts["sources"]["lines"], *parts.get("bursty_sources", {}).get("lines", [])]
    shares = sorted({line["share"] for line in lines})
    kinds: dict[tuple[str, str, str, str], dict[float, Line]] = {}
    for line in lines:
        stream = f"stays with {line['stay']:g}" if "stay" in line else "independent"
        kinds.setdefault((line["model"], line["base"], line["foreign"], stream), {})[line["share"]] = line
    body = [
        [_name(model), _name(base), _name(foreign), stream, f"{max(line['trials'] for line in found.values())}"]
        + [_power(found.get(each), interval=each == SHARE) for each in shares]
        for (model, base, foreign, stream), found in kinds.items()
    ]
    return rows(
        ["model", "reference", "foreign", "rows", "windows each", *(f"{100 * each:g} % foreign" for each in shares)],
        body,
    )


def topics(parts: Parts) -> str:
    """Return the power against a topic that the reference lacks."""
    lines: list[Line] = parts["topics"]["lines"]
    families = sorted({name for line in lines for name in line["families_at_0.01"]})
    body = [
        [
            _name(line["model"]),
            _name(line["base"]),
            f"{100 * line['share']:g} %",
            f"{line['trials']}",
            percent(line["at_0.01"]),
            *(f"{100 * line['families_at_0.01'].get(name, 0):.3g} %" for name in families),
        ]
        for line in lines
    ]
    return rows(["model", "sentences", "of a new topic", "windows", "found at 1 %", *families], body)


def limits(parts: Parts) -> str:
    """Return how new topics lie that are found, and those that are not."""
    body = [
        [
            _name(line["model"]),
            _name(line["base"]),
            f"{'found' if line['found'] else 'missed'}: {line['trials']} of {line['of']}",
            f"{line['near']:.1f}" if line["trials"] else "",
            f"{100 * line['beyond']:.2g} %" if line["trials"] else "",
            f"{line['oracle']['found']} of {line['trials']}" if line["trials"] else "",
        ]
        for line in parts["limits"]["lines"]
    ]
    head = ["model", "sentences", "topics", "of the topic among the 30 nearest", "others beyond its median", "if known"]
    return rows(head, body)


def faults(parts: Parts) -> str:
    """Return the power against changes of whole windows, and how often harmless ones are accused."""
    lines: list[Line] = parts["faults"]["lines"]
    spaces = list(dict.fromkeys((line["model"], line["base"]) for line in lines))
    body = []
    for key in ("fault", "harmless"):
        for name in dict.fromkeys(line[key] for line in lines if key in line):
            of = {(line["model"], line["base"]): line for line in lines if line.get(key) == name}
            cells = [_found_and_warned(of.get(space)) for space in spaces]
            count = f"{max(line['trials'] for line in of.values())}"
            body.append([f"{name} (harmless)" if key == "harmless" else name, count, *cells])
    return rows(["change", "windows each", *(f"{_name(model)}, {_name(base)}" for model, base in spaces)], body)


def kernels(parts: Parts) -> str:
    """Return the comparison beside the exact permutation test: on the same windows, but for healthy ones."""
    ours = {
        (line["model"], line["base"], line.get("foreign", "new topic" if name == "topics" else "healthy")): line
        for name in ("alarms", "sources", "topics")
        for line in parts.get(name, {}).get("lines", [])
        if line.get("share", SHARE) == SHARE
    }
    body = []
    for line in parts["kernels"]["lines"]:
        own = ours.get((line["model"], line["base"], line["foreign"]))
        names = [_name(line[key]) for key in ("model", "base", "foreign")]
        body.append([*names, percent(None if own is None else own["at_0.01"]), percent(line["at_0.01"])])
    return rows(["model", "reference", "5 % of the window", "embedwatch", "exact permutation MMD"], body)


def looks(parts: Parts) -> str:
    """Return false alarms of streams that are judged window by window."""
    lines: list[Line] = parts["looks"]["lines"]
    keys = ("single_at_0.01", "accumulated")
    body = [
        [
            _name(line["model"]),
            _name(line["base"]),
            f"{line['streams']} × {line['accumulated']['of'] // line['streams']} windows of {line['window']}",
            *(f"{line[key]['found']} of {line[key]['of']:,}" for key in keys),
        ]
        for line in lines
    ]
    total = [pooled(lines, key) for key in keys]
    body.append(["all", "", "", *(f"{each['found']} of {each['of']:,}: {percent(each)}" for each in total)])
    return rows(["model", "sentences", "streams", "p at or below 1 %", "alarms, 1 per 30 days"], body)


def peers(parts: Parts) -> str:
    """Return what each detector says of the same windows."""
    lines: list[Line] = [*parts.get("ours", {}).get("lines", []), *parts["peers"]["lines"]]
    conditions = list(dict.fromkeys(line["condition"] for line in lines))
    body = []
    for detector in dict.fromkeys(line["detector"] for line in lines):
        of = {line["condition"]: line for line in lines if line["detector"] == detector}
        seconds = max(line["cpu_seconds_each"] for line in of.values())
        cells = [_alarms_and_level(of[name]) for name in conditions]
        body.append([detector, f"{of[conditions[0]]['trials']}", *cells, f"{seconds:.2g} s"])
    return rows(["detector", "pairs each", *conditions, "CPU each"], body)


def cost(parts: Parts) -> str:
    """Return the cost of one comparison, and the size of the state."""
    other, slowest = parts["cost"]["lines"]
    ours: Line = parts["our_costs"]["lines"][0]
    states: list[Line] = parts["our_costs"]["lines"][1:]
    count, theirs = f"{ours['rows']:,}", f"{other['cpu_seconds']:.3g} s"
    own = {
        "compare without the scan of regions, once a window": ours["compare_without_scan_seconds"],
        "compare, once a window": ours["compare_seconds"],
        "map and compare": ours["cpu_seconds"],
        "fit, map and compare": ours["cpu_seconds"] + ours["fit_seconds"],
    }
    body = [
        ["fit a reference, once", f"{ours['fit_seconds']:.2g} s", "", ""],
        [
            f"map {count} rows, {ours['map_microseconds_each_row']:.2g} µs each",
            f"{ours['map_seconds']:.2g} s",
            "",
            "",
        ],
        *([what, f"{used:.2g} s", theirs, f"{other['cpu_seconds'] / used:,.0f}"] for what, used in own.items()),
    ]
    told = ", ".join(f"{line['bytes'] / MEGA:.2f} MB after {line['rows']:,} rows" for line in states)
    matrix, peak = other["kernel_bytes"] / MEGA, other["peak_bytes"] / MEGA
    return (
        rows([f"{count} beside {count} rows", "embedwatch", "alibi-detect MMDDrift", "times cheaper"], body)
        + f"\n\nThe state of a window holds {told}; its stated bound is {states[0]['bound'] / MEGA:.1f} MB. One matrix "
        f"of all pairs of {2 * other['rows']:,} rows takes {matrix:,.0f} MB, and the process of alibi-detect rose to "
        f"{peak:,.0f} MB. {slowest['what']} takes {slowest['cpu_seconds']:.0f} s of {slowest['rows']:,} beside "
        f"{slowest['reference']:,} rows, and was not asked about more pairs."
    )


TABLES: dict[str, Callable[[Parts], str]] = {
    "alarms": alarms,
    "month": month,
    "bursts": bursts,
    "sources": sources,
    "topics": topics,
    "limits": limits,
    "faults": faults,
    "looks": looks,
    "kernels": kernels,
    "peers": peers,
    "cost": cost,
}
NEEDS = {
    "month": ("alarms",),
    "sources": ("sources", "bursty_sources"),
    "kernels": ("kernels", "alarms", "sources", "topics"),
    "peers": ("peers", "ours"),
    "cost": ("cost", "our_costs"),
}
"""Parts that a table needs, where it is not the one of its name."""
ALARM_KEYS = ("at_0.01", "at_0.001", "warned_at_0.01", "warned_at_0.001")
ALARM_HEADS = ("at 1 %", "at 0.1 %", "and large enough, at 1 %", "and large enough, at 0.1 %")


def _alarms(line: Line) -> list[str]:
    return [percent(line[key]) for key in ALARM_KEYS]


def _alarms_and_level(line: Line) -> str:
    told = percent(line["alarms"], interval=False)
    return f"{told}; at 1 %: {percent(line['at_0.01'], interval=False)}" if "at_0.01" in line else told


def _power(line: Line | None, *, interval: bool) -> str:
    if line is None:
        return ""
    told = percent(line["at_0.01"], interval=interval)
    return f"{told}; warned {percent(line['warned_at_0.01'], interval=False)}" if interval else told


def _found_and_warned(line: Line | None) -> str:
    if line is None:
        return ""
    return f"{percent(line['at_0.01'], interval=False)}; warned {percent(line['warned_at_0.01'], interval=False)}"


def _name(name: str) -> str:
    return NAMES.get(name, name)
