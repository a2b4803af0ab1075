"""Patches of images are vectors like tokens: a small ViT is watched while it learns, then its patches are audited.

python examples/vision_patches.py                      a tiny ViT learns where a bright square stands: a minute
python examples/vision_patches.py --model DIR          a trained ViT of transformers, with the same pictures

Watched are the outputs of its layers and its attention; audited are the vectors of patches; its table of positions is
asked whether it knows rows and columns.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn

import embedwatch
from embedwatch.geometry.position_grid import Grid, grid_cosines

SIDE, PATCH, BATCH = 32, 4, 32
CELLS = SIDE // PATCH


def tiny_vit() -> Any:
    """Return a ViT of 64 patches, as it was drawn."""
    config = transformers.ViTConfig(
        image_size=SIDE,
        patch_size=PATCH,
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=128,
    )
    torch.manual_seed(0)
    return transformers.ViTModel(config, add_pooling_layer=False)


def pictures(seed: int, side: int = SIDE, count: int = BATCH) -> tuple[Tensor, Tensor]:
    """Return noise with one bright square on a grid of 8 x 8, and its row and column: (B, 3, side, side), (B, 2)."""
    generator = torch.Generator().manual_seed(seed)
    images = 0.5 * torch.randn(count, 3, side, side, generator=generator)
    cells, size = torch.randint(CELLS, (count, 2), generator=generator), side // CELLS
    for image, (row, column) in zip(images, cells.tolist(), strict=True):
        image[:, row * size : (row + 1) * size, column * size : (column + 1) * size] += 2.0
    return images, cells


def train(model: Any, *, steps: int) -> embedwatch.Monitor:
    """Let the model learn where the square stands, and return what watched it."""
    head = nn.Linear(model.config.hidden_size, 2 * CELLS)
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=2e-3)
    monitor = embedwatch.watch(model, every=5, window=max(10, steps // 5), attention_every=1, sinks=[])
    for step in range(steps):
        images, cells = pictures(step)
        found = head(model(pixel_values=images).last_hidden_state[:, 0]).view(-1, CELLS, 2)
        loss = nn.functional.cross_entropy(found, cells)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        monitor.step(loss=loss, batch_size=BATCH)
    monitor.detach()
    return monitor


@torch.no_grad()
def patches(model: Any, *, images: int = 32) -> Tensor:
    """Return the vectors of the patches of new pictures. Shape: (N, D)."""
    size = model.config.image_size
    states: Tensor = model.eval()(pixel_values=pictures(10**6, int(size), images)[0]).last_hidden_state
    return states[:, 1:].flatten(0, 1)  # the first is of the whole picture


def grid_of(model: Any) -> Grid:
    """Return how its table of positions knows rows and columns."""
    table = model.embeddings.position_embeddings.detach()[0, 1:]
    side = round(len(table) ** 0.5)
    return grid_cosines(table, side, side)


def told(grid: Grid) -> str:
    """Return a line about a grid."""
    return (
        f"across {grid.across:+.2f}, down {grid.down:+.2f}, end of a row to the next {grid.wrap:+.2f}, "
        f"far {grid.far:+.2f}; rows plus columns explain {grid.axes:.0%}"
    )


def main() -> None:
    """Watch, audit, and look at positions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--model", help="folder of a trained ViT")
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    if options.model:
        model: Any = transformers.ViTModel.from_pretrained(options.model, add_pooling_layer=False)
    else:
        model = tiny_vit()
        print(f"positions, drawn:   {told(grid_of(model))}")
        monitor = train(model, steps=options.steps)
        print(monitor)
        for place, snapshot in monitor.snapshots.items():
            numbers = (snapshot.number(f"attention_{name}_ratio", heads="mean") for name in ("entropy", "long_range"))
            entropy, far = numbers
            if entropy is not None and far is not None:
                print(f"  {place:<20} entropy {entropy:.2f} of an even look, {far:.2f} of it goes far")
    print(f"positions, trained: {told(grid_of(model))}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "patches.npy")
        np.save(path, patches(model).numpy())
        found = embedwatch.audit(path)
    counts = ", ".join(f"{count} {status}" for status, count in found.counts().items() if count)
    print(f"audit of {found.spaces[0].snapshot.provenance.rows:,} patches: {counts}")
    for verdict in found.verdicts:
        if verdict.status in ("warn", "fail"):
            print(f"  {verdict.status} {verdict.title}: {verdict.reason}")


if __name__ == "__main__":
    main()
