"""Shipped test suites: the laws of statistics and the contracts of checks, sinks and sources. Needs Hypothesis.

Example:
    ```
    import pytest
    from embedwatch.testing import STATISTIC_LAWS, obey

    @pytest.mark.parametrize("law", STATISTIC_LAWS)
    def test_my_statistic(law):
        obey(law, MyStatistic)
    ```
"""

from embedwatch.testing.contracts import CHECK_CONTRACT, SINK_CONTRACT, hostile_snapshots
from embedwatch.testing.laws import STATISTIC_LAWS, LawViolation, obey
from embedwatch.testing.source_contract import SOURCE_CONTRACT, hostile_variants, refuses_damage, source_contract

__all__ = [
    "CHECK_CONTRACT",
    "SINK_CONTRACT",
    "SOURCE_CONTRACT",
    "STATISTIC_LAWS",
    "LawViolation",
    "hostile_snapshots",
    "hostile_variants",
    "obey",
    "refuses_damage",
    "source_contract",
]
