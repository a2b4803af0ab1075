"""`study_attention` on real models: every layer is sound, known heads are named, and a lost matrix is found."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from embedwatch.attention_study import AttentionStudy, study_attention
from embedwatch.core.boundary import Boundary
from embedwatch.loading.probing import prose
from embedwatch.loading.subject import Subject, load_subject

pytestmark = [pytest.mark.real, pytest.mark.slow]


def study(subject: Subject, *, passages: int, length: int) -> AttentionStudy:
    texts = prose().splitlines()[: 3 * passages]
    found = study_attention(subject, texts, length=length, boundary=Boundary(on_error="raise"))
    assert found is not None
    return found


def accused(found: AttentionStudy) -> dict[str, list[str]]:
    faults = {
        judged.snapshot.space.place: [verdict.check for verdict in judged.verdicts if verdict.status != "ok"]
        for judged in found.layers
    }
    return {place: checks for place, checks in faults.items() if checks}


def test_minilm_is_sound_and_a_lost_matrix_is_named(minilm: Path) -> None:
    subject = load_subject(minilm)
    found = study(subject, passages=6, length=128)
    assert accused(found) == {}
    assert len(found.layers) == 6
    assert len(found.heads) == 72
    traits = {head.name: head.traits() for head in found.heads}
    assert "neighbour" in traits["0.2"]  # it hands each token the one before
    assert not any({"too diffuse", "diagonal only", "redundant", "dead"} & set(each) for each in traits.values()), (
        traits
    )
    with torch.no_grad():
        lost = subject.module().get_submodule("encoder.layer.3.attention.self")
        lost.get_submodule("query").weight.zero_()  # type: ignore[operator]
        lost.get_submodule("query").bias.zero_()  # type: ignore[operator]
    found = study(subject, passages=6, length=128)
    assert "attention_uniform" in accused(found)["encoder.layer.3.attention.self"]
    assert [head.layer for head in found.heads if "too diffuse" in head.traits()] == [3] * 12


def test_smollm2_is_sound(smollm2: Path) -> None:
    found = study(load_subject(smollm2), passages=4, length=96)
    assert accused(found) == {}
    assert len(found.layers) == 30
    sinks = sum("sink" in head.traits() for head in found.heads)
    assert sinks > len(found.heads) / 2
