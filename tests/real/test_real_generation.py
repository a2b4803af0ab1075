"""What a real model writes: greedy it ends in loops that feed themselves, sampled it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from embedwatch.core.boundary import Boundary
from embedwatch.diagnosing import diagnose
from embedwatch.inquiry import Inquiry
from embedwatch.loading.subject import load_subject

pytestmark = [pytest.mark.real, pytest.mark.slow]

PROMPTS = ("My grandmother used to tell me that", "The best way to learn a language is")


def test_smollm2_repeats_itself_greedy_and_not_sampled(smollm2: Path) -> None:
    inquiry = Inquiry(load_subject(smollm2), prompts=PROMPTS)
    (found,) = diagnose(inquiry, places=("generation",), exhibits=True, boundary=Boundary(on_error="raise"))

    def number(name: str, **labels: str) -> float:
        value = found.snapshot.number(name, **labels)
        assert value is not None
        return value

    assert number("generation_loops_ratio", decoding="greedy") >= 0.5
    assert number("generation_loops_ratio", decoding="sampled") == 0
    repeated = [number("generation_repetition_ratio", decoding=name, n="4") for name in ("greedy", "sampled")]
    assert repeated[0] > 0.3
    assert repeated[1] < 0.1
    rises = [
        number("generation_probability", decoding=name, depth="late")
        - number("generation_probability", decoding=name, depth="early")
        for name in ("greedy", "sampled")
    ]
    assert rises[0] > 0.15 > rises[1]  # each repeat makes the next likelier
    statuses = {verdict.check: verdict.status for verdict in found.verdicts}
    assert statuses["generation_loops"] == statuses["generation_repetition"] == "ok"
