"""Fitting on made-up spaces in which everything goes wrong that goes wrong on real ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from embedwatch import Aligner, fit_aligner
from embedwatch.align.candidates import METHODS, Training, fit_map
from embedwatch.align.choosing import Interval, Judged, choose
from embedwatch.align.kept_pairs import Pairs
from embedwatch.core.errors import InputError, UsageError
from embedwatch.geometry.retrieval import directions, find, recall_at
from embedwatch.testing.spaces import two_spaces

GALLERY = 1_000


@pytest.fixture(scope="module")
def cone() -> tuple[Tensor, Tensor]:
    """Two spaces of which the left lies in a narrow cone."""
    left, right = two_spaces(2_400, mean=0.9)
    return torch.from_numpy(left), torch.from_numpy(right)


@pytest.fixture(scope="module")
def fitted(cone: tuple[Tensor, Tensor]) -> Aligner:
    return fit_aligner(cone[0][:1_200], cone[1][:1_200])


def pairs_of(left: Tensor, right: Tensor) -> Pairs:
    return Pairs(left, right, torch.arange(len(left)))


def recall(method: str, left: Tensor, right: Tensor, anchors: int, k: int = 1) -> float:
    """Return what a way finds among the last rows when it is fitted on the first."""
    some = pairs_of(left[:anchors], right[:anchors])
    mapped = fit_map(method, Training(some.moments(), some, "query")).apply(left[-GALLERY:])
    return recall_at(find(mapped, right[-GALLERY:], torch.arange(GALLERY)).ranks, k)


def warned(aligner: Aligner, part: str) -> bool:
    return any(part in warning for warning in aligner.report["warnings"])


class TestWaysOfFitting:
    @pytest.mark.parametrize(
        ("anchors", "default", "uncentred"), [(50, 0.85, 0.3), (100, 0.95, 0.35), (300, 0.98, 0.5), (1_400, 0.99, 0.6)]
    )
    def test_centring_decides_where_a_space_is_a_cone(
        self, cone: tuple[Tensor, Tensor], anchors: int, default: float, uncentred: float
    ) -> None:
        assert recall("procrustes", *cone, anchors) >= default
        assert recall("anchored_ridge_3", *cone, anchors) >= default
        assert recall("rotation", *cone, anchors) <= uncentred

    def test_without_a_mean_centring_changes_little(self) -> None:
        left, right = map(torch.from_numpy, two_spaces(1_400, mean=0.2))
        assert recall("rotation", left, right, 300) == pytest.approx(recall("procrustes", left, right, 300), abs=0.02)

    def test_plain_ridge_is_fragile_where_the_anchored_one_is_flat(self, cone: tuple[Tensor, Tensor]) -> None:
        plain = [recall(f"ridge_{strength}", *cone, 100) for strength in ("1", "0.1")]
        anchored = [recall(f"anchored_ridge_{strength}", *cone, 100) for strength in ("10", "3")]
        assert abs(plain[0] - plain[1]) > 0.3
        assert abs(anchored[0] - anchored[1]) < 0.02

    def test_no_way_is_the_best_for_every_pair(self, cone: tuple[Tensor, Tensor]) -> None:
        """Out of a cone the mean of the target costs, into a cone it helps: both are tried."""
        assert recall("procrustes", *cone, 60) > recall("centred_procrustes", *cone, 60) + 0.01
        assert recall("centred_procrustes", *cone[::-1], 60) > recall("procrustes", *cone[::-1], 60) + 0.01

    def test_low_rank_costs(self, cone: tuple[Tensor, Tensor]) -> None:
        assert recall("low_rank_1/6", *cone, 1_400) < recall("anchored_ridge_3", *cone, 1_400) - 0.2

    def test_unseen_directions_are_better_dropped_than_completed(self, cone: tuple[Tensor, Tensor]) -> None:
        left, right = cone
        some = pairs_of(left[:20], right[:20])
        m = some.moments()
        x = directions(some.left.double() - m.left_mean)
        u, _, v = torch.linalg.svd(x.T @ directions(some.right.double() - m.right_mean), full_matrices=False)
        completed = (left[-GALLERY:].double() - m.left_mean) @ (u @ v)
        found = recall_at(find(completed, right[-GALLERY:].double(), torch.arange(GALLERY)).ranks, 1)
        assert recall("procrustes", left, right, 20) > found + 0.05

    def test_a_mapped_corpus_stands_beside_native_rows(self) -> None:
        """In a cone as target, documents that are mapped without its mean and length never reach the first ten."""
        right, left = map(torch.from_numpy, two_spaces(1_600, mean=0.9))
        some = pairs_of(left[:600], right[:600])
        queries = directions(right[600:] + 0.02 * torch.randn(1_000, 96, generator=torch.Generator().manual_seed(3)))
        shares = {}
        for side in ("corpus", "query"):
            mapped = fit_map("procrustes", Training(some.moments(), some, side)).apply(left[600:])
            mixed = torch.where((torch.arange(1_000) % 2 == 0)[:, None], mapped, right[600:])
            first = find(queries, mixed, torch.arange(1_000), 10).nearest
            shares[side] = float((first % 2 == 0).float().mean())
        assert shares["query"] < 0.02
        assert 0.3 < shares["corpus"] < 0.65


class TestFitting:
    def test_the_default_is_chosen_and_the_trap_is_told(self, fitted: Aligner) -> None:
        assert fitted.method in ("procrustes", "centred_procrustes", "anchored_ridge_10", "anchored_ridge_3")
        assert fitted.report["chosen"]["recall_1"][0] >= 0.97
        assert warned(fitted, "never take the SVD of AᵀB uncentred")
        assert warned(fitted, "no queries among the anchors")

    def test_every_way_is_reported_with_intervals(self, fitted: Aligner) -> None:
        assert tuple(each["method"] for each in fitted.report["judged"]) == METHODS
        for each in fitted.report["judged"]:
            for name in ("average_precision", "recall_1", "recall_10", "overlap_10"):
                value, low, high = each[name]
                assert 0 <= low <= value <= high <= 1

    def test_what_was_measured_holds_on_further_rows(self, fitted: Aligner, cone: tuple[Tensor, Tensor]) -> None:
        mapped = fitted.transform(cone[0][1_200:])
        found = recall_at(find(mapped, cone[1][1_200:], torch.arange(1_200)).ranks, 1)
        assert found == pytest.approx(fitted.report["chosen"]["recall_1"][0], abs=0.03)

    def test_the_curve_rises_and_shuffled_pairs_find_chance(self, fitted: Aligner) -> None:
        curve = [each["recall_1"] for each in fitted.report["curve"]]
        assert curve[0] < curve[-1]
        assert fitted.report["shuffled"]["recall_10"][0] < 5 * 10 / fitted.report["gallery"]
        assert not warned(fitted, "pairs that are none")

    def test_a_turned_copy_is_recovered_whole(self, cone: tuple[Tensor, Tensor]) -> None:
        left = cone[0][:600]
        turn = torch.linalg.qr(torch.randn(96, 96, generator=torch.Generator().manual_seed(7))).Q
        found = fit_aligner(left, left @ turn, try_methods=METHODS[:5])
        assert found.method == "rotation"
        assert found.report["chosen"]["recall_1"] == [1.0, 1.0, 1.0]
        assert found.report["as_they_are"]["recall_1"][0] < 0.05  # similar is not compatible
        affine = found.affine()
        assert affine is not None
        assert affine.orthogonal
        assert torch.allclose(found.transform(left), left @ turn, atol=1e-4)

    def test_unrelated_spaces_are_called_weak(self) -> None:
        draw = torch.Generator().manual_seed(0)
        found = fit_aligner(
            torch.randn(600, 24, generator=draw), torch.randn(600, 16, generator=draw), try_methods=METHODS[:3]
        )
        assert found.report["chosen"]["recall_10"][0] < 0.1
        assert warned(found, "re-embed instead")

    def test_no_map_is_needed_between_equals(self, cone: tuple[Tensor, Tensor]) -> None:
        found = fit_aligner(cone[0][:400], cone[0][:400], try_methods=("rotation",))
        assert warned(found, "no map is needed")

    @pytest.mark.parametrize("share", [0.05, 0.4])
    def test_mispaired_rows_are_named(self, cone: tuple[Tensor, Tensor], share: float) -> None:
        left, right = cone[0][:1_000], cone[1][:1_000].clone()
        wrong = torch.randperm(1_000, generator=torch.Generator().manual_seed(1))[: int(1_000 * share)]
        right[wrong] = right[wrong.roll(1)]
        found = fit_aligner(left, right, try_methods=("procrustes",)).report["mispairs"]
        assert set(found["rows"]) <= set(wrong.tolist())
        assert found["number"] > 0.7 * share * found["looked_at"]

    def test_sound_pairs_are_not_suspected(self, fitted: Aligner) -> None:
        assert fitted.report["mispairs"]["number"] <= 2

    def test_few_anchors_are_told(self, cone: tuple[Tensor, Tensor]) -> None:
        found = fit_aligner(cone[0][:50], cone[1][:50], try_methods=("procrustes",))
        assert warned(found, "fewer than half of 96 dimensions")
        assert warned(found, "pairs judge, so the intervals are wide")
        assert warned(found, "rows that are searched are anchors")

    def test_what_is_searched_was_not_fitted_on(self, fitted: Aligner, cone: tuple[Tensor, Tensor]) -> None:
        assert fitted.report["gallery"] == fitted.report["pairs"]["judging"]
        assert not warned(fitted, "are anchors")
        filled = fit_aligner(cone[0][:400], cone[1][:400], gallery=300, try_methods=("procrustes",)).report
        assert (filled["gallery"], filled["gallery_anchors"]) == (300, 300 - filled["pairs"]["judging"])

    def test_anchors_of_another_domain_are_told(self, cone: tuple[Tensor, Tensor]) -> None:
        away = directions(cone[0] + 0.25 * directions(torch.randn(1, 96, generator=torch.Generator().manual_seed(2))))
        found = fit_aligner(cone[0][:400], cone[1][:400], corpus=away[400:], try_methods=("procrustes",))
        assert warned(found, "off the anchors")
        same = fit_aligner(cone[0][:400], cone[1][:400], corpus=cone[0][400:], try_methods=("procrustes",))
        assert not warned(same, "off the anchors")

    def test_queries_choose(self, cone: tuple[Tensor, Tensor]) -> None:
        asked = (cone[0][1_200:], cone[1][1_200:])
        found = fit_aligner(cone[0][:600], cone[1][:600], queries=asked, try_methods=METHODS[:3])
        assert found.report["by"] == "queries"
        assert found.report["pairs"]["queries"] == 1_200
        assert not warned(found, "no queries")
        assert found.report["chosen"]["recall_10"][0] > 0.8

    def test_the_side_that_is_mapped(self, cone: tuple[Tensor, Tensor]) -> None:
        found = fit_aligner(cone[0][:600], cone[1][:600], side="corpus", try_methods=METHODS[1:4])
        assert found.side == "corpus"
        assert found.report["chosen"]["recall_1"][0] > 0.95
        mapped = found.transform(cone[0][600:1_200])
        assert float((mapped.mean(0) - cone[1][600:1_200].mean(0)).norm()) < 0.1

    def test_files_and_ids(self, cone: tuple[Tensor, Tensor], tmp_path: Path) -> None:
        for name, rows in zip(("a.npy", "b.npy"), cone, strict=True):
            np.save(tmp_path / name, rows[:300].numpy())
        found = fit_aligner(tmp_path / "a.npy", tmp_path / "b.npy", try_methods=("procrustes",), names=("new", None))
        again = fit_aligner(cone[0][:300].numpy(), cone[1][:300].numpy(), try_methods=("procrustes",))
        assert torch.equal(found.matrix, again.matrix)
        assert (found.source.label, found.source.model, found.target.label) == ("new", "new", "b.npy")
        assert found.anchors == again.anchors

    def test_nothing_global_changes(self, cone: tuple[Tensor, Tensor]) -> None:
        torch.manual_seed(3)
        before = torch.get_rng_state()
        with torch.inference_mode():
            first = fit_aligner(cone[0][:200], cone[1][:200], try_methods=("procrustes", "residual_net"))
        second = fit_aligner(cone[0][:200], cone[1][:200], try_methods=("procrustes", "residual_net"))
        assert torch.equal(torch.get_rng_state(), before)
        assert first.report["judged"] == second.report["judged"]


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "told"),
        [
            ({"side": "both"}, "`side` must be query or corpus"),
            ({"gallery": 0}, "`gallery` must be"),
            ({"try_methods": ("procrustess",)}, 'did you mean "procrustes"'),
        ],
    )
    def test_arguments(self, cone: tuple[Tensor, Tensor], options: dict[str, object], told: str) -> None:
        with pytest.raises(UsageError, match=told):
            fit_aligner(*cone, **options)  # type: ignore[arg-type]

    def test_too_few_pairs(self, cone: tuple[Tensor, Tensor]) -> None:
        with pytest.raises(InputError, match="at least 40"):
            fit_aligner(cone[0][:20], cone[1][:20])
        with pytest.raises(InputError, match="at least 40"):
            fit_aligner(torch.full((60, 3), torch.nan), torch.ones(60, 3))

    def test_one_row_again_and_again(self) -> None:
        with pytest.raises(InputError, match="distinct"):
            fit_aligner(torch.ones(100, 3), torch.ones(100, 3))

    def test_a_corpus_without_numbers(self, cone: tuple[Tensor, Tensor]) -> None:
        for corpus in (torch.full((50, 96), torch.nan), torch.zeros(50, 96)):
            with pytest.raises(
                InputError, match="`corpus` must hold finite rows that are not zero, got none among the"
            ):
                fit_aligner(cone[0][:100], cone[1][:100], corpus=corpus, try_methods=("rotation",))

    @pytest.mark.parametrize("length", [1e30, 1e-30])
    def test_rows_of_any_length_are_finite(self, length: float) -> None:
        rows = torch.randn(300, 6, generator=torch.Generator().manual_seed(0))
        found = fit_aligner(rows * length, rows.flip(1), try_methods=("rotation",))
        assert found.report["pairs"]["left_out"] == 0
        assert found.report["chosen"]["recall_1"][0] == 1.0
        assert torch.allclose(found.transform(rows * length), found.transform(rows), atol=1e-5)

    def test_unequal_numbers_of_rows(self, cone: tuple[Tensor, Tensor]) -> None:
        with pytest.raises(InputError, match="a row for each item"):
            fit_aligner(cone[0][:100], cone[1][:99])

    def test_queries_of_other_dimensions(self, cone: tuple[Tensor, Tensor]) -> None:
        with pytest.raises(InputError, match="`queries` must have"):
            fit_aligner(cone[0][:100], cone[1][:100], queries=(cone[1][:100], cone[0][:100]))

    def test_whole_numbers(self) -> None:
        with pytest.raises(UsageError, match="matrix"):
            fit_aligner(torch.ones(50, 3, dtype=torch.int64), torch.ones(50, 3))


def judged(method: str, value: float, error: float = 0.01, queries: int = 500) -> Judged:
    some = Interval(0.5, 0.4, 0.6)
    return Judged(method, Interval(value, 0, 1), error, some, some, some, None, None, 0.9, 500, queries)


class TestChoosing:
    def test_the_simplest_within_one_standard_error(self) -> None:
        assert choose([judged("procrustes", 0.905), judged("ridge_1", 0.91)]).method == "procrustes"
        assert choose([judged("procrustes", 0.89), judged("ridge_1", 0.91)]).method == "ridge_1"

    def test_a_rotation_only_where_nothing_is_better(self) -> None:
        assert choose([judged("rotation", 0.909), judged("procrustes", 0.91)]).method == "procrustes"
        assert choose([judged("rotation", 0.91), judged("procrustes", 0.91)]).method == "rotation"

    def test_a_net_must_win(self) -> None:
        assert choose([judged("ridge_1", 0.90), judged("residual_net", 0.915)]).method == "ridge_1"
        assert choose([judged("ridge_1", 0.90), judged("residual_net", 0.925)]).method == "residual_net"
        few = [judged("ridge_1", 0.90, queries=50), judged("residual_net", 0.99, queries=50)]
        assert choose(few).method == "ridge_1"

    def test_cosine_decides_nothing(self, fitted: Aligner) -> None:
        """Plain ridge has the higher cosine, and finds less."""
        by = {each["method"]: each for each in fitted.report["judged"]}
        assert by["ridge_1"]["cosine"] > by["procrustes"]["cosine"]
        assert by["ridge_1"]["average_precision"][0] < by["procrustes"]["average_precision"][0]
