"""A verdict in plain words, whatever the check."""

from __future__ import annotations

import pytest

from embedwatch.core.snapshot import Space
from embedwatch.core.verdict import Evidence, Limit, Status, Verdict

COSINE = Limit(warn=0.9, fail=0.98)
RANK = Limit(warn=0.1, fail=0.03, side="below")


def verdict(evidence: Evidence, status: Status, *, reason: str = "Because.") -> Verdict:
    remedy = "Repair it." if status in ("warn", "fail") else ""
    return Verdict("check", "title", Space("m", "p"), status, evidence, None, reason, "It matters.", remedy)


@pytest.mark.parametrize(
    ("limit", "value", "status", "changes"),
    [
        (COSINE, 0.5, "ok", "at 0.9 or above it would warn; at 0.98 or above it would fail"),
        (COSINE, 0.95, "warn", "below 0.9 it would be ok; at 0.98 or above it would fail"),
        (COSINE, 0.99, "fail", "below 0.9 it would be ok"),
        (RANK, 0.05, "warn", "above 0.1 it would be ok; at 0.03 or below it would fail"),
        (None, 0.05, "ok", None),
    ],
)
def test_what_would_change_the_verdict(limit: Limit | None, value: float, status: Status, changes: str | None) -> None:
    found = dict(verdict(Evidence(value, limit, 500, measurement="number"), status).topics())
    assert found.get("changes") == changes
    assert found["compared"] == "500 rows"
    assert ("do" in found) == (status in ("warn", "fail"))


def test_the_value_stands_with_error_unit_and_limits() -> None:
    evidence = Evidence(12_345.678, Limit(warn=9_000), 5_000, measurement="loss", unit="bits", error=0.5)
    assert dict(verdict(evidence, "warn").topics())["value"] == "loss = 12,346 ± 0.5 bits; warns at 9,000 or above"


def test_too_few_rows_say_how_many_would_do() -> None:
    found = dict(verdict(Evidence(None, COSINE, 50, rows_needed=200), "unknown").topics())
    assert found["changes"] == "with 200 rows there would be a full answer"
    assert found["value"] == "none"
    assert (
        dict(verdict(Evidence(None, COSINE, 50), "unknown").topics())["changes"] == "a window in which there is a value"
    )


def test_a_comparison_tells_how_sure_it_is_and_how_large() -> None:
    limit = Limit(warn=0.01, side="below")
    size = {"effect": 0.05, "effect_name": "drift_foreign_ratio", "effect_limit": 0.01, "effect_fail": 0.1}
    sure = {"p_value": 0.002, "e_value": 12.8, "level": 0.01, "budget": "1 per 30d", "test": "permutation"}
    evidence = Evidence(0.002, limit, 900, effective_rows=90.4, windows=3, **size, **sure)  # type: ignore[arg-type]
    found = dict(verdict(evidence, "warn").topics())
    assert found["test"] == "permutation"
    assert found["compared"] == "900 rows, worth 90 independent ones, 3 windows speak together"
    assert found["effect"] == "drift_foreign_ratio = 0.05; it matters at 0.01 and beyond"
    assert found["sureness"] == (
        "p = 0.002, one healthy window in 500 differs as much by chance, and 0.01 is the level of one look; "
        "e = 12.8: evidence against chance, which multiplies from window to window; "
        "false alarms that are accepted: 1 per 30d"
    )
    assert found["changes"] == (
        "above 0.01 it would be ok; an effect that does not reach 0.01 would be ok; one of 0.1 or beyond would fail"
    )


def test_what_is_not_sure_says_with_how_many_rows_it_would_be() -> None:
    evidence = Evidence(0.1, Limit(warn=0.01, side="below"), 1_000, p_value=0.1, level=0.01)
    assert "about 2,500 rows on both sides" in dict(verdict(evidence, "ok").topics())["changes"]
    vague = Evidence(0.8, Limit(warn=0.01, side="below"), 1_000, p_value=0.8, level=0.01)
    found = dict(verdict(vague, "ok").topics())
    assert "rows" not in found["changes"]
    assert "most healthy windows differ as much" in found["sureness"]


def test_a_verdict_explains_itself_line_by_line() -> None:
    found = verdict(Evidence(0.95, COSINE, 500, measurement="mean_cosine"), "warn")
    assert found.explain().splitlines() == [f"{topic}: {sentence}" for topic, sentence in found.topics()]
    assert found.explain().startswith("verdict: warn (worth a look)\nfound: Because.\n")
