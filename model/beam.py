"""Beam search in diverse groups. Letters: B prompts, R rows, W beams, G groups, M = W / G, V vocabulary."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from .beam_group import BeamGroup
from .errors import ModelError, check_at_least
from .generated import Generated, Text
from .length_penalty import VASWANI, LengthPenalty, penalties
from .prompts import Prompts
from .rules import Rule, apply
from .sampling import check_choosable, log_probabilities
from .stopping import Stop
from .transformer import Transformer
from .writing import Writing, evaluating

__all__ = ["beam_search"]


@torch.no_grad()
def beam_search(
    model: Transformer,
    prompts: Prompts,
    *,
    source: Prompts | None = None,
    max_tokens: int = 64,
    beams: int = 4,
    groups: int = 1,
    diversity: float = 0.5,
    length_penalty: LengthPenalty = VASWANI,
    early: bool = False,
    rules: Sequence[Rule] = (),
    stop: Stop | None = None,
    count: int = 1,
    cached: bool = True,
) -> Generated:
    """Look for the most probable texts: keep W beginnings at a time, extend each by every token, keep the best W.

    score(Y) = log P(Y | prompt) / lp(|Y|)

    At each step the M·V continuations of a group are ranked by log P. One that ends, by `stop` or at `max_tokens`, is a
    whole hypothesis if it ranks among the first M; the M best others live on. With W as large as the number of
    beginnings that there are, V^(max_tokens), nothing is ever dropped, and the search is exact.

    **Groups.** The beams fall into G groups that are served in turn, and a group pays for a token as often as earlier
    groups have just taken it (Hamming diversity): candidates of group g are ranked by

    log P(y_1 … y_t) − λ · |{continuations chosen by groups 1 … g−1 at step t that take y_t}|

    The penalty steers this choice only; scores and the order of the results are the model's own. (Some implementations
    carry it on in the sum.) The first group is a plain beam search of width M, and with G = 1 there is nothing else.

    **Rules** act on log P(token | before), which are logits too, and nothing is normalised afterwards. So a ban takes
    away sequences and leaves the score of the others as it is, and with bans alone the search looks for the most
    probable sequence that the rules allow. Temperature scales all scores alike, and changes nothing.

    **Early stopping.** A group is done once it has M whole hypotheses and no living beam can still beat the worst of
    them: log P only falls, so that log P / max lp, over the lengths that are left, bounds what a beam can reach. With
    `early`, a group is done as soon as it has M of them: faster, and longer texts may be missed.

    **Results.** For each prompt the `count` best; where there are groups, the best of every group, then the second of
    each. Where fewer texts are possible than asked for, rows without tokens and with score −∞ stand for the rest.

    References:
        Sutskever, Vinyals and Le 2014, "Sequence to sequence learning with neural networks", section 3.2 (the search).
        https://arxiv.org/abs/1409.3215
        Wu et al. 2016, section 7 (length penalty). https://arxiv.org/abs/1609.08144
        Vijayakumar et al. 2016, "Diverse beam search" (groups). https://arxiv.org/abs/1610.02424

    Args:
        model: a decoder or an encoder-decoder.
        prompts: B lists of ids, ragged as they are, or a tensor (B, T); what the decoder begins with.
        source: B lists of ids for the encoder of an encoder-decoder.
        max_tokens: the most tokens to generate.
        beams: W.
        groups: G, a divisor of W.
        diversity: λ.
        length_penalty: lp; bind α of `wu_penalty` or `power_penalty` with `functools.partial`.
        early: end with M whole hypotheses.
        rules: act in this order.
        stop: what ends a text.
        count: results for each prompt, at most W.
        cached: keep keys and values; without, everything is computed anew at each step, with the same result.
    """
    _check(max_tokens, beams, groups, diversity, count)
    width, table = beams // groups, penalties(length_penalty, max_tokens)
    with evaluating(model):
        writing = Writing(model, prompts, source=source, copies=groups, room=max_tokens, cached=cached)
        search = [
            [BeamGroup(width, table, stop or Stop(), early=early) for _ in range(groups)]
            for _ in range(len(writing.ids) // groups)
        ]
        while continued := _extend(search, writing, rules, diversity):
            writing.select([row for row, _ in continued])
            writing.append([token for _, token in continued])
    return Generated(tuple(text for found in search for text in _results(found, count)))


def _extend(
    search: Sequence[Sequence[BeamGroup]], writing: Writing, rules: Sequence[Rule], diversity: float
) -> list[tuple[int, int]]:
    """Extend every group by one token; return for each living beam the row that it continues, and its token."""
    logits = writing.logits()  # (R, V), a row for each living beam
    check_choosable(logits)
    own = log_probabilities(logits)
    steps = apply(rules, writing.ids, own)
    continued: list[tuple[int, int]] = []
    first = 0  # row of the group's first beam
    for prompt in search:
        charge = own.new_zeros(own.shape[1])  # (V,)
        for group in prompt:
            rows = slice(first, first + len(group.beams))
            chosen = group.extend(steps[rows], own[rows], charge)
            continued += [(rows.start + parent, token) for parent, token in chosen]
            for token in group.taken:
                charge[token] += diversity
            first = rows.stop
    return continued


def _results(groups: Sequence[BeamGroup], count: int) -> Iterator[Text]:
    """Yield the best of every group, then the second of each, and so on, until there are `count`."""
    if not any(group.best for group in groups):
        raise ModelError(
            "`rules` must leave a way to go on, got none for a prompt; loosen no_repeat_ngram, or end sooner"
        )
    ranks = range(max(len(group.best) for group in groups))
    rounds = [[group.best[rank] for group in groups if rank < len(group.best)] for rank in ranks]
    texts = [text for each in rounds for text in sorted(each, key=lambda text: -text.score)]
    yield from texts[:count]
    yield from [Text()] * (count - len(texts))


def _check(max_tokens: int, beams: int, groups: int, diversity: float, count: int) -> None:
    check_at_least(1, max_tokens=max_tokens, beams=beams, groups=groups, count=count)
    if beams % groups:
        raise ModelError(f"`groups` must be a divisor of `beams` {beams}, got {groups}; groups are equally wide")
    if count > beams:
        raise ModelError(f"`count` must be at most `beams` {beams}, got {count}; more beams give more results")
    if not 0 <= diversity < math.inf:
        raise ModelError(f"`diversity` must be a number from 0 up, got {diversity}; 0.2 to 0.8 is usual")
