"""Watch a training in a plain loop: three lines more than without. The model reads the bytes of a Python file.

python examples/watch_plain_loop.py                    a sound training: nothing is said
python examples/watch_plain_loop.py --rate 0.5         far too fast: the log says so, with numbers and a remedy
embedwatch show watched                                its course, afterwards
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import torch
from torch import nn

import embedwatch
from embedwatch_model import ModelConfig, Transformer

LENGTH, BATCH = 64, 8


def batch_of(data: torch.Tensor, step: int) -> torch.Tensor:
    """Return windows of bytes, one longer than the model reads: (B, T + 1)."""
    starts = torch.randint(len(data) - LENGTH, (BATCH,), generator=torch.Generator().manual_seed(step))
    return torch.stack([data[start : start + LENGTH + 1] for start in starts.tolist()])


def train(out: Path, *, steps: int, rate: float) -> embedwatch.Monitor:
    """Train a tiny decoder, and return what watched it."""
    out.mkdir(parents=True, exist_ok=True)
    data = torch.frombuffer(bytearray(Path(random.__file__).read_bytes()), dtype=torch.uint8).long()
    torch.manual_seed(0)
    model = Transformer(ModelConfig(vocabulary=256, d_model=64, layers=2, length=LENGTH, positions="rope"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)

    sinks = ["log", f"jsonl:{out / 'embedwatch.jsonl'}"]
    monitor = embedwatch.watch(model, every=5, window=max(10, steps // 10), sinks=sinks)  # the first line
    for step in range(steps):
        batch = batch_of(data, step)
        loss = nn.functional.cross_entropy(model(batch[:, :-1]).logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        monitor.step(loss=loss, batch_size=BATCH)  # the second
    monitor.detach()  # and the third: what is open is judged
    return monitor


def main() -> None:
    """Train, and say what was seen."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, default=Path("watched"), help="folder of the recording")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate")
    options = parser.parse_args()
    monitor = train(options.out, steps=options.steps, rate=options.rate)
    print(monitor)
    for place, snapshot in monitor.snapshots.items():
        ratio = snapshot.number("effective_rank_ratio")
        if ratio is not None:
            print(f"  {place:<24} effective rank {ratio:.3f} of all dimensions")
    print(f"{len(monitor.findings)} findings; embedwatch show {options.out}")


if __name__ == "__main__":
    main()
