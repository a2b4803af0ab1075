"""What a real model writes: greedy it repeats itself, surer each time; sampled it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from embedwatch.core.boundary import Boundary
from embedwatch.diagnosing import diagnose
from embedwatch.diagnostics import generation
from embedwatch.inquiry import Inquiry
from embedwatch.loading.subject import load_subject

pytestmark = [pytest.mark.real, pytest.mark.slow]

TOKENS = 64
PROMPT = "The history of the bicycle began when"


def test_smollm2_repeats_itself_greedy_and_not_sampled(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "TOKENS", TOKENS)
    inquiry = Inquiry(load_subject(smollm2), prompts=[PROMPT])
    (found,) = diagnose(inquiry, places=("generation",), boundary=Boundary(on_error="raise"))

    def number(name: str, **labels: str) -> float:
        value = found.snapshot.number(name, **labels)
        assert value is not None
        return value

    assert number("generation_loops_ratio", decoding="sampled") == 0
    repeated = [number("generation_repetition_ratio", decoding=name, n="4") for name in ("greedy", "sampled")]
    assert repeated[0] > 0.25
    assert repeated[1] < 0.1
    rises = [
        number("generation_probability", decoding=name, depth="late")
        - number("generation_probability", decoding=name, depth="early")
        for name in ("greedy", "sampled")
    ]
    assert rises[0] > 0.1
    assert rises[0] > rises[1]  # each repeat makes the next likelier
    statuses = {verdict.check: verdict.status for verdict in found.verdicts}
    assert statuses["generation_loops"] == statuses["generation_repetition"] == "ok"
