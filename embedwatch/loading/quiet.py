"""Keep transformers silent and off the network while it works for us."""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quiet"]

TURN = threading.RLock()
"""Held by the thread for which transformers works."""


@contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings, loading reports and progress bars, and forbid every request to a hub, inside the block.

    Directories are untrusted: some configurations name a second model that transformers would fetch while it builds the
    first. The settings are the process's, so they are put back afterwards. Threads take turns: settings of one are
    those of all, and so is what transformers changes while it builds a model, weights that are tied among it.
    """
    with TURN:
        from huggingface_hub import constants
        from transformers.utils import logging as transformers_logging

        level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
        offline = constants.HF_HUB_OFFLINE
        transformers_logging.set_verbosity(logging.CRITICAL)
        transformers_logging.disable_progress_bar()
        constants.HF_HUB_OFFLINE = True
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        finally:
            constants.HF_HUB_OFFLINE = offline
            transformers_logging.set_verbosity(level)
            if bars:
                transformers_logging.enable_progress_bar()


def _forked() -> None:
    """In a child process no thread is left that could give the turn back."""
    global TURN  # noqa: PLW0603
    TURN = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
