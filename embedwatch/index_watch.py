"""A live index in a serving process, looked at every so many seconds: recall and freshness as gauges."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any

from embedwatch.ann.live import LiveIndex
from embedwatch.core.boundary import Boundary, OnError
from embedwatch.core.errors import UsageError
from embedwatch.core.sink import Sink
from embedwatch.core.source import Source
from embedwatch.course import Judgement
from embedwatch.evaluator import Evaluator
from embedwatch.index_health import IndexQuestions, judge_live
from embedwatch.judged import Judged
from embedwatch.monitor_options import listed
from embedwatch.selection import DiagnosticSelection
from embedwatch.sinks import open_sinks

__all__ = ["IndexWatch"]

Given = str | os.PathLike[str] | Source
STAGE = "index"
"""Where exceptions end."""
WAIT = 120.0
"""Seconds to wait for a look that was asked for."""


class IndexWatch:
    """Looks at a live FAISS index now and every so many seconds, and tells the sinks what `examine_index` finds.

    It works on one thread of its own, with one thread of FAISS, and only reads. FAISS lets many search at a time, but
    nobody may add or remove meanwhile: hold `lock` where you do.

    Args:
        index: a FAISS index, searched as it is set at that time, or a function that returns the one that serves now.
        every: seconds from the end of one look to the next.
        queries: file of vectors, or a Source; without them, rows of the index are asked for their neighbours.
        present: vectors that the present model writes, row i for id i, or for the id that is its name.
        label: what people call it, the label `model` of what is found.
        sinks: where findings go: Sinks, or texts as in `--sink`, which are closed at the end.
        lock: held while it looks, such as a `threading.Lock`.
        only: names of diagnostics, measurements or checks to keep.
        skip: names of those to leave out.
        on_error: what happens to exceptions of ours.

    Raises:
        InputError: if the vectors of the index cannot be had, or those that it is asked with cannot be read.
        UsageError: if an argument does not fit.

    Cost: of one look, `200 · N · D` multiplications for recall without approximation.

    Example:
        >>> import faiss, numpy
        >>> index = faiss.IndexFlatL2(8)
        >>> index.add(numpy.random.default_rng(0).normal(size=(500, 8)).astype("float32"))
        >>> with IndexWatch(index, label="docs", sinks=[]) as watch:
        ...     found = watch.look()
        >>> str(found.snapshot.space), found.snapshot.number("index_recall_ratio")
        ('docs/index', 1.0)
    """

    def __init__(
        self,
        index: Any,
        *,
        every: float = 300.0,
        queries: Given | None = None,
        present: Given | None = None,
        label: str = "index",
        sinks: Iterable[Sink | str] = ("log",),
        lock: AbstractContextManager[Any] | None = None,
        only: Sequence[str] = (),
        skip: Sequence[str] = (),
        on_error: OnError = "count",
    ) -> None:
        if isinstance(every, bool) or not isinstance(every, int | float) or not 0 < every < float("inf"):
            raise UsageError(f"`every` must be a number of seconds above 0, got {every!r}; 300 is usual")
        self._index: Callable[[], Any] = index if callable(index) else lambda: index
        self._asked, self._label = IndexQuestions(queries, present), label
        self._lock: AbstractContextManager[Any] = nullcontext() if lock is None else lock
        self._only, self._skip = listed("only", only), listed("skip", skip)
        DiagnosticSelection.choose(only=self._only, skip=self._skip)  # refuses names that there are none of
        with self._lock:
            self._asked.check_live(LiveIndex(self._index(), label))
        self.boundary = Boundary(on_error=on_error)
        self.last: Judged | None = None
        """What was found last; `None` before the first look is over, and where it failed."""
        self.looks = 0
        """Looks that were made and delivered."""
        self._sinks = open_sinks(listed("sinks", sinks))
        self._closed = False
        self._evaluator = Evaluator(self.boundary, idle=self._look, period=every)
        self._evaluator.put(self._look)

    def _look(self) -> None:
        found: list[Judged] = []
        with self.boundary.guard(STAGE, self._label, recovers=True), self._lock:
            index = LiveIndex(self._index(), self._label)
            found.append(judge_live(index, self._asked, only=self._only, skip=self._skip, boundary=self.boundary))
        self.last = next(iter(found), None)
        for judged in found:
            self.looks += 1
            judgement = Judgement(judged.snapshot, judged.verdicts, judged.exhibits)
            for sink, _ in self._sinks:
                judgement.deliver(sink, self.boundary, windows=self.looks)

    def look(self) -> Judged | None:
        """Look now, and return what was found; `None` where that failed or takes minutes, or it is closed.

        Nor does it look in a process that was forked off: make one there.
        """
        if self._closed or not self._evaluator.put(self._look):
            return None
        return self.last if self._evaluator.wait(WAIT) else None

    @property
    def errors(self) -> dict[tuple[str, str], int]:
        """Exceptions of ours that were counted, by (stage, name)."""
        return self.boundary.errors

    def close(self) -> None:
        """End after the look that is going on, and close the sinks that are ours. Calling it again does nothing."""
        if self._closed:
            return
        self._closed = True
        self._evaluator.close()
        for sink, ours in self._sinks:
            if ours:
                with self.boundary.guard("sink", sink.name):
                    sink.close()

    def __enter__(self) -> IndexWatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.looks} looks"
        return f"IndexWatch({self._label}, {state})"
