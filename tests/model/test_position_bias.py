"""ALiBi against its paper and Bloom, the relative bias against T5."""

from __future__ import annotations

import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

from embedwatch_model import AlibiPositions, ModelError, RelativePositions, alibi_slopes, relative_buckets


class TestAlibi:
    def test_slopes_of_the_paper(self) -> None:
        assert alibi_slopes(8) == [2.0**-i for i in range(1, 9)]
        assert alibi_slopes(16) == pytest.approx([2 ** (-i / 2) for i in range(1, 17)])

    @pytest.mark.parametrize("heads", [1, 2, 3, 5, 6, 8, 12, 16, 20])
    def test_slopes_are_those_of_bloom(self, heads: int) -> None:
        theirs = build_alibi_tensor(torch.ones(1, 2, dtype=torch.long), heads, torch.float32)
        assert alibi_slopes(heads) == pytest.approx(theirs[:, 0, 1].tolist(), rel=1e-6)

    def test_rows_differ_from_those_of_bloom_by_a_constant(self) -> None:
        """Bloom adds slope × key position: over the keys before a query, the same for a softmax."""
        at = torch.arange(7)[None]
        ours = AlibiPositions(6).bias(at, at)[0]  # (H, T, T)
        theirs = build_alibi_tensor(torch.ones(1, 7, dtype=torch.long), 6, torch.float32)  # (H, 1, T)
        future = torch.ones(7, 7, dtype=torch.bool).triu(1)
        a, b = (x.expand(6, 7, 7).masked_fill(future, float("-inf")).softmax(-1) for x in (ours, theirs))
        assert torch.allclose(a, b, atol=1e-6)

    def test_lowers_by_distance_on_both_sides(self) -> None:
        at = torch.arange(5)[None]
        bias = AlibiPositions(2).bias(at, at)
        assert bias.shape == (1, 2, 5, 5)
        assert torch.equal(bias, bias.transpose(-1, -2))
        assert bias[0, 0, 4, 1].item() == pytest.approx(-3 * alibi_slopes(2)[0])

    def test_rows_may_stand_elsewhere(self) -> None:
        at = torch.tensor([[0, 0, 1], [0, 1, 2]])
        bias = AlibiPositions(2).bias(at, at)
        assert bias.shape == (2, 2, 3, 3)
        assert bias[0, 0, 2].tolist() == [-alibi_slopes(2)[0]] * 2 + [0.0]


class TestRelative:
    @pytest.mark.parametrize("bidirectional", [False, True])
    @pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (16, 40), (8, 20)])
    def test_buckets_are_those_of_t5(self, bidirectional: bool, buckets: int, distance: int) -> None:
        offset = torch.arange(-300, 300)
        theirs = T5Attention._relative_position_bucket(offset, bidirectional, buckets, distance)
        ours = relative_buckets(offset, bidirectional=bidirectional, buckets=buckets, distance=distance)
        assert torch.equal(ours, theirs)

    def test_near_offsets_have_their_own_bucket_and_far_ones_share_the_last(self) -> None:
        buckets = relative_buckets(torch.arange(0, -1000, -1), bidirectional=False, buckets=32, distance=128)
        assert buckets[:16].tolist() == list(range(16))
        assert set(buckets[128:].tolist()) == {31}
        assert bool((buckets.diff() >= 0).all())

    def test_looks_the_bucket_up(self) -> None:
        positions = RelativePositions(3, bidirectional=True)
        torch.nn.init.normal_(positions.table.weight)
        at = torch.arange(9)[None]
        bias = positions.bias(at[:, 5:], at)  # (1, H, 4, 9)
        for t, s in ((0, 0), (3, 2), (2, 8)):
            bucket = relative_buckets(torch.tensor(s - (t + 5)), bidirectional=True, buckets=32, distance=128)
            assert torch.equal(bias[0, :, t, s], positions.table.weight[bucket])

    def test_starts_without_preference_and_learns(self) -> None:
        positions = RelativePositions(2, bidirectional=False)
        at = torch.arange(4)[None]
        bias = positions.bias(at, at)
        assert not bias.any()
        bias.sum().backward()
        assert positions.table.weight.grad is not None

    def test_refuses_too_few_buckets(self) -> None:
        with pytest.raises(ModelError, match="`buckets` must be at least 4"):
            RelativePositions(2, bidirectional=True, buckets=2)
