"""Files of others that pages need, kept here whole so that no page asks the network.

One chart library is for all pages, two small ones keep the page of the daemon in step with what it shows.

| file | what | version | licence |
| --- | --- | --- | --- |
| `echarts.min.js` | Apache ECharts, charts on canvas | 6.1.0 | Apache-2.0, in `echarts.LICENSE` and `echarts.NOTICE` |
| `preact.js` | Preact, elements that follow their data; its `dist/preact.mjs` | 11.2.0 | MIT, in `preact.LICENSE` |
| `htm.js` | htm, templates without a build step; its `dist/htm.mjs` | 3.1.1 | Apache-2.0, in `htm.LICENSE` |
"""

from __future__ import annotations

from importlib.resources import files

__all__ = ["CHARTS", "DIGESTS", "ELEMENTS", "TEMPLATES", "read_asset"]

CHARTS = "echarts.min.js"
ELEMENTS = "preact.js"
TEMPLATES = "htm.js"
DIGESTS = {
    CHARTS: "b66b25aeb4df84e33199dc21694014d336d222cbd9deb0e5a7c14bd6aa0d0fd0",
    ELEMENTS: "bdcbd9abdf2c77c5c45326eab42191e949222d479d0d5f69467387a77040cb55",
    TEMPLATES: "ab33dd3f38059b9be4d5f5350128eefb2356639c4e0bbe9d9e8b3ba75847e9e4",
}
"""SHA-256 of each file as its authors published it."""


def read_asset(name: str) -> bytes:
    """Return the content of a file that lies here.

    Example:
        >>> len(read_asset(CHARTS)) < 1_500_000
        True
    """
    return (files(__name__) / name).read_bytes()
