"""One rank of a training, as a process: `python rank.py MANNER RANK SIZE FOLDER`. It writes what its Monitor found."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

import embedwatch
import embedwatch.sinks.memory
from embedwatch.integrations import distributed as ours

VOCABULARY, TINY, WIDTH, LENGTH, BATCH, STEPS, WINDOW = 50, 4, 16, 4, 12, 6, 3
RATE = 0.05
PATIENCE = 3.0


class Model(nn.Module):
    """Two tables, the second with fewer rows than it takes to give each of three ranks one."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.word_kinds = nn.Embedding(TINY, WIDTH)
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.layer(self.tokens(ids) + self.word_kinds(ids % TINY))))  # type: ignore[no-any-return]


def batch_of(step: int, rank: int, size: int) -> torch.Tensor:
    ids = torch.randint(VOCABULARY, (BATCH, LENGTH), generator=torch.Generator().manual_seed(step))
    return ids[rank * BATCH // size : (rank + 1) * BATCH // size]


def wrapped(model: nn.Module, manner: str) -> nn.Module:
    if manner == "plain":
        return model
    if manner == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
        for part in (model.tokens, model.word_kinds, model.layer):
            fully_shard(part, mesh=mesh)  # type: ignore[arg-type]
        return fully_shard(model, mesh=mesh)  # type: ignore[return-value]
    return nn.parallel.DistributedDataParallel(model)


def train(manner: str, rank: int, size: int, folder: Path) -> dict[str, Any]:
    torch.manual_seed(0)
    model = wrapped(Model(), manner)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    watches = not (manner == "absent" and rank)
    memory = embedwatch.sinks.memory.Memory()
    options = {"places": ["tokens", "layer"], "every": 1, "rows": 512, "window": WINDOW, "budget": None}
    monitor = embedwatch.watch(model, sinks=[memory], **options) if watches else None
    waited = 0.0
    for step in range(STEPS):
        ids = batch_of(step, rank, size)
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        began = time.perf_counter()
        if monitor is not None:
            monitor.step(loss=loss, lr=RATE, batch_size=BATCH)
            if manner == "apart" and step == 1 and rank == 0:
                monitor.flush(wait=False)
        waited = max(waited, time.perf_counter() - began)
        if manner == "vanishing" and rank == size - 1 and step == 1:
            time.sleep(1)  # the evaluator has sent the first window
            (folder / f"{manner}-{rank}.json").write_text(json.dumps({"gone": True}))
            os._exit(0)
        if manner == "vanishing" and step == 1:
            model = model.module  # type: ignore[assignment]  # the others go on without it
            optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    if monitor is None:
        return {"watched": False}
    monitor.detach()
    return {
        "deliveries": [
            {
                "place": snapshot.space.place,
                "step": snapshot.provenance.step,
                "rows": snapshot.provenance.rows,
                "coverage": dict(snapshot.provenance.coverage),
                "numbers": {m.key: m.number for m in snapshot if m.number is not None},
            }
            for snapshot, _, _ in memory.deliveries
        ],
        "errors": {" ".join(key): count for key, count in monitor.errors.items()},
        "waited": waited,
        "loss": float(loss.detach()),
    }


def main(manner: str, rank: int, size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    if manner == "absent":
        ours.PATIENCE = PATIENCE
    if manner != "plain":
        distributed.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=size)
    found = train(manner, rank, size, folder)
    (folder / f"{manner}-{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
