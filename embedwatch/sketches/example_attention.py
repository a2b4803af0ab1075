"""Batches of attention that exercise a Statistic."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from embedwatch.batch import AttentionBatch

__all__ = ["example_attention"]

HEADS = 4
HEAD_SIZE = 16
WINDOW = 24
"""Keys that the second head of a causal example sees, itself included."""
QUERIES = 1_000
"""Identities of the queries of one text: more than any text here has."""


def example_attention(
    seed: int, *, lengths: Sequence[int] = (96, 9, 70), queries: int = 5, causal: bool = True
) -> list[AttentionBatch]:
    """Return sampled queries of a few texts, seen by four heads; each batch is one text, each has its own length.

    The first head looks anywhere, the second at what is near, the third mostly at the first token, and the fourth does
    what the first does but puts out next to nothing. Where they are causal, the second sees a window only, texts are
    padded on the left, and heads have a learned sink.

    Example:
        >>> [tuple(batch.logits.shape) for batch in example_attention(0)]
        [(20, 100), (20, 13), (20, 74)]
    """
    generator = torch.Generator().manual_seed(seed)
    return [
        _example(generator, length, min(queries, length), QUERIES * number, causal=causal)
        for number, length in enumerate(lengths)
    ]


def _example(generator: torch.Generator, length: int, queries: int, offset: int, *, causal: bool) -> AttentionBatch:
    padding = 4 if causal else 0
    keys = torch.arange(length + padding)
    chosen = padding + torch.randperm(length, generator=generator)[:queries]
    distance = chosen[:, None] - keys[None]  # (Q, T)
    logits = torch.randn(HEADS, queries, length + padding, generator=generator)  # (H, Q, T)
    logits[1] -= 0.7 * distance.abs()
    logits[2, :, padding] += 4.0
    logits[3] = logits[0]
    visible = (keys >= padding).expand(HEADS, queries, -1).clone()
    if causal:
        visible &= distance >= 0
        visible[1] &= distance < WINDOW
    count = HEADS * queries
    heads = torch.arange(HEADS).repeat_interleave(queries)
    outputs = 1 + torch.rand(count, generator=generator)
    outputs[heads == 3] *= 1e-5
    sinks = torch.randn(HEADS, generator=generator)
    sinks[3] = sinks[0]
    return AttentionBatch(
        logits.reshape(count, -1),
        visible.reshape(count, -1),
        positions=chosen.repeat(HEADS),
        heads=heads,
        queries=(offset + chosen).repeat(HEADS),
        firsts=torch.full((count,), padding),
        lasts=torch.full((count,), padding + length - 1),
        head_size=HEAD_SIZE,
        outputs=outputs,
        bounds=10 + torch.rand(HEADS, generator=generator).repeat_interleave(queries),
        sinks=sinks.repeat_interleave(queries) if causal else None,
    )
