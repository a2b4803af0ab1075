"""Pages: the exposition of all Spaces, encoded when it changes; a scrape gets bytes that exist already."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from embedwatch.core.snapshot import Snapshot, Space
from embedwatch.core.verdict import Verdict
from embedwatch.sinks._encoding import OPENMETRICS, TEXT, Publication
from embedwatch.sinks._page_server import Page
from embedwatch.sinks._publisher import MAX_VALUES, Publisher

__all__ = ["Pages"]


class Pages:
    """What a scrape is sent, as text or as OpenMetrics, plain or through gzip.

    Args:
        max_spaces: so many places have a label value of their own.
        clock: seconds since the epoch.
    """

    def __init__(self, max_spaces: int, clock: Callable[[], float]) -> None:
        self._pages: tuple[Page, ...] = ()
        self._publisher = Publisher(self._encode, max_values=max(MAX_VALUES, max_spaces), clock=clock)
        self._publisher.publish()

    def _encode(self, publication: Publication) -> None:
        pages = (Page(TEXT, publication.text), Page(OPENMETRICS, publication.openmetrics))
        for page in pages:
            _ = page.zipped  # here, not in a scrape
        self._pages = pages

    def write(self, windows: Iterable[tuple[Snapshot, Sequence[Verdict]]]) -> None:
        """Show windows with their verdicts."""
        self._publisher.write_all(windows)

    def remember(self, closed: Mapping[Space, float]) -> None:
        """Say of Spaces when their last window closed, and nothing else."""
        self._publisher.remember(closed)

    def forget(self, spaces: Iterable[Space]) -> None:
        """Show some Spaces no more."""
        self._publisher.forget(spaces)

    def page(self, accept: str, *, zipped: bool) -> tuple[bytes, dict[str, str]]:
        """Return the body that an Accept header asks for, and its headers."""
        page = max(self._pages, key=lambda page: page.quality(accept))
        headers = {"Content-Type": page.content_type, "Vary": "Accept, Accept-Encoding", "Cache-Control": "no-store"}
        return (page.zipped, {**headers, "Content-Encoding": "gzip"}) if zipped else (page.body, headers)
