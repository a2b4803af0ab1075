"""From a call of attention to a batch of sampled rows, on the device of the model and without waiting for it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, NamedTuple

import torch
from torch import Tensor

from embedwatch.batch import AttentionBatch
from embedwatch.observe.attention.calls import AttentionCall
from embedwatch.observe.attention.queries import Chosen, choose_queries
from embedwatch.observe.sampling import ROW_BITS

__all__ = ["AttentionRows", "Real", "sample_attention", "segment_of"]

LAST = torch.iinfo(torch.int64).max
NO_KEY = -1


class Real(NamedTuple):
    """What is known of padding from outside of a call; `None` where nothing is.

    Args:
        queries: (B, T) bool.
        keys: (B, S) bool.
    """

    queries: Tensor | None = None
    keys: Tensor | None = None


class AttentionRows(NamedTuple):
    """Sampled rows, and which of them count: false for padding, and for queries that see no key.

    Args:
        batch: N rows.
        kept: (N,) bool.
    """

    batch: AttentionBatch
    kept: Tensor

    @property
    def nbytes(self) -> int:
        """Size of what it holds."""
        columns = (getattr(self.batch, column.name) for column in fields(self.batch))
        return sum(column.nbytes for column in (*columns, self.kept) if isinstance(column, Tensor))

    def finished(self) -> AttentionBatch:
        """Return the rows that count, on the CPU."""
        given = {column.name: getattr(self.batch, column.name) for column in fields(self.batch)}
        here: dict[str, Any] = {
            name: value.cpu() if isinstance(value, Tensor) else value for name, value in given.items()
        }
        return AttentionBatch(**here).take(self.kept.cpu())


def segment_of(call: AttentionCall) -> str:
    """Return the segment of a call's rows.

    A query by itself before a longer sequence is a step of decoding, and its population another one. All else are
    whole sequences, or stretches of them: training, encoding, and what is written before decoding begins.
    """
    _, _, queries, keys = call.shape
    return "decode" if queries == 1 and keys > 1 else "all"


@torch.no_grad()
def sample_attention(
    call: AttentionCall, count: int, *, forward: int, seed: int, real: Real | None = None, placed: bool = True
) -> AttentionRows:
    """Return what each head makes of at most `count` queries of a call.

    Where nothing is known of padding from outside, masks tell, as far as they can.

    Args:
        call: with B sequences of T queries and S keys.
        count: the most queries.
        forward: which pass it is.
        seed: of the sample.
        real: what is known of padding.
        placed: whether anything in the model holds positions.

    Shape: N rows are (sequence, head, query), the last fastest; logits (N, S).

    Example:
        >>> from embedwatch.observe.attention.calls import QueryKeyCall
        >>> call = QueryKeyCall(torch.ones(1, 2, 5, 4), torch.ones(1, 1, 5, 4), scale=0.5)
        >>> rows = sample_attention(call, 16, forward=0, seed=0)
        >>> rows.batch.logits.shape, rows.batch.logits[0, 0].item()
        (torch.Size([10, 5]), 2.0)
    """
    batch, heads, queries, keys = call.shape
    told = (real or Real()).keys
    real_keys = call.real_keys() if told is None else told
    real_queries = (real or Real()).queries
    if real_queries is None and queries == keys and not call.cross:
        real_queries = real_keys
    chosen = choose_queries(
        batch, queries, count, forward=forward, seed=seed, real=real_queries, device=call.device
    )  # I sequences, Q queries of each
    scores, seen = call.scores(chosen)  # (I, H, Q, S)
    if seen is not None:
        seen = seen.expand(len(chosen.items), -1, chosen.index.shape[1], keys)  # (I, H or 1, Q, S)
    firsts, lasts = _ends(real_keys, seen, chosen, keys)
    kept = chosen.kept if seen is None else chosen.kept & seen.any(3).any(1)  # (I, Q)
    outputs, bounds = call.outputs(chosen), call.bounds()
    visible = torch.ones_like(scores, dtype=torch.bool) if seen is None else seen.expand_as(scores)

    def flat(values: Tensor) -> Tensor:
        return values.expand(scores.shape[:3]).reshape(-1)  # (N,)

    found = AttentionBatch(
        logits=scores.reshape(-1, keys),
        visible=visible.reshape(-1, keys),
        positions=flat(_positions(call, chosen, seen)[:, None]),
        heads=flat(torch.arange(heads, device=call.device)[:, None]),
        queries=flat((chosen.numbers(queries) + ((forward << ROW_BITS) & LAST))[:, None]),
        firsts=flat(firsts[:, None, None]),
        lasts=flat(lasts[:, None, None]),
        head_size=call.head_size,
        outputs=None if outputs is None else flat(outputs),
        bounds=None if bounds is None else flat(bounds[:, None]),
        sinks=None if call.sinks is None else flat(call.sinks.detach().float()[:, None]),
        placed=placed,
        segment=segment_of(call),
    )
    return AttentionRows(found, flat(kept[:, None]))


def _positions(call: AttentionCall, chosen: Chosen, seen: Tensor | None) -> Tensor:
    """Return the key of each chosen query itself. Shape: (I, Q) int64.

    Where there are more keys than queries, as with a cache, it is the last that a query sees: only causal attention
    has caches. A cache of fixed size has keys beyond, which nobody sees yet.
    """
    _, _, queries, keys = call.shape
    if call.cross:
        return torch.full_like(chosen.index, NO_KEY)
    if queries == keys:
        return chosen.index
    if seen is None:
        return chosen.index + (keys - queries)
    numbers = torch.arange(1, keys + 1, device=chosen.index.device)
    return (seen.any(1) * numbers).amax(2) - 1


def _ends(real: Tensor | None, seen: Tensor | None, chosen: Chosen, keys: int) -> tuple[Tensor, Tensor]:
    """Return the first and the last real key of each chosen sequence. Shape: (I,) int64 each."""
    device = chosen.index.device
    if real is not None:
        mine = torch.stack([real[item] for item in chosen.items]).to(device, non_blocking=True)  # (I, S)
    elif seen is not None:
        mine = (seen & chosen.kept[:, None, :, None]).any(2).any(1)  # as far as the sampled queries see
    else:
        whole = torch.zeros(len(chosen.items), dtype=torch.int64, device=device)
        return whole, whole + keys - 1
    numbers = torch.arange(keys, device=device)
    firsts = torch.where(mine, numbers, keys - 1).amin(1)
    return firsts, torch.where(mine, numbers, 0).amax(1)
