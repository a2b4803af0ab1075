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

__all__ = ["CHECK_CONTRACT", "SINK_CONTRACT", "STATISTIC_LAWS", "LawViolation", "hostile_snapshots", "obey"]
