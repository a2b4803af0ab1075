"""`alignment_lost`: what a map kept at the beginning, and what it keeps now."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from embedwatch.batch import PairBatch
from embedwatch.checks.alignment_lost import AlignmentLost
from embedwatch.core.history import History
from embedwatch.core.snapshot import Provenance, Snapshot, Space
from embedwatch.core.verdict import Evidence
from embedwatch.judging import Judge
from embedwatch.stats.pair_similarity import PairSimilarity

ITEMS = torch.randn(80, 24, generator=torch.Generator().manual_seed(0))
NOISE = torch.randn(80, 24, generator=torch.Generator().manual_seed(1))
TURN = torch.linalg.qr(torch.randn(24, 24, generator=torch.Generator().manual_seed(2))).Q


def _snapshot(right: Tensor) -> Snapshot:
    statistic = PairSimilarity()
    statistic.update(PairBatch(ITEMS[: len(right)], right, torch.arange(len(right))))
    return Snapshot(Space("bridge", "pairs"), tuple(statistic.compute()), Provenance(0, len(right), role="pairs"))


FIRST = _snapshot(ITEMS + 0.2 * NOISE)


def _judged(right: Tensor, history: History | None) -> tuple[str, Evidence]:
    (verdict,) = Judge([AlignmentLost()]).judge(_snapshot(right), history=history)
    return verdict.status, verdict.evidence


def test_the_first_look_is_what_later_ones_are_compared_with() -> None:
    assert _judged(ITEMS + 0.2 * NOISE, None)[0] == "ok"
    assert _judged(ITEMS + 0.2 * NOISE, History())[0] == "ok"
    status, evidence = _judged(ITEMS + 0.2 * NOISE, History([FIRST]))
    assert (status, evidence.value, evidence.reason) == ("ok", 0.0, "As at the beginning.")


@pytest.mark.parametrize(
    ("right", "status"),
    [
        (ITEMS + 0.21 * NOISE, "ok"),
        (ITEMS + 0.35 * NOISE, "warn"),
        (ITEMS + 1.0 * NOISE, "fail"),
        (ITEMS @ TURN, "fail"),  # all is kept but the coordinates
        (NOISE, "fail"),
        (torch.where(torch.arange(80)[:, None] == 3, torch.nan, ITEMS + 0.2 * NOISE), "fail"),
    ],
)
def test_what_is_lost_since_then_is_told(right: Tensor, status: str) -> None:
    found, evidence = _judged(right, History([FIRST, _snapshot(NOISE)]))
    assert found == status, evidence
    assert evidence.rows >= 79


def test_a_map_that_never_held_fails_at_once() -> None:
    status, evidence = _judged(ITEMS @ TURN, None)
    assert status == "fail"
    assert "no map holds" in evidence.reason


def test_spaces_without_common_coordinates_are_watched_by_their_neighbours() -> None:
    first = _snapshot(ITEMS[:, :12])
    assert first.number("pair_overlap_ratio") is None
    assert _judged(ITEMS[:, :12], History([first]))[0] == "ok"
    assert _judged(NOISE[:, 12:], History([first]))[0] == "fail"


def test_too_few_pairs_are_unknown() -> None:
    assert _judged(ITEMS[:20], History([FIRST]))[0] == "unknown"
