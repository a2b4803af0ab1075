"""Limit, Evidence, Verdict."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedwatch.core import Evidence, InputError, Limit, Space, UsageError, Verdict
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


NUMBERS = st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60)
LIMITS = st.none() | st.tuples(st.floats(-1e6, 1e6), st.floats(0, 1e6), st.sampled_from(["above", "below"])).map(
    lambda three: Limit(
        warn=three[0],
        fail=three[0] + three[1] * (1 if three[2] == "above" else -1),
        side=three[2],  # type: ignore[arg-type]
    )
)
EVIDENCE = st.builds(
    Evidence,
    value=NUMBERS,
    limit=LIMITS,
    rows=st.integers(0, 10**9),
    reason=st.text(),
    measurement=st.text(),
    unit=st.text(),
    effect=NUMBERS,
    p_value=NUMBERS,
    e_value=NUMBERS,
    error=NUMBERS,
    exhibits=st.lists(st.text()).map(tuple),
)
VERDICTS = st.builds(
    Verdict,
    check=st.text(),
    title=st.text(),
    space=st.builds(Space, st.text(), st.text(), st.text(), st.none() | st.text()),
    status=st.sampled_from(STATUSES),
    evidence=EVIDENCE,
    threshold=NUMBERS,
    reason=st.text(),
    meaning=st.text(),
    remedy=st.text(),
)


class TestJson:
    @given(VERDICTS)
    def test_a_verdict_comes_back_as_it_was(self, verdict: Verdict) -> None:
        assert Verdict.from_json(json.loads(json.dumps(verdict.to_json(), allow_nan=False))) == verdict

    @given(EVIDENCE)
    def test_evidence_comes_back_as_it_was(self, evidence: Evidence) -> None:
        assert Evidence.from_json(json.loads(json.dumps(evidence.to_json(), allow_nan=False))) == evidence

    @pytest.mark.parametrize("limit", [Limit(warn=1), Limit(fail=0.5), Limit(warn=2, fail=1, side="below")])
    def test_a_limit_comes_back_as_it_was(self, limit: Limit) -> None:
        assert Limit.from_json(json.loads(json.dumps(limit.to_json()))) == limit

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
    def test_what_is_not_finite_becomes_null(self, value: float) -> None:
        verdict = Verdict("c", "C", Space("m", "p"), "unknown", Evidence(value, error=value), value, "", "", "")
        data = verdict.to_json()
        json.dumps(data, allow_nan=False)
        assert (data["value"], data["threshold"]) == (None, None)
        assert "error" not in data

    def test_a_line_of_an_older_version_has_no_limit(self) -> None:
        data = Verdict("c", "C", Space("m", "p"), "ok", Evidence(1.0, Limit(warn=2)), 2.0, "", "", "").to_json()
        del data["limit"]
        assert Verdict.from_json(data).evidence == Evidence(1.0)

    @pytest.mark.parametrize(
        ("name", "value", "words"),
        [
            ("status", "bad", "`status` must be one of ok, unknown, warn, fail, got 'bad'"),
            ("title", 5, "`title` must be text, got 5"),
            ("value", "5", "`value` must be a number or null, got '5'"),
            ("value", True, "`value` must be a number or null, got True"),
            ("value", 10**400, "not a verdict: OverflowError"),
            ("space", {"model": "m"}, "not a verdict: TypeError"),
            ("rows", None, "not a verdict: TypeError"),
            ("exhibits", None, "not a verdict: TypeError"),
            ("limit", {"warn": 2, "fail": 1, "side": "above"}, "not a verdict: UsageError"),
            ("limit", {"warn": 2, "fail": 1, "side": "left"}, "`side` must be above or below, got 'left'"),
            ("limit", 5, "not a verdict: TypeError"),
        ],
    )
    def test_another_thing_is_refused(self, name: str, value: object, words: str) -> None:
        data = Verdict("c", "C", Space("m", "p"), "ok", Evidence(1.0), None, "", "", "").to_json()
        with pytest.raises(InputError, match=words):
            Verdict.from_json({**data, name: value})

    @pytest.mark.parametrize("data", [{}, [], None, "verdict", 5])
    def test_no_mapping_is_refused(self, data: Any) -> None:
        with pytest.raises(InputError, match="not a verdict"):
            Verdict.from_json(data)


class TestWorst:
    def test_unknown_is_worse_than_ok_and_better_than_warn(self) -> None:
        assert worst(["ok", "unknown", "ok"]) == "unknown"
        assert worst(["unknown", "warn"]) == "warn"
        assert worst(["fail", "warn"]) == "fail"

    def test_nothing_judged_is_unknown(self) -> None:
        assert worst([]) == "unknown"
