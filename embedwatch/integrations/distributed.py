"""The ranks of one training: who they are, and a way of their own to the first of them.

What travels goes over a gloo group that nobody else knows: it is no part of torch's list of groups, is used by the
evaluator's thread alone, and waits for nobody longer than `PATIENCE`. The training never waits for it.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed.distributed_c10d as c10d
from torch import Tensor, distributed, nn

from embedwatch.core.errors import EmbedwatchError, UsageError

__all__ = ["Ranks", "RanksApart", "are_together", "find_ranks"]

log = logging.getLogger(__name__)

PATIENCE = 60.0
"""Seconds that one rank waits for another: a window closes at the same step everywhere, so they come together."""
POLL = 0.02
"""Seconds between two looks whether all ranks are there."""
MOST_BYTES = 1 << 31
"""No share of a rank is longer."""

_numbers = itertools.count()


class RanksApart(EmbedwatchError, RuntimeError):
    """Ranks did not come together: one does not watch, has gone, or closed another window."""


class Ranks:
    """All ranks of a training, of which each watches its own model. Made by every rank in the same order.

    Making one waits for nobody. The group is made by the first `combine`, on the thread that calls it.

    Args:
        patience: seconds to wait for another rank, by default `PATIENCE`.
    """

    def __init__(self, *, patience: float | None = None) -> None:
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()
        self.off = False
        """Whether ranks did not come together: each is on its own then."""
        self._patience = PATIENCE if patience is None else patience
        self._group: Any = None
        self._store: Any = c10d.PrefixStore(f"embedwatch/{next(_numbers)}", _own_connection())
        self._store.set(_here(self.rank), "here")

    @property
    def first(self) -> bool:
        """Whether this is the rank that judges and delivers."""
        return self.rank == 0

    def combine(self, step: int, *, pack: Callable[[], bytes], add: Callable[[bytes], None]) -> None:
        """Bring what ranks have to the first: along a tree, so that none receives more than `log2(ranks)` shares.

        Args:
            step: of this rank; it must be that of all.
            pack: returns what this rank has, with all that was added.
            add: takes what another rank has packed.

        Raises:
            RanksApart: if not all ranks came, or they are at different steps. From then on this one is off.
        """
        if self.off:
            return
        try:
            self._meet(step)
            for distance in _distances(self.size):
                if self.rank % (2 * distance):
                    self._send(pack(), self.rank - distance)
                    return
                if self.rank + distance < self.size:
                    add(self._receive(self.rank + distance))
        except BaseException:
            self.off = True
            raise

    def _meet(self, step: int) -> None:
        """Agree that all ranks close the window of the same step."""
        if self._group is None:
            self._await_all()
            wait = timedelta(seconds=self._patience)
            self._group = c10d.ProcessGroupGloo(self._store, self.rank, self.size, wait)
        steps = [torch.zeros(1, dtype=torch.int64, device="cpu") for _ in range(self.size)]
        self._wait(self._group.allgather([steps], [torch.tensor([step], dtype=torch.int64, device="cpu")]))
        reached = sorted({int(each) for each in steps})
        if len(reached) > 1:
            raise RanksApart(
                f"ranks must close a window at the same step, got {reached}; flush on all ranks or on none"
            )

    def _await_all(self) -> None:
        """Wait until each rank watches. A rank that does not is nobody to make a group with."""
        deadline = time.monotonic() + self._patience
        keys = [_here(rank) for rank in range(self.size)]
        while not self._store.check(keys):
            if time.monotonic() > deadline:
                raise RanksApart(
                    f"all {self.size} ranks must watch, got fewer within {self._patience:.0f} s; "
                    "call `embedwatch.watch` on each of them, or give it `together=False`"
                )
            time.sleep(POLL)

    def _send(self, data: bytes, rank: int) -> None:
        self._wait(self._group.send([torch.tensor([len(data)], dtype=torch.int64, device="cpu")], rank, 0))
        if data:
            self._wait(self._group.send([torch.frombuffer(bytearray(data), dtype=torch.uint8)], rank, 0))

    def _receive(self, rank: int) -> bytes:
        length = torch.zeros(1, dtype=torch.int64, device="cpu")
        self._wait(self._group.recv([length], rank, 0))
        number = int(length)
        if not 0 <= number <= MOST_BYTES:
            raise RanksApart(f"a share must have at most {MOST_BYTES:,} bytes, got {number:,}; watch fewer places")
        data: Tensor = torch.zeros(number, dtype=torch.uint8, device="cpu")
        if number:
            self._wait(self._group.recv([data], rank, 0))
        return data.numpy().tobytes()

    def _wait(self, work: Any) -> None:
        work.wait(timedelta(seconds=self._patience))


def find_ranks(model: nn.Module, *, together: bool | None = None) -> Ranks | None:
    """Return the ranks that train a model together; `None` where a model is nobody else's.

    By itself it takes for one training what DistributedDataParallel or `fully_shard` spread over all ranks: then each
    rank sees rows of its own. With tensor or pipeline parallelism it does not: ranks see the same rows, or different
    layers.

    Args:
        model: as it is called, in its wrapper.
        together: whether all ranks train it together; found out where it is `None`.

    Raises:
        UsageError: if ranks should be together and torch knows of none, or it is no answer.
    """
    if together not in (None, True, False):
        raise UsageError(f"`together` must be true, false or None, got {together!r}; None finds it out")
    there = distributed.is_available() and distributed.is_initialized()
    if together and not (there and distributed.is_gloo_available()):
        raise UsageError("`together` needs ranks that can talk, got no process group; call init_process_group first")
    if not there or together is False or distributed.get_world_size() == 1 or not distributed.is_gloo_available():
        return None
    return Ranks() if together or are_together(model) else None


def are_together(model: nn.Module) -> bool:
    """Return whether a wrapper averages gradients over all ranks, each of which has rows of its own.

    `DistributedDataParallel` and `fully_shard` do, over a group of all ranks. Where there is tensor parallelism beside
    it, ranks of one group see the same rows.
    """
    from torch.distributed.fsdp import FSDPModule  # takes a while; only where ranks are

    size = distributed.get_world_size()
    for module in _wrappers(model):
        if isinstance(module, nn.parallel.DistributedDataParallel):
            return bool(module.process_group.size() == size)
    if not any(isinstance(module, FSDPModule) for module in model.modules()):
        return False
    spread: list[Any] = [parameter for parameter in model.parameters() if hasattr(parameter, "placements")]
    return bool(spread) and all(
        parameter.device_mesh.size() == size and sum(not each.is_replicate() for each in parameter.placements) <= 1
        for parameter in spread
    )


def _wrappers(model: nn.Module) -> Iterator[nn.Module]:
    """Yield a model, and what it wraps as its only part."""
    while True:
        yield model
        parts = list(model.children())
        if len(parts) != 1:
            return
        model = parts[0]


def _own_connection() -> Any:
    """Return a connection to the store of the ranks: one that waits must not keep others from theirs."""
    store = c10d._get_default_store()
    return store.clone() if hasattr(store, "clone") else store


def _here(rank: int) -> str:
    return f"rank {rank}"


def _distances(size: int) -> Iterator[int]:
    """Yield 1, 2, 4 and so on, below a size."""
    return itertools.takewhile(lambda distance: distance < size, (1 << bit for bit in itertools.count()))
