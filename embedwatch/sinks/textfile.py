"""Writes what was written last to a file that node_exporter reads."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from embedwatch.core.errors import UsageError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.sink import Sink
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Verdict
from embedwatch.sinks._encoding import Publication
from embedwatch.sinks._publisher import MAX_SERIES, MAX_VALUES, Publisher
from embedwatch.whole_files import write_whole

ENDING = ".prom"
MODE = 0o644
"""node_exporter runs as somebody else."""


class Textfile(Sink):
    """Writes the last window of each Space to a file, for the textfile collector of node_exporter.

    The exposition is that of the sink `prometheus`, renewed as a whole with each Snapshot: a reader never sees half of
    it. The file stays when the sink is closed. Let all Spaces of a machine go to one file: in two files of one folder
    node_exporter finds the same series twice, and refuses both.

    Args:
        path: a file in a folder that exists; its name ends in `.prom`, others are not read.
        max_values: distinct values of one label; further ones become `other`.
        max_series: series in all; beyond, whole families of the newest Spaces are left out.
        expires: seconds after which a Space that is not heard of is left out; `None` keeps it.
        clock: seconds since the epoch.
    """

    name = "textfile"
    title = "node_exporter textfile"
    target = "PATH.prom"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_values: int = MAX_VALUES,
        max_series: int = MAX_SERIES,
        expires: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = Path(path)
        if self.path.suffix != ENDING or self.path.is_dir():
            raise UsageError(f"sink textfile needs a file whose name ends in {ENDING}, got {str(path)!r}; rename it")
        if not self.path.absolute().parent.is_dir():
            raise UsageError(
                f"sink textfile needs a file in a folder that exists, got {str(path)!r}; make the folder first"
            )
        self._publisher = Publisher(
            self._deliver, max_values=max_values, max_series=max_series, expires=expires, clock=clock
        )

    def write(self, snapshot: Snapshot, verdicts: Sequence[Verdict], exhibits: Sequence[Exhibit] = ()) -> None:
        """Renew the file with one Snapshot and its verdicts."""
        del exhibits
        self._publisher.write(snapshot, verdicts)

    def expect(self, snapshots: Sequence[Snapshot]) -> None:
        """Renew the file with the counters of Spaces that will come, at zero."""
        self._publisher.expect(snapshots)

    def _deliver(self, publication: Publication) -> None:
        """Put a whole file in the place of the other; its name while it grows is one that nobody reads."""
        write_whole(self.path, publication.text, mode=MODE)
