"""Page files: what the page at `/` is made of, read once, with the headers that keep it to itself."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from importlib.resources import files
from pathlib import PurePosixPath
from typing import NamedTuple

from fastapi.responses import Response

from embedwatch.assets import CHARTS, ELEMENTS, TEMPLATES, read_asset

__all__ = ["PAGE_POLICY", "PageFile", "page_files", "page_response"]

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What the page may load: its own files and the API of this daemon. No script or style inside of a page, no `eval`."""
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
START = "index.html"
FOLDER = "/page/"


class PageFile(NamedTuple):
    """One file."""

    body: bytes
    zipped: bytes
    kind: str
    mark: str
    """Changes with the content."""


@lru_cache(maxsize=1)
def page_files() -> Mapping[str, PageFile]:
    """Return the files by the path that they are served under.

    Example:
        >>> sorted(page_files())[:2], sum(len(file.body) for file in page_files().values()) < 1_500_000
        (['/', '/page/api.js'], True)
    """
    ours = {
        each.name: each.read_bytes()
        for each in (files("embedwatch.daemon") / "page").iterdir()
        if PurePosixPath(each.name).suffix in KINDS
    }
    content = {**ours, **{name: read_asset(name) for name in (CHARTS, ELEMENTS, TEMPLATES)}}
    return {("/" if name == START else FOLDER + name): _file(name, body) for name, body in content.items()}


def _file(name: str, body: bytes) -> PageFile:
    kind = KINDS[PurePosixPath(name).suffix]
    mark = hashlib.sha256(body).hexdigest()[:32]
    return PageFile(body, gzip.compress(body, 6, mtime=0), f"{kind}; charset=utf-8", mark)


def page_response(file: PageFile, *, zipped: bool, known: str) -> Response:
    """Return a file, or that the browser has it already.

    Args:
        file: what was asked for.
        zipped: whether the browser takes gzip.
        known: its header `If-None-Match`.
    """
    mark = f'W/"{file.mark}"'
    headers = {
        "Content-Security-Policy": PAGE_POLICY,
        "Cache-Control": "no-cache",
        "ETag": mark,
        "Vary": "Accept-Encoding",
    }
    if mark in known:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    packed = {"Content-Encoding": "gzip"} if zipped else {}
    return Response(file.zipped if zipped else file.body, media_type=file.kind, headers={**headers, **packed})
