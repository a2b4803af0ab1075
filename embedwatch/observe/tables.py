"""The embedding table of a live model, row by row: norms, how often a token was seen, how far its row has moved."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from embedwatch.batch import TokenBatch, VectorBatch
from embedwatch.hashing import hash_integers
from embedwatch.observe.modes import outside_modes
from embedwatch.observe.pulse import Pulse

__all__ = ["TableState", "TableWatch"]

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
        norms, counts, drift: (V,) of all tokens; drift is NaN where it is not known.
        moved: (M,) tokens that were followed through a step, some several times, and `by` how much of their norm.
    """

    name: str
    decay: float | None
    norms: Tensor
    counts: Tensor
    drift: Tensor
    moved: Tensor
    by: Tensor

    def scale(self, dimension: int) -> float:
        """Return the root mean square entry of the rows."""
        return math.sqrt(float(self.norms.double().square().mean()) / dimension)

    def batch(self) -> TokenBatch:
        """Return one record for each token, on the CPU."""
        norms, counts, drift, moved, by = (
            tensor.cpu() for tensor in (self.norms, self.counts, self.drift, self.moved, self.by)
        )
        times = torch.zeros(len(norms), dtype=torch.float64).index_add_(0, moved, torch.ones_like(by))
        update = torch.zeros(len(norms), dtype=torch.float64).index_add_(0, moved, by)
        return TokenBatch(torch.arange(len(norms)), norms.double(), counts, drift.double(), update / times)


class TableWatch:
    """Follows one embedding table: the weight of a module, whatever else shares it.

    Norms are those of all rows. Drift is that of a fixed panel of rows, and of all rows when asked in full. Tokens are
    counted at armed steps, so counts are proportional to frequencies.

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
        weight = self._weight()
        order = hash_integers(torch.arange(len(weight), device="cpu"), self._seed)
        self._order = order.argsort()  # a sample of n rows is the first n
        self._panel = self._order[:PANEL].sort().values.to(weight.device)
        self._origin = weight[self._panel].clone()
        whole = weight.numel() * 2 <= START_BYTES
        self._whole = weight.to("cpu", torch.float16, copy=True) if whole and len(weight) > PANEL else None
        self.counts = torch.zeros(len(weight), dtype=torch.int64, device=weight.device)
        self._before: tuple[int, Tensor, Tensor] | None = None
        self._moved: list[Tensor] = []
        self._by: list[Tensor] = []

    @property
    def dimension(self) -> int:
        """D."""
        return self.module.embedding_dim

    def _weight(self) -> Tensor:
        return self.module.weight.detach()

    @property
    def replaced(self) -> bool:
        """Whether the table has another shape or place than when watching began."""
        weight = self._weight()
        return weight.shape[0] != len(self.counts) or weight.shape[1:] != self._origin.shape[1:]

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
                self._before = (self._pulse.step, chosen, self._weight()[chosen].clone())

    def stepped(self) -> None:
        """Compare the rows that were remembered with what a step made of them."""
        if self._before is None:
            return
        _, tokens, before = self._before
        self._before = None
        if not self.replaced:
            self._moved.append(tokens)
            self._by.append(_relative(self._weight()[tokens], before))

    def forget(self) -> None:
        """Compare nothing: no optimizer has stepped, as where a scaler of gradients skips a step."""
        self._before = None

    def state(self, *, full: bool = False, decay: float | None = None) -> TableState:
        """Return the table as it is now; `full` compares all rows with their start, where it is remembered."""
        weight = self._weight()
        drift = torch.full((len(weight),), torch.nan, device=weight.device)
        if full and self._whole is not None:
            parts = zip(weight.split(CHUNK), self._whole.split(CHUNK), strict=True)
            drift = torch.cat([_relative(now, start.to(now)) for now, start in parts])
        panel = self._panel.to(weight.device)
        drift[panel] = _relative(weight[panel], self._origin.to(weight.device))
        norms = torch.cat([torch.linalg.vector_norm(part.float(), dim=1) for part in weight.split(CHUNK)])
        empty = torch.zeros(0, device=weight.device)
        moved = torch.cat([*(tokens.to(weight.device).long() for tokens in self._moved), empty.long()])
        state = TableState(
            self.name,
            decay,
            norms,
            self.counts.clone(),
            drift,
            moved,
            torch.cat([*(by.to(weight.device) for by in self._by), empty]).double(),
        )
        self._moved, self._by = [], []
        return state

    def rows(self) -> VectorBatch:
        """Return a copy of the table, or of a fixed sample of its rows where it is large, on the CPU."""
        weight = self._weight()
        dimension = weight.shape[1]
        most = int(min(EXAMINED_ENTRIES / dimension, EXAMINED_PRODUCTS / dimension**2))
        chosen = self._order[:most].sort().values
        return VectorBatch(weight[chosen.to(weight.device)].cpu(), chosen, source=self.name)

    def memory(self) -> int:
        """Return the size in bytes of what it remembers."""
        held = [self._order, self._panel, self._origin, self.counts, *([] if self._whole is None else [self._whole])]
        return sum(tensor.numel() * tensor.element_size() for tensor in held)


def _relative(now: Tensor, before: Tensor) -> Tensor:
    """Return the distance of each row from what it was, over its norm then; NaN for rows that were zero."""
    moved = torch.linalg.vector_norm(now.float() - before.float(), dim=1)
    length = torch.linalg.vector_norm(before.float(), dim=1)
    return torch.where(length > 0, moved / length, torch.nan)
