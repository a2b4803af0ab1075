"""What cannot be asked of a model is refused at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from embedwatch import watch
from embedwatch.core.errors import UsageError
from embedwatch.inquiry import Inquiry
from embedwatch.loading.live import LiveSubject


def model() -> nn.Module:
    return nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"length": 0}, "`length` must be from 1 to 1,000,000,000 tokens, got 0"),
        ({"length": 10**20}, "got 100,000,000,000,000,000,000"),
        ({"length": "long"}, "got 'long'"),
        ({"length": True}, "got True"),
        ({"texts": "one text"}, "`texts` must be a list of texts"),
        ({"prompts": ["w1", 2]}, "`prompts` must be a list of texts, got 2"),
    ],
)
def test_an_inquiry_that_makes_no_sense(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        Inquiry(LiveSubject(model()), **asked)


def test_a_monitor_refuses_it_too() -> None:
    with watch(model(), sinks=[]) as monitor:
        for asked, told in (
            ({"texts": "one"}, "`texts` must be a list"),
            ({"words": "none.yaml"}, "`words` must be one"),
        ):
            with pytest.raises(UsageError, match=told):
                monitor.diagnose(**asked)  # type: ignore[arg-type]
        assert not monitor.errors


def test_weights_without_numbers_are_told() -> None:
    with torch.device("meta"):
        empty = model()
    with watch(empty, sinks=[], on_error="raise") as monitor:
        notes = [note for found in monitor.diagnose() for note in found.snapshot.provenance.notes]
    assert any("on the meta device; load the weights first" in note for note in notes)
