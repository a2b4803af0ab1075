"""What all tests of live models share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.quiet import quiet_transformers


@pytest.fixture(scope="session", autouse=True)
def _silent() -> Iterator[None]:
    with quiet_transformers():
        yield
