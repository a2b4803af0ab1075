"""What `embedwatch drill` finds on real embeddings: each fault at its usual strength, many times.

Run from the root of the repository:

    python -m benchmarks.drill [--only minilm] [--only e5] [--repeats 100] [--write FILE]
    python -m benchmarks.drill --tables FILE

Sentences are those of the standard library's docstrings, encoded by all-MiniLM-L6-v2 and by multilingual-e5-small and
kept outside the checkout, as `benchmarks.detection` does; they are rounded to half precision and normalised, and taken
in any order. `--write` keeps what was found after every few repeats, and goes on from there when it is run again: take
a new file after the code has changed. `--tables` renews the tables of docs/drill.md from FILE.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.detection import texts
from benchmarks.detection.vectors import encoded, stored
from embedwatch import Drill, drill
from embedwatch.core.registry import get
from embedwatch.drills.drilling import LEVEL, WINDOW
from embedwatch.drills.fault import Fault
from embedwatch.drills.results import Outcome
from embedwatch.whole_files import write_whole

SETS = {"minilm": "MiniLM", "e5": "e5"}
AT_ONCE = 2
"""Repeats after which is saved."""
CERTAIN = 1.96
PAGE = Path(__file__).parents[1] / "docs" / "drill.md"
MARK = re.compile(r"(<!-- table: (?P<name>\w+) -->).*?(<!-- end -->)", re.DOTALL)
Found = Mapping[str, Any]


def saved_rows(model: str, folder: Path) -> Path:
    """Return a file of the model's vectors of the docstrings."""
    rows = stored(encoded(model, "stdlib", texts.stdlib().texts))
    np.save(folder / f"{model}-docstrings.npy", rows.numpy())
    return folder / f"{model}-docstrings.npy"


def facts_of(found: Drill, model: str) -> dict[str, Any]:
    """Return what stays the same from repeat to repeat, nothing found yet."""
    return {
        "model": model,
        "date": datetime.now(timezone.utc).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "torch": torch.__version__.split("+")[0],
        "rows": found.source_rows,
        "dimension": found.dimension,
        "fingerprint": found.fingerprint,
        "window": found.window,
        "level": found.level,
        "checks": list(found.checks),
        "pairing": list(found.pairing),
        "repeats": 0,
        "cpu_seconds": 0.0,
        "control": [],
        "trials": {},
    }


def added(facts: Found, found: Drill, seconds: float) -> dict[str, Any]:
    """Return the facts with some repeats more."""
    trials = {
        trial.fault: {
            "title": trial.title,
            "told": trial.told,
            "expected": list(trial.expected),
            "names": list(get(Fault, trial.fault).names),
            "outcomes": [
                *facts["trials"].get(trial.fault, {}).get("outcomes", []),
                *(short(outcome) for outcome in trial.outcomes),
            ],
        }
        for trial in found.trials
    }
    return {
        **facts,
        "repeats": facts["repeats"] + len(found.control.outcomes),
        "cpu_seconds": round(facts["cpu_seconds"] + seconds, 1),
        "control": [*facts["control"], *(short(outcome) for outcome in found.control.outcomes)],
        "trials": trials,
    }


def short(outcome: Outcome) -> dict[str, Any]:
    """Return what is kept of one run: which checks fired or noticed after how many rows, and what it was called."""
    kept = {"fired": dict(outcome.fired), "noticed": dict(outcome.noticed), "told": outcome.told}
    return {"seed": outcome.seed, "status": outcome.status, **{name: value for name, value in kept.items() if value}}


def wilson(hits: int, count: int) -> list[float]:
    """Return the 95 % interval of a share.

    Example:
        >>> wilson(100, 100)
        [0.963, 1.0]
    """
    share, square = hits / count, CERTAIN**2 / count
    middle = (share + square / 2) / (1 + square)
    half = CERTAIN * (share * (1 - share) / count + square / count / 4) ** 0.5 / (1 + square)
    return [round(max(0.0, middle - half), 4), round(min(1.0, middle + half), 4)]


def counted(outcomes: Sequence[Found], checks: Iterable[str]) -> int:
    """Return in how many runs one of some checks fired."""
    return sum(bool(set(checks) & outcome.get("fired", {}).keys()) for outcome in outcomes)


def summary(facts: Found) -> Iterator[dict[str, Any]]:
    """Yield for each fault how often it was found: by checks of the distribution, by a canary, and merely noticed."""
    pairing = set(facts["pairing"])
    for name, trial in facts["trials"].items():
        outcomes, expected = trial["outcomes"], set(trial["expected"])
        alone = counted(outcomes, expected - pairing)
        noticed = sum(
            bool(outcome.get("noticed")) or bool((expected - pairing) & outcome.get("fired", {}).keys())
            for outcome in outcomes
        )
        first = [
            min(rows for check, rows in outcome["fired"].items() if check in expected - pairing)
            for outcome in outcomes
            if (expected - pairing) & outcome.get("fired", {}).keys()
        ]
        checks = Counter(check for outcome in outcomes for check in outcome.get("fired", {}))
        names = Counter(outcome["told"] for outcome in outcomes if outcome.get("told"))
        yield {
            "fault": name,
            "title": trial["title"],
            "told": trial["told"],
            "runs": len(outcomes),
            "found": counted(outcomes, expected),
            "without_canary": alone,
            "interval": wilson(alone, len(outcomes)),
            "by_canary": counted(outcomes, expected & pairing),
            "noticed": noticed,
            "rows": int(median(first)) if first else None,
            "checks": dict(checks.most_common()),
            "named": dict(names.most_common(3)),
            "rightly_named": sum(names[name] for name in trial["names"]) if trial.get("names") else None,
        }


def measured(model: str, repeats: int, path: Path | None) -> dict[str, Any]:
    """Drill until so many repeats are there, and keep what was found on the way."""
    whole: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path and path.is_file() else {}
    facts: dict[str, Any] = whole.get(model, {})
    with tempfile.TemporaryDirectory() as folder:
        rows = saved_rows(model, Path(folder))
        while facts.get("repeats", 0) < repeats:
            done, started = facts.get("repeats", 0), time.process_time()
            found = drill(rows, shuffle=True, seed=done, repeats=min(AT_ONCE, repeats - done), on_error="raise")
            facts = added(facts or facts_of(found, model), found, time.process_time() - started)
            facts["summary"] = list(summary(facts))
            facts["alarms"] = counted(facts["control"], facts["checks"])
            if path:
                whole = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
                write_whole(path, (json.dumps({**whole, model: facts}, indent=1) + "\n").encode())
    return facts


def table(facts: Found) -> str:
    """Return the table of one model."""
    repeats, head = (
        facts["repeats"],
        ("fault", "strength", "found", "noticed", "after", "canary", "fired", "named", "rightly"),
    )
    lines = [head, ["---"] * len(head)]
    lines += [
        (
            each["title"],
            each["told"],
            f"{each['without_canary']}",
            f"{each['noticed']}",
            "" if each["rows"] is None else f"{each['rows']:,} rows",
            f"{each['by_canary']}" if each["by_canary"] else "",
            ", ".join(f"`{check}` {count}" for check, count in each["checks"].items()),
            ", ".join(f"{name} {count}" for name, count in each["named"].items()),
            "" if each.get("rightly_named") is None else f"{each['rightly_named']}",
        )
        for each in facts["summary"]
    ]
    told = (
        f"{SETS[facts['model']]}, {facts['rows']:,} docstrings, {facts['dimension']} dimensions: {repeats} drills at "
        f"level {facts['level']:g}, windows of up to {facts['window']:,} rows. On healthy rows a check fired in "
        f"{facts['alarms']} of {repeats}."
    )
    seconds = f"{facts['cpu_seconds']:,.0f} CPU seconds"
    made = f"<sub>{facts['date']}; {facts['machine']}, one thread; torch {facts['torch']}; {seconds}.</sub>"
    return "\n\n".join([told, "\n".join(f"| {' | '.join(line)} |" for line in lines), made])


def renewed(page: str, found: Mapping[str, Found]) -> str:
    """Return a page with its tables renewed: what stands between `<!-- table: NAME -->` and `<!-- end -->`."""

    def one(mark: re.Match[str]) -> str:
        facts = found.get(mark["name"])
        return f"{mark[1]}\n\n{table(facts) if facts else 'Not measured yet.'}\n\n{mark[3]}"

    return MARK.sub(one, page)


def main() -> None:
    """Run, print how often each fault was found, and keep it where that is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--only", action="append", choices=sorted(SETS), help="this model; may be given again")
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--write", type=Path, help="keep what is found here, and go on from what is there")
    parser.add_argument("--tables", type=Path, help="run nothing: renew the tables of docs/drill.md from this file")
    arguments = parser.parse_args()
    if arguments.tables:
        found = json.loads(arguments.tables.read_text(encoding="utf-8"))
        write_whole(PAGE, renewed(PAGE.read_text(encoding="utf-8"), found).encode())
        return
    torch.set_num_threads(1)
    for model in arguments.only or SETS:
        facts = measured(model, arguments.repeats, arguments.write)
        print(model, "window", WINDOW, "level", LEVEL, "alarms", facts["alarms"], "of", facts["repeats"])
        for each in facts["summary"]:
            print(json.dumps(each))


if __name__ == "__main__":
    main()
