"""One model served by many threads, wrapped for many devices, or forked into other processes."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

from embedwatch.core.sink import Sink
from embedwatch.core.snapshot import Snapshot
from embedwatch.monitor import watch
from tests.observe import tiny

THREADS, PASSES = 8, 12
SECONDS = 60


class Rows(Sink, register=False):
    """Adds up the rows of each place."""

    name = "rows"

    def __init__(self) -> None:
        self.total: Counter[str] = Counter()

    def write(self, snapshot: Snapshot, verdicts: Any, exhibits: Any = ()) -> None:
        self.total[snapshot.space.place] += snapshot.provenance.rows

    def close(self) -> None:
        """Nothing is open."""


def batches() -> list[tiny.Batch]:
    """Return one batch for each thread, with as many real tokens as its number asks for."""
    found = []
    for number in range(THREADS):
        ids, mask = tiny.tokens(lengths=(7, 1 + number % 7, 3), seed=number)
        found.append({"input_ids": ids, "attention_mask": mask.long()})
    return found


def at_once(work: Callable[[int], Any]) -> list[Any]:
    """Do work on all threads, beginning at the same time."""
    start = threading.Barrier(THREADS)

    def waited(number: int) -> Any:
        start.wait(SECONDS)
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return [each.result(SECONDS) for each in [pool.submit(waited, number) for number in range(THREADS)]]


@pytest.mark.parametrize("kind", ["bert", "llama-lm"])
def test_threads_that_serve_one_model_get_their_results_and_each_row_is_counted_once(kind: str) -> None:
    model = tiny.shared(kind)
    given = batches()
    with torch.inference_mode():
        expected = [tiny.tensors(model(**batch))[0] for batch in given]
    sink = Rows()

    def serve(number: int) -> list[bool]:
        with torch.inference_mode():
            return [tiny.identical(tiny.tensors(model(**given[number]))[0], expected[number]) for _ in range(PASSES)]

    with watch(model, every=1, rows=tiny.ALL, sinks=[sink], only=["norms"], on_error="raise", budget=None) as monitor:
        right = at_once(serve)
        table = monitor._attachment.table
        assert table is not None
        counted = int(table.counts.sum())
    assert all(all(each) for each in right)
    real = PASSES * sum(int(batch["attention_mask"].sum()) for batch in given)
    hidden = [place.name for place in monitor.places if place.role == "hidden"]
    assert {sink.total[place] for place in hidden} == {real}
    assert counted == real
    assert monitor.pulse.forwards == THREADS * PASSES
    assert monitor.errors == {}


def test_masks_and_calls_of_one_thread_are_not_those_of_another() -> None:
    """Each thread holds on in the middle of its pass until all are there."""
    model = tiny.build("bert")
    given = batches()
    middle = threading.Barrier(THREADS)

    def wait(*_: Any) -> None:
        middle.wait(SECONDS)

    model.get_submodule("encoder.layer.0").register_forward_hook(wait)

    def serve(number: int) -> None:
        with torch.inference_mode():
            model(**given[number])

    with tiny.eyes(model) as eyes:
        at_once(serve)
        sizes = [len(rows) for rows in eyes.looks("encoder.layer.1")]
        assert sorted(sizes) == sorted(int(batch["attention_mask"].sum()) for batch in given)
        given_numbers = torch.cat(eyes.numbers("encoder.layer.1"))
        assert len(given_numbers.unique()) == len(given_numbers)


def test_threads_may_begin_and_end_watching_while_others_serve() -> None:
    model, batch = tiny.build("bert"), tiny.inputs("bert")
    with torch.inference_mode():
        expected = model(**batch).last_hidden_state
    done = threading.Event()

    def serve() -> bool:
        right = True
        with torch.inference_mode():
            while not done.is_set():
                right = right and tiny.identical(model(**batch).last_hidden_state, expected)
        return right

    with ThreadPoolExecutor(3) as pool:
        served = [pool.submit(serve) for _ in range(3)]
        for _ in range(10):
            watching = watch(model, every=1, sinks=[], only=["norms"], on_error="raise", budget=None)
            with watching, torch.inference_mode():
                model(**batch)
        done.set()
        assert all(each.result(SECONDS) for each in served)
    assert not any(module._forward_hooks for module in model.modules())


def compiled(model: nn.Module) -> nn.Module:
    made: Any = torch.compile(model, backend="eager")
    return nn.DataParallel(made)


@pytest.mark.parametrize("wrap", [nn.DataParallel, compiled], ids=["parallel", "parallel and compiled"])
def test_a_wrapped_model_is_watched_inside(wrap: Callable[[nn.Module], nn.Module]) -> None:
    model = tiny.build("bert")
    wrapper = wrap(model)
    with watch(wrapper, every=1, sinks=[], only=["norms"], on_error="raise") as monitor, torch.no_grad():
        assert monitor.model is model
        nn.DataParallel(model)(**tiny.inputs("bert"))
        assert monitor.blind() == {}
        assert not wrapper._forward_hooks


FORKED = """
import os
import sys

import torch
from torch.utils.data import DataLoader, Dataset

import embedwatch
from embedwatch.monitor import watch

torch.manual_seed(0)
layers = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()) for _ in range(2))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.layers = torch.nn.Embedding(30, 8), layers

    def forward(self, ids):
        rows = self.tokens(ids)
        for layer in self.layers:
            rows = layer(rows)
        return rows


class Encoded(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        with torch.no_grad():
            row = model(torch.arange(5)[None] + index)[0]
        monitor.step()
        monitor.flush()
        return row, monitor.pulse.forwards, monitor.pulse.step


model = Model()
ids = torch.arange(5)[None]
with watch(model, every=1, sinks=[], budget=None, on_error="raise") as monitor:
    with torch.no_grad():
        expected = model(ids)
    seen = monitor.pulse.forwards, monitor.pulse.step
    child = os.fork()
    if not child:
        with torch.no_grad():
            right = torch.equal(model(ids), expected)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(ids).sum().backward()
        optimizer.step()
        monitor.flush()
        monitor.detach()
        same = (monitor.pulse.forwards, monitor.pulse.step) == seen and monitor.detached
        with watch(model, every=1, sinks=[]) as own:  # it may watch for itself
            model(ids)
        os._exit(0 if right and same and own.pulse.forwards == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    loader = DataLoader(Encoded(), batch_size=None, num_workers=2, multiprocessing_context="fork")
    for index, (row, forwards, step) in enumerate(loader):
        assert (forwards, step) == seen
    with torch.no_grad():
        model(ids)
    assert monitor.pulse.forwards == seen[0] + 1
    monitor.flush()
    assert not monitor.detached
print("done")
"""


def test_a_forked_process_sees_nothing_and_does_not_hang() -> None:
    ran = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=SECONDS)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "done\n"
