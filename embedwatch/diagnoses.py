"""Diagnoses of a live model: examined at the start, at checkpoints and on request, on what it holds just then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from embedwatch.core.boundary import Boundary
from embedwatch.course import Judgement
from embedwatch.diagnosing import diagnose
from embedwatch.inquiry import Inquiry
from embedwatch.judged import Judged
from embedwatch.judging import Judge
from embedwatch.loading.live import LiveSubject

__all__ = ["Diagnoses"]


class Diagnoses:
    """What diagnostics find in one live model, by place.

    Args:
        label: of the model.
        tokenizer: names tokens, where it is one of transformers.
        judge: asks the checks.
        boundary: where exceptions of ours end.
        only: names of diagnostics, measurements or checks to keep.
        skip: names of those to leave out.
    """

    def __init__(
        self, label: str, tokenizer: Any, judge: Judge, boundary: Boundary, *, only: Sequence[str], skip: Sequence[str]
    ) -> None:
        self._label, self._judge, self._boundary = label, judge, boundary
        self._tokenizer = tokenizer if hasattr(tokenizer, "all_special_ids") else None
        self._only, self._skip = tuple(only), tuple(skip)
        self.judgements: dict[str, Judgement] = {}
        """The last of each place."""

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
