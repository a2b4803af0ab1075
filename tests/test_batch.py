"""Batches refuse wrong shapes, and cache right values."""

from __future__ import annotations

import gc
import math
import weakref

import pytest
import torch

from embedwatch.batch import AttentionBatch, PairBatch, TrainingStep, VectorBatch
from embedwatch.core import UsageError
from embedwatch.sketches import example_batches


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (torch.ones(8, 128, 512), "(8, 128, 512); flatten batch and position first"),
        (torch.ones(5), "(5,)"),
        (torch.ones(5, 2, dtype=torch.int64), "torch.int64; convert with .float()"),
        (torch.ones(5, 0), "at least one dimension"),
        ([[1.0]], "got list; use torch.as_tensor"),
    ],
)
def test_wrong_rows_are_refused_with_the_fix(rows: object, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        VectorBatch(rows)  # type: ignore[arg-type]
    assert words in str(caught.value)


@pytest.mark.parametrize("column", ["ids", "labels"])
def test_columns_fit_the_rows(column: str) -> None:
    with pytest.raises(UsageError, match=column):
        VectorBatch(torch.ones(3, 2), **{column: torch.arange(2)})
    with pytest.raises(UsageError, match="int64"):
        VectorBatch(torch.ones(3, 2), **{column: torch.ones(3)})


def test_rows_that_require_grad_are_detached() -> None:
    rows = torch.ones(3, 2, requires_grad=True)
    assert not VectorBatch(rows).rows.requires_grad


def test_moments_of_a_small_spread_far_from_the_origin() -> None:
    generator = torch.Generator().manual_seed(0)
    spread = torch.randn(5_000, 6, generator=generator, dtype=torch.float64) * 1e-4
    batch = VectorBatch((1.0 + spread).float())
    wanted = torch.cov(batch.rows.double().T)
    number, mean, scatter = batch.moments
    torch.testing.assert_close(scatter / (number - 1), wanted, rtol=1e-4, atol=1e-14)
    torch.testing.assert_close(mean, batch.rows.double().mean(0), rtol=1e-9, atol=0)


def test_variances_are_the_diagonal_of_the_moments() -> None:
    batch = VectorBatch.concat(example_batches(0))
    alone = batch.take(slice(None)).variances
    torch.testing.assert_close(alone.scatter, batch.moments.scatter.diagonal(), rtol=1e-6, atol=1e-9)


def test_clean_leaves_out_nan_and_inf_and_keeps_identities() -> None:
    rows = torch.eye(4)
    rows[1, 2], rows[3, 0] = torch.nan, torch.inf
    batch = VectorBatch(rows, torch.tensor([10, 11, 12, 13]))
    assert batch.clean.ids is not None
    assert batch.clean.ids.tolist() == [10, 12]
    assert torch.isfinite(batch.clean.rows).all()


@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_rows_beyond_the_squares_of_float32_are_computed_in_float64(scale: float) -> None:
    batch = VectorBatch(torch.tensor([[3.0, 4.0], [1.0, 0.0]]) * scale)
    assert batch.clean.rows.dtype == torch.float64
    torch.testing.assert_close(batch.norms / scale, torch.tensor([5.0, 1.0], dtype=torch.float64), rtol=1e-6, atol=0)
    torch.testing.assert_close(batch.unit.norm(dim=1), torch.ones(2))
    assert torch.equal(batch.clean.content, batch.content)


def test_a_float64_value_beyond_float32_is_infinite() -> None:
    assert VectorBatch(torch.tensor([[1e39, 1.0], [1.0, 1.0]], dtype=torch.float64)).finite.tolist() == [False, True]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_batch_is_freed_at_once(dtype: torch.dtype) -> None:
    """A batch whose cache held itself would keep its memory until a garbage collection."""
    gc.disable()
    try:
        batch = VectorBatch(torch.ones(3, 2, dtype=dtype))
        _ = batch.clean, batch.directed, batch.unit, batch.moments
        ghost = weakref.ref(batch)
        del batch, _
        assert ghost() is None
    finally:
        gc.enable()


def test_joined_batches_share_one_table_of_groups() -> None:
    first = VectorBatch(torch.ones(2, 2), torch.tensor([0, 1]), torch.tensor([0, 1]), ["a", "b"])
    second = VectorBatch(torch.ones(2, 2), torch.tensor([2, 3]), torch.tensor([0, -1]), ["c"])
    joined = VectorBatch.concat([first, second])
    assert joined.labels is not None
    assert [joined.groups[label] if label >= 0 else None for label in joined.labels] == ["a", "b", "c", None]


def test_pairs_must_have_equal_length() -> None:
    with pytest.raises(UsageError, match="got 3 and 2; pair them by id first"):
        PairBatch(torch.ones(3, 4), torch.ones(2, 5))
    left, right = PairBatch(torch.ones(3, 4), torch.ones(3, 5)).sides()
    assert (left.dimension, right.dimension) == (4, 5)


def _attention(logits: torch.Tensor, visible: torch.Tensor, **more: torch.Tensor) -> AttentionBatch:
    rows = torch.arange(len(logits))
    columns = dict.fromkeys(("positions", "heads", "queries", "firsts", "lasts"), rows)
    return AttentionBatch(logits, visible, **columns, head_size=8, **more)


def test_attention_weights_see_only_visible_keys() -> None:
    visible = torch.tensor([[True, True, False], [False, False, False]])
    assert _attention(torch.zeros(2, 3), visible).weights.tolist() == [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]
    with pytest.raises(UsageError, match="visible"):
        _attention(torch.zeros(2, 3), torch.ones(2, 2, dtype=torch.bool))
    with pytest.raises(UsageError, match=r"`bounds` must be floating point of shape \(2,\)"):
        _attention(torch.zeros(2, 3), visible, bounds=torch.zeros(3))


def test_a_learned_sink_takes_a_share_of_attention() -> None:
    visible = torch.tensor([[True, True, False], [False, False, False]])
    weights = _attention(torch.zeros(2, 3), visible, sinks=torch.tensor([math.log(2), 0.0])).weights
    torch.testing.assert_close(weights, torch.tensor([[0.25, 0.25, 0.0], [0.0, 0.0, 0.0]]))


def test_attention_over_fewer_keys_is_filled_up_with_keys_that_nobody_sees() -> None:
    narrow, wide = (_attention(torch.zeros(1, keys), torch.ones(1, keys, dtype=torch.bool)) for keys in (2, 4))
    joined = AttentionBatch.concat([narrow, wide])
    assert joined.weights.tolist() == [[0.5, 0.5, 0.0, 0.0], [0.25] * 4]


def test_a_step_counts_from_zero() -> None:
    assert len(TrainingStep(0, {"loss": 1.0})) == 1
    with pytest.raises(UsageError, match="got -1"):
        TrainingStep(-1)
