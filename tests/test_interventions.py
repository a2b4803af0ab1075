"""`renormalize_tokens` shortens long rows, once, and leaves everything else as it is."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import nn

from embedwatch import UsageError, renormalize_tokens
from embedwatch.interventions import CHUNK, ROUNDING
from embedwatch.observe.places import token_embeddings
from tests.model import tiny


def model_of(table: torch.Tensor) -> nn.Sequential:
    """An embedding with a tied output."""
    embedding, output = nn.Embedding(*table.shape), nn.Linear(table.shape[1], table.shape[0], bias=False)
    embedding.weight = output.weight = nn.Parameter(table.clone())
    return nn.Sequential(embedding, output)


def norms(model: nn.Module) -> torch.Tensor:
    table = next(iter(token_embeddings(model).values())).weight.detach()
    return torch.linalg.vector_norm(table.double(), dim=1)


def test_rows_that_are_too_long_keep_their_direction_and_all_others_their_bits() -> None:
    table = torch.randn(CHUNK + 50, 8, generator=torch.Generator().manual_seed(0))
    model = model_of(table)
    weight = model[0].weight
    long = torch.linalg.vector_norm(table, dim=1) > 3.0
    assert 0 < int(long.sum()) < len(table)
    assert renormalize_tokens(model, 3.0) == int(long.sum())
    assert model[0].weight is weight is model[1].weight
    assert torch.equal(weight[~long], table[~long])
    assert (norms(model)[long] - 3.0).abs().max() < 3.0 * ROUNDING
    cosine = nn.functional.cosine_similarity(weight[long], table[long])
    torch.testing.assert_close(cosine, torch.ones_like(cosine))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_second_time_there_is_nothing_left(dtype: torch.dtype) -> None:
    table = (7 * torch.randn(400, 96, generator=torch.Generator().manual_seed(1))).to(dtype)
    model = model_of(table)
    assert renormalize_tokens(model, 1.5) == 400
    once = model[0].weight.detach().clone()
    assert renormalize_tokens(model, 1.5) == 0
    assert torch.equal(model[0].weight, once)
    assert norms(model).max() <= 1.5 * (1 + 2 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("row", [(torch.nan, 9.0), (torch.inf, 9.0), (-torch.inf, torch.nan), (0.0, -0.0)])
def test_rows_without_a_length_are_left_alone(row: tuple[float, float]) -> None:
    table = torch.tensor([row, (3.0, 4.0), (0.3, 0.4)])
    model = model_of(table)
    assert renormalize_tokens(model, 1.0) == 1
    assert torch.equal(model[0].weight[0].view(torch.int32), table[0].view(torch.int32))
    assert model[0].weight[2].tolist() == table[2].tolist()


def test_half_precision_whose_squares_overflow_is_scaled_well() -> None:
    model = model_of(torch.full((3, 4), 60_000.0, dtype=torch.float16))
    assert renormalize_tokens(model, 2.0) == 3
    assert model[0].weight.tolist() == [[1.0] * 4] * 3


def test_the_optimizer_keeps_its_state_and_training_goes_on() -> None:
    model = model_of(10 * torch.ones(5, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def step() -> None:
        model(torch.arange(5)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    before = {name: value.clone() for name, value in optimizer.state[model[0].weight].items()}
    assert renormalize_tokens(model, 1.0) == 5
    after = optimizer.state[model[0].weight]
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert model[0].weight.requires_grad
    assert model[0].weight.is_leaf
    step()


def test_a_table_in_a_wrapper_and_the_one_of_encoder_and_decoder_is_found() -> None:
    model = tiny.model(kind="encoder_decoder")
    with torch.no_grad():
        next(iter(token_embeddings(model).values())).weight.mul_(100)
    assert renormalize_tokens(nn.DataParallel(model), 1.0) == int((norms(model) > 0).sum())
    assert norms(model).max() <= 1.00001


def test_the_log_names_the_longest(caplog: pytest.LogCaptureFixture) -> None:
    model = model_of(torch.diag(torch.tensor([5.0, 1.0, 700.0, 3.0])))
    with caplog.at_level(logging.INFO, "embedwatch"):
        renormalize_tokens(model, 2.0)
        renormalize_tokens(model, 2.0)
    assert [record.getMessage() for record in caplog.records] == [
        (
            "embedwatch: 3 of 4 rows of 0.weight were longer than 2 and are scaled to it; "
            "the longest: token 2 (700), token 0 (5), token 3 (3)"
        )
    ]


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), True, "2", None])
def test_what_is_no_length_is_refused_in_one_line(value: Any) -> None:
    with pytest.raises(UsageError, match=r"^`max_norm` must be a finite number above 0, got [^\n]+; [^\n]+$"):
        renormalize_tokens(model_of(torch.ones(3, 2)), value)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (nn.Linear(2, 2), "must have an embedding of tokens, got Linear"),
        (torch.ones(3, 3), "must be a torch module, got Tensor"),
        (nn.Sequential(nn.Embedding(9, 2, device="meta")), "must hold its embedding table in whole"),
    ],
)
def test_a_model_without_a_table_is_refused(model: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        renormalize_tokens(model, 1.0)
