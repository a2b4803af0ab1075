"""Turns: where a Space went back to an earlier step, as a training does that goes on from its last checkpoint."""

from __future__ import annotations

from bisect import bisect_right

from embedwatch.core.snapshot import Space
from embedwatch.recording.lines import Entry

__all__ = ["Turns"]


class Turns:
    """Finds the lines that were written again: those of a Space whose step a later line goes back to, or before.

    The same step twice is no going back: a table is examined when a training ends, and again when it goes on there.

    State: of each Space the turns that no later one makes void.

    Example:
        >>> turns = Turns()
        >>> bool(turns), turns.steps()
        (False, [])
    """

    def __init__(self) -> None:
        self._newest: dict[Space, int] = {}
        self._turns: dict[Space, list[tuple[int, int]]] = {}  # (line, step), both rising

    def __bool__(self) -> bool:
        return bool(self._turns)

    def note(self, entry: Entry) -> None:
        """Look whether a line goes back."""
        space, step = entry.snapshot.space, entry.snapshot.provenance.step
        if step is None:
            return
        if space in self._newest and step < self._newest[space]:
            turns = self._turns.setdefault(space, [])
            while turns and turns[-1][1] >= step:
                turns.pop()
            turns.append((entry.line, step))
        self._newest[space] = step

    def supersede(self, entry: Entry) -> bool:
        """Return whether a later line was found to go back to the step of this one, or before it."""
        turns, step = self._turns.get(entry.snapshot.space), entry.snapshot.provenance.step
        if not turns or step is None:
            return False
        later = bisect_right(turns, entry.line, key=lambda turn: turn[0])
        return later < len(turns) and turns[later][1] <= step

    def steps(self) -> list[int]:
        """Return the step of each going back, in their order. One moves several Spaces, some of them a little later."""
        every = sorted((line, step, space) for space, turns in self._turns.items() for line, step in turns)
        moved: dict[str, set[Space]] = {}
        found: dict[str, list[int]] = {}
        for _, step, space in every:
            steps, spaces = found.setdefault(space.model, []), moved.setdefault(space.model, set())
            if not steps or space in spaces or step < steps[-1]:
                steps.append(step)
                spaces.clear()
            spaces.add(space)
        return sorted({step for steps in found.values() for step in steps})
