"""Whoever reads the output may go away, and a disk may be full: neither looks like a verdict."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from embedwatch.cli.terminals import EXIT_CLOSED

FULL = Path("/dev/full")


def ended(*arguments: str, output: int) -> tuple[int, str]:
    """Run a command with this as its standard output; return its exit status and what it complained of."""
    done = subprocess.run(
        [sys.executable, "-m", "embedwatch", *arguments], stdout=output, stderr=subprocess.PIPE, text=True, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("arguments", [("list", "checks"), ("metrics", "--json")])
def test_a_pipe_that_nobody_reads_is_neither_a_pass_nor_a_failed_check(arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert ended(*arguments, output=writing) == (EXIT_CLOSED, "")
    finally:
        os.close(writing)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /dev/full")
def test_a_full_disk_is_told_in_one_line() -> None:
    with FULL.open("w") as output:
        status, told = ended("list", "sinks", output=output.fileno())
    assert status == 2
    assert "No space left on device" in told
    assert told.count("\n") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /dev/full")
def test_a_mistake_that_cannot_be_told_keeps_its_exit_status() -> None:
    with FULL.open("w") as full:
        arguments = [sys.executable, "-m", "embedwatch", "explain", "no such file"]
        done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=full, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
