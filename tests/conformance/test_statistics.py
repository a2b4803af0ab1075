"""Every registered Statistic obeys every law. Nothing here names one: a new file is tested without an edit."""

from __future__ import annotations

import pytest

from embedwatch.core.registry import registered
from embedwatch.core.statistic import Statistic
from embedwatch.testing import STATISTIC_LAWS, obey

STATISTICS = registered(Statistic)


@pytest.mark.parametrize("law", STATISTIC_LAWS)
@pytest.mark.parametrize("name", STATISTICS)
def test_law(name: str, law: str) -> None:
    obey(law, STATISTICS[name])
