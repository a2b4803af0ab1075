"""What every refusal is tested for: one line that names the file, says the rule and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from embedwatch.core.errors import EmbedwatchError, InputError
from embedwatch.core.source import Source


def message_of(attempt: Callable[[], object], path: Path, kind: type[EmbedwatchError] = InputError) -> str:
    """Return the message of a refusal."""
    with pytest.raises(kind) as caught:
        attempt()
    message = str(caught.value)
    assert "\n" not in message
    assert path.name.split("\n")[0] in message
    assert "; " in message, "says what to do"
    assert len(message) < 400
    return message


def read_all(source: Source, size: int = 7) -> int:
    """Read all rows and return their number."""
    return sum(len(batch) for batch in source.batches(size))


def refusal(source: type[Source], path: Path, **options: str) -> str:
    """Return the message with which a Source refuses to open or to read a file."""
    return message_of(lambda: read_all(source.open(path, **options)), path)
