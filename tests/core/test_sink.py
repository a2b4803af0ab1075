"""Sink: how the command line makes one, and how it closes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from embedwatch.core import Exhibit, Sink, Snapshot, UsageError, Verdict


class Quiet(Sink, register=False):
    """Takes no target."""

    name = "quiet"

    def __init__(self) -> None:
        self.closed = 0

    def write(self, snapshot: Snapshot, verdicts: Sequence[Verdict], exhibits: Sequence[Exhibit] = ()) -> None:
        pass

    def close(self) -> None:
        self.closed += 1


class ToFile(Quiet, register=False):
    """Takes one."""

    name = "to_file"
    target = "FILE"

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path


def test_open_passes_the_target() -> None:
    sink = ToFile.open("a:b.jsonl")
    assert isinstance(sink, ToFile)
    assert sink.path == "a:b.jsonl"
    assert isinstance(Quiet.open(""), Quiet)


@pytest.mark.parametrize(
    ("cls", "target", "words"),
    [(ToFile, "", "must be written to_file:FILE, got 'to_file'"), (Quiet, "x", "must be written quiet, got 'quiet:x'")],
)
def test_open_refuses_a_missing_and_a_superfluous_target(cls: type[Sink], target: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        cls.open(target)


def test_the_with_block_closes_and_lets_errors_through() -> None:
    with Quiet() as sink:
        pass
    assert isinstance(sink, Quiet)
    assert sink.closed == 1
    with pytest.raises(ZeroDivisionError), sink:
        raise ZeroDivisionError
    assert sink.closed == 2
