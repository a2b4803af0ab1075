"""Auth: who may read and send, by bearer token or by name and password."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path

from embedwatch.core.errors import UsageError
from embedwatch.daemon.config import Auth

__all__ = ["OPEN", "REALM", "Gate", "open_gate"]

OPEN = frozenset({"/-/healthy", "/-/ready"})
"""Paths that need nothing: whoever restarts a process that hangs has no password."""
REALM = "embedwatch"
SHORTEST_TOKEN = 16
LARGEST_FILE = 1 << 20
LONGEST_HEADER = 1024
LONGEST_PASSWORD = 72
"""Bytes that bcrypt looks at; a longer password is refused, for the rest would not count."""
REMEMBERED = 256
"""Right passwords that are not hashed again: bcrypt takes a tenth of a second on purpose."""
USER = re.compile(r"(?P<name>[^:\s]{1,100}):(?P<hash>\$2[aby]\$(?P<cost>[0-9]{2})\$[./A-Za-z0-9]{53})\Z")
COSTLIEST = 16
"""Cost of a hash: one more doubles the time; this one takes seconds."""


class Gate:
    """Decides by the header `Authorization`. Comparing takes the same time whatever is wrong.

    Args:
        tokens: any of them opens.
        users: bcrypt hash by name.

    Example:
        >>> gate = Gate(tokens=["a token of sixteen letters or more"])
        >>> gate.admits("Bearer a token of sixteen letters or more"), gate.admits("Bearer another"), gate.admits("")
        (True, False, False)
        >>> Gate().is_open
        True
    """

    def __init__(self, *, tokens: Iterable[str] = (), users: Mapping[str, str] | None = None) -> None:
        self._secret = secrets.token_bytes(32)
        self._tokens = [self._digest(token) for token in tokens]
        self._users = dict(users or {})
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        """Whether nobody has to authenticate."""
        return not self._tokens and not self._users

    @property
    def challenge(self) -> str:
        """What a client is asked for: the header `WWW-Authenticate`."""
        schemes = [f'Basic realm="{REALM}", charset="UTF-8"'] if self._users else []
        return ", ".join([*schemes, *([f'Bearer realm="{REALM}"'] if self._tokens else [])])

    def is_quick(self, header: str) -> bool:
        """Whether `admits` answers without hashing a password, which takes a tenth of a second."""
        scheme, _, credentials = header.partition(" ")
        return scheme.lower() != "basic" or not self._users or self._digest(credentials.strip()) in self._right

    def admits(self, header: str) -> bool:
        """Return whether a header opens. Thread-safe."""
        if self.is_open:
            return True
        scheme, _, credentials = header.partition(" ")
        if len(header) > LONGEST_HEADER:
            return False
        if scheme.lower() == "bearer":
            digest = self._digest(credentials.strip())
            return bool(sum([hmac.compare_digest(digest, token) for token in self._tokens]))
        return scheme.lower() == "basic" and bool(self._users) and self._admits_user(credentials.strip())

    def _admits_user(self, credentials: str) -> bool:
        key = self._digest(credentials)
        with self._lock:
            if key in self._right:
                return True
        try:
            name, separator, password = base64.b64decode(credentials, validate=True).partition(b":")
            user = name.decode("utf-8")
        except (binascii.Error, ValueError):
            return False
        known = self._users.get(user)
        another = next(iter(self._users.values()))  # an unknown name takes as long as a known one
        right = _is_password(password[:LONGEST_PASSWORD], known or another)
        if not (right and known and separator and len(password) <= LONGEST_PASSWORD):
            return False
        with self._lock:
            self._right[key] = None
            if len(self._right) > REMEMBERED:
                self._right.popitem(last=False)
        return True

    def _digest(self, text: str) -> bytes:
        return hmac.digest(self._secret, text.encode("utf-8", "surrogatepass"), hashlib.sha256)


def _is_password(password: bytes, known: str) -> bool:
    import bcrypt

    try:
        return bcrypt.checkpw(password, known.encode("ascii"))
    except ValueError:  # a byte that bcrypt does not take
        return False


def open_gate(auth: Auth) -> Gate:
    """Read the files of secrets.

    Raises:
        UsageError: if one cannot be read, or holds something else; what it holds is not repeated.
    """
    tokens = [] if auth.token_file is None else _tokens(auth.token_file)
    users = {} if auth.users_file is None else _users(auth.users_file)
    return Gate(tokens=tokens, users=users)


def _tokens(path: Path) -> list[str]:
    found = _lines(path)
    for number, line in found:
        if len(line) < SHORTEST_TOKEN or not line.isascii() or len(line.split()) != 1:
            raise UsageError(
                f"{path}:{number}: a token must be at least {SHORTEST_TOKEN} ASCII letters without spaces; "
                "make one with `openssl rand -hex 32`"
            )
    return [line for _, line in found]


def _users(path: Path) -> dict[str, str]:
    users: dict[str, str] = {}
    for number, line in _lines(path):
        match = USER.match(line)
        if match is None or int(match["cost"]) > COSTLIEST or match["name"] in users:
            raise UsageError(
                f"{path}:{number}: a user must be a new name and a bcrypt hash of cost up to {COSTLIEST}, "
                "`name:$2y$...`; make one with `htpasswd -nB NAME`"
            )
        users[match["name"]] = match["hash"]
    return users


def _lines(path: Path) -> list[tuple[int, str]]:
    """Return the lines that say something, with their numbers."""
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST_FILE).decode("utf-8")
    except OSError as error:
        raise UsageError(f"{path}: must be a readable file, got {error.strerror or error}; correct the path") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: must be UTF-8 text, got other bytes") from error
    found = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    found = [(number, line) for number, line in found if line and not line.startswith("#")]
    if not found:
        raise UsageError(f"{path}: must hold at least one secret, got none; leave the setting out to let everybody in")
    return found
