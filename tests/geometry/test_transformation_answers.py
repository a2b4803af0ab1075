"""Known answers of what tells one kind of change from another."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from embedwatch.geometry.precision import exact_values, on_levels
from embedwatch.geometry.transformation import Directions, Sums, changes, spectrum_of
from embedwatch.geometry.truncation import looks_leading

SPREAD = torch.arange(1, 13).double() ** -0.5


def rows(count: int, seed: int, *, mean: float = 1.0) -> Tensor:
    """Return rows of 12 dimensions off the origin, the last two of which are constant."""
    drawn = torch.randn(count, 12, generator=torch.Generator().manual_seed(seed)).double() * SPREAD
    drawn[:, 10:] = 0
    drawn[:, 0] += mean
    return drawn


def sums(drawn: Tensor, centres: Tensor) -> Sums:
    """Return sums in the axes themselves as main directions."""
    cells = torch.cdist(drawn, centres).argmin(1)
    member = torch.nn.functional.one_hot(cells, len(centres)).double()
    centred = drawn - drawn.mean(0)
    return Sums(
        rows=len(drawn),
        mean=drawn.mean(0),
        scatter=centred.T @ centred,
        outside=0.0,
        energy=drawn.square().sum(0),
        cells=member.sum(0).long(),
        cell_sums=member.T @ drawn,
        cell_squares=member.T @ drawn.square().sum(1),
    )


def changed(before: Tensor, now: Tensor, *, centres: Tensor | None = None) -> dict[str, float | None]:
    by = Directions(torch.zeros(12).double(), torch.eye(12).double(), before.var(0), len(before))
    cells = torch.eye(12).double()[:2] * 2 - 1 if centres is None else centres
    return changes(sums(before, cells), sums(now, cells), by)._asdict()


BEFORE, NOW = rows(2_000, 0), rows(1_000, 1)


def test_unchanged_rows_change_nothing() -> None:
    found = changed(BEFORE, NOW)
    for name in ("concentration", "lead", "tail", "filled", "within"):
        assert found[name] == pytest.approx(1, abs=0.1), name
    for name in ("offset", "aside", "spectrum", "moved", "lost", "trailing"):
        assert found[name] == pytest.approx(0, abs=0.06), name
    assert (found["empty_before"], found["empty_now"]) == (2, 2)


def test_the_offset_is_measured_in_deviations_and_split_along_the_mean() -> None:
    deviation = float(BEFORE.var(0).sum()) ** 0.5
    along, aside = (torch.eye(12).double()[place] * 0.5 * deviation for place in (0, 1))
    assert changed(BEFORE, NOW + along)["offset"] == pytest.approx(0.5, abs=0.06)
    assert changed(BEFORE, NOW + along)["aside"] == pytest.approx(0, abs=0.07)
    assert changed(BEFORE, NOW + aside)["aside"] == pytest.approx(0.5, abs=0.06)
    one = torch.zeros(1, 12).double()
    assert changed(BEFORE, NOW + aside, centres=one)["common"] == pytest.approx(1, abs=0.01)


def test_collapse_strengthens_the_mean_by_the_square() -> None:
    found = changed(BEFORE, 0.8 * NOW + 0.2 * NOW.mean(0))
    assert found["concentration"] == pytest.approx(1 / 0.8**2, rel=0.1)
    assert found["within"] == pytest.approx(0.8**2, rel=0.1)
    assert found["lead"] == pytest.approx(1, abs=0.06)


def test_noise_fills_what_was_empty_and_a_rotation_keeps_the_spectrum() -> None:
    noise = 0.1 * torch.randn(1_000, 12, generator=torch.Generator().manual_seed(2)).double()
    assert (changed(BEFORE, NOW + noise)["filled"] or 0) > 1_000
    assert changed(BEFORE, NOW + noise)["empty_now"] == 0
    turn = torch.linalg.qr(torch.randn(12, 12, generator=torch.Generator().manual_seed(3)).double())[0]
    found = changed(BEFORE, NOW @ turn)
    assert found["empty_now"] == 2
    assert (found["filled"] or 0) > 1_000
    assert found["spectrum"] == pytest.approx(changed(BEFORE, NOW)["spectrum"])
    assert (found["lead"] or 1) < 0.8


def test_a_lower_rank_has_more_empty_directions() -> None:
    low = NOW.clone()
    low[:, 6:10] = 0
    found = changed(BEFORE, low)
    assert found["empty_now"] == 6
    assert found["tail"] == 0


def test_trailing_zeros_are_counted_from_the_end_only() -> None:
    cut, hole = NOW.clone(), NOW.clone()
    cut[:, 7:], hole[:, 3] = 0, 0
    assert changed(BEFORE, cut)["trailing"] == 3
    assert changed(BEFORE, hole)["trailing"] == 0


def test_shares_of_cells() -> None:
    centres = torch.zeros(2, 12).double()
    centres[:, 1] = torch.tensor([4.0, -4.0])
    up, down = NOW[NOW[:, 1] > 0], NOW[NOW[:, 1] <= 0]
    assert changed(BEFORE, up, centres=centres)["moved"] == pytest.approx(0.5, abs=0.03)
    assert changed(BEFORE, up, centres=centres)["lost"] == pytest.approx(0.5, abs=0.03)
    assert changed(BEFORE, up, centres=centres)["gone"] == pytest.approx(0.5, abs=0.03)
    rarer = changed(BEFORE, torch.cat([up[:400], down[:50]]), centres=centres)
    assert rarer["lost"] == pytest.approx(0.5, abs=0.03)
    assert rarer["gone"] == 0
    mixed = changed(BEFORE, torch.cat([up[:300], down[:100]]), centres=centres)
    assert mixed["moved"] == pytest.approx(0.25, abs=0.04)
    assert mixed["lost"] == 0


def test_too_few_rows_say_nothing_and_equal_rows_little() -> None:
    assert set(changed(BEFORE, NOW[:1]).values()) == {None}
    assert changed(BEFORE, NOW[:8])["empty_now"] is None
    equal = changed(BEFORE, NOW[:1].repeat(50, 1))
    assert equal["trailing"] == 0
    assert equal["lead"] is None


def test_a_spectrum_that_is_known_gives_the_same() -> None:
    by = Directions(torch.zeros(12).double(), torch.eye(12).double(), BEFORE.var(0), len(BEFORE))
    before, now = (sums(each, torch.zeros(1, 12).double()) for each in (BEFORE, NOW))
    assert changes(before, now, by) == changes(before, now, by, known=spectrum_of(before))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_values_of_a_coarser_type_are_exact_in_it_after_widening(dtype: torch.dtype) -> None:
    drawn = torch.randn(50, 30, generator=torch.Generator().manual_seed(0))
    assert bool(exact_values(drawn.to(dtype).float(), dtype).all())
    assert float(exact_values(drawn, dtype).float().mean()) < 0.01
    assert not bool(exact_values(torch.zeros(2, 3), dtype).any())
    assert not bool(exact_values(torch.full((1, 1), 1e6), torch.float16).any())


@pytest.mark.parametrize("scaled", ["by row", "for all", "from zero point"])
def test_rows_of_8_bit_integers_lie_on_levels_whatever_their_scale(scaled: str) -> None:
    drawn = torch.randn(64, 96, generator=torch.Generator().manual_seed(0))
    if scaled == "from zero point":
        low, step = drawn.amin(1, keepdim=True), (drawn.amax(1, keepdim=True) - drawn.amin(1, keepdim=True)) / 255
        coarse = ((drawn - low) / step).round() * step + low
    else:
        step = (drawn.abs().amax(1, keepdim=True) if scaled == "by row" else drawn.abs().amax()) / 127
        coarse = (drawn / step).round() * step
    assert bool(on_levels(coarse).all())
    assert bool(on_levels(torch.nn.functional.normalize(coarse, dim=1)).all())
    assert not bool(on_levels(drawn).any())
    assert not bool(on_levels(drawn.half().float()).any())


def test_narrow_and_constant_rows_are_on_no_levels() -> None:
    assert not bool(on_levels(torch.ones(3, 40)).any())
    assert not bool(on_levels(torch.tensor([[1.0, 2.0, 3.0]])).any())


def test_leading_dimensions_are_known_by_their_means_or_spreads() -> None:
    scale = torch.linspace(0.2, 2, 64)
    one, other = torch.randn(2, 300, 64, generator=torch.Generator().manual_seed(0)) * scale
    unit = torch.nn.functional.normalize
    assert looks_leading(one, unit(other[:, :32], dim=1))
    assert looks_leading(unit(one + 2, dim=1), other[:, :40] + 2)
    assert not looks_leading(one, torch.randn(300, 32, generator=torch.Generator().manual_seed(1)))
    assert not looks_leading(one, other)
    assert not looks_leading(one, other[:, :8])
    assert not looks_leading(torch.ones(40, 32), torch.ones(40, 20))
