"""Diagnoses of a live model: examined at the start, at checkpoints and on request, on what it holds just then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from embedwatch.align.probing import PLACE as PAIRS
from embedwatch.align.probing import Bridge
from embedwatch.bridge_watch import BridgeWatch
from embedwatch.core.boundary import Boundary
from embedwatch.core.errors import UsageError
from embedwatch.core.snapshot import Snapshot
from embedwatch.course import Judgement
from embedwatch.diagnosing import diagnose
from embedwatch.inquiry import Inquiry
from embedwatch.judged import Judged
from embedwatch.judging import Judge
from embedwatch.loading.live import LiveSubject
from embedwatch.observe.anatomy import lies_in_parts

__all__ = ["BRIDGE", "STAGE", "Diagnoses"]

STAGE, BRIDGE = "diagnostic", "bridge"
"""Where exceptions of looking at a bridge are counted."""


class Diagnoses:
    """What diagnostics find in one live model, by place.

    Args:
        label: of the model.
        tokenizer: names tokens, where it is one of transformers.
        judge: asks the checks.
        boundary: where exceptions of ours end.
        only: names of diagnostics, measurements or checks to keep.
        skip: names of those to leave out.
        bridge: over which its vectors go.
    """

    def __init__(
        self,
        label: str,
        tokenizer: Any,
        judge: Judge,
        boundary: Boundary,
        *,
        only: Sequence[str],
        skip: Sequence[str],
        bridge: Bridge | None = None,
    ) -> None:
        self._label, self._judge, self._boundary = label, judge, boundary
        self._tokenizer = tokenizer if hasattr(tokenizer, "all_special_ids") else None
        self._only, self._skip = tuple(only), tuple(skip)
        self.judgements: dict[str, Judgement] = {}
        """The last of each place."""
        self.bridge = None if bridge is None else BridgeWatch(bridge, label, self._tokenizer, judge, boundary)

    def run(
        self,
        model: nn.Module,
        deliver: Callable[[Judgement], None],
        *,
        step: int | None = None,
        encode: Callable[[Sequence[str]], Any] | None = None,
        **asked: Any,
    ) -> list[Judged]:
        """Examine a model, keep what was found, and deliver it.

        Args:
            model: as it is now; it is held no longer than this takes.
            deliver: takes what was found at each place.
            step: training step.
            encode: turns texts into vectors.
            asked: fields of the Inquiry.
        """
        subject = LiveSubject(model, tokenizer=self._tokenizer, label=self._label, encode=encode)
        found = diagnose(
            Inquiry(subject, **asked),
            only=self._only,
            skip=self._skip,
            boundary=self._boundary,
            judge=self._judge,
            step=step,
        )
        for judged in found:
            judgement = Judgement(judged.snapshot, judged.verdicts, judged.exhibits)
            self.judgements[judged.snapshot.space.place] = judgement
            deliver(judgement)
        return found

    def embedded(self, model: nn.Module, *, start: bool) -> Tensor | None:
        """Return what a model at rest makes of the texts of its bridge now, (N, D); `None` where that cannot be had.

        Raises:
            InputError, UsageError: at the start, if it cannot be had; later it is counted.
        """
        if self.bridge is None:
            return None
        if start:
            found = self._embedded(self.bridge, model)
            self.bridge.check(found)
            return found
        kept: list[Tensor] = []
        with self._boundary.guard(STAGE, BRIDGE):
            kept.append(self._embedded(self.bridge, model))
        return next(iter(kept), None)

    @staticmethod
    def _embedded(bridge: BridgeWatch, model: nn.Module) -> Tensor:
        """Embed the texts, unless a forward pass would wait for other ranks; a model may be spread after the start."""
        if lies_in_parts(model):
            raise UsageError(
                "`bridge` must be of a model that lies whole on this rank, got one in parts on several; "
                "watch a checkpoint"
            )
        return bridge.embedded(model)

    def crossed(self) -> list[Judged]:
        """Return what was found of the bridge last."""
        found = self.judgements.get(PAIRS)
        return [] if found is None else [Judged(found.snapshot, found.verdicts, found.exhibits, 0.0)]

    def cross(self, rows: Tensor, deliver: Callable[[Judgement], None], *, step: int, fingerprint: str) -> None:
        """Judge what the model made of the texts of its bridge, (N, D), keep what was found, and deliver it."""
        if self.bridge is not None:
            with self._boundary.guard(STAGE, BRIDGE, recovers=True):
                found = self.judgements[PAIRS] = self.bridge.judge(rows, step=step, fingerprint=fingerprint)
                deliver(found)

    def expected(self) -> list[Snapshot]:
        """Return a Snapshot without rows of what will be measured at each checkpoint."""
        return [] if self.bridge is None else [self.bridge.expected()]

    def memory(self) -> int:
        """Return the most bytes that what is looked at again and again holds."""
        return 0 if self.bridge is None else self.bridge.memory()
