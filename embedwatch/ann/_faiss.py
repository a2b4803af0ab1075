"""FAISS without types: its stubs lack methods, and differ from one version to the next."""

from __future__ import annotations

from typing import Any

import faiss as _module

__all__ = ["faiss"]

faiss: Any = _module
