"""Diagnostic: examines a Subject, or parts of a model at work, when asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.core.registry import Plugin

__all__ = ["Diagnostic"]


class Diagnostic(Plugin, ABC):
    """Examines weights, positions or tokens of a Subject: at attach, at each new checkpoint, in an audit."""

    kind: ClassVar[str] = "diagnostic"
    title: ClassVar[str] = ""
    examines: ClassVar[str] = "subject"
    """What `examine` takes: a loaded model (`subject`), or parts of one in a class of the diagnostic's own."""
    metrics: ClassVar[tuple[Metric, ...]] = ()

    @abstractmethod
    def examine(self, subject: Any) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return measurements and the exhibits behind them. Never changes the subject."""

    @classmethod
    def examples(cls) -> Iterable[Any]:
        """Yield what it can examine, for tests of what it delivers."""
        return ()
