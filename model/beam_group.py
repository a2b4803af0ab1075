"""One group of a beam search: its living beams, and the hypotheses it has finished. Letters: M width, V vocabulary."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch import Tensor

from .generated import Text
from .stopping import Stop

__all__ = ["BeamGroup"]


class BeamGroup:
    """Plain beam search of width M for one prompt, one step at a time.

    It begins with one empty beam, and is over when `beams` is empty. The score of a beam is its sum of
    log-probabilities after the rules; that of a whole hypothesis is divided by the length penalty. `best` holds the M
    best whole ones, the best first; `taken` the tokens of the last step, of living and whole ones.

    Args:
        width: M.
        penalties: what log P is divided by, for lengths 1, 2, …; no hypothesis grows longer than there are penalties.
        stop: what ends a text.
        early: end with M whole hypotheses, whether or not a better one may come.
    """

    def __init__(self, width: int, penalties: Sequence[float], stop: Stop, *, early: bool) -> None:
        self.width, self.penalties, self.stop, self.early = width, penalties, stop, early
        self.beams = [Text(score=0.0)]
        self.best: list[Text] = []
        self.taken: list[int] = []

    def extend(self, steps: Tensor, own: Tensor, charge: Tensor) -> list[tuple[int, int]]:
        """Extend every beam by one token; return for each new beam which one it continues, and by which token.

        Args:
            steps: log-probabilities after the rules, (beams, V).
            own: log-probabilities of the model, (beams, V).
            charge: what a token costs because earlier groups chose it, (V,).
        """
        living: list[tuple[int, Text]] = []
        self.taken = []
        for rank, (parent, grown) in enumerate(self._ranked(steps, own, charge)):
            last = len(grown.ids) == len(self.penalties)
            if len(living) == self.width or (last and rank == self.width):
                break
            whole = last or grown.finished
            if whole and rank >= self.width:
                continue
            self.taken.append(grown.ids[-1])
            if whole:
                self._file(grown)
            else:
                living.append((parent, grown))
        if self._is_done([beam for _, beam in living]):
            living = []
        self.beams = [beam for _, beam in living]
        return [(parent, beam.ids[-1]) for parent, beam in living]

    def _ranked(self, steps: Tensor, own: Tensor, charge: Tensor) -> Iterator[tuple[int, Text]]:
        """Yield the continuations, each with the beam it continues, the most probable first."""
        totals = steps.new_tensor([beam.score for beam in self.beams])
        ranking = (totals[:, None] + steps - charge).flatten()  # (beams * V,)
        for place, value in _falling(ranking, 2 * self.width):
            if value == -math.inf:
                return
            parent, token = divmod(place, steps.shape[1])
            beam = self.beams[parent]
            ids = (*beam.ids, token)
            logs = (*beam.log_probabilities, float(own[parent, token]))
            yield parent, Text(ids, logs, beam.score + float(steps[parent, token]), finished=self.stop.reached(ids))

    def _file(self, whole: Text) -> None:
        """Keep a whole hypothesis if it is among the M best."""
        scored = replace(whole, score=whole.score / self.penalties[len(whole.ids) - 1])
        self.best = sorted([*self.best, scored], key=lambda text: -text.score)[: self.width]

    def _is_done(self, living: Sequence[Text]) -> bool:
        """Whether nothing that can still come would be kept."""
        if not living or len(self.best) < self.width:
            return not living
        longest = max(self.penalties[len(living[0].ids) :])
        return self.early or max(beam.score for beam in living) / longest <= self.best[-1].score


def _falling(values: Tensor, enough: int) -> Iterator[tuple[int, float]]:
    """Yield place and value from the largest down; sort all of them only if more than `enough` are asked for."""
    top = values.topk(min(enough, len(values)))
    yield from zip(top.indices.tolist(), top.values.tolist(), strict=True)
    if len(top.indices) < len(values):
        rest = values.index_fill(0, top.indices, -math.inf).sort(descending=True, stable=True)
        yield from zip(rest.indices.tolist(), rest.values.tolist(), strict=True)
