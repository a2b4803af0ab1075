"""Random matrices of all types come back as they were, whatever the format and the batch size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from embedwatch.core.registry import get
from embedwatch.core.source import Source
from tests.sources.makers import MAKERS, TEXT, Matrix, matrix

EXAMPLES = 25
DTYPES = ("float16", "float32", "float64")


@st.composite
def matrices(draw: st.DrawFn) -> Matrix:
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.tuples(st.integers(1, 12), st.integers(1, 9)))
    values = st.floats(width=16) if dtype == "float16" else st.floats(width=32)
    return draw(arrays.arrays(dtype, shape, elements=values))


def rows_of(path: Path, name: str, size: int, options: dict[str, str]) -> torch.Tensor:
    batches = list(get(Source, name).open(path, **options).batches(size))
    return torch.cat([batch.rows for batch in batches])


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as name:
        yield Path(name)


@pytest.mark.parametrize("made", [made for made in MAKERS if made != "text matrix"])
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(x=matrices(), size=st.integers(1, 14))
def test_comes_back(made: str, x: Matrix, size: int) -> None:
    name, make, options = MAKERS[made]
    if name in ("csv", "glove") and not np.isfinite(x).all():
        x = np.nan_to_num(x, nan=0.5, posinf=1.0, neginf=-1.0)  # a column of nothing but NaN is no dimension
    if made in ("glove", "csv plain") or name == "csv":
        x[0] = x[0] * 0 + x.dtype.type(0.5)  # these guess from the first rows, and whole numbers may be ids
    with TemporaryDirectory() as place:
        rows = rows_of(make(Path(place), x), name, size, options)
    expected = torch.from_numpy(x).float() if name in TEXT else torch.from_numpy(x)
    assert rows.dtype == expected.dtype
    assert torch.equal(rows.isnan(), expected.isnan())
    assert torch.equal(rows.nan_to_num(0.25), expected.nan_to_num(0.25))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("made", MAKERS)
def test_every_type_in_every_format(made: str, dtype: str, tmp_path: Path) -> None:
    name, make, options = MAKERS[made]
    x = matrix(31, 6, dtype)
    rows = rows_of(make(tmp_path, x), name, 8, options)
    assert rows.dtype == (torch.float32 if name in TEXT else getattr(torch, dtype))
    torch.testing.assert_close(rows.double(), torch.from_numpy(x).to(rows.dtype).double(), rtol=0, atol=0)
