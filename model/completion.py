"""From text to text: prompts become ids, the model writes on, ids become text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from .errors import ModelError
from .generated import Generated, Text
from .stopping import Stop
from .text import BEGIN, END, decode, encode
from .transformer import Transformer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["Completion", "complete"]

BATCH = 16
"""So many prompts are continued at a time."""


@dataclass(frozen=True)
class Completion:
    """What a model wrote.

    Args:
        prompt: what it was given.
        text: what it wrote, up to where it stopped.
        tokens: number of tokens it took, the one that ended it among them.
        finished: ended by itself, not because there was no more room.
        log_probability: Σ log P(token | all before) under the model itself, in nats.
        score: what a search ranks by.
    """

    prompt: str
    text: str
    tokens: int
    finished: bool
    log_probability: float
    score: float


def complete(
    model: Transformer,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    method: Callable[..., Generated],
    *,
    stops: Sequence[str] = (),
) -> list[Completion]:
    """Continue texts with a decoder, or translate them with an encoder-decoder.

    A decoder reads `<bos> prompt` and writes until `<eos>`, as the documents were that it learned from. An
    encoder-decoder reads `prompt <eos>` and writes from `<bos>` until `<eos>`.

    Args:
        model: a decoder or an encoder-decoder.
        tokenizer: its own.
        prompts: texts; empty ones begin from nothing.
        method: `generate` or `beam_search` with all its settings bound by `functools.partial`.
        stops: pieces of text that end it; they are left out.
    """
    for prompt in prompts:
        _check_text(prompt)
    stop = Stop(tokens=[END], texts=list(stops), decode=partial(decode, tokenizer))
    found: list[Completion] = []
    for start in range(0, len(prompts), BATCH):
        batch = prompts[start : start + BATCH]
        texts = method(model, **_inputs(model.config.kind, tokenizer, batch), stop=stop).texts
        count = len(texts) // len(batch)
        found += [
            _completion(batch[row // count], text, stop.cut(decode(tokenizer, text.ids)))
            for row, text in enumerate(texts)
            if text.ids  # fewer texts may be possible than asked for
        ]
    return found


def _inputs(kind: str, tokenizer: Tokenizer, prompts: Sequence[str]) -> dict[str, Any]:
    ids = [encode(tokenizer, prompt) for prompt in prompts]
    if kind == "encoder_decoder":
        return {"prompts": [[BEGIN]] * len(ids), "source": [[*row, END] for row in ids]}
    return {"prompts": [[BEGIN, *row] for row in ids]}


def _completion(prompt: str, text: Text, written: str) -> Completion:
    return Completion(prompt, written, len(text.ids), text.finished, sum(text.log_probabilities), text.score)


def _check_text(prompt: str) -> None:
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise ModelError(f"`prompt` must be Unicode text, got {prompt!r}; convert it to UTF-8") from error
