"""A worker: a tiny Transformer reads its share of real text, and all that is seen goes to a daemon.

python -m tests.daemon.watch_target TARGET FIRST LAST ROWS
"""

from __future__ import annotations

import sys
from itertools import islice

import torch

from embedwatch.monitor import watch
from embedwatch_model.config import ModelConfig
from embedwatch_model.corpora import read_documentation
from embedwatch_model.transformer import Transformer

MODEL, PLACES = "tiny", ("embedding", "layers.0", "layers.1", "norm")
BATCH, LENGTH, BYTES = 8, 32, 256
TEXTS = 200


def batches() -> torch.Tensor:
    """Return the bytes of real English in batches. Shape: (N, BATCH, LENGTH)."""
    text = "\n".join(islice(read_documentation(), TEXTS)).encode()
    tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    return tokens[: len(tokens) // (BATCH * LENGTH) * BATCH * LENGTH].view(-1, BATCH, LENGTH)


def make_model() -> Transformer:
    torch.manual_seed(0)
    return Transformer(ModelConfig(vocabulary=BYTES, d_model=32, layers=2, heads=2, length=LENGTH)).eval()


def main(target: str, first: int, last: int, rows: int) -> None:
    model = make_model()
    options = {"every": 1, "window": 1, "budget": None, "on_error": "raise"}
    with watch(model, name=MODEL, places=PLACES, rows=rows, sinks=[target], **options) as monitor, torch.no_grad():
        for batch in batches()[first:last]:
            model(batch)
            monitor.step()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
