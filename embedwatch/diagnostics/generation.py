"""What a model writes: whether it repeats itself, and what feeds that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.prompt_drift import prompt_cosines
from embedwatch.geometry.repetition import alike_stretches, distinct_share, find_loop, repeated_share
from embedwatch.inquiry import Inquiry
from embedwatch.loading.writing_on import TOP_P, Pen, Written
from embedwatch.observe.anatomy import token_embeddings
from embedwatch.observe.attention.looking import Looking, looking
from embedwatch.observe.attention.recency import recency_of

TOKENS, PROMPTS = 128, 16
"""Tokens that are written for each prompt, and prompts, at most."""
READ = 8
"""So many texts of each decoding are read again, to see attention and probabilities."""
QUERIES = 64
RECENT = 32
"""The latest tokens."""
STRETCH = 16
"""Tokens of the stretches that are compared with one another."""
PARTS = 4
"""Parts of a text: the first is early, the last is late."""
DECODINGS = ("greedy", "sampled")
DEPTHS = {"early": 0, "late": PARTS - 1}
REPEATS, DISTINCT = (1, 2, 3, 4), (1, 2)
SHOWN = 80

WRITTEN = Metric("generation_tokens", "Tokens that were written.", "tokens", labels=("decoding",), digits=6)
REPETITION = Metric(
    "generation_repetition_ratio",
    "Share of n-grams that the same text held before (rep-n), mean over texts.",
    healthy="n = 4: 0.01 to 0.03 in prose of people",
    labels=("decoding", "n"),
)
LOOPS = Metric(
    "generation_loops_ratio",
    "Share of texts that end in a loop: the same tokens three times in a row or more.",
    healthy="sampled 0; greedy often above, in small models",
    labels=("decoding",),
)
PERIOD = Metric("generation_loop_period", "Median period of these loops.", "tokens", labels=("decoding",))
LENGTH = Metric("generation_loop_length", "Median length of these loops.", "tokens", labels=("decoding",))
DIFFERENT = Metric(
    "generation_distinct_ratio",
    "Share of different n-grams in all texts together (distinct-n).",
    labels=("decoding", "n"),
)
ALIKE = Metric(
    "generation_self_cosine",
    f"How alike stretches of {STRETCH} tokens of one text are that do not touch, by the tokens they hold.",
    healthy="about 0.2 in prose of people",
    labels=("decoding",),
)
LATEST = Metric(
    "generation_recent_attention_ratio",
    f"Share of attention on the {RECENT} latest tokens, without that on the first one, mean over layers and heads.",
    labels=("decoding", "depth"),
)
ON_PROMPT = Metric(
    "generation_prompt_attention_ratio",
    "Share of attention on the prompt, without that on the first token.",
    labels=("decoding", "depth"),
)
CERTAINTY = Metric(
    "generation_probability",
    "Mean probability of the token that was written, under the model itself.",
    labels=("decoding", "depth"),
)
OWN_PROMPT = Metric(
    "generation_prompt_cosine",
    "Cosine of what was written with its prompt, by the mean of their rows of the token table.",
    labels=("decoding", "depth"),
)
OTHER_PROMPTS = Metric(
    "generation_other_prompt_cosine",
    "The same with the prompts of the other texts: what has nothing to do with the prompt.",
    labels=("decoding", "depth"),
    headline=False,
)


class Generation(Diagnostic):
    """Lets a model go on from prompts, greedy and sampled, and looks for repetition and for what feeds it.

    Sampled is from the likeliest tokens that have 0.95 together, at temperature 1, without penalties: how the model
    writes, not how its settings hide it. Both have 128 tokens at most. `rep-n` is `1 - |different n-grams| /
    |n-grams|` of one text; distinct-n the share of different n-grams in all texts. A loop is a stretch at the end that
    comes three times in a row at least.

    The texts are then read again. With depth in the text one sees how much attention goes to the 32 latest tokens, how
    much to the prompt, and how probable the tokens were that were written. In a loop the probability rises towards 1,
    since each repeat makes the next more likely: this is the feedback that greedy decoding does not leave. Sampled
    texts at the same depth are the control. The cosine with the prompt shows whether a text stays with its subject,
    beside that with the prompts of the others.

    Shape: 16 prompts at most.
    Range: shares in [0, 1], cosines in [-1, 1].
    NaN, Inf, empty: a model whose logits are no numbers cannot write, which is said; `None` where texts are too short.
    References: Holtzman et al. 2020, "The curious case of neural text degeneration", https://arxiv.org/abs/1904.09751;
    Welleck et al. 2019, https://arxiv.org/abs/1908.04319 (rep-n); Li et al. 2016, https://arxiv.org/abs/1510.03055
    (distinct-n); Xu et al. 2022, "Learning to break the loop", https://arxiv.org/abs/2206.02369 (the feedback).
    """

    name = "generation"
    title = "what the model writes"
    place = "generation"
    needs = ("prompts",)
    runs_model = True
    metrics = (
        WRITTEN,
        REPETITION,
        LOOPS,
        PERIOD,
        LENGTH,
        DIFFERENT,
        ALIKE,
        LATEST,
        ON_PROMPT,
        CERTAINTY,
        OWN_PROMPT,
        OTHER_PROMPTS,
    )

    def applies(self, inquiry: Inquiry) -> bool:
        """Return whether the model writes."""
        return inquiry.subject.writer() is not None

    def examine(self, subject: Any) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return what was found in the texts of both decodings, and the texts."""
        inquiry: Inquiry = subject
        pen = Pen(inquiry.subject)
        tokens = pen.room(TOKENS)
        prompts = pen.prompts(list(inquiry.prompts)[:PROMPTS], tokens)
        measured: list[Measurement] = []
        shown: list[tuple[str | int | float | None, ...]] = []
        curve: list[tuple[str | int | float | None, ...]] = []
        for decoding in DECODINGS:
            drawn = decoding == "sampled"
            texts = pen.write(prompts, tokens=tokens, drawn=drawn, seed=inquiry.seed)
            measured += _repetition(texts, decoding)
            parts = _by_part(pen, texts, seed=inquiry.seed)
            measured += _by_depth(parts, decoding)
            curve += [(decoding, part, *(_plain(column[part]) for column in parts.values())) for part in range(PARTS)]
            shown += [_shown(pen.tokenizer, written, decoding) for written in texts]
        return measured, [_texts(shown), _curve(curve)]

    @classmethod
    def examples(cls) -> Iterable[Inquiry]:
        """Yield a small model of ours that writes letters."""
        from embedwatch.loading.letters import Letters
        from embedwatch.loading.live import LiveSubject
        from embedwatch.loading.own import EmbedwatchConfig, EmbedwatchModel

        letters = Letters()
        sizes = {"vocabulary": len(letters), "d_model": 16, "layers": 1, "heads": 2, "length": 64}
        with torch.random.fork_rng(devices=[]):
            model = EmbedwatchModel(EmbedwatchConfig.from_json(sizes)).eval()
        subject = LiveSubject(model, tokenizer=letters)
        yield Inquiry(subject, prompts=("once upon", "a cat"))


def _repetition(texts: Sequence[Written], decoding: str) -> Iterator[Measurement]:
    ids = [written.ids for written in texts]
    loops = [loop for each in ids if (loop := find_loop(each)) is not None]
    yield WRITTEN.measure(sum(map(len, ids)), decoding=decoding)
    for n in REPEATS:
        yield REPETITION.measure(_mean(repeated_share(each, n) for each in ids), decoding=decoding, n=str(n))
    yield LOOPS.measure(len(loops) / len(ids), decoding=decoding)
    yield PERIOD.measure(_median([loop.period for loop in loops]), decoding=decoding)
    yield LENGTH.measure(_median([loop.length for loop in loops]), decoding=decoding)
    for n in DISTINCT:
        yield DIFFERENT.measure(distinct_share(ids, n), decoding=decoding, n=str(n))
    yield ALIKE.measure(_mean(alike_stretches(each, STRETCH) for each in ids), decoding=decoding)


BY_DEPTH: Mapping[str, Metric] = {
    "recent": LATEST,
    "prompt": ON_PROMPT,
    "probability": CERTAINTY,
    "own": OWN_PROMPT,
    "others": OTHER_PROMPTS,
}
"""Columns of what is told by depth."""


def _by_depth(parts: Mapping[str, Sequence[float]], decoding: str) -> Iterator[Measurement]:
    for name, metric in BY_DEPTH.items():
        for depth, part in DEPTHS.items():
            yield metric.measure(parts[name][part], decoding=decoding, depth=depth)


@dataclass
class _Sums:
    """Sums and counts of one number, part by part."""

    totals: Tensor
    counts: Tensor

    @classmethod
    def empty(cls) -> _Sums:
        return cls(torch.zeros(PARTS, dtype=torch.float64), torch.zeros(PARTS, dtype=torch.float64))

    def add(self, parts: Tensor, values: Tensor) -> None:
        known = values.isfinite()
        self.totals.index_add_(0, parts[known], values[known].double())
        self.counts.index_add_(0, parts[known], torch.ones(int(known.sum()), dtype=torch.float64))

    def means(self) -> list[float]:
        return (self.totals / self.counts).tolist()


def _by_part(pen: Pen, texts: Sequence[Written], *, seed: int) -> Mapping[str, list[float]]:
    """Return what is told by depth: the mean of each part of the texts, NaN where nothing is known."""
    long = [written for written in texts if len(written.ids) >= PARTS]
    sums = {name: _Sums.empty() for name in ("recent", "prompt", "probability")}
    with looking(pen.model, rows=QUERIES, seed=seed) as eyes:
        for written in long[:READ]:
            _read(pen, eyes, written, sums)
    own, others = _drift(pen, long)
    return {**{name: found.means() for name, found in sums.items()}, "own": own, "others": others}


def _read(pen: Pen, eyes: Looking, written: Written, sums: Mapping[str, _Sums]) -> None:
    """Let the model read a text again, and add what is seen."""
    count, start = len(written.ids), pen.start(written)

    def part_of(depths: Tensor) -> Tensor:
        return (depths.clamp(0, count - 1) * PARTS) // count

    logits, seen = eyes.look(lambda: pen.read(written))
    chosen = torch.tensor(written.ids)
    chances = logits.double().softmax(1).gather(1, chosen[:, None])[:, 0]
    sums["probability"].add(part_of(torch.arange(count)), chances)
    for name, batch in seen.items():
        if pen.pair and "encoder" in name.split("."):  # there the prompt is read
            continue
        found = recency_of(batch, start=start, reach=RECENT)
        sums["recent"].add(part_of(found.depths), found.recent)
        if not pen.pair:
            sums["prompt"].add(part_of(found.depths), found.prompt)


def _drift(pen: Pen, texts: Sequence[Written]) -> tuple[list[float], list[float]]:
    """Return the cosine with the own prompt, and with those of the others, part by part."""
    nothing = [float("nan")] * PARTS
    table = next(iter(token_embeddings(pen.model).values()), None)
    if table is None or not texts:
        return nothing, nothing

    def rows(ids: Sequence[int]) -> Tensor:
        return table.weight.detach()[torch.tensor(ids, device=table.weight.device)].float().cpu()

    every = torch.tensor([token for written in texts for token in (*written.prompt, *written.ids)])
    common = rows(every.tolist()).mean(0)
    begun = torch.stack([rows(written.prompt).mean(0) - common for written in texts])  # (N, D)
    parts = [rows(written.ids).tensor_split(PARTS) for written in texts]
    went = torch.stack([torch.stack([part.mean(0) - common for part in each]) for each in parts])  # (N, PARTS, D)
    own, others = prompt_cosines(begun, went)
    return own.nanmean(0).tolist(), others.nanmean(0).tolist()


def _mean(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _median(values: Sequence[int]) -> float | None:
    return float(torch.tensor(values).double().quantile(0.5)) if values else None


def _plain(value: float) -> float | None:
    return float(f"{value:.4g}") if value == value else None  # noqa: PLR0124 - NaN is not itself


def _shown(tokenizer: Any, written: Written, decoding: str) -> tuple[str | int | float | None, ...]:
    loop = find_loop(written.ids)
    words: Callable[[Sequence[int]], str] = lambda ids: " ".join(str(tokenizer.decode(list(ids))).split())  # noqa: E731
    rep = repeated_share(written.ids, 4)
    return (
        decoding,
        words(written.prompt)[-SHOWN:],
        words(written.ids)[:SHOWN],
        words(written.ids)[-SHOWN:],
        len(written.ids),
        None if rep is None else _plain(rep),
        None if loop is None else loop.period,
        None if loop is None else loop.length,
    )


def _texts(rows: Sequence[tuple[str | int | float | None, ...]]) -> Exhibit:
    return Exhibit.build(
        "generated_texts",
        "table",
        f"What was written: greedy, and sampled from the likeliest tokens with {TOP_P:g} together.",
        ("decoding", "prompt", "begins", "ends", "tokens", "repetition_4", "loop_period", "loop_length"),
        sorted(rows, key=lambda row: -float(row[5] or 0.0)),
    )


def _curve(rows: Sequence[tuple[str | int | float | None, ...]]) -> Exhibit:
    return Exhibit.build(
        "generation_by_depth",
        "table",
        f"By quarter of the texts: attention on the {RECENT} latest tokens and on the prompt, probability of what was "
        "written, cosine with the own prompt and with those of the others.",
        ("decoding", "quarter", "recent", "prompt", "probability", "own_prompt", "other_prompts"),
        rows,
    )
