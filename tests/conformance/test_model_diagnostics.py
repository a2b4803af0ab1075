"""Every Diagnostic of a model delivers what it declares, on models of many kinds, and leaves no trace in them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
from torch import nn

from embedwatch.core.boundary import Boundary
from embedwatch.core.check import Check
from embedwatch.core.diagnostic import SUBJECT, Diagnostic
from embedwatch.core.registry import registered
from embedwatch.core.snapshot import ROLES
from embedwatch.diagnosing import diagnose
from embedwatch.inquiry import Inquiry
from embedwatch.loading.live import LiveSubject
from embedwatch_model import ModelConfig, Transformer
from tests.loading import tiny

DIAGNOSTICS = {name: cls for name, cls in registered(Diagnostic).items() if cls.examines == SUBJECT}
OWN = ("own-decoder", "own-encoder", "own-rope")
KINDS = ("bert", "mpnet", "gpt2-lm", "llama-lm-untied", "t5-lm", "bloom", "mamba", *OWN)
ASKED = {"texts": tiny.texts(6), "prompts": tuple(tiny.texts(2, 5)), "length": 40, "deep": True}


def own(kind: str) -> nn.Module:
    settings = {
        "own-decoder": {},
        "own-encoder": {"kind": "encoder", "positions": "learned"},
        "own-rope": {"positions": "rope", "norm_kind": "rms", "tied": False},
    }[kind]
    torch.manual_seed(0)
    return Transformer(ModelConfig(vocabulary=tiny.VOCABULARY, d_model=16, layers=2, heads=2, length=64, **settings))


def subject_of(kind: str, change: Callable[[nn.Module], None] = lambda model: None) -> LiveSubject:
    model = own(kind) if kind in OWN else tiny.build(kind)
    change(model)
    return LiveSubject(model, tokenizer=tiny.tokenizer(), label=kind)


def test_places_are_roles_and_metrics_are_of_one_diagnostic() -> None:
    owners: dict[str, str] = {}
    for name, cls in registered(Diagnostic).items():
        assert cls.examines != SUBJECT or cls.place in ROLES, name
        for metric in cls.metrics:
            assert owners.setdefault(metric.name, name) == name


@pytest.mark.parametrize("kind", KINDS)
def test_delivers_what_it_declares_and_leaves_no_trace(kind: str) -> None:
    subject = subject_of(kind)
    inquiry = Inquiry(subject, **ASKED)
    before = {name: value.clone() for name, value in subject.model.state_dict().items()}
    modes = [module.training for module in subject.model.modules()]
    generator = torch.get_rng_state()
    boundary = Boundary(on_error="raise")
    for judged in diagnose(inquiry, exhibits=True, boundary=boundary):
        json.dumps(judged.to_json(), allow_nan=False)
        keys = [measurement.key for measurement in judged.snapshot]
        assert len(keys) == len(set(keys)), keys
        of_place = [cls for cls in DIAGNOSTICS.values() if cls.place == judged.snapshot.space.place]
        declared = {metric.name for cls in of_place for metric in cls.metrics}
        assert {measurement.name for measurement in judged.snapshot} <= declared
    after = subject.model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert [module.training for module in subject.model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), generator)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in subject.model.modules())
    assert all(weight.grad is None for weight in subject.model.parameters())


def _fill(value: float) -> Callable[[nn.Module], None]:
    def change(model: nn.Module) -> None:
        with torch.no_grad():
            for weight in model.parameters():
                weight.fill_(value)

    return change


@pytest.mark.parametrize("value", [0.0, float("nan"), 3e38])
@pytest.mark.parametrize("kind", ["bert", "gpt2-lm", "own-decoder"])
def test_broken_weights_are_measured_not_raised_upon(kind: str, value: float) -> None:
    boundary = Boundary(on_error="raise")
    for judged in diagnose(Inquiry(subject_of(kind, _fill(value)), **ASKED), exhibits=True, boundary=boundary):
        json.dumps(judged.to_json(), allow_nan=False)


def test_checks_of_models_read_what_diagnostics_measure() -> None:
    measured = {metric.name for cls in DIAGNOSTICS.values() for metric in cls.metrics}
    places = {cls.place for cls in DIAGNOSTICS.values()}
    for name, check in registered(Check).items():
        if set(check.roles) & places:
            assert set(check.reads) <= measured, name
