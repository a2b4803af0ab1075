"""`embedwatch canary`: fixed texts, embedded once and again: is it still the same space?"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from embedwatch.cli.exits import compared_status, tell_errors
from embedwatch.cli.option_names import in_options
from embedwatch.cli.options import POOLINGS, color_option, debug_option, fails_from, json_option, quiet_option
from embedwatch.core.errors import UsageError

if TYPE_CHECKING:
    from embedwatch.canary import Canary, Outcome
    from embedwatch.canary.inputs import Embedder

__all__ = ["canary_command"]

Command = TypeVar("Command", bound=Callable[..., Any])
METRICS = ("cosine", "dot", "euclidean")


def _embedding_options(command: Command) -> Command:
    """Add the options that say what embeds."""
    for option in reversed(
        (
            click.option("--vectors", metavar="FILE", multiple=True, help="Vectors of the texts, made elsewhere."),
            click.option("--url", metavar="URL", help="Ask a provider: the address of its API, like https://host/v1."),
            click.option("--url-model", metavar="NAME", help="Name that the provider has for its model."),
            click.option("--key-env", metavar="NAME", help="Environment variable that holds the provider's key."),
            click.option("--pooling", type=click.Choice(POOLINGS), help="How token vectors become one, with MODEL."),
            click.option("--prefix", metavar="TEXT", help="Put before each text, with MODEL."),
            click.option("--select", metavar="NAME", help="Array, tensor or column of --vectors."),
        )
    ):
        command = option(command)
    return command


@click.group("canary", short_help="Embed fixed texts once and again: is it still the same space?")
def canary_command() -> None:
    """Record what fixed texts are embedded as, and check later whether that is still so.

    \b
    Examples:
      embedwatch canary record ./my-model -o faq.canary
      embedwatch canary check faq.canary ./my-model
      embedwatch canary show faq.canary
    """


@canary_command.command("record", short_help="Embed fixed texts several times, and keep vectors and noise.")
@click.argument("inputs", nargs=-1, metavar="[MODEL] [TEXTS]")
@click.option("-o", "--output", required=True, metavar="FILE", help="Where the canary is written.")
@_embedding_options
@click.option("--repeats", type=int, default=3, show_default=True, help="How often all texts are embedded.")
@click.option(
    "--metric", type=click.Choice(METRICS), default="cosine", show_default=True, help="How your vectors are compared."
)
@click.option("--keep-texts/--no-texts", default=True, help="Keep the texts in the file, to embed them again.")
@quiet_option
@debug_option
def record_command(
    *, inputs: tuple[str, ...], output: str, repeats: int, metric: Any, keep_texts: bool, quiet: bool, **options: Any
) -> None:
    """Embed TEXTS, one a line, with MODEL several times, in other orders and batches, and write a canary.

    Without TEXTS, 64 texts of ours in 14 languages are taken. With --vectors the arguments are files of vectors, each a
    further embedding of the same texts.

    \b
    Examples:
      embedwatch canary record ./my-model probes.txt -o faq.canary
      embedwatch canary record --vectors monday.npy tuesday.npy -o provider.canary
      embedwatch canary record --url https://api.example.org/v1 --url-model embed-3 --key-env API_KEY -o p.canary
    """
    from embedwatch.canary import Canary
    from embedwatch.canary.inputs import read_texts, read_vectors
    from embedwatch.canary.probes import PROBES

    with in_options(record_command):
        if options["vectors"]:
            files = (*options["vectors"], *inputs)
            _only_one("vectors", options)
            repeated = [read_vectors(file, select=options["select"]) for file in files]
            canary = Canary.of_vectors(repeated, model=_stem(files[0]), metric=metric)
        else:
            embedder, rest = _embedder(inputs, options)
            if len(rest) > 1:
                raise UsageError(f"`TEXTS` must be one file, got {len(rest)}; name one")
            canary = Canary.record(
                embedder.embed, read_texts(rest[0]) if rest else PROBES, repeats=repeats, keep_texts=keep_texts,
                model=embedder.label, fingerprint=embedder.fingerprint, metric=metric, notes=embedder.notes,
            )  # fmt: skip
        canary.save(output)
    if not quiet:
        click.echo(f"{output}: {_told(canary)}")


@canary_command.command("check", short_help="Embed the texts again, and say what became of the space.")
@click.argument("file", metavar="FILE")
@click.argument("model", metavar="[MODEL]", required=False)
@_embedding_options
@click.option("--texts", metavar="FILE", help="The texts, where the canary was recorded without them.")
@fails_from("warn")
@click.option("-v", "--verbose", is_flag=True, help="Print every measurement.")
@json_option
@quiet_option
@color_option
@debug_option
def check_command(
    *,
    file: str,
    model: str | None,
    texts: str | None,
    fail_on: str,
    verbose: bool,
    as_json: bool,
    quiet: bool,
    color: str,
    **options: Any,
) -> int:
    """Embed the texts of a canary with MODEL, or read their vectors, and say whether it is the same space.

    The verdict names what happened: nothing, noise, rounding, another normalisation, dimensions cut off, a rotated
    space, another prompt or pooling, another model, single texts, NaN.

    \b
    Examples:
      embedwatch canary check faq.canary ./my-model
      embedwatch canary check provider.canary --vectors today.npy --json
      embedwatch canary check p.canary --url https://api.example.org/v1 --url-model embed-3 --key-env API_KEY
    """
    from embedwatch.canary import Canary
    from embedwatch.canary.inputs import read_texts, read_vectors
    from embedwatch.cli.terminals import open_terminals

    terminal, _ = open_terminals(color)
    with in_options(check_command):
        canary = Canary.load(file)
        known = () if texts is None else read_texts(texts)
        if options["vectors"]:
            _only_one("vectors", options, model)
            if len(options["vectors"]) > 1:
                raise UsageError(f"`vectors` must be one file, got {len(options['vectors'])}; name the newest")
            result = canary.compare(read_vectors(options["vectors"][0], select=options["select"]), texts=known)
        else:
            embedder, _ = _embedder(() if model is None else (model,), options)
            result = canary.check(embedder.embed, texts=known, model=embedder.label, fingerprint=embedder.fingerprint)
    status = compared_status(result.counts(), result.verdicts, result.errors, fail_on)
    if as_json:
        click.echo(json.dumps({**result.to_json(), "exit": status}, ensure_ascii=False, indent=2))
    else:
        from embedwatch.sinks.console import Console

        Console(terminal=terminal, verbose=verbose, quiet=quiet).write(
            result.snapshot, result.verdicts, result.exhibits
        )
        terminal.print(_final_line(result, status), style="bold")
    tell_errors(result.errors)
    return status


@canary_command.command("show", short_help="Say what a canary holds.")
@click.argument("file", metavar="FILE")
@json_option
@debug_option
def show_canary_command(*, file: str, as_json: bool) -> None:
    """Print what FILE holds: of which model and when, how many texts, and the noise that was measured.

    \b
    Examples:
      embedwatch canary show faq.canary
      embedwatch canary show faq.canary --json
    """
    from embedwatch.canary import Canary

    canary = Canary.load(file)
    if as_json:
        click.echo(json.dumps(canary.to_json(), ensure_ascii=False, indent=2))
        return
    click.echo(_told(canary))
    for note in canary.notes:
        click.echo(f"  {note}")


def _embedder(inputs: tuple[str, ...], options: dict[str, Any]) -> tuple[Embedder, tuple[str, ...]]:
    """Return what embeds, and the arguments that are left."""
    from embedwatch.canary import Provider
    from embedwatch.canary.inputs import Embedder, model_embedder

    if options["url"] is not None:
        _only_one("url", options)
        if not options["url_model"]:
            raise UsageError("`url_model` must name the provider's model, got nothing; name it")
        provider = Provider(options["url"], model=options["url_model"], key_env=options["key_env"])
        return Embedder(provider, options["url_model"], notes=(f"embedded by {provider.address}",)), inputs
    for name in ("url_model", "key_env", "select"):
        if options[name] is not None:
            raise UsageError(f"`{name}` must come with an address or vectors, got {options[name]!r} alone; drop it")
    if not inputs:
        raise UsageError("`MODEL` must be given, or `--vectors`, or `--url`, got none; say what embeds the texts")
    return model_embedder(inputs[0], pooling=options["pooling"], prefix=options["prefix"]), inputs[1:]


def _only_one(chosen: str, options: dict[str, Any], model: str | None = None) -> None:
    """Refuse options of another way to embed."""
    others = {"vectors": ("url", "url_model", "key_env", "pooling", "prefix"), "url": ("pooling", "prefix", "select")}
    for name in others[chosen]:
        if options[name] is not None:
            raise UsageError(f"`{name}` must be left out with `--{chosen}`, got {options[name]!r}; drop it")
    if model is not None:
        raise UsageError(f"`MODEL` must be left out with `--{chosen}`, got {model}; drop it")


def _stem(file: str) -> str:
    name = file.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return name.rpartition(".")[0] or name


def _told(canary: Canary) -> str:
    """Return one line about a canary."""
    floor = canary.floor
    noise = (
        "noise not measured (embedded once)"
        if floor.repeats == 1
        else f"noise 1 - cos up to {floor.largest:.2g} in {floor.repeats} repeats"
    )
    texts = f"{len(canary)} texts" if canary.texts else f"{len(canary)} texts, which are not kept"
    return f"{canary.model} · {texts} · {canary.dimension}-d · {canary.metric} · {noise}"


def _final_line(result: Outcome, status: int) -> str:
    counts = [f"{count} {name}" for name, count in result.counts().items() if count]
    return f"{' · '.join([*counts, result.cause or 'nothing could be judged'])}  (exit {status})"
