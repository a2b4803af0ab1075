"""The evaluator: one thread that does what must not be done where the model runs."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

import torch
from threadpoolctl import threadpool_limits

from embedwatch.core.boundary import Boundary

__all__ = ["CAPACITY", "Evaluator"]

Job = Callable[[], None]
CAPACITY = 32 << 20
WARMED = 1 << 17
"""Elements of a sum that torch shares among threads: its first use sets the number of threads."""


class Evaluator:
    """Does jobs in their order, on one thread of its own and with one thread of BLAS, beside a busy model.

    Args:
        boundary: where exceptions of jobs end.
        idle: called every `period` seconds in which there was nothing to do.
        period: seconds.
        capacity: the most bytes that may wait; a job beyond is refused.

    Example:
        >>> done = []
        >>> with Evaluator(Boundary()) as evaluator:
        ...     evaluator.put(lambda: done.append(1))
        True
        >>> done
        [1]
    """

    def __init__(
        self,
        boundary: Boundary,
        *,
        idle: Job = lambda: None,
        period: float = 5.0,
        capacity: int = CAPACITY,
    ) -> None:
        self._boundary, self._idle, self._period, self._capacity = boundary, idle, period, capacity
        self._jobs: queue.SimpleQueue[tuple[Job, int, bool] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting = 0
        self._failure: Exception | None = None
        self._ready, self._go = threading.Event(), threading.Event()
        self.seconds = 0.0
        """CPU seconds of all jobs."""
        self.extra_seconds = 0.0
        """Those of jobs beside the regular ones."""
        self.beat = time.monotonic()
        """When it last showed life, by a clock that never jumps."""
        self._thread = threading.Thread(target=self._run, name="embedwatch-evaluator", daemon=True)
        self._start()

    def _start(self) -> None:
        threads = torch.get_num_threads()
        self._thread.start()
        self._ready.wait()
        torch.set_num_threads(threads)  # what new threads of others get; the evaluator has its one already
        self._go.set()

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether it still takes jobs."""
        return self._thread.is_alive()

    def put(self, job: Job, *, size: int = 0, extra: bool = False) -> bool:
        """Add a job that holds `size` bytes; return whether there was room. Never waits."""
        with self._lock:
            if not self.alive or (size and self._waiting + size > self._capacity):
                return False
            self._waiting += size
        self._jobs.put((job, size, extra))
        return True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all jobs are done that were put before; return whether they are.

        Raises:
            Exception: what a job raised, where the boundary lets exceptions through.
        """
        finished = True
        if self.alive and threading.current_thread() is not self._thread:
            done = threading.Event()
            self.put(done.set)
            finished = done.wait(timeout)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return finished

    def stop(self) -> None:
        """End after what waits, without waiting for it."""
        self._jobs.put(None)

    def close(self, timeout: float | None = 60.0) -> None:
        """Do what waits, and end. Calling it again does nothing."""
        self._jobs.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def _run(self) -> None:
        torch.ones(WARMED).sum()
        torch.set_num_threads(1)
        threadpool_limits(1, user_api="openmp")  # of this thread alone: pools of other libraries, as that of faiss
        self._ready.set()
        self._go.wait()
        while True:
            self.beat = time.monotonic()
            try:
                entry = self._jobs.get(timeout=self._period)
            except queue.Empty:
                self._do(self._idle, extra=False)
                continue
            if entry is None:
                return
            job, size, extra = entry
            self._do(job, extra=extra)
            del job, entry  # what it holds goes now, not with the next one
            with self._lock:
                self._waiting -= size

    def _do(self, job: Job, *, extra: bool) -> None:
        began = time.thread_time()
        try:
            with self._boundary.guard("evaluator", "job", recovers=True), torch.no_grad():
                job()
        except Exception as error:  # noqa: BLE001 - the thread goes on; whoever waits is told
            self._failure = self._failure or error
        spent = time.thread_time() - began
        self.seconds += spent
        if extra:
            self.extra_seconds += spent
