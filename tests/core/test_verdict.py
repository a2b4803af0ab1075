"""Limit, Evidence, Verdict."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedwatch.core import Evidence, Limit, Space, UsageError, Verdict
from embedwatch.core.verdict import STATUSES, worst


class TestLimit:
    @pytest.mark.parametrize(
        ("limit", "value", "status", "threshold"),
        [
            (Limit(warn=0.9, fail=0.98), 0.5, "ok", 0.9),
            (Limit(warn=0.9, fail=0.98), 0.9, "warn", 0.9),  # at the limit is crossed
            (Limit(warn=0.9, fail=0.98), 0.979, "warn", 0.9),
            (Limit(warn=0.9, fail=0.98), 0.98, "fail", 0.98),
            (Limit(warn=0.1, fail=0.03, side="below"), 0.5, "ok", 0.1),
            (Limit(warn=0.1, fail=0.03, side="below"), 0.1, "warn", 0.1),
            (Limit(warn=0.1, fail=0.03, side="below"), 0.01, "fail", 0.03),
            (Limit(fail=1), 0, "ok", 1),
            (Limit(fail=1), 1, "fail", 1),
            (Limit(warn=1), 50, "warn", 1),
            (Limit(warn=0, fail=0), 0, "fail", 0),
        ],
    )
    def test_status_and_threshold(self, limit: Limit, value: float, status: str, threshold: float) -> None:
        assert limit.status(value) == status
        assert limit.threshold(value) == threshold

    def test_needs_a_threshold(self) -> None:
        with pytest.raises(UsageError, match="at least one"):
            Limit()

    @pytest.mark.parametrize("limit", [{"warn": 2, "fail": 1}, {"warn": 1, "fail": 2, "side": "below"}])
    def test_fail_lies_beyond_warn(self, limit: dict[str, Any]) -> None:
        with pytest.raises(UsageError, match="beyond `warn`"):
            Limit(**limit)

    @pytest.mark.parametrize(
        ("limit", "text"),
        [
            (Limit(warn=0.9, fail=0.98), "< 0.9"),
            (Limit(fail=1), "< 1"),
            (Limit(warn=1, fail=2), "< 1"),
            (Limit(fail=1.5), "< 1.5"),
            (Limit(fail=3, side="below"), "> 3"),
            (Limit(warn=1e6), "< 1e+06"),
        ],
    )
    def test_reads_as_what_is_healthy(self, limit: Limit, text: str) -> None:
        assert str(limit) == text

    @given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.booleans())
    def test_status_only_gets_worse_in_the_direction_of_the_side(
        self, a: float, b: float, x: float, y: float, below: bool
    ) -> None:
        warn, fail = sorted((a, b), reverse=below)
        limit = Limit(warn=warn, fail=fail, side="below" if below else "above")
        better, worse = sorted((x, y), reverse=below)
        assert STATUSES.index(limit.status(better)) <= STATUSES.index(limit.status(worse))


class TestVerdict:
    def verdict(self, **evidence: Any) -> Verdict:
        given_ = Evidence(evidence.pop("value", 0.95), Limit(warn=0.9), rows=100, **evidence)
        return Verdict("collapse", "Collapse", Space("m", "p"), "warn", given_, 0.9, "Why.", "Meaning.", "Do this.")

    def test_json_always_holds_value_threshold_reason_and_remedy(self) -> None:
        data = self.verdict().to_json()
        assert (data["value"], data["threshold"], data["healthy"]) == (0.95, 0.9, "< 0.9")
        assert (data["reason"], data["meaning"], data["remedy"]) == ("Why.", "Meaning.", "Do this.")
        assert (data["status"], data["rows"], data["exhibits"]) == ("warn", 100, [])
        json.dumps(data, allow_nan=False)

    @pytest.mark.parametrize("name", ["effect", "p_value", "e_value", "error"])
    def test_json_holds_what_a_comparison_adds_only_where_it_is_known(self, name: str) -> None:
        assert name not in self.verdict().to_json()
        assert self.verdict(**{name: 0.0}).to_json()[name] == 0.0

    def test_without_a_limit_nothing_is_called_healthy(self) -> None:
        verdict = Verdict("c", "C", Space("m", "p"), "ok", Evidence(1.0), None, "", "", "")
        assert verdict.to_json()["healthy"] == ""


class TestWorst:
    def test_unknown_is_worse_than_ok_and_better_than_warn(self) -> None:
        assert worst(["ok", "unknown", "ok"]) == "unknown"
        assert worst(["unknown", "warn"]) == "warn"
        assert worst(["fail", "warn"]) == "fail"

    def test_nothing_judged_is_unknown(self) -> None:
        assert worst([]) == "unknown"
