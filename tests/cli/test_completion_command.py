"""`embedwatch completion`: shells get what they need, and are answered."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from click.testing import CliRunner

from embedwatch.cli import main
from embedwatch.cli.completion import PROGRAM, SHELLS, VARIABLE


def script(shell: str) -> str:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    return result.stdout


def answers(words: str, last: int) -> list[str]:
    """Return what bash is offered."""
    environment = {VARIABLE: "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(last)}
    told = CliRunner().invoke(main, [], env=environment, prog_name=PROGRAM).stdout
    return [line.partition(",")[2] for line in told.splitlines()]


@pytest.mark.parametrize(("shell", "said"), [("bash", "complete -o"), ("zsh", "#compdef"), ("fish", "complete ")])
def test_every_shell_gets_a_script_about_this_program(shell: str, said: str) -> None:
    told = script(shell)
    assert said in told
    assert VARIABLE in told
    assert PROGRAM in told


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_that_is_here_reads_it(shell: str) -> None:
    if shutil.which(shell) is None:
        if shell == "bash":
            pytest.fail("every system that runs these tests has bash")
        return
    flag = ["--no-execute"] if shell == "fish" else ["-n"]
    subprocess.run([shell, *flag], input=script(shell), text=True, check=True, timeout=30)


def test_commands_options_and_choices_are_offered() -> None:
    assert answers("embedwatch au", 1) == ["audit"]
    assert "--fail-on" in answers("embedwatch audit --fa", 2)
    assert answers("embedwatch audit --fail-on ", 3) == ["warn", "fail", "never"]
    assert answers("embedwatch align pl", 2) == ["plan"]


def test_another_shell_is_refused_in_one_line() -> None:
    result = CliRunner().invoke(main, ["completion", "tcsh"])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "'bash', 'zsh', 'fish'" in result.stderr
