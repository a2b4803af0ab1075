"""`embedwatch generate`: let a trained model write."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from embedwatch.cli.options import debug_option, json_option
from embedwatch.core.errors import EmbedwatchError, InputError, UsageError

if TYPE_CHECKING:
    from embedwatch_model.completion import Completion
    from embedwatch_model.generated import Generated
    from embedwatch_model.length_penalty import LengthPenalty

__all__ = ["generate_command"]

STDIN = "-"
SEED, SEEDS = 0, 2**63
TEMPERATURE = 1.0
POWER = "power:"


@click.command("generate", short_help="Let a trained model write on, or translate.")
@click.argument("run", metavar="RUN")
@click.argument("prompts", nargs=-1, required=True, metavar="PROMPT...")
@click.option(
    "--max-tokens",
    type=int,
    metavar="N",
    default=100,
    show_default=True,
    help="Write at most so many tokens.",
)
@click.option(
    "--temperature",
    type=float,
    metavar="X",
    help="Below 1 surer, above 1 more surprising; 0 is greedy.  [default: 1; without --beams]",
)
@click.option("--top-k", type=int, metavar="K", help="Choose among the K most probable tokens.")
@click.option("--top-p", type=float, metavar="P", help="Choose among the fewest tokens that hold this probability.")
@click.option(
    "--repetition-penalty", type=float, metavar="X", help="Above 1: less of what occurred already; 1.2 is usual."
)
@click.option("--no-repeat-ngram", type=int, metavar="N", help="Write no N tokens in a row that occurred already.")
@click.option("--beams", type=int, metavar="W", help="Search for the most probable text with W beams; draw nothing.")
@click.option("--groups", type=int, metavar="G", help="Divide the beams into G groups that differ.  [default: 1]")
@click.option("--diversity", type=float, metavar="X", help="What groups pay for the same token.  [default: 0.5]")
@click.option(
    "--length-penalty",
    metavar="[power:]A",
    help="Rank beams by log P / ((5 + length) / 6)^A, or log P / length^A with power:.  [default: 0.6]",
)
@click.option("--stop", "stops", metavar="TEXT", multiple=True, help="End before this text; repeatable.")
@click.option(
    "--seed",
    type=int,
    metavar="N",
    help=f"Same seed, same text.  [default: {SEED}; without --beams]",
)
@click.option("--count", type=int, metavar="N", default=1, show_default=True, help="Texts for each prompt.")
@json_option
@debug_option
def generate_command(
    *, run: str, prompts: tuple[str, ...], stops: tuple[str, ...], count: int, as_json: bool, **options: Any
) -> None:
    """Continue each PROMPT with a decoder, or translate it with an encoder-decoder.

    RUN is the directory of `embedwatch train`. A PROMPT of - reads prompts from standard input, one a line.

    \b
    Examples:
      embedwatch generate ./run "Return the"
      embedwatch generate ./run "Return the" --temperature 0.7 --top-p 0.9 --count 3 --seed 1
      embedwatch generate ./run "Return the" --beams 6 --groups 3 --count 3 --json
      embedwatch generate ./translator - --beams 4 < sentences.de
    """
    from embedwatch_model.completion import complete
    from embedwatch_model.opening import open_model

    texts = _prompts(prompts)
    with _raising(UsageError):
        method = partial(_method(**options), count=count)
    with _raising(InputError):
        model, tokenizer = open_model(Path(run))
    with _raising(UsageError):
        found = complete(model, tokenizer, texts, method, stops=stops)
    if as_json:
        click.echo(json.dumps({"run": run, "texts": [asdict(each) for each in found]}, ensure_ascii=False, indent=2))
    else:
        _print(found, with_prompt=model.config.kind == "decoder")


@contextmanager
def _raising(kind: type[EmbedwatchError]) -> Iterator[None]:
    """Let what the model refuses be an error of ours."""
    from embedwatch_model.errors import ModelError

    try:
        yield
    except ModelError as error:
        raise kind(str(error)) from error


def _prompts(given: Sequence[str]) -> list[str]:
    """Return the prompts, those on standard input in the place of `-`."""
    prompts: list[str] = []
    for prompt in given:
        prompts += _lines() if prompt == STDIN else [prompt]
    if not prompts:
        raise UsageError("`PROMPT` must be a text, got only empty lines on standard input; write one a line")
    return prompts


def _lines() -> list[str]:
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"standard input must be UTF-8, got byte {error.object[error.start]:#x}; convert it"
        ) from error
    return [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]


def _method(
    *,
    max_tokens: int,
    beams: int | None,
    groups: int | None,
    diversity: float | None,
    length_penalty: str | None,
    temperature: float | None,
    seed: int | None,
    **values: Any,
) -> Callable[..., Generated]:
    """Return how to write, with all settings bound; refuse options that would have no effect."""
    import torch

    from embedwatch_model.beam import beam_search
    from embedwatch_model.generation import generate
    from embedwatch_model.rule_chain import usual_rules

    rules = usual_rules(**values)
    searching: dict[str, Any] = {"groups": groups, "diversity": diversity, "length_penalty": length_penalty}
    drawing: dict[str, Any] = {"temperature": temperature, "seed": seed}
    given = {name: value for name, value in searching.items() if value is not None}
    if beams is None:
        _without_effect(searching, "without --beams", "add --beams 4")
        tau = TEMPERATURE if temperature is None else temperature
        if seed is not None and not 0 <= seed < SEEDS:
            raise UsageError(f"`--seed` must be a number from 0 to 2^63 - 1, got {seed}; choose one of them")
        generator = torch.Generator().manual_seed(SEED if seed is None else seed)
        return partial(generate, max_tokens=max_tokens, temperature=tau, rules=rules, generator=generator)
    _without_effect(drawing, "with --beams", "a search draws nothing; leave it out")
    if length_penalty is not None:
        given["length_penalty"] = _length_penalty(length_penalty)
    return partial(beam_search, max_tokens=max_tokens, beams=beams, rules=rules, **given)


def _without_effect(options: dict[str, Any], where: str, fix: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"`--{name.replace('_', '-')}` must not be given {where}, got {value}; {fix}")


def _length_penalty(text: str) -> LengthPenalty:
    from embedwatch_model.length_penalty import power_penalty, wu_penalty

    alpha = text.removeprefix(POWER)
    try:
        return partial(wu_penalty if alpha == text else power_penalty, alpha=float(alpha))
    except ValueError as error:
        raise UsageError(f"`--length-penalty` must be a number or power:NUMBER, got {text!r}; 0.6 is usual") from error


def _print(found: Sequence[Completion], *, with_prompt: bool) -> None:
    """Print the texts; several ones each under a line that numbers them."""
    for number, each in enumerate(found, 1):
        if len(found) > 1:
            click.echo(f"--- {number} of {len(found)}")
        click.echo(each.prompt + each.text if with_prompt else each.text)
