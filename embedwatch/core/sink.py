"""Sink: takes a Snapshot and its verdicts somewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Any, ClassVar, TypeVar

from embedwatch.core.errors import UsageError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.registry import Plugin
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Verdict

__all__ = ["Sink"]

SinkT = TypeVar("SinkT", bound="Sink")


class Sink(Plugin, ABC):
    """Delivers Snapshots and verdicts: to a file, a console, a service. `--sink NAME:TARGET` names one."""

    kind: ClassVar[str] = "sink"
    title: ClassVar[str] = ""
    target: ClassVar[str] = ""
    """What stands after the colon in `--sink NAME:TARGET`; empty where nothing does."""
    wants_windows: ClassVar[bool] = False
    """True where it takes closed windows, whose statistics still merge, rather than what was measured of them."""

    @classmethod
    def require(cls, target: str) -> None:
        """Refuse a target that is missing or superfluous.

        Raises:
            UsageError: if it is.
        """
        if bool(target) != bool(cls.target):
            form = f"{cls.name}:{cls.target}" if cls.target else cls.name
            raise UsageError(f"sink {cls.name!r} must be written {form}, got {cls.name + (target and ':' + target)!r}")

    @classmethod
    def open(cls, target: str) -> Sink:
        """Make the sink that `--sink NAME:TARGET` asks for.

        Raises:
            UsageError: if the target is missing or superfluous.
        """
        cls.require(target)
        return cls(target) if target else cls()  # type: ignore[call-arg]

    @abstractmethod
    def write(self, snapshot: Snapshot, verdicts: Sequence[Verdict], exhibits: Sequence[Exhibit] = ()) -> None:
        """Deliver one Snapshot with its verdicts, and the exhibits that they cite."""

    def write_window(self, window: Any, snapshot: Snapshot) -> None:
        """Deliver one closed Window, never updated again, with the Snapshot that was made of it.

        Called instead of `write` where `wants_windows` is true; Snapshots that no Window stands behind go to `write`.
        """
        del window
        self.write(snapshot, ())

    def expect(self, snapshots: Sequence[Snapshot]) -> None:
        """Take note of Spaces that will come: Snapshots without rows, with every counter at zero."""
        del snapshots

    def close(self) -> None:
        """Finish. Calling it again does nothing."""
        return

    def __enter__(self: SinkT) -> SinkT:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
