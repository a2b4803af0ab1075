"""HashedFolder: files beside a manifest in JSON that knows the length and the hash of each. Never pickle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embedwatch.core.errors import InputError
from embedwatch.core.strict_json import strict_json
from embedwatch.whole_files import write_folder_whole

__all__ = ["MOST_BYTES", "HashedFolder", "digest"]

FILES = "files"
DIGEST_OF_ALL = "blake2b"
"""Hash of everything else in the manifest, and of one file in its description."""
MOST_BYTES, MOST_MANIFEST = 2 << 30, 4 << 20
"""Of one file, and of the manifest. At D = 4,096 the maps of a reference take 400 MB."""
DIGEST = 16


def digest(data: bytes) -> str:
    """Return the hash of some bytes, BLAKE2b of 16 bytes in hex.

    Example:
        >>> digest(b"")
        'cae66941d9efbd404e4d88758ea67670'
    """
    return hashlib.blake2b(data, digest_size=DIGEST).hexdigest()


@dataclass(frozen=True)
class HashedFolder:
    """What one kind of folder is called, and how it is written and read: whole, and checked before it is believed.

    Args:
        manifest: name of its manifest; where that file is, there is a folder of this kind.
        noun: what it is, for people.
        command: what writes one.
        usage: the command with its arguments.
        again: what to do where it is damaged.
        schema: number of the format.
    """

    manifest: str
    noun: str
    command: str
    usage: str
    again: str
    schema: int = 1

    def is_there(self, path: Path) -> bool:
        """Return whether there is a folder of this kind."""
        return (path / self.manifest).is_file()

    def check_target(self, path: Path, *, replace: bool) -> None:
        """Refuse a path where something is that such a folder does not replace.

        Raises:
            InputError: saying what is there.
        """
        if path.exists() and not (replace and self.is_there(path)):
            what = (
                f"{self.noun}; --replace replaces it" if self.is_there(path) else "something else; choose another name"
            )
            raise InputError(f"{path} must not exist, got {what}")

    def write(self, path: Path, about: Mapping[str, Any], files: Mapping[str, bytes], *, replace: bool) -> None:
        """Write files and a manifest under another name, then rename the folder.

        Raises:
            InputError: where something else is.
            OSError: as the system says it.
        """
        self.check_target(path, replace=replace)
        for name, data in files.items():
            self._check_size(name, len(data), MOST_BYTES)
        described = {name: {"bytes": len(data), DIGEST_OF_ALL: digest(data)} for name, data in files.items()}
        manifest = {"schema": self.schema, **about, FILES: described}
        manifest[DIGEST_OF_ALL] = digest(_canonical(manifest))
        text = json.dumps(manifest, ensure_ascii=False, allow_nan=False, indent=2).encode("utf-8", "backslashreplace")
        self._check_size(self.manifest, len(text), MOST_MANIFEST)
        write_folder_whole(path, {**files, self.manifest: text})

    def check_source(self, path: Path) -> None:
        """Refuse a path where no such folder is.

        Raises:
            InputError: saying what is there.
        """
        if not self.is_there(path):
            what = "nothing" if not path.exists() else "something else"
            raise InputError(
                f"{path} must be a folder that `{self.command}` wrote, got {what}; make one with `{self.usage}`"
            )

    def read(
        self, path: Path, *, needed: tuple[str, ...], known: tuple[str, ...]
    ) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Return what the manifest says, and the content of each file, which is what was written.

        Args:
            path: of the folder.
            needed: names of files that must be there.
            known: names of files that may be there.

        Raises:
            InputError: in one line, without the path.
            OSError: as the system says it.
        """
        manifest = self._manifest(path / self.manifest)
        described = manifest.pop(FILES, None)
        if not isinstance(described, dict) or not set(needed) <= set(described) <= {*needed, *known}:
            raise InputError(f"{self.manifest} must name {', '.join(needed)}, got other files; {self._advice}")
        return manifest, {name: self._file(path / name, about) for name, about in described.items()}

    def _check_size(self, name: str, size: int, most: int) -> None:
        """Refuse to write what would be refused when it is read."""
        if size > most:
            raise InputError(f"{name} must have at most {most:,} bytes, got {size:,}; give fewer rows or dimensions")

    @property
    def _advice(self) -> str:
        return f"copy it again, or {self.again}"

    def _manifest(self, path: Path) -> dict[str, Any]:
        if (size := path.stat().st_size) > MOST_MANIFEST:
            raise InputError(f"{path.name} must have at most {MOST_MANIFEST:,} bytes, got {size:,}; {self._advice}")
        found = strict_json(path.read_bytes().decode("utf-8", "replace"), path.name)
        schema = found.get("schema") if isinstance(found, dict) else None
        if not isinstance(found, dict) or schema != self.schema:
            raise InputError(
                f"the schema must be {self.schema}, got {schema!r}; use the version of embedwatch that wrote it"
            )
        if found.pop(DIGEST_OF_ALL, None) != digest(_canonical(found)):
            raise InputError(f"{path.name} must be as it was written, got other values; {self._advice}")
        return found

    def _file(self, path: Path, described: Any) -> bytes:
        if not path.is_file():
            raise InputError(f"{path.name} must be there, got none; copy the folder whole, or {self.again}")
        wanted = described if isinstance(described, dict) else {}
        size, length = path.stat().st_size, wanted.get("bytes")
        if size != length:
            raise InputError(f"{path.name} must have {length} bytes, got {size}; {self._advice}")
        if size > MOST_BYTES:
            raise InputError(f"{path.name} must have at most {MOST_BYTES:,} bytes, got {size:,}; {self.again}")
        data = path.read_bytes()
        if digest(data) != wanted.get(DIGEST_OF_ALL):
            raise InputError(f"{path.name} must be as it was written, got other bytes; {self._advice}")
        return data


def _canonical(manifest: Mapping[str, Any]) -> bytes:
    return json.dumps(manifest, sort_keys=True).encode()
