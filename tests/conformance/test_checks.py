"""Every registered Check keeps its contract."""

from __future__ import annotations

import pytest

from embedwatch.core.check import Check
from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.registry import registered
from embedwatch.core.statistic import Statistic
from embedwatch.testing import CHECK_CONTRACT

CHECKS = registered(Check)


@pytest.mark.parametrize("clause", CHECK_CONTRACT)
@pytest.mark.parametrize("name", CHECKS)
def test_clause(name: str, clause: str) -> None:
    CHECK_CONTRACT[clause](CHECKS[name]())


@pytest.mark.parametrize("name", CHECKS)
def test_reads_what_some_statistic_or_diagnostic_delivers(name: str) -> None:
    delivered = {metric.name for statistic in registered(Statistic).values() for metric in statistic.metrics}
    delivered |= {metric.name for diagnostic in registered(Diagnostic).values() for metric in diagnostic.metrics}
    assert set(CHECKS[name].reads) <= delivered


@pytest.fixture(scope="module")
def made() -> set[str]:
    """Names of the exhibits that statistics and diagnostics make of their examples."""
    made = set()
    for statistic in registered(Statistic).values():
        for empty, batches in statistic.examples(0):
            for batch in batches:
                empty.update(batch)
            made |= {exhibit.name for exhibit in empty.exhibits()}
    for diagnostic in registered(Diagnostic).values():
        for subject in diagnostic.examples():
            made |= {exhibit.name for exhibit in diagnostic().examine(subject)[1]}
    return made


@pytest.mark.parametrize("name", CHECKS)
def test_cites_exhibits_that_some_statistic_or_diagnostic_makes(name: str, made: set[str]) -> None:
    assert set(CHECKS[name].exhibits) <= made
