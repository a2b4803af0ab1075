"""The group of commands, and what happens to errors."""

from __future__ import annotations

import io
import logging
import os
import sys
from contextlib import suppress
from typing import Any

import click

from embedwatch import __version__
from embedwatch.cli.align import align_command
from embedwatch.cli.attention import attention_command
from embedwatch.cli.audit import audit_command
from embedwatch.cli.canary import canary_command
from embedwatch.cli.compare import compare_command
from embedwatch.cli.completion import completion_command
from embedwatch.cli.config import config_command
from embedwatch.cli.demo import demo_command
from embedwatch.cli.doctor import doctor_command
from embedwatch.cli.drill import drill_command
from embedwatch.cli.explain import explain_command
from embedwatch.cli.generate import generate_command
from embedwatch.cli.list import list_command
from embedwatch.cli.metrics import metrics_command
from embedwatch.cli.positions import positions_command
from embedwatch.cli.reference import reference_command
from embedwatch.cli.report import report_command
from embedwatch.cli.rules import rules_command
from embedwatch.cli.serve import serve_command
from embedwatch.cli.show import show_command
from embedwatch.cli.terminals import EXIT_CLOSED
from embedwatch.cli.train import train_command
from embedwatch.core.errors import EmbedwatchError

__all__ = ["main"]

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

EPILOG = """\b
Examples:
  embedwatch audit vectors.npy                    judge a file of vectors
  embedwatch audit ./my-model --text texts.txt    judge a model's tokens and its vectors of some texts
  embedwatch compare old.npy new.npy              say whether vectors differ from others, and where
  embedwatch reference create healthy.npy -o ref  keep a healthy state, to compare with later
  embedwatch explain found.json drift             say in plain words what a verdict means
  embedwatch show ./run                           show the course of a recorded run
  embedwatch list checks                          show what is checked

Exit status: 0 judged, and nothing at or above --fail-on; 1 something is, or nothing could
be judged; 2 usage, unreadable input, or an internal error."""


class _ClosedError(Exception):
    """Nobody reads the output any more."""


class _Group(click.Group):
    """Gives every error one line and the right exit status."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; click would end a closed pipe with 1, which is what a failed check ends with."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _ClosedError from error

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command; never show a traceback unless `--debug` is given."""
        kwargs["standalone_mode"] = False
        arguments = kwargs.get("args") or (args[0] if args else None)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # a terminal that knows no → still gets the words
        debug = "--debug" in (sys.argv[1:] if arguments is None else arguments)
        _log_in_one_line(debug=debug)
        try:
            result = super().main(*args, **kwargs)
            if sys.stdout is not None:
                sys.stdout.flush()  # a full disk is told here, and not by the interpreter as it ends
            sys.exit(result if isinstance(result, int) else 0)
        except click.exceptions.Abort:
            sys.exit(_complain("interrupted", EXIT_INTERRUPTED))
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            sys.exit(EXIT_USAGE)
        except click.UsageError as error:
            command = "" if error.ctx is None else f" `{error.ctx.command_path} --help` shows how."
            message = error.format_message()
            sys.exit(_complain((message if message.endswith((".", "?")) else f"{message}.") + command))
        except click.ClickException as error:
            sys.exit(_complain(error.format_message()))
        except EmbedwatchError as error:
            if debug:
                raise
            sys.exit(_complain(str(error)))
        except (_ClosedError, BrokenPipeError):
            _write_nowhere()
            sys.exit(EXIT_CLOSED)
        except OSError as error:
            if debug:
                raise
            sys.exit(_complain(f"cannot read or write: {error}; is there room, and is the output open?"))
        except Exception as error:
            if debug:
                raise
            sys.exit(_complain(f"internal error: {type(error).__name__}: {error}; --debug shows where"))


def _write_nowhere() -> None:
    """Let what is still to be written go nowhere, or the interpreter would complain as it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


class _OneLine(logging.Formatter):
    """A record without its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the message, and what was raised."""
        reason = f": {record.exc_info[1]}" if record.exc_info and record.exc_info[1] else ""
        return " ".join(f"{record.getMessage()}{reason}".split())


def _log_in_one_line(*, debug: bool) -> None:
    """Let what the library logs reach people without tracebacks, unless they ask for them."""
    logger = logging.getLogger("embedwatch")
    handler = logging.StreamHandler()
    if not debug:
        handler.setFormatter(_OneLine())
    logger.handlers, logger.propagate = [handler], False


def _complain(message: str, status: int = EXIT_USAGE) -> int:
    line = " ".join("".join(character if character.isprintable() else " " for character in message).split())
    with suppress(OSError):  # where not even that can be said, the status says it
        click.echo(f"embedwatch: {line}", err=True)
    return status


@click.group(cls=_Group, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="embedwatch")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def main(*, debug: bool) -> None:
    """Watch the health of embedding spaces: norms, collapse, isotropy, hubs, cohesion."""
    del debug


main.add_command(align_command)
main.add_command(attention_command)
main.add_command(audit_command)
main.add_command(canary_command)
main.add_command(compare_command)
main.add_command(completion_command)
main.add_command(config_command)
main.add_command(demo_command)
main.add_command(doctor_command)
main.add_command(drill_command)
main.add_command(explain_command)
main.add_command(generate_command)
main.add_command(list_command)
main.add_command(metrics_command)
main.add_command(positions_command)
main.add_command(reference_command)
main.add_command(report_command)
main.add_command(rules_command)
main.add_command(serve_command)
main.add_command(show_command)
main.add_command(train_command)
