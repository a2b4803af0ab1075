"""Diagnostic: examines a Subject, or parts of a model at work, when asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.core.registry import Plugin

__all__ = ["SUBJECT", "Diagnostic"]


SUBJECT = "subject"
"""What diagnostics of a whole model examine."""


class Diagnostic(Plugin, ABC):
    """Examines weights, positions or tokens of a Subject: at attach, at each new checkpoint, in an audit."""

    kind: ClassVar[str] = "diagnostic"
    title: ClassVar[str] = ""
    examines: ClassVar[str] = SUBJECT
    """What `examine` takes: an Inquiry about a model (`subject`), or parts of one in a class of its own."""
    metrics: ClassVar[tuple[Metric, ...]] = ()
    place: ClassVar[str] = ""
    """Of those of a model: the place of the Space in which its measurements appear, which is its role as well."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Names of what an Inquiry must hold for it; without, it is not asked."""
    runs_model: ClassVar[bool] = False
    """Whether it makes forward passes; those that do are asked only where that is wanted."""

    def applies(self, inquiry: Any) -> bool:
        """Return whether the model has what this examines."""
        del inquiry
        return True

    @abstractmethod
    def examine(self, subject: Any) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return measurements and the exhibits behind them. Never changes the subject."""

    @classmethod
    def examples(cls) -> Iterable[Any]:
        """Yield what it can examine, for tests of what it delivers."""
        return ()
