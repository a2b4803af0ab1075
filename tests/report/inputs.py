"""Reports for tests: made of small results, without a model and without a measurement."""

from __future__ import annotations

from collections.abc import Sequence

from embedwatch.core import Metric, Provenance, Snapshot, Space
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.verdict import Evidence, Limit, Status, Verdict
from embedwatch.report.contents import Report, Section

HOSTILE = "</script><img src=x onerror=alert(1)>"
"""What a token may be called."""
SPACE = Space("model", "token_table")
NORM = Metric("norm_mean", "Mean norm.", healthy="near 1")


def verdict(
    check: str = "collapse",
    status: Status = "fail",
    space: Space = SPACE,
    reason: str = "",
    exhibits: Sequence[str] = (),
) -> Verdict:
    """A verdict as judging makes it."""
    evidence = Evidence(0.99, Limit(warn=0.9, fail=0.98), 100, measurement="norm_mean", exhibits=tuple(exhibits))
    return Verdict(
        check, f"{check} title", space, status, evidence, 0.98, reason or f"{check} is 0.99", "It means.", "Do."
    )


def exhibits() -> list[Exhibit]:
    """One of each shape, and those with a picture of their own, with a hostile name wherever text may stand."""
    curve = [(step, step * 0.5) for step in range(20)]
    cells = [(a, b, HOSTILE, "b", a * b * 0.01) for a in range(6) for b in range(6)]
    return [
        Exhibit.build("points_of_somebody", "points", HOSTILE, ("x", "y", "kind"), [(1, 2.0, HOSTILE), (2, 3.0, "b")]),
        Exhibit.build("curve_of_somebody", "curve", "A curve.", ("step", "value"), curve),
        Exhibit.build(
            "matrix_of_somebody", "matrix", "Cells.", ("row_group", "other_group", "v"), [("a", HOSTILE, 1.0)]
        ),
        Exhibit.build("table_of_somebody", "table", "Rows.", ("row", "name"), [(1, HOSTILE), (2, None)]),
        Exhibit.build("norm_distribution", "curve", "Norms.", ("from", "to", "rows"), [(1.0, 1.1, 5), (1.2, 1.3, 9)]),
        Exhibit.build("spectrum", "curve", "Variance.", ("direction", "variance"), [(1, 9.0), (2, 1.0), (3, 0.0)]),
        Exhibit.build("hubs", "table", "Hubs.", ("row", "name", "times_nearest"), [(4, HOSTILE, 9), (5, "b", 3)]),
        Exhibit.build(
            "attention_head_3_1",
            "matrix",
            "Attention.",
            ("query", "key", "query_token", "key_token", "attention"),
            cells,
        ),
        Exhibit.build(
            "attention_heads_table",
            "table",
            "Heads.",
            ("layer", "head", "entropy", "words"),
            [(layer, head, 0.1 * head, HOSTILE) for layer in range(2) for head in range(4)],
        ),
        Exhibit.build(
            "word_topics",
            "matrix",
            "Topics.",
            ("lexicon", "vectors", "group", "other_group", "cosine"),
            [("en", "table", "a", "a", 0.5), ("en", "table", "a", "b", -0.1), ("en", "table", "b", "b", 0.4)],
        ),
        Exhibit.build(
            "pair_recall_curve",
            "curve",
            "Recall.",
            ("map", "gallery_rows", "own", "best"),
            [(name, rows, 0.5, 0.4) for name in ("none", "rotation") for rows in (100, 1000)],
        ),
    ]


def section(
    verdicts: Sequence[Verdict] = (), shown: Sequence[Exhibit] = (), space: Space = SPACE, role: str = "table"
) -> Section:
    """A Space with these verdicts and exhibits."""
    provenance = Provenance(0.0, 100, dimension=8, fingerprint="abcdef0123", notes=(HOSTILE,), role=role)
    snapshot = Snapshot(space, (NORM.measure(1.5),), provenance)
    return Section(space, provenance, snapshot.measurements, tuple(verdicts), tuple(shown))


def full_report() -> Report:
    """Every status and every exhibit, with hostile text in each place that text can come from."""
    found = [
        verdict("collapse", "fail", reason=HOSTILE, exhibits=("hubs", "curve_of_somebody", "not_there")),
        verdict("zero_rows", "warn"),
        verdict("drift", "unknown"),
        verdict("norms", "ok"),
    ]
    other = Space(HOSTILE, "place", segment="<de>")
    sections = (section(found, exhibits()), section([verdict("collapse", "fail", other)], space=other))
    return Report(HOSTILE, "audit", sections, lead=(HOSTILE,), errors=(("statistic", "norms", 2),))
