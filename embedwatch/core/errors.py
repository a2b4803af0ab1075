"""The error tree. One root, so that a caller can catch everything of ours at once.

```
EmbedwatchError
├── UsageError         ValueError     an argument, option or name that does not exist or does not fit
├── InputError         ValueError     a file, array or model that cannot be read as what it claims to be
├── MergeError         ValueError     two states that do not belong together
├── RegistrationError  TypeError      a plug-in class that breaks the rules of its kind
└── MissingExtraError  RuntimeError   an optional package that this job needs
```

Every message reads: `argument` must be REQUIREMENT, got VALUE; FIX.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "EmbedwatchError",
    "InputError",
    "MergeError",
    "MissingExtraError",
    "RegistrationError",
    "UsageError",
    "did_you_mean",
]


class EmbedwatchError(Exception):
    """Root of everything that embedwatch raises on purpose."""


class UsageError(EmbedwatchError, ValueError):
    """An argument, option or name does not exist or does not fit."""


class InputError(EmbedwatchError, ValueError):
    """A file, array or model cannot be read as what it claims to be."""


class MergeError(EmbedwatchError, ValueError):
    """Two states do not belong together: another class, dimension or configuration."""


class RegistrationError(EmbedwatchError, TypeError):
    """A plug-in class breaks the rules of its kind."""


class MissingExtraError(EmbedwatchError, RuntimeError):
    """An optional package that this job needs is not installed."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `did you mean "x"?` for the nearest known name, or an empty string.

    Example:
        >>> did_you_mean("effective_rnak", ["effective_rank", "mean_cosine"])
        'did you mean "effective_rank"?'
        >>> did_you_mean("zzz", ["effective_rank"])
        ''
    """
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f'did you mean "{close[0]}"?' if close else ""
