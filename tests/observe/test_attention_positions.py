"""Whether a model has anything that holds positions: told for every way there is, and not by whether it is used."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from embedwatch.observe.attention.positions import holds_positions
from embedwatch_model import ModelConfig, Transformer
from tests.observe import attending, tiny


def ours(positions: str) -> Transformer:
    return Transformer(ModelConfig(vocabulary=50, length=16, layers=1, d_model=16, heads=2, positions=positions))


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rope", "alibi", "relative"])
def test_each_scheme_is_known(positions: str) -> None:
    assert holds_positions(dict(ours(positions).named_modules()))


def test_a_model_without_any_is_known_too() -> None:
    assert not holds_positions(dict(ours("none").named_modules()))


@pytest.mark.parametrize("kind", ["bert", "gpt2-lm", "llama-lm", "bloom", "falcon", "t5-lm", "deberta-v2", "wav2vec2"])
def test_models_of_transformers_have_some(kind: str) -> None:
    assert holds_positions(dict(attending.build(kind).named_modules()))


class Rotated(nn.Module):
    """Holds its rotations as a plain tensor, as the first Llama did."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(tiny.VOCABULARY, tiny.D)
        self.freqs_cis = torch.ones(4)

    def forward(self, ids: Tensor) -> Any:
        return self.tokens(ids)


def test_rotations_that_are_no_buffer_are_found_by_their_name() -> None:
    assert holds_positions(dict(Rotated().named_modules()))


class PositionwiseFeedForward(nn.Linear):
    """Named after places, and knows none."""


def test_layers_that_treat_each_place_alike_hold_no_positions() -> None:
    assert not holds_positions({"": PositionwiseFeedForward(2, 2)})


@pytest.mark.parametrize(("positions", "placed"), [("none", False), ("learned", True)])
def test_rows_say_whether_their_model_has_any(positions: str, placed: bool) -> None:
    model = ours(positions)
    with attending.looking(model) as looks, torch.no_grad():
        model(torch.arange(12)[None])
        assert {rows.placed for rows in looks.first().values()} == {placed}
