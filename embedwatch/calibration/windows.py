"""Which windows of a History may speak together."""

from __future__ import annotations

from embedwatch.core.history import History
from embedwatch.core.snapshot import Snapshot

__all__ = ["windows_together"]


def windows_together(snapshot: Snapshot, history: History | None, name: str) -> list[Snapshot]:
    """Return the newest windows that hold a measurement, oldest first; this Snapshot is the last of them.

    They are of one model and of one reference: what came before another is of another stream. What a resumed run went
    over again counts as it was last. Windows of one Course share no row; a file that changed has another fingerprint.
    """
    found: list[Snapshot] = []
    now = snapshot.provenance
    for each in history.recent() if history is not None else ():
        then = each.provenance
        if each is snapshot or then.time > now.time:
            continue
        if then.fingerprint != now.fingerprint or then.reference != now.reference:
            found.clear()
            continue
        if then.step is not None:
            found = [earlier for earlier in found if _before(earlier, then.step)]
        found.append(each)
    if now.step is not None:
        found = [earlier for earlier in found if _before(earlier, now.step)]
    return [each for each in (*found, snapshot) if each is snapshot or each.number(name) is not None]


def _before(earlier: Snapshot, step: int) -> bool:
    return earlier.provenance.step is None or earlier.provenance.step < step
