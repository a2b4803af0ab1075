"""A bridge that a live model stands on: its texts are embedded now and again, mapped, and judged beside the start."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from embedwatch.align.probing import PLACE, Bridge
from embedwatch.core.boundary import Boundary
from embedwatch.core.snapshot import Snapshot, Space
from embedwatch.course import Course, Judgement
from embedwatch.judging import Judge
from embedwatch.loading.live import LiveSubject
from embedwatch.observe.resting import resting
from embedwatch.stats.pair_similarity import PairSimilarity

__all__ = ["BridgeWatch"]

DEVICES = ("cpu", "cuda")


class BridgeWatch:
    """Embeds the texts of a bridge where the model is at rest, and judges them where that disturbs nobody.

    Args:
        bridge: what is watched.
        label: of the model.
        tokenizer: of the Monitor.
        judge: asks the checks.
        boundary: where exceptions of ours end.
    """

    def __init__(self, bridge: Bridge, label: str, tokenizer: Any, judge: Judge, boundary: Boundary) -> None:
        self._bridge, self._label, self._tokenizer, self._boundary = bridge, label, tokenizer, boundary
        self._course = Course(Space(label, PLACE), PLACE, self._statistics, judge, boundary)

    def _statistics(self) -> Sequence[PairSimilarity]:
        return [PairSimilarity(most=len(self._bridge.canary))]

    def embedded(self, model: nn.Module) -> Tensor:
        """Return what the model makes of the texts now; it must be at rest, and is left as it was. (N, D) float32.

        Raises:
            InputError: if nothing says how, or the vectors do not fit the bridge.
        """
        subject = LiveSubject(model, tokenizer=self._tokenizer, label=self._label, encode=self._bridge.encode)
        with ExitStack() as modes:
            modes.enter_context(resting([model]))
            for device in DEVICES:
                if torch.is_autocast_enabled(device):  # of a training step around us: what is compared must be the same
                    modes.enter_context(torch.autocast(device, enabled=False))
            return self._bridge.embedded(subject.encode)

    def check(self, rows: Tensor) -> None:
        """Refuse vectors of another model than the map was fitted for.

        Raises:
            InputError: saying what they are.
        """
        if self._bridge.aligner is not None:
            self._bridge.aligner.source.check(rows, whose="vectors of the model")

    def judge(self, rows: Tensor, *, step: int | None, fingerprint: str) -> Judgement:
        """Measure vectors that `embedded` gave, and judge them beside those of the start."""
        window = self._bridge.window(rows, boundary=self._boundary)
        snapshot = self._bridge.snapshot(window, self._course.space, fingerprint=fingerprint, step=step)
        return self._course.publish(snapshot, window.exhibits)

    def expected(self) -> Snapshot:
        """Return a Snapshot without rows: what will be measured."""
        return self._course.expected()

    @property
    def last(self) -> Judgement | None:
        """What was found last."""
        return self._course.last

    def memory(self) -> int:
        """Return the most bytes that it holds: texts have vectors on both sides, and one window is measured."""
        canary = self._bridge.canary
        return self._statistics()[0].memory(canary.dimension) + 2 * canary.vectors.nbytes
