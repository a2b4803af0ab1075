"""The ladder: each sort of pair is called by its name. Synthetic spaces here; real models in `tests/real`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from embedwatch.align.checking import Compatibility, check_pair
from embedwatch.core.errors import InputError, UsageError
from embedwatch.testing.spaces import two_spaces

ROWS = 400
Rows = npt.NDArray[Any]


@pytest.fixture(scope="module")
def spaces() -> tuple[Rows, Rows]:
    return two_spaces(ROWS, mean=0.4)


def _unit(rows: Rows) -> Rows:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def _check(folder: Path, left: Rows, right: Rows, **options: object) -> Compatibility:
    paths = folder / "old.npy", folder / "new.npy"
    for path, rows in zip(paths, (left, right), strict=True):
        np.save(path, rows.astype("float32"))
    return check_pair(*paths, on_error="raise", **options)  # type: ignore[arg-type]


TURN = np.linalg.qr(np.random.default_rng(1).standard_normal((96, 96)))[0].astype("float32")
NOISE = np.random.default_rng(2).standard_normal((ROWS, 96)).astype("float32")
SHIFT = _unit(np.random.default_rng(3).standard_normal((1, 96)))
ORDER = np.random.default_rng(4).permutation(ROWS)


def _bfloat16(rows: Rows) -> Rows:
    return np.asarray((np.ascontiguousarray(rows).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32))


def _int8(rows: Rows) -> Rows:
    step = np.abs(rows).max(1, keepdims=True) / 127
    return np.asarray(np.round(rows / step) * step, dtype=np.float32)


def _some(rows: Rows) -> Rows:
    moved = rows.copy()
    moved[::7] = _unit(rows[::7] + 0.05 * NOISE[::7])
    return np.asarray(moved)


@pytest.mark.parametrize(
    ("change", "verdict", "cause", "status"),
    [
        (lambda x: x, "identical", "", "ok"),
        (lambda x: 3 * x, "identical", "normalisation", "ok"),
        (_bfloat16, "identical", "precision", "ok"),
        (lambda x: x.astype("float16"), "identical", "precision", "ok"),
        (_int8, "identical", "precision", "ok"),
        (lambda x: _unit(x + 0.02 * NOISE), "degraded", "precision", "warn"),
        (lambda x: _unit(x + 0.6 * SHIFT), "mismatch", "prefix", "fail"),
        (lambda x: _unit(x + 0.6 * SHIFT + 0.045 * NOISE), "mismatch", "configuration", "fail"),
        (_some, "degraded", "truncation", "warn"),
        (lambda x: x[:, :60], "mismatch", "truncation", "fail"),
        (lambda x: np.pad(x[:, :60], ((0, 0), (0, 36))), "mismatch", "truncation", "fail"),
        (lambda x: x @ TURN, "alignable", "rotation", "fail"),
        (lambda x: x[:, ::-1], "alignable", "rotation", "fail"),
        (lambda x: NOISE, "unrelated", "", "fail"),
        (lambda x: x[ORDER], "mispaired", "order", "fail"),
        (lambda x: (x @ TURN)[ORDER], "mispaired", "order", "fail"),
        (lambda x: np.roll(x @ TURN, 2, 0), "mispaired", "order", "fail"),
        (lambda x: (x @ TURN)[::-1], "mispaired", "order", "fail"),
        (lambda x: np.concatenate([x[60:120], x[:60], x[120:]]), "mispaired", "order", "fail"),
    ],
)
def test_what_became_of_one_space_is_named(
    tmp_path: Path, spaces: tuple[Rows, Rows], change: Callable[[Rows], Rows], verdict: str, cause: str, status: str
) -> None:
    found = _check(tmp_path, spaces[0], change(spaces[0]))
    assert (found.verdict, found.cause, found.status) == (verdict, cause, status), found.finding.told


def test_two_models_are_alignable_with_what_that_would_keep(tmp_path: Path, spaces: tuple[Rows, Rows]) -> None:
    found = _check(tmp_path, *spaces, gallery=2_000)
    assert (found.verdict, found.status) == ("alignable", "fail"), found.finding.told
    assert found.number("overlap_ratio") is None  # of other dimensions: nothing finds anything as it stands
    expected = found.expected["rotation"]
    assert expected.derived
    assert expected.low < expected.share < expected.high
    smaller = _check(tmp_path, *spaces, gallery=200).expected["rotation"]
    assert smaller.share > expected.share
    assert not smaller.derived
    names = {exhibit.name for exhibit in found.exhibits}
    assert names == {
        "pair_aligned_served_worst",
        "pair_overlap_by_cluster",
        "pair_recall_curve",
        "pair_residual_spectrum",
    }
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert (data["verdict"], data["expected"]["rotation"]["derived"]) == ("alignable", True)


def test_shuffled_rows_of_two_models_are_no_pair(tmp_path: Path, spaces: tuple[Rows, Rows]) -> None:
    found = _check(tmp_path, spaces[0], spaces[1][ORDER])
    assert (found.verdict, found.status) == ("unrelated", "fail")
    assert "or mispaired in an unknown order" in found.finding.told
    shifted = _check(tmp_path, spaces[0], np.roll(spaces[1], -1, 0))
    assert shifted.verdict == "mispaired"
    assert "shifted by 1 rows" in shifted.finding.told


def test_a_little_in_common_is_weak(tmp_path: Path, spaces: tuple[Rows, Rows]) -> None:
    found = _check(tmp_path, spaces[0], _unit(spaces[1] + 0.2 * NOISE[:, :64]))
    assert (found.verdict, found.status) == ("weak", "fail"), found.finding.told


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda x: x[:80], "80 pairs are too few, needs 100"),
        (lambda x: x[:10], "10 pairs are too few, needs 100"),
        (lambda x: np.concatenate([x[:200], np.repeat(x[:1], 200, 0)]), "rows of a side are there twice or more"),
        (lambda x: np.concatenate([x[:350], np.zeros((50, 96))]), "50 of 400 pairs have NaN, Inf or a zero row"),
        (lambda x: np.where(np.arange(len(x))[:, None] % 5 == 0, np.nan, x), "80 of 400 pairs have NaN"),
        (lambda x: np.full_like(x, np.nan), "400 of 400 pairs have NaN"),
        (lambda x: x[:, :1], "vectors of 1 dimension have no direction but plus and minus"),
    ],
)
def test_input_that_tells_nothing_is_unknown(
    tmp_path: Path, spaces: tuple[Rows, Rows], change: Callable[[Rows], Rows], told: str
) -> None:
    rows = change(spaces[0])
    found = _check(tmp_path, rows, rows)
    assert (found.verdict, found.status) == ("invalid", "unknown")
    assert told in found.finding.told
    assert ("100 pairs or more" in found.finding.remedy) == ("too few" in found.finding.told)
    assert ("broken rows" in found.finding.remedy) == ("NaN" in found.finding.told)
    json.dumps(found.to_json(), allow_nan=False)


def test_two_towers_are_judged_by_whether_pairs_meet(tmp_path: Path, spaces: tuple[Rows, Rows]) -> None:
    images = spaces[0]
    captions = _unit(images + 0.08 * NOISE + 1.2 * SHIFT)
    found = _check(tmp_path, images, captions, towers=True)
    assert (found.verdict, found.cause, found.status) == ("identical", "towers", "ok"), found.finding.told
    gap = np.linalg.norm(images.mean(0) - captions.mean(0))
    assert found.number("modality_gap") == pytest.approx(gap, abs=1e-4)
    assert found.number("alignment") == pytest.approx((np.linalg.norm(images - captions, axis=1) ** 2).mean(), abs=1e-4)
    strangers = _check(tmp_path, images, captions[ORDER], towers=True)
    assert (strangers.verdict, strangers.status) == ("unrelated", "fail")
    assert _check(tmp_path, images, captions[:, :50], towers=True).status == "fail"


def test_wrong_arguments_are_refused(tmp_path: Path, spaces: tuple[Rows, Rows]) -> None:
    for options, told in (
        ({"pairs": 5}, "`pairs` must be from 200 to 20,000, got 5; 4,000 is usual"),
        ({"gallery": 0}, "`gallery` must be at least 1, got 0; give the rows of your index"),
        ({"left_pooling": "cls"}, "`left_pooling` must come with a model and `text`, got 'cls'"),
        ({"text": tmp_path / "t.txt"}, "`text` must come with a model, got"),
    ):
        with pytest.raises(UsageError, match=told):
            _check(tmp_path, *spaces, **options)
    with pytest.raises(InputError, match="both sides must have a row for each item"):
        _check(tmp_path, spaces[0], spaces[1][:-1])
