"""Checks of generation read numbers alone: each turns where it should, and says why in one sentence."""

from __future__ import annotations

import pytest

from embedwatch.core import Check, Provenance, Snapshot, Space
from embedwatch.core.registry import get
from embedwatch.core.verdict import Verdict
from embedwatch.diagnostics import generation
from embedwatch.judging import Judge


def judge(check: str, *, sampled: float | None, greedy: float | None = 0.25) -> Verdict:
    loops, repeats = generation.LOOPS, generation.REPETITION
    measured = []
    for decoding, value in (("greedy", greedy), ("sampled", sampled)):
        measured += [
            loops.measure(value, decoding=decoding),
            repeats.measure(value, decoding=decoding, n="1"),
            repeats.measure(value, decoding=decoding, n="4"),
            generation.CERTAINTY.measure(0.48, decoding=decoding, depth="early"),
            generation.CERTAINTY.measure(0.76, decoding=decoding, depth="late"),
            generation.PERIOD.measure(18.0, decoding=decoding),
            generation.LENGTH.measure(70.0, decoding=decoding),
        ]
    snapshot = Snapshot(Space("model", "generation"), tuple(measured), Provenance(0.0, 1, role="generation"))
    (verdict,) = Judge([get(Check, check)()]).judge(snapshot)
    return verdict


@pytest.mark.parametrize(
    ("check", "healthy", "warned", "failed"),
    [("generation_loops", 0.0, 0.125, 0.5), ("generation_repetition", 0.15, 0.3, 0.96)],
)
def test_sampled_texts_are_judged(check: str, healthy: float, warned: float, failed: float) -> None:
    for value, status in ((healthy, "ok"), (warned, "warn"), (failed, "fail")):
        verdict = judge(check, sampled=value)
        assert verdict.status == status
        assert verdict.evidence.value == value
    assert judge(check, sampled=failed, greedy=1.0).status == "fail"
    assert judge(check, sampled=healthy, greedy=1.0).status == "ok"


def test_loops_of_greedy_decoding_are_usual_up_to_a_point() -> None:
    assert judge("generation_greedy", sampled=0.0, greedy=0.25).status == "ok"
    verdict = judge("generation_greedy", sampled=0.0, greedy=1.0)
    assert verdict.status == "warn"
    assert verdict.reason == (
        "100% of the greedy texts end in a loop, of the sampled ones 0%; the probability of what is written goes from "
        "0.48 early to 0.76 late."
    )
    assert "repetition penalty" in verdict.remedy


def test_the_reason_names_the_loop() -> None:
    assert judge("generation_loops", sampled=0.5).reason == (
        "50% of the sampled texts end in a loop, of 18 tokens again and again over 70 (median); "
        "the probability of what is written goes from 0.48 early to 0.76 late."
    )
    assert judge("generation_repetition", sampled=0.3).reason == (
        "30% of the runs of four tokens in sampled texts stood there before; of those of greedy decoding 25%."
    )


def test_texts_that_were_not_written_are_not_judged() -> None:
    measured = tuple(generation.LOOPS.measure(None, decoding=decoding) for decoding in generation.DECODINGS)
    snapshot = Snapshot(Space("model", "generation"), measured, Provenance(0.0, 1, role="generation"))
    checks = [get(Check, name)() for name in ("generation_loops", "generation_repetition", "generation_greedy")]
    assert Judge(checks).judge(snapshot) == []
