"""The evaluator: one thread, one thread of BLAS, jobs in order, nothing that stops the model."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from embedwatch.core import Boundary
from embedwatch.evaluator import Evaluator
from tests.polling import DEADLINE, poll


def test_jobs_are_done_in_their_order_on_one_other_thread() -> None:
    done: list[tuple[int, int]] = []
    with Evaluator(Boundary()) as evaluator:
        for number in range(100):
            assert evaluator.put(lambda number=number: done.append((number, threading.get_ident())))
    assert [number for number, _ in done] == list(range(100))
    assert {ident for _, ident in done}.isdisjoint({threading.get_ident()})
    assert len({ident for _, ident in done}) == 1


def test_it_computes_on_one_thread_and_leaves_those_of_others() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        seen: list[int] = []
        with Evaluator(Boundary()) as evaluator:
            for _ in range(2):
                evaluator.put(lambda: seen.append(torch.ones(1 << 18).sum().int().item() and torch.get_num_threads()))
            evaluator.wait()
            other = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
            other.start()
            other.join()
            seen.append(torch.get_num_threads())
        assert seen == [1, 1, 3, 3]
    finally:
        torch.set_num_threads(before)


def test_gradients_are_off_where_jobs_run() -> None:
    seen: list[bool] = []
    with Evaluator(Boundary()) as evaluator:
        evaluator.put(lambda: seen.append(torch.is_grad_enabled()))
    assert seen == [False]


def test_more_than_may_wait_is_refused_and_small_jobs_are_not() -> None:
    gate = threading.Event()
    with Evaluator(Boundary(), capacity=100) as evaluator:
        evaluator.put(lambda: gate.wait(DEADLINE) and None)
        assert evaluator.put(lambda: None, size=60)
        assert not evaluator.put(lambda: None, size=60)
        assert evaluator.put(lambda: None)
        gate.set()
        assert evaluator.wait(DEADLINE)
        assert evaluator.put(lambda: None, size=60), "there is room again"


def test_an_exception_is_counted_and_the_next_job_runs() -> None:
    boundary, done = Boundary(), []
    with Evaluator(boundary) as evaluator:
        evaluator.put(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
        evaluator.put(lambda: done.append(1))
    assert done == [1]
    assert boundary.errors == {("evaluator", "job"): 1}


def test_who_waits_is_told_where_exceptions_are_let_through() -> None:
    with Evaluator(Boundary(on_error="raise")) as evaluator:
        evaluator.put(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
        with pytest.raises(ZeroDivisionError):
            evaluator.wait(DEADLINE)
        assert evaluator.wait(DEADLINE), "once"


def test_idle_work_is_done_when_there_is_nothing_else() -> None:
    idled: list[float] = []
    with Evaluator(Boundary(), idle=lambda: idled.append(1.0), period=0.01):
        poll(lambda: len(idled) > 2)


def test_time_is_counted_and_that_of_extra_work_apart() -> None:
    def work() -> None:
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass

    with Evaluator(Boundary()) as evaluator:
        evaluator.put(work)
        evaluator.wait()
        assert evaluator.seconds >= 0.02
        assert evaluator.extra_seconds == 0.0
        evaluator.put(work, extra=True)
        evaluator.wait()
        assert evaluator.seconds >= 0.04 > evaluator.extra_seconds >= 0.02


def test_what_a_job_holds_is_freed_when_it_is_done() -> None:
    import weakref

    class Held:
        pass

    with Evaluator(Boundary()) as evaluator:
        held = Held()
        gone = weakref.ref(held)
        evaluator.put(lambda held=held: None)
        del held
        evaluator.wait()
        poll(lambda: gone() is None)


def test_after_closing_nothing_is_taken_and_closing_again_does_nothing() -> None:
    evaluator = Evaluator(Boundary())
    evaluator.close()
    evaluator.close()
    assert not evaluator.alive
    assert not evaluator.put(lambda: None)
    assert evaluator.wait(0.1)
