"""The attention of a loaded model on given texts: every layer judged, every head in words, chosen heads as maps."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from embedwatch.attention_words import TRAITS, Head, heads_exhibit, ranked, summary
from embedwatch.batch import AttentionBatch
from embedwatch.checks.fresh_model import FreshModel
from embedwatch.core.boundary import Boundary
from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Provenance, Snapshot, Space
from embedwatch.core.statistic import Statistic
from embedwatch.diagnostics.freshness import SIGNS, Freshness
from embedwatch.inquiry import Inquiry
from embedwatch.judged import Judged
from embedwatch.judging import Judge
from embedwatch.loading.examinable import Examinable
from embedwatch.loading.position_parts import read_parts
from embedwatch.loading.probing import hidden_of, reader_of, shadow
from embedwatch.loading.quiet import quiet
from embedwatch.loading.tokens import token_name
from embedwatch.observe.attention.looking import Looking, looking
from embedwatch.observe.resting import resting
from embedwatch.reading import Progress, silent
from embedwatch.selection import Selection
from embedwatch.window import Window, library_versions

__all__ = ["MAP_TOKENS", "PLACE", "AttentionStudy", "parse_heads", "study_attention", "unexamined"]

PLACE = "attention"
"""Place of the Space that tells of all layers together."""
PASSAGES, LENGTH, LEAST = 16, 256, 8
"""Passages that are read, tokens of one, and the fewest of one that says anything."""
QUERIES = 64
"""The most queries of one passage in a layer."""
MAP_TOKENS = 64
"""Rows and columns of a map."""
MOST_MAPS = 8
DIGITS = 5
SINGLE_HEADS = "What single heads do occurs in sound models too; what is judged is a layer."


@dataclass(frozen=True)
class AttentionStudy:
    """What was found.

    Args:
        overview: all layers together: sentences, the table of heads, maps of those that were chosen.
        layers: each layer with its verdicts.
        heads: all heads of all layers.
    """

    overview: Judged
    layers: tuple[Judged, ...]
    heads: tuple[Head, ...]

    @property
    def every(self) -> list[Judged]:
        """The overview, then the layers."""
        return [self.overview, *self.layers]

    @property
    def grave(self) -> list[Judged]:
        """The overview, then the layers in which something is not healthy."""
        faulty = [each for each in self.layers if any(verdict.status in ("warn", "fail") for verdict in each.verdicts)]
        return [self.overview, *faulty]


def parse_heads(text: str) -> tuple[tuple[int, int], ...]:
    """Return the heads that `3.5,0.1` names: layer and head, both from 0.

    Raises:
        UsageError: if it names none.

    Example:
        >>> parse_heads("3.5, 0.1")
        ((3, 5), (0, 1))
    """
    found = []
    for part in text.split(","):
        layer, _, head = part.strip().partition(".")
        if not (layer.isascii() and layer.isdigit() and head.isascii() and head.isdigit()):
            raise UsageError(f"`heads` must be layers and heads such as 3.5,0.1, got {text!r}; both count from 0")
        found.append((int(layer), int(head)))
    if len(found) > MOST_MAPS:
        raise UsageError(f"`heads` must be at most {MOST_MAPS} heads, got {len(found)}; ask for them in turn")
    return tuple(dict.fromkeys(found))


def study_attention(
    subject: Examinable,
    texts: Sequence[str],
    *,
    heads: Sequence[tuple[int, int]] = (),
    length: int | None = None,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    seed: int = 0,
    boundary: Boundary | None = None,
    progress: Progress = silent,
) -> AttentionStudy | None:
    """Run a model on texts and judge its attention, layer by layer, by the statistics and checks of live models.

    Short texts are joined to passages of 256 tokens, so that near can be told from far. Of a model with an encoder and
    a decoder the encoder reads them. What runs is a copy that shares the weights: hooks hang on nothing else.

    Args:
        subject: the model, which must be at rest.
        texts: what it reads.
        heads: layer and head of those whose maps are made; by default the most striking ones.
        length: tokens of a passage; 256 by default, or what the model takes.
        only: names of statistics, measurements or checks to keep; `None` is returned where none is of attention.
        skip: names of those to leave out.
        seed: of the sample of queries.
        boundary: where exceptions of statistics and checks end.
        progress: shows passages done.

    Raises:
        InputError: if the model cannot be run, has no tokenizer, or nothing in it attends.
        UsageError: if a head is asked for that does not exist.

    Example:
        >>> from embedwatch.loading.live import LiveSubject
        >>> parse_heads("0.0")
        ((0, 0),)
    """
    boundary = boundary or Boundary()
    selection = Selection.live("attention", only=only, skip=skip)
    if not selection.statistics:
        return None
    with resting([subject.module()]), quiet():
        model = shadow(reader_of(subject.module()))
        passages, joined = _passages(subject, texts, length)
        fresh = _is_fresh(subject)
        windows, missed = _looked(subject, model, passages, selection, seed, boundary, progress)
        if not windows:
            raise InputError(
                f"`{subject.label}` must attend somewhere, got a {subject.architecture} in which nothing was seen to; "
                "there is nothing to examine"
            )
        numbered = enumerate(windows.items())
        described = [head for number, (name, window) in numbered for head in _heads(number, name, window)]
        chosen = _chosen(described, heads, list(windows))
        maps = _maps(subject, model, passages[0][:MAP_TOKENS], list(windows), chosen, seed)
    notes = [f"{len(passages)} passages of {min(map(len, passages))} to {max(map(len, passages))} tokens were read."]
    notes += ["Texts were joined to passages."] if joined else []
    notes += ["The model looks as it was drawn: heads that look everywhere alike are normal then."] if fresh else []
    notes += [f"{name} was not seen{': ' + why if why else ''}." for name, why in missed.items()]
    judge = Judge([check() for check in selection.checks], boundary=boundary)
    layers = tuple(_judged(subject, name, window, judge, selection, fresh) for name, window in windows.items())
    overview = _overview(subject, layers, described, maps, notes)
    return AttentionStudy(overview, layers, tuple(described))


def unexamined(subject: Examinable, error: InputError) -> Judged:
    """Return what says why the attention of a model was not examined."""
    return _overview(subject, (), (), (), [f"Attention was not examined: {error}."])


def _passages(subject: Examinable, texts: Sequence[str], length: int | None) -> tuple[list[Tensor], bool]:
    """Return the ids of passages, and whether texts were joined to make them. Shape: (T,) each."""
    tokenizer = subject.tokenizer
    scheme = read_parts(subject).scheme
    longest = min(filter(None, (length or LENGTH, scheme.rows, scheme.usable)))
    found: list[list[int]] = []
    joined, waiting = False, ""
    for text in texts:
        waiting, several = (f"{waiting}\n{text}", True) if waiting else (text, False)
        ids = _ids(tokenizer, waiting, subject.vocabulary)
        joined |= several
        if len(ids) >= longest:
            found.append(_cut(ids, longest, tokenizer))
            waiting = ""
        if len(found) == PASSAGES:
            break
    if waiting and len(found) < PASSAGES:
        found.append(_ids(tokenizer, waiting, subject.vocabulary))
    found = [ids for ids in found if len(ids) >= LEAST]
    if not found:
        raise InputError(f"`text` must hold at least {LEAST} tokens that are known, got fewer; give a longer text")
    return [torch.tensor(ids) for ids in found], joined


def _ids(tokenizer: Any, text: str, vocabulary: int) -> list[int]:
    return [each for each in tokenizer(text, truncation=False, verbose=False)["input_ids"] if 0 <= each < vocabulary]


def _cut(ids: list[int], longest: int, tokenizer: Any) -> list[int]:
    """Return the first of them, with the token that closes a text where there is one."""
    closes = len(ids) > longest and ids[-1] in (getattr(tokenizer, "sep_token_id", None), tokenizer.eos_token_id)
    return [*ids[: longest - 1], ids[-1]] if closes else ids[:longest]


def _is_fresh(subject: Examinable) -> bool:
    """Return whether a model looks as it was drawn."""
    try:
        measured, _ = Freshness().examine(Inquiry(subject))
    except InputError:
        return False
    signs = next((each.number for each in measured if each.name == SIGNS.name), None)
    return signs is not None and FreshModel.limit is not None and FreshModel.limit.status(signs) != "ok"


def _looked(
    subject: Examinable,
    model: nn.Module,
    passages: Sequence[Tensor],
    selection: Selection,
    seed: int,
    boundary: Boundary,
    progress: Progress,
) -> tuple[dict[str, Window], Mapping[str, str]]:
    """Return a window for each layer, in the order of the model, and the layers that were not seen."""
    windows: dict[str, Window] = {}
    with (
        looking(model, rows=QUERIES, seed=seed, boundary=boundary) as eyes,
        progress(f"{subject.label}/attention", len(passages)) as advance,
    ):
        for done, ids in enumerate(passages, 1):
            for name, batch in _seen(eyes, model, ids).items():
                window = windows.get(name)
                if window is None:
                    window = windows[name] = Window(list(_made(selection)), boundary=boundary)
                window.update(batch)
            advance(done)
        return windows, eyes.missed()


def _seen(eyes: Looking, model: nn.Module, ids: Tensor) -> Mapping[str, AttentionBatch]:
    _, seen = eyes.look(lambda: hidden_of(model, ids[None]))
    return seen


def _made(selection: Selection) -> Iterator[Statistic[Any]]:
    """Yield fresh statistics, which tell of each head by itself where they can."""
    for cls in selection.statistics:
        each = "heads" in inspect.signature(cls.__init__).parameters
        yield cls(heads=True) if each else cls()  # type: ignore[call-arg]


def _of_head(measurement: Measurement) -> int | None:
    """Return the head that a measurement is of; `None` for one of all."""
    head = measurement.labels.get("heads", "")
    return int(head) if head.isdigit() else None


def _heads(layer: int, place: str, window: Window) -> Iterator[Head]:
    """Yield the heads of a layer, in their order."""
    values: dict[int, dict[str, float | None]] = {}
    for measurement in window.measurements():
        head = _of_head(measurement)
        if head is not None:
            values.setdefault(head, {})[measurement.name] = measurement.number
    exhibits = {exhibit.name: exhibit.rows for exhibit in window.exhibits()}
    twins: dict[int, tuple[int, float]] = {}
    for one, other, cosine in exhibits.get("attention_twins", ()):
        if isinstance(one, int) and isinstance(other, int) and isinstance(cosine, float):
            for head, like in ((one, other), (other, one)):
                twins.setdefault(head, (like, cosine))  # the closest pairs come first
    norms = {row[0]: row[1] for row in exhibits.get("attention_outputs", ()) if isinstance(row[1], float)}
    median = float(torch.tensor(list(norms.values())).quantile(0.5)) if len(norms) > 1 else 0.0
    for head in sorted(values):
        norm = norms.get(head)
        output = norm / median if isinstance(norm, float) and median > 0 else None
        yield Head(layer, place, head, values[head], twins.get(head), output)


def _chosen(described: Sequence[Head], asked: Sequence[tuple[int, int]], places: Sequence[str]) -> list[Head]:
    """Return the heads whose maps are made: those that were asked for, else some of the most striking ones."""
    known = {(head.layer, head.head): head for head in described}
    for layer, head in asked:
        if (layer, head) not in known:
            of_layer = sum(each.layer == layer for each in described)
            which = f"layer {layer} has {of_layer} heads" if of_layer else f"there are {len(places)} layers"
            raise UsageError(f"`heads` must name heads of the model, got {layer}.{head}; {which}, counted from 0")
    if asked:
        return [known[pair] for pair in asked]
    gravest = [head for trait in TRAITS for _, head in ranked(described, trait)[:1]]
    return list({head.name: head for head in gravest}.values())[:MOST_MAPS]


def _maps(
    subject: Examinable, model: nn.Module, ids: Tensor, places: Sequence[str], chosen: Sequence[Head], seed: int
) -> list[Exhibit]:
    """Return the attention of chosen heads on the first tokens of the first passage."""
    if not chosen:
        return []
    with looking(model, rows=len(ids), seed=seed) as eyes:
        seen = _seen(eyes, model, ids)
    names = [token_name(subject.tokenizer, token) for token in ids.tolist()]
    return [_map(seen[head.place], head, names) for head in chosen if head.place in seen]


def _map(batch: AttentionBatch, head: Head, names: Sequence[str]) -> Exhibit:
    mine = batch.clean.take(batch.clean.heads == head.head)
    order = mine.queries.argsort()
    own = mine.positions if bool((mine.positions >= 0).all()) else torch.arange(len(order))
    rows = []
    for place in order.tolist():
        query = int(own[place])
        for key in mine.seen[place].nonzero()[:, 0].tolist():
            share = round(float(mine.weights[place, key]), DIGITS)
            rows.append((query, key, names[query], names[key], share))
    words = head.words()
    said = f" ({words})" if words else ""
    return Exhibit.build(
        f"attention_head_{head.layer}_{head.head}",
        "matrix",
        f"Attention from query to key of head {head.head} of layer {head.layer}, {head.place}{said}.",
        ("query", "key", "query_token", "key_token", "attention"),
        rows,
    )


def _judged(
    subject: Examinable,
    name: str,
    window: Window,
    judge: Judge,
    selection: Selection,
    fresh: bool,  # noqa: FBT001
) -> Judged:
    """Judge one layer, by what holds for all its heads together."""
    started = time.perf_counter()
    space = Space(subject.label, name)
    step = 0 if fresh else None  # checks know what is normal at the start
    snapshot = window.snapshot(space, step=step, fingerprint=subject.fingerprint(), role="attention")
    whole = tuple(each for each in snapshot if _of_head(each) is None)
    verdicts = tuple(judge.judge(replace(snapshot, measurements=whole)))
    shown = tuple(each for each in whole if each.name in selection.metrics)
    exhibits = tuple(exhibit for exhibit in window.exhibits() if exhibit.rows)
    return Judged(replace(snapshot, measurements=shown), verdicts, exhibits, time.perf_counter() - started)


def _overview(
    subject: Examinable,
    layers: Sequence[Judged],
    heads: Sequence[Head],
    maps: Sequence[Exhibit],
    notes: Sequence[str],
) -> Judged:
    """Return what is to be said of all layers together."""
    faulty = [(number, each) for number, each in enumerate(layers) if _faults(each)]
    told = [f"Layer {number} ({each.snapshot.space.place}): {why}" for number, each in faulty for why in _faults(each)]
    sound = [f"{len(layers) - len(faulty)} of {len(layers)} layers are sound."] if layers else []
    provenance = Provenance(
        time=time.time(),
        rows=sum(each.snapshot.provenance.rows for each in layers),
        fingerprint=subject.fingerprint(),
        coverage={"layers_seen": len(layers)},
        versions=library_versions(),
        notes=(*notes, *sound, *told, *([SINGLE_HEADS] if heads else []), *summary(heads)),
        role="attention",
    )
    exhibits = (heads_exhibit(heads), *maps) if heads else ()
    return Judged(Snapshot(Space(subject.label, PLACE), (), provenance), (), exhibits, 0.0)


def _faults(judged: Judged) -> list[str]:
    grave = [verdict for verdict in judged.verdicts if verdict.status in ("warn", "fail")]
    return [f"{verdict.title}: {verdict.reason}" for verdict in grave]
