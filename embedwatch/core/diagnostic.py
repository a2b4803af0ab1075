"""Diagnostic: examines a Subject when asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.core.registry import Plugin

__all__ = ["Diagnostic"]


class Diagnostic(Plugin, ABC):
    """Examines weights, positions or tokens of a Subject: at attach, at each new checkpoint, in an audit."""

    kind: ClassVar[str] = "diagnostic"
    title: ClassVar[str] = ""
    metrics: ClassVar[tuple[Metric, ...]] = ()

    @abstractmethod
    def examine(self, subject: Any) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return measurements and the exhibits behind them. Never changes the subject."""
