"""The embedding table of a live model, row by row: norms, how often a token was seen, how far its row has moved."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from embedwatch.batch import TokenBatch, VectorBatch
from embedwatch.hashing import hash_integers
from embedwatch.observe.arrival import arrival, wait_for
from embedwatch.observe.modes import outside_modes
from embedwatch.observe.pulse import Pulse

__all__ = ["TableState", "TableWatch", "first_row_here", "joined_states"]

PANEL = 4096
"""So many rows, or all of a smaller table, are followed from their start."""
FOLLOWED = 512
"""So many tokens of an armed step are compared before and after it."""
START_BYTES = 128 << 20
"""Up to this size the whole table is remembered as it was, in half precision; a larger one by its panel only."""
EXAMINED_ENTRIES = 1 << 23
EXAMINED_PRODUCTS = 2e10
"""A full examination takes so many entries, and multiplications for its second moments, at most."""
CHUNK = 4096


@dataclass(frozen=True)
class TableState:
    """A table at one time, on the device of the model, and numbers of its tokens.

    Args:
        name: dotted path of the weight.
        decay: weight decay that the optimizer applies to it; `None` where that is not known.
        norms, drift: (R,) of the rows that lie here, all V or those of one rank; drift is NaN where it is not known.
        counts: (V,) how often each token was seen here.
        moved: (M,) tokens that were followed through a step, some several times, and `by` how much of their norm.
        first: token of the first row that lies here.
        event: when all of it is there, on a device that works by itself.
    """

    name: str
    decay: float | None
    norms: Tensor
    counts: Tensor
    drift: Tensor
    moved: Tensor
    by: Tensor
    first: int = 0
    event: Any = None

    def here(self) -> TableState:
        """Return it on the CPU, once it is there: another thread reads it than asked for it."""
        wait_for(self.event)
        norms, counts, drift, moved, by = (
            tensor.cpu() for tensor in (self.norms, self.counts, self.drift, self.moved, self.by)
        )
        return replace(self, norms=norms, counts=counts, drift=drift, moved=moved, by=by, event=None)

    @property
    def whole(self) -> bool:
        """Whether all rows lie here."""
        return len(self.norms) == len(self.counts)

    def scale(self, dimension: int) -> float:
        """Return the root mean square entry of the rows."""
        wait_for(self.event)
        return math.sqrt(float(self.norms.double().square().mean()) / dimension)

    def batch(self) -> TokenBatch:
        """Return one record for each token whose row lies here, on the CPU."""
        mine = self.here()
        norms, counts, drift, moved, by = mine.norms, mine.counts, mine.drift, mine.moved, mine.by
        here = slice(self.first, self.first + len(norms))
        times = torch.zeros(len(counts), dtype=torch.float64).index_add_(0, moved, torch.ones_like(by))
        update = torch.zeros(len(counts), dtype=torch.float64).index_add_(0, moved, by)
        ids = torch.arange(len(counts))[here]
        return TokenBatch(ids, norms.double(), counts[here], drift.double(), (update / times)[here])


def joined_states(states: Sequence[TableState]) -> TableState:
    """Return one state from those of several ranks, on the CPU: counts are sums, rows that lie on several count once.

    It has all rows from the first that any rank has to the first that none has.
    """
    states = [state.here() for state in states]
    parts: dict[int, TableState] = {}
    for state in states:
        known = parts.get(state.first)
        if known is None or len(state.norms) > len(known.norms):
            parts[state.first] = state
    chosen: list[TableState] = []
    for first in sorted(parts):
        ahead = not chosen or first == chosen[-1].first + len(chosen[-1].norms)
        if ahead and len(parts[first].norms):
            chosen.append(parts[first])
    chosen = chosen or [states[0]]

    def cat(name: str, of: Sequence[TableState]) -> Tensor:
        return torch.cat([getattr(state, name).cpu() for state in of])

    return replace(
        states[0],
        norms=cat("norms", chosen),
        drift=cat("drift", chosen),
        counts=torch.stack([state.counts.cpu() for state in states]).sum(0),
        moved=cat("moved", states),
        by=cat("by", states),
        first=chosen[0].first,
    )


def first_row_here(weight: Tensor) -> int | None:
    """Return which row of a table is the first that lies on this rank; `None` where it is spread in another way.

    A DTensor of placement `Shard(0)` lies on the ranks as `torch.chunk` cuts it: the last ones may have fewer rows, or
    none. Further dimensions of the mesh may hold copies.
    """
    spread: Any = weight
    if not hasattr(weight, "to_local"):
        return 0
    cuts = [dim for dim, placement in enumerate(spread.placements) if not placement.is_replicate()]
    if any(type(spread.placements[dim]).__name__ != "Shard" or spread.placements[dim].dim != 0 for dim in cuts):
        return None
    if len(cuts) != 1:
        return None if cuts else 0
    rows, mesh = weight.shape[0], spread.device_mesh
    chunk = -(-rows // mesh.size(cuts[0]))
    first: int = min(chunk * mesh.get_local_rank(cuts[0]), rows)
    return first if len(spread.to_local()) == min(chunk, rows - first) else None


class TableWatch:
    """Follows one embedding table: the weight of a module, whatever else shares it.

    Norms are those of all rows. Drift is that of a fixed panel of rows, and of all rows when asked in full. Tokens are
    counted at armed steps, so counts are proportional to frequencies. Of a table that lies on several ranks in parts
    (`fully_shard`), this one's rows are followed; only together are they the table. Nothing is reduced here.

    Args:
        name: dotted path of the weight.
        module: the embedding.
        pulse: of the Monitor.
        seed: of the panel.
    """

    def __init__(self, name: str, module: nn.Embedding, pulse: Pulse, *, seed: int = 0) -> None:
        self.name, self.module = name, module
        self._pulse, self._seed = pulse, seed
        self._lock = threading.Lock()  # of the counts: threads may serve the same model
        self.start()

    @outside_modes()
    def start(self) -> None:
        """Forget everything, and remember the table as it is now."""
        tokens = len(self.module.weight)
        self.first, self.sharded = first_row_here(self.module.weight) or 0, False
        weight = self._weight()
        self._rows = len(weight)
        self.sharded = self._rows < tokens
        """Whether other rows lie on other ranks."""
        order = hash_integers(torch.arange(tokens, device="cpu"), self._seed)
        self._order = order.argsort()  # a sample of n rows is the first n
        self._panel = self._chosen(PANEL).to(weight.device)
        self._origin = weight[self._panel].clone()
        remembered = tokens * weight.shape[1] * 2 <= START_BYTES
        self._whole = weight.to("cpu", torch.float16, copy=True) if remembered and tokens > PANEL else None
        self.counts = torch.zeros(tokens, dtype=torch.int64, device=weight.device)
        self._before: tuple[int, Tensor, Tensor] | None = None
        self._moved: list[Tensor] = []
        self._by: list[Tensor] = []

    @property
    def dimension(self) -> int:
        """D."""
        return self.module.embedding_dim

    def _weight(self) -> Tensor:
        """Return the rows that lie here, also where all of them are, for the time of a forward pass."""
        weight = self.module.weight.detach()
        if hasattr(weight, "to_local"):
            local: Tensor = weight.to_local()
            return local
        return weight[self.first : self.first + self._rows] if self.sharded else weight

    def _chosen(self, most: int) -> Tensor:
        """Return which rows are here of a fixed sample of the table, counted from the first that lies here."""
        rows = self._order[:most].sort().values - self.first
        return rows[(rows >= 0) & (rows < self._rows)]

    @property
    def replaced(self) -> bool:
        """Whether the table has another shape or place than when watching began, or is cut in other parts."""
        weight = self.module.weight
        if weight.shape[0] != len(self.counts) or weight.shape[1:] != self._origin.shape[1:]:
            return True
        parts = hasattr(weight, "to_local")
        return parts and (first_row_here(weight), len(self._weight())) != (self.first, self._rows)

    def saw(self, tokens: Tensor, valid: Tensor | None) -> None:
        """Count tokens that were looked up, and remember the rows of some of them as they are before the step."""
        ids = tokens.reshape(-1)
        if self.replaced:
            return
        real = (
            torch.ones_like(ids, dtype=torch.int64)
            if valid is None or valid.shape != tokens.shape
            else valid.reshape(-1).to(ids.device).long()
        )
        with self._lock:
            self.counts = self.counts.to(ids.device)
            self.counts.index_add_(0, ids.long(), real)
            if self._before is None or self._before[0] != self._pulse.step:
                chosen = ids[:: max(1, len(ids) // FOLLOWED)][:FOLLOWED]
                if self._rows:
                    self._before = (self._pulse.step, chosen, self._weight()[self._here(chosen)].clone())

    def stepped(self) -> None:
        """Compare the rows that were remembered with what a step made of them."""
        if self._before is None:
            return
        _, tokens, before = self._before
        self._before = None
        if not self.replaced:
            self._moved.append(tokens)
            self._by.append(_relative(self._weight()[self._here(tokens)], before))

    def _here(self, tokens: Tensor) -> Tensor:
        """Return the rows of tokens, counted from the first that lies here; any row for what lies elsewhere."""
        return (tokens - self.first).clamp(0, self._rows - 1) if self.sharded else tokens

    def forget(self) -> None:
        """Compare nothing: no optimizer has stepped, as where a scaler of gradients skips a step."""
        self._before = None

    def state(self, *, full: bool = False, decay: float | None = None) -> TableState:
        """Return the table as it is now; `full` compares all rows with their start, where it is remembered."""
        weight = self._weight()
        drift = torch.full((len(weight),), torch.nan, device=weight.device)
        empty = torch.zeros(0, device=weight.device)
        if full and self._whole is not None:
            parts = zip(weight.split(CHUNK), self._whole.split(CHUNK), strict=True)
            drift = torch.cat([_relative(now, start.to(now)) for now, start in parts])
        panel = self._panel.to(weight.device)
        drift[panel] = _relative(weight[panel], self._origin.to(weight.device))
        norms = torch.cat([empty, *(torch.linalg.vector_norm(part.float(), dim=1) for part in weight.split(CHUNK))])
        moved = torch.cat([*(tokens.to(weight.device).long() for tokens in self._moved), empty.long()])
        by = torch.cat([*(by.to(weight.device) for by in self._by), empty]).double()
        if self.sharded:  # what lies elsewhere was not followed
            mine = (moved >= self.first) & (moved < self.first + self._rows)
            moved, by = moved[mine], by[mine]
        counts = self.counts.clone()
        state = TableState(self.name, decay, norms, counts, drift, moved, by, self.first, arrival(norms.device))
        self._moved, self._by = [], []
        return state

    def rows(self) -> VectorBatch:
        """Return a copy of the table, or of a fixed sample of its rows where it is large, on the CPU.

        Of a table in parts, those of the sample that lie here.
        """
        weight = self._weight()
        dimension = weight.shape[1]
        most = int(min(EXAMINED_ENTRIES / dimension, EXAMINED_PRODUCTS / dimension**2))
        chosen = self._chosen(most)
        return VectorBatch(weight[chosen.to(weight.device)].cpu(), chosen + self.first, source=self.name)

    def release(self) -> None:
        """Let go of the module, and of what is remembered of its rows; the width stays."""
        nothing = torch.zeros(0, device="cpu")
        self.module = nn.Embedding(0, self.dimension, device="meta")
        self._origin, self._panel, self._whole, self._before = nothing, nothing, None, None
        self._moved, self._by = [], []

    def memory(self) -> int:
        """Return the size in bytes of what it remembers."""
        held = [self._order, self._panel, self._origin, self.counts, *([] if self._whole is None else [self._whole])]
        return sum(tensor.numel() * tensor.element_size() for tensor in held)


def _relative(now: Tensor, before: Tensor) -> Tensor:
    """Return the distance of each row from what it was, over its norm then; NaN for rows that were zero."""
    moved = torch.linalg.vector_norm(now.float() - before.float(), dim=1)
    length = torch.linalg.vector_norm(before.float(), dim=1)
    return torch.where(length > 0, moved / length, torch.nan)
