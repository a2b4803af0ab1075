"""Files of others that pages need, kept here whole so that no page asks the network: one chart library for all.

| file | what | version | licence |
| --- | --- | --- | --- |
| `echarts.min.js` | Apache ECharts, charts on a canvas | 6.1.0 | Apache-2.0, in `echarts.LICENSE` and `echarts.NOTICE` |
"""

from __future__ import annotations

from importlib.resources import files

__all__ = ["CHARTS", "DIGESTS", "read_asset"]

CHARTS = "echarts.min.js"
DIGESTS = {CHARTS: "b66b25aeb4df84e33199dc21694014d336d222cbd9deb0e5a7c14bd6aa0d0fd0"}
"""SHA-256 of each file as its authors published it."""


def read_asset(name: str) -> bytes:
    """Return the content of a file that lies here.

    Example:
        >>> len(read_asset(CHARTS)) < 1_500_000
        True
    """
    return (files(__name__) / name).read_bytes()
