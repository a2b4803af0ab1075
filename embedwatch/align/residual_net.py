"""A small net that is added to an affine map, trained to retrieve."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, gelu

from embedwatch.align.kept_pairs import Pairs
from embedwatch.geometry.alignment import Affine
from embedwatch.geometry.retrieval import directions

__all__ = ["fit_residual_net"]

HIDDEN = 256
STEPS, BATCH = 240, 256
RATE, DECAY = 1e-3, 1e-2
TEMPERATURE = 0.05
LOOK = 24
"""Steps between looks at the pairs that stop the training."""
STOPPING = 0.1
"""Share of the pairs that only say when to stop."""
MOST_STOPPING = 512


def fit_residual_net(base: Affine, mean: Tensor, pairs: Pairs, *, seed: int) -> dict[str, Tensor]:
    """Return the weights of `gelu((x - mean) A + a) B`, added to an affine map: those that found most.

    InfoNCE within batches (van den Oord et al. 2018), AdamW; B starts at zero, so that training starts at the affine
    map, and ends where pairs of its own say so. It sees no pair that judges.

    Args:
        base: the affine map.
        mean: of the left rows, (D1,).
        pairs: unit rows.
        seed: of weights and batches; the global generator is left alone.

    Returns:
        `hidden_in` (D1, H), `hidden_bias` (H,) and `hidden_out` (H, D2), float32.
    """
    draw = torch.Generator().manual_seed(seed)
    stop = max(1, min(MOST_STOPPING, int(STOPPING * len(pairs))))
    with torch.inference_mode(mode=False), torch.enable_grad(), torch.autocast("cpu", enabled=False):
        left, right = pairs.left.clone(), pairs.right.clone()  # what inference mode made cannot be trained on
        matrix, offset, centre = base.matrix.float().clone(), base.offset.float().clone(), mean.clone()
        weights = {
            "hidden_in": torch.randn(left.shape[1], HIDDEN, generator=draw) * left.shape[1] ** -0.5,
            "hidden_bias": torch.zeros(HIDDEN),
            "hidden_out": torch.zeros(HIDDEN, right.shape[1]),
        }
        best = {name: each.clone() for name, each in weights.items()}
        if len(left) < stop + 2:
            return best
        weights = {name: each.requires_grad_() for name, each in weights.items()}
        optimizer = torch.optim.AdamW(weights.values(), lr=RATE, weight_decay=DECAY)

        def loss(rows: Tensor) -> Tensor:
            inner = gelu((left[rows] - centre) @ weights["hidden_in"] + weights["hidden_bias"]) @ weights["hidden_out"]
            scores = directions(left[rows] @ matrix + offset + inner) @ right[rows].T / TEMPERATURE
            return cross_entropy(scores, torch.arange(len(rows)))

        judging = torch.arange(stop)
        least = float(loss(judging).detach())
        for step in range(1, STEPS + 1):
            rows = stop + torch.randint(len(left) - stop, (min(BATCH, len(left) - stop),), generator=draw).unique()
            optimizer.zero_grad()
            loss(rows).backward()
            optimizer.step()
            if step % LOOK == 0:
                now = float(loss(judging).detach())
                if now >= least:
                    break
                least, best = now, {name: each.detach().clone() for name, each in weights.items()}
    return best
