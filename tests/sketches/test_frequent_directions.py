"""The bound of Frequent Directions holds for any split, order and merge."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from embedwatch.batch import VectorBatch
from embedwatch.core.registry import get
from embedwatch.core.statistic import Statistic
from embedwatch.geometry.spectrum import effective_rank, isoscore_star, participation_ratio
from embedwatch.sketches import FrequentDirections

SIZE = 10


def rows(seed: int, count: int = 300, dimension: int = 40) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    scale = torch.arange(1, dimension + 1).double() ** -1.0
    return torch.randn(count, dimension, generator=generator, dtype=torch.float64) * scale + 0.7


def assert_bound(sketch: FrequentDirections, data: torch.Tensor) -> None:
    """0 ⪯ S - BᵀB, and its largest eigenvalue within the a-priori and the a-posteriori bound."""
    centred = data - data.mean(0)
    exact = centred.T @ centred
    matrix = sketch.matrix()
    assert matrix is not None
    missing = torch.linalg.eigvalsh(exact - matrix.T @ matrix)
    values = torch.linalg.eigvalsh(exact).flip(0)
    bound = min(float(values[k:].sum()) / (SIZE - k) for k in range(SIZE))
    scale = float(values[0])
    assert missing[0] >= -1e-9 * scale
    assert missing[-1] <= bound + 1e-9 * scale
    assert missing[-1] <= sketch.lowered + 1e-9 * scale
    assert sketch.energy == pytest.approx(float(exact.trace()), rel=1e-9)
    torch.testing.assert_close(sketch.mean, data.mean(0))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.lists(st.integers(0, 300), max_size=4))
def test_bound_under_any_split_and_merge(seed: int, places: list[int]) -> None:
    data = rows(seed)
    edges = [0, *sorted(places), len(data)]
    parts = [data[a:b] for a, b in pairwise(edges)]
    streamed, merged = FrequentDirections(SIZE), FrequentDirections(SIZE)
    for part in parts:
        streamed.add(part)
        other = FrequentDirections(SIZE)
        other.add(part)
        merged.merge(other)
    assert_bound(streamed, data)
    assert_bound(merged, data)


def test_rows_of_low_rank_are_kept_exactly() -> None:
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(500, 6, generator=generator, dtype=torch.float64) @ torch.randn(
        6, 40, generator=generator, dtype=torch.float64
    )
    sketch = FrequentDirections(SIZE)
    for part in data.split(77):
        sketch.add(part)
    found = sketch.eigenvalues(centred=True)
    assert found is not None
    wanted = torch.linalg.eigvalsh(torch.cov(data.T)).flip(0)
    for spectrum in found:
        torch.testing.assert_close(spectrum[:6], wanted[:6], rtol=1e-9, atol=0)
        assert float(spectrum[6:].sum()) < 1e-9 * float(spectrum[0])


@pytest.mark.parametrize("power", [0.0, 0.25, 0.5, 1.0])
def test_effective_rank_of_a_wide_space(power: float) -> None:
    """Estimates of the sketch and their stated error on spectra from flat to steep, at the size that is used."""
    generator = torch.Generator().manual_seed(0)
    dimension = 1_600
    data = torch.randn(4_000, dimension, generator=generator) * torch.arange(1, dimension + 1) ** -power
    statistic = get(Statistic, "spectrum")()  # type: ignore[type-abstract]
    statistic.update(VectorBatch(data))
    found = {m.name: m for m in statistic.compute()}
    exact = torch.linalg.eigvalsh(torch.cov(data.double().T))
    for name, formula, near in (
        ("effective_rank", effective_rank, 0.35),
        ("participation_ratio", participation_ratio, 1.1),
        ("isoscore", isoscore_star, 1.1),
    ):
        wanted, measured = formula(exact), found[name]
        assert wanted is not None
        assert measured.number == pytest.approx(wanted, rel=near)  # what was seen on these spectra
        assert measured.error is not None
        assert measured.number == pytest.approx(wanted, abs=measured.error)  # what the sketch promises
    assert found["condition_number"].number is None
