"""Train with Lightning, watched: one callback. The model reads the bytes of a Python file, as in watch_plain_loop.py.

python examples/fine_tune_lightning.py                 a sound training: nothing is found
python examples/fine_tune_lightning.py --rate 0.5      far too fast: the movement of rows is found
embedwatch show watched                                the course of the training, afterwards
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from embedwatch.integrations.lightning import EmbedwatchCallback
from embedwatch_model import ModelConfig, Transformer

LENGTH = 64


class Reader(lightning.LightningModule):  # type: ignore[misc]
    """Any LightningModule: embedwatch finds token embeddings, layers and their outputs by itself."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.model = Transformer(ModelConfig(vocabulary=256, d_model=64, layers=2, length=LENGTH, positions="rope"))

    def training_step(self, batch: Tensor, _: int) -> Tensor:
        """Predict each next byte. Shape: (B, T + 1)."""
        return nn.functional.cross_entropy(self.model(batch[:, :-1]).logits.flatten(0, 1), batch[:, 1:].flatten())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return AdamW, whose weight decay keeps tokens from running away."""
        return torch.optim.AdamW(self.parameters(), lr=self.rate)


def main() -> None:
    """Train, and say what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--out", default="watched")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rate", type=float, default=1e-3)
    options = parser.parse_args()

    data = torch.frombuffer(bytearray(Path(random.__file__).read_bytes()), dtype=torch.uint8).long()
    windows = DataLoader(data.unfold(0, LENGTH + 1, 7), batch_size=8, shuffle=True)  # type: ignore[arg-type]
    lightning.seed_everything(0)

    sinks = ["log", f"jsonl:{options.out}/embedwatch.jsonl"]
    callback = EmbedwatchCallback(every=5, window=20, sinks=sinks)  # all that embedwatch needs

    Path(options.out).mkdir(parents=True, exist_ok=True)
    trainer = lightning.Trainer(max_steps=options.steps, callbacks=[callback], logger=False, enable_checkpointing=False)
    trainer.fit(Reader(options.rate), windows)
    print(f"{callback.monitor}\nembedwatch show {options.out}")


if __name__ == "__main__":
    main()
