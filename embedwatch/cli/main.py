"""The group of commands, and what happens to errors."""

from __future__ import annotations

import sys
from typing import Any

import click

from embedwatch import __version__
from embedwatch.cli.audit import audit_command
from embedwatch.cli.generate import generate_command
from embedwatch.cli.list import list_command
from embedwatch.cli.train import train_command
from embedwatch.core.errors import EmbedwatchError

__all__ = ["main"]

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

EPILOG = """\b
Examples:
  embedwatch audit vectors.npy                    judge a file of vectors
  embedwatch audit ./my-model --text texts.txt    judge a model's tokens and its vectors of some texts
  embedwatch list checks                          show what is checked

Exit status: 0 judged, and nothing at or above --fail-on; 1 something is, or nothing could
be judged; 2 usage, unreadable input, or an internal error."""


class _Group(click.Group):
    """Gives every error one line and the right exit status."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command; never show a traceback unless `--debug` is given."""
        kwargs["standalone_mode"] = False
        arguments = kwargs.get("args") or (args[0] if args else None)
        debug = "--debug" in (sys.argv[1:] if arguments is None else arguments)
        try:
            result = super().main(*args, **kwargs)
            sys.exit(result if isinstance(result, int) else 0)
        except click.exceptions.Abort:
            sys.exit(_complain("interrupted", EXIT_INTERRUPTED))
        except click.UsageError as error:
            command = "" if error.ctx is None else f" `{error.ctx.command_path} --help` shows how."
            sys.exit(_complain(error.format_message() + command))
        except click.ClickException as error:
            sys.exit(_complain(error.format_message()))
        except EmbedwatchError as error:
            if debug:
                raise
            sys.exit(_complain(str(error)))
        except BrokenPipeError:
            sys.stderr.close()
            sys.exit(0)
        except Exception as error:
            if debug:
                raise
            sys.exit(_complain(f"internal error: {type(error).__name__}: {error}; --debug shows where"))


def _complain(message: str, status: int = EXIT_USAGE) -> int:
    line = " ".join(message.split())
    click.echo(f"embedwatch: {line}", err=True)
    return status


@click.group(cls=_Group, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="embedwatch")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def main(*, debug: bool) -> None:
    """Watch the health of embedding spaces: norms, collapse, isotropy, hubs, cohesion."""
    del debug


main.add_command(audit_command)
main.add_command(generate_command)
main.add_command(list_command)
main.add_command(train_command)
