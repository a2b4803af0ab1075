"""What all tests share: one thread, no network, reproducible examples, and skips that can be made failures."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

# Before torch, faiss and tokenizers are imported: they read these once.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a hub name fails at once, not after 23 seconds

import hypothesis
import pytest

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

EXPECTED_SKIPS: tuple[str, ...] = ("a disk of its own needs root and mount", "there is no device that works by itself")
"""Beginnings of skip reasons that are right even where everything is installed. Keep it short, and say why."""

hypothesis.settings.register_profile("default", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True)
hypothesis.settings.load_profile("default")


LOGGERS = ("embedwatch", "uvicorn")
"""What the commands and the daemon point at standard error, for a process that is all theirs."""


@pytest.fixture(autouse=True)
def loggers_as_they_were() -> Iterator[None]:
    """Undo what a command that ran within a test did to the log, so that `caplog` sees it in the next one."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [(logger.handlers[:], logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fail-on-skip",
        action="store_true",
        default=os.environ.get("EMBEDWATCH_NO_SKIPS", "") not in ("", "0"),
        help="a skipped test fails the run unless its reason is expected (environment: EMBEDWATCH_NO_SKIPS=1)",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--fail-on-skip") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipWatch(), "skip-watch")


class SkipWatch:
    """Collects skipped tests and modules, and fails the run for those that nobody expected."""

    def __init__(self, expected: tuple[str, ...] = EXPECTED_SKIPS) -> None:
        self.expected = expected
        self.unexpected: list[str] = []

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        if not reason.startswith(self.expected or ("\0",)):
            self.unexpected.append(f"{report.nodeid}: {reason}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        if self.unexpected and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        yield

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        if self.unexpected:
            terminalreporter.section("unexpected skips fail this run", red=True)
            for line in self.unexpected:
                terminalreporter.line(line)
