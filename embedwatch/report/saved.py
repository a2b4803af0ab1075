"""What `--json` of audit, compare and align check printed becomes a Report; so does what they found just now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from embedwatch.core.errors import InputError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.strict_json import strict_json
from embedwatch.core.verdict import Verdict
from embedwatch.report.contents import Report, Section

__all__ = ["read_saved", "report_of"]

MOST_BYTES = 256 << 20
SHAPES = ("points", "curve", "matrix", "table")
FIX = "give what `--json` of audit, compare or align check printed"


def read_saved(path: Path) -> Report:
    """Return the report of a JSON file that one of our commands wrote.

    Raises:
        InputError: if it cannot be read, or is something else.
    """
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise InputError(f"{path} must have at most {MOST_BYTES:,} bytes, got {size:,}; audit fewer places at once")
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; check its name and permissions") from error
    data = strict_json(content, str(path))
    if not isinstance(data, dict):
        raise InputError(f"{path} must hold a JSON object, got {type(data).__name__}; {FIX}")
    try:
        return report_of(data, path.name)
    except InputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError(f"{path} must hold what embedwatch wrote, got {error!r} on reading it; {FIX}") from error


def report_of(data: Mapping[str, Any], title: str = "") -> Report:
    """Return the report of what `to_json` of an audit, a comparison or a pair returned.

    Args:
        data: plain JSON.
        title: what was looked at; by default as the Spaces are called.

    Raises:
        InputError: if it is none of these.
    """
    if isinstance(data.get("spaces"), list):
        kind, sections = "audit", [_section(each) for each in data["spaces"]]
    elif "verdict" in data and "snapshot" in data:
        kind, sections = "pair", [_section(data)]
    elif "reference" in data and "snapshot" in data:
        kind = "comparison"
        sections = [_section(data), *(_section(part) for part in data.get("segments", {}).values())]
    else:
        raise InputError(f"{title or 'the JSON'} must hold an audit, a comparison or a pair, got something else; {FIX}")
    errors = tuple((str(each["stage"]), str(each["name"]), int(each["count"])) for each in data.get("errors", ()))
    models = list(dict.fromkeys(section.space.model for section in sections))
    return Report(title or ", ".join(models), kind, tuple(sections), data, tuple(_lead(kind, data)), (), errors)


def _lead(kind: str, data: Mapping[str, Any]) -> Iterator[str]:
    if kind == "pair":
        cause = f" ({data['cause']})" if data.get("cause") else ""
        yield f"Verdict: {data['verdict']}{cause}."
        if data.get("remedy"):
            yield str(data["remedy"])
    if kind == "comparison":
        reference = data["reference"]
        yield f"Compared with {reference['label']}: {int(reference['rows']):,} rows."


def _section(data: Mapping[str, Any]) -> Section:
    snapshot = Snapshot.from_json(data["snapshot"])
    return Section(
        snapshot.space,
        snapshot.provenance,
        snapshot.measurements,
        tuple(Verdict.from_json(each) for each in data.get("verdicts", ())),
        tuple(map(_exhibit, data.get("exhibits", ()))),
    )


def _exhibit(data: Mapping[str, Any]) -> Exhibit:
    """Return an exhibit that is what it says: a shape of ours, rows that fit their columns, plain cells."""
    found = Exhibit.from_json(data)
    plain = all(isinstance(cell, str | int | float | None) for row in found.rows for cell in row)
    texts = all(isinstance(each, str) for each in (found.name, found.caption, *found.columns))
    if found.shape not in SHAPES or not plain or not texts or len(set(found.columns)) < len(found.columns):
        raise InputError(f"exhibit {str(found.name)[:40]!r} must be plain rows under named columns, got others; {FIX}")
    return Exhibit.build(found.name, found.shape, found.caption, found.columns, found.rows)
