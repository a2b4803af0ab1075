"""Size of tokens and positions: known answers, and rows that say nothing."""

from __future__ import annotations

import math

import pytest
import torch

from embedwatch.diagnostics.embedding_scale import EmbeddingScale, InputParts
from embedwatch.geometry.scale import CHUNK


def examine(parts: InputParts) -> dict[str, float | None]:
    measurements, exhibits = EmbeddingScale().examine(parts)
    assert not exhibits
    return {measurement.name: measurement.number for measurement in measurements}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_root_mean_square_over_blocks_of_any_type(dtype: torch.dtype) -> None:
    rows = torch.randn(2 * CHUNK + 5, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    found = examine(InputParts(rows, rows[:7] * 2, 0.01))
    assert found["token_scale_rms"] == pytest.approx(float(rows.double().square().mean().sqrt()), rel=1e-6)
    assert found["token_position_ratio"] == pytest.approx(
        float(rows.double().square().mean().sqrt() / (rows[:7] * 2).double().square().mean().sqrt()), rel=1e-6
    )
    assert found["token_table_weight_decay"] == 0.01


def test_rows_of_padding_and_rows_that_are_no_numbers_say_nothing() -> None:
    rows = torch.tensor([[0.0, 0.0], [2.0, 2.0], [math.nan, 1.0], [math.inf, 1.0]])
    assert examine(InputParts(rows))["token_scale_rms"] == pytest.approx(2.0, rel=1e-6)


def test_what_is_missing_has_no_value() -> None:
    nothing = examine(InputParts(torch.zeros(0, 4)))
    assert set(nothing.values()) == {None}
    zero = examine(InputParts(torch.ones(2, 4), torch.zeros(2, 4)))
    assert (zero["position_scale_rms"], zero["token_position_ratio"]) == (None, None)
