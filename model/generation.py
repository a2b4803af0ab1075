"""Writing on, token by token: greedy or drawn at random. Letters: B prompts, R rows being written, V vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from .errors import ModelError, check_at_least
from .generated import Generated, Text
from .prompts import Prompts
from .rules import Rule, apply
from .rules import temperature as temperature_rule
from .sampling import greedy, log_probabilities, sample
from .stopping import Stop
from .transformer import Transformer
from .writing import Writing, evaluating

__all__ = ["generate"]


@torch.no_grad()
def generate(
    model: Transformer,
    prompts: Prompts,
    *,
    source: Prompts | None = None,
    max_tokens: int = 64,
    temperature: float = 0.0,
    rules: Sequence[Rule] = (),
    stop: Stop | None = None,
    generator: torch.Generator | None = None,
    count: int = 1,
    cached: bool = True,
) -> Generated:
    """Continue each prompt until it ends by itself or has `max_tokens` new tokens.

    At every step: logits of the model, divided by the temperature, through the rules, then one token is drawn from
    their softmax. At temperature 0, the limit, the largest logit is taken (greedy decoding) and nothing is random.

    Rows that have ended leave the batch, so that the rest is faster. A text does not depend on the others in its batch,
    but drawn texts share one generator: the same seed gives the same texts for the same prompts together.

    Args:
        model: a decoder or an encoder-decoder; dropout is off meanwhile.
        prompts: B lists of ids, ragged as they are, or a tensor (B, T); what the decoder begins with.
        source: B lists of ids for the encoder of an encoder-decoder.
        max_tokens: the most tokens to generate.
        temperature: τ.
        rules: act in this order, after the temperature; see `rule_chain.usual_rules`.
        stop: what ends a text.
        generator: where chance comes from; needed above temperature 0.
        count: texts for each prompt.
        cached: keep keys and values; without, everything is computed anew at each step, with the same result.

    Raises:
        ModelError: if an argument does not fit.

    Example:
        >>> from .config import ModelConfig
        >>> model = Transformer(ModelConfig(vocabulary=20, d_model=8, heads=2, layers=1))
        >>> generate(model, [[1, 2], [3]], max_tokens=5).ids.shape
        torch.Size([2, 5])
    """
    check_at_least(1, max_tokens=max_tokens, count=count)
    stop, chain = stop or Stop(), [*_tempered(temperature), *rules]
    if temperature == 0 and count > 1:
        raise ModelError(
            f"`count` must be 1 at temperature 0, got {count}; greedy decoding gives the same text each time"
        )
    if temperature > 0 and generator is None:
        raise ModelError(
            f"`generator` must be a torch.Generator at temperature {temperature}, got None; "
            "pass torch.Generator().manual_seed(0), or temperature=0"
        )
    with evaluating(model):
        writing = Writing(model, prompts, source=source, copies=count, room=max_tokens, cached=cached)
        texts: list[tuple[list[int], list[float]]] = [([], []) for _ in writing.ids]
        going = list(range(len(texts)))  # the text that each row of `writing` is about
        for step in range(max_tokens):
            tokens, logs = _next(writing, chain, generator if temperature > 0 else None)
            for text, token, log in zip(going, tokens, logs, strict=True):
                texts[text][0].append(token)
                texts[text][1].append(log)
            rows = [row for row, text in enumerate(going) if not stop.reached(texts[text][0])]
            if not rows or step == max_tokens - 1:
                break
            if len(rows) < len(going):
                writing.select(rows)
            going = [going[row] for row in rows]
            writing.append([tokens[row] for row in rows])
    return Generated(tuple(_text(ids, logs, stop) for ids, logs in texts))


def _tempered(tau: float) -> list[Rule]:
    """Return the temperature as a rule; at 0 none, for the largest logit is found without it, after the other rules."""
    rule = partial(temperature_rule, tau=tau)
    nothing = torch.zeros(1, 1)
    rule(nothing, nothing)  # refuses a wrong value before the work begins
    return [] if tau in (0, 1) else [rule]


def _next(writing: Writing, rules: Sequence[Rule], generator: torch.Generator | None) -> tuple[list[int], list[float]]:
    """Choose a token for each row; return it and its log-probability under the model itself."""
    logits = writing.logits()  # (R, V)
    ruled = apply(rules, writing.ids, logits)
    chosen: Tensor = greedy(ruled) if generator is None else sample(ruled, generator)  # (R,)
    logs = log_probabilities(logits).gather(1, chosen[:, None])[:, 0]  # (R,)
    return chosen.tolist(), logs.tolist()


def _text(ids: Sequence[int], logs: Sequence[float], stop: Stop) -> Text:
    return Text(tuple(ids), tuple(logs), score=sum(logs), finished=stop.reached(ids))
