"""While transformers works for us: threads take turns, and settings of the process are as they were afterwards."""

from __future__ import annotations

import threading

import pytest
from huggingface_hub import constants
from transformers.utils import logging

from embedwatch.loading import quiet as loading
from embedwatch.loading.quiet import quiet
from tests.polling import DEADLINE


def settings() -> tuple[int, bool, bool]:
    return logging.get_verbosity(), logging.is_progress_bar_enabled(), constants.HF_HUB_OFFLINE


def test_threads_take_turns_and_settings_are_as_before() -> None:
    before = settings()
    inside, leave = threading.Event(), threading.Event()

    def second() -> None:
        with quiet():
            inside.set()
            leave.wait(DEADLINE)

    thread = threading.Thread(target=second, daemon=True)
    with quiet():
        assert settings() == (50, False, True)
        thread.start()
        assert not inside.wait(0.2), "settings that it found would be those of the first, and stay"
        with quiet():
            assert not inside.is_set(), "the same thread may come again"
    assert inside.wait(DEADLINE)
    leave.set()
    thread.join(DEADLINE)
    assert settings() == before


def test_a_forked_child_does_not_wait_for_a_thread_that_it_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "TURN", threading.RLock())  # the one that is held is put away afterwards
    inside, leave = threading.Event(), threading.Event()

    def holder() -> None:
        with quiet():
            inside.set()
            leave.wait(DEADLINE)

    thread = threading.Thread(target=holder, daemon=True)
    thread.start()
    assert inside.wait(DEADLINE)
    loading._forked()
    assert loading.TURN.acquire(timeout=1)
    leave.set()
    thread.join(DEADLINE)
