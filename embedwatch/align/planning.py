"""A plan to move a store to a new model: what each stage finds, measured on the user's own rows and queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from embedwatch.align.aligner import Aligner
from embedwatch.align.linear_maps import mapped
from embedwatch.ann.arrays import sample_of
from embedwatch.ann.intervals import CONFIDENT, interval
from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.source import Source

__all__ = ["FAIR", "MigrationPlan", "Stage", "fused", "plan_migration"]

RRF = 60
"""Reciprocal rank fusion adds 1 / (60 + rank) (Cormack, Clarke & Büttcher 2009)."""
FAIR = 0.15
"""Old documents may have so much more or less of the first answers than they would have among their like."""
SHARES = (0.25, 0.5, 0.75)
DOCUMENTS, HELD_OUT = 20_000, 500
SEED = 30
Side = Literal["query", "corpus"]
Metric = Literal["cosine", "dot", "euclidean"]
NAMES = {
    "today": "old model alone",
    "bridge": "new queries, old documents",
    "two indexes": "answers fused by rank",
    "mixed": "documents of both in one",
    "cutover": "new model alone",
}


@dataclass(frozen=True)
class Stage:
    """One stage of a plan, as it was measured.

    Args:
        name: `today`, `bridge`, `two indexes`, `mixed` or `cutover`.
        embedded: share of the documents that are embedded again.
        recall: share of what should be found that is among the first k.
        low, high: 95 % interval over queries.
        old_recall: the same for what should be found among documents that are not embedded again.
        old_share: their share of the first k answers.
        fair_share: their share where all documents are embedded again.
        refused: why this stage must not be taken; empty where it may.
    """

    name: str
    embedded: float
    recall: float
    low: float
    high: float
    old_recall: float | None = None
    old_share: float | None = None
    fair_share: float | None = None
    refused: str = ""

    @property
    def title(self) -> str:
        """What it is, in words."""
        return NAMES[self.name]


@dataclass(frozen=True)
class MigrationPlan:
    """The stages from an old model to a new one.

    Args:
        side: `query` where the map leads new queries to the old documents, `corpus` where it leads these to the new.
        documents, queries: that were used.
        k: answers that count.
        truth: what counts as found.
        stages: in the order in which they are taken.
        notes: what a reader must know.
        gain: what the bridge finds of the relevant documents more than the old model does today, with its 95 % interval
            over queries; `None` where it is not known which are relevant, or what is found today.
    """

    side: Side
    documents: int
    queries: int
    k: int
    truth: str
    stages: tuple[Stage, ...]
    notes: tuple[str, ...] = ()
    gain: tuple[float, float, float] | None = None

    @property
    def compatible(self) -> bool | None:
        """Whether new queries find no less among old documents than old ones do: the rule of BCT for an upgrade.

        `None` where it was not measured, or the interval of the difference holds both (Shen et al. 2020, arXiv
        2003.11942).
        """
        if self.gain is None or self.gain[1] < 0 < self.gain[2]:
            return None
        return self.gain[0] >= 0

    @property
    def mixing_refused(self) -> bool:
        """Whether documents of both models must not lie in one index."""
        return any(stage.refused for stage in self.stages)

    def stage(self, name: str) -> Stage | None:
        """Return the first stage of a name."""
        return next((stage for stage in self.stages if stage.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        stages = [{**asdict(stage), "title": stage.title} for stage in self.stages]
        told = {"mixing_refused": self.mixing_refused, "compatible": self.compatible}
        return {**asdict(self), "stages": stages, "notes": list(self.notes), **told}


@dataclass(frozen=True)
class _Bench:
    """All that is searched, on unit rows where cosine counts.

    Args:
        old, new: (N, D1), (N, D2) documents.
        queries: (Q, D2) of the new model.
        old_queries: (Q, D1), or `None`.
        truth: (Q, k) rows that should be found, -1 for none.
    """

    old: Tensor
    new: Tensor
    queries: Tensor
    old_queries: Tensor | None
    truth: Tensor
    k: int
    metric: Metric

    def score(self, asked: Tensor, rows: Tensor) -> Tensor:
        """Return how near rows are, larger is nearer. (Q, D), (N, D) -> (Q, N)."""
        return _scores(asked, rows, self.metric)

    def found(self, ranked: Tensor) -> Tensor:
        """Return which of the rows that should be found are among the first k. (Q, n) -> (Q, T) bool."""
        return (ranked[:, : self.k, None] == self.truth[:, None, :]).any(1) & (self.truth >= 0)

    def stage(self, name: str, embedded: float, ranked: Tensor, **more: Any) -> Stage:
        """Return a stage with its recall."""
        wanted = (self.truth >= 0).sum(1)
        shares = self.found(ranked).sum(1) / wanted
        low, high = interval(shares.numpy())
        return Stage(name, embedded, float(shares.mean()), low, high, **more)


def plan_migration(
    aligner: Aligner,
    old: Source,
    new: Source,
    *,
    queries: Source | None = None,
    old_queries: Source | None = None,
    relevant: Sequence[int] | None = None,
    side: Side | None = None,
    metric: Metric = "cosine",
    k: int = 10,
    shares: Sequence[float] = SHARES,
    documents: int = DOCUMENTS,
    seed: int = SEED,
) -> MigrationPlan:
    """Measure each stage of a move to a new model: a bridge, two indexes while embedding again, the new model alone.

    What should be found is what `relevant` says, or else the k nearest of the new model: a stage is then measured by
    how much it keeps of what the new model will find. A single index with documents of both models is refused unless
    the old ones keep their fair share of the first k answers, within 0.15: mapped vectors that are shorter, or lie
    closer together, than native ones never come up, and nothing else tells.

    Args:
        aligner: a fitted map between the two models, in either direction.
        old: documents as the old model embedded them.
        new: the same documents, row by row, as the new model does.
        queries: as the new model embeds them; without them, documents are held out and asked.
        old_queries: the same queries as the old model embeds them, to say what is found today.
        relevant: for each query the row of the document that it should find.
        side: `query` where the map leads from the new model to the old one, `corpus` for the other way; by default
            what the dimensions say, or else the side for which the map was fitted.
        metric: how vectors are compared.
        k: answers that count.
        shares: of documents that are embedded again, at which the stages between are measured.
        documents: that are searched at most; a sample of them where there are more.
        seed: of all choices.

    Raises:
        UsageError: if arguments do not fit.
        InputError: if rows cannot be paired.
    """
    side = _side(aligner, old, new, side)
    if old.rows != new.rows:
        raise InputError(f"{new.label} must have one row for each of {old.label}, got {new.rows} for {old.rows}")
    if relevant is not None and queries is None:
        raise UsageError("`relevant` must come with `queries`, got it alone; name the file of the queries")
    if any(not 0 < share < 1 for share in shares):
        raise UsageError(f"`shares` must lie between 0 and 1, got {list(shares)}; 0.5 is half of the documents")
    bench, truth, notes = _bench(old, new, queries, old_queries, relevant, metric, k, documents, seed)
    for mark, rows, source in (
        (aligner.source, bench.new if side == "query" else bench.old, new if side == "query" else old),
        (aligner.target, bench.old if side == "query" else bench.new, old if side == "query" else new),
    ):
        mark.check(rows, whose=source.label)
    if relevant is None and bench.old_queries is not None:
        notes.append(
            "nothing says which documents are relevant: `today` tells how far the old model agrees with the new one, "
            "not how good it is"
        )
    crossed, bridged = _crossed(aligner, bench, side)
    native = bench.score(bench.queries, bench.new)
    stages: list[Stage] = []
    gain: tuple[float, float, float] | None = None
    over = _ranked(bridged, k)
    if bench.old_queries is not None:
        today = _ranked(bench.score(bench.old_queries, bench.old), k)
        stages.append(bench.stage("today", 0.0, today))
        if relevant is not None:
            gain = _gain(bench, over, today)
            notes.append(_told(gain))
    stages.append(bench.stage("bridge", 0.0, over))
    fresh = torch.rand(len(bench.new), generator=torch.Generator().manual_seed(seed))
    for share in sorted(shares):
        again = fresh < share  # the same documents and more at the next share
        ranked = fused(native, bridged, again, k)
        stages.append(bench.stage("two indexes", share, ranked, old_recall=_old_recall(bench, ranked, again)))
    stages += [_mixed(bench, native, crossed, bridged, fresh < share, share) for share in sorted(shares)]
    stages.append(bench.stage("cutover", 1.0, _ranked(native, k)))
    return MigrationPlan(side, len(bench.new), len(bench.queries), k, truth, tuple(stages), tuple(notes), gain)


def _side(aligner: Aligner, old: Source, new: Source, side: Side | None) -> Side:
    takes, gives = aligner.source.dimension, aligner.target.dimension
    ways: dict[Side, bool] = {
        "query": (takes, gives) == (new.dimension, old.dimension),
        "corpus": (takes, gives) == (old.dimension, new.dimension),
    }
    fitting = [name for name, fits in ways.items() if fits]
    if not fitting or (side is not None and side not in fitting):
        raise UsageError(
            f"`aligner` must lead between {old.label} ({old.dimension} dimensions) and {new.label} ({new.dimension}), "
            f"got {takes} to {gives}{'' if side is None else f' for the {side} side'}; fit one between these models"
        )
    return side or (fitting[0] if len(fitting) == 1 else aligner.side)


def _bench(
    old: Source,
    new: Source,
    queries: Source | None,
    old_queries: Source | None,
    relevant: Sequence[int] | None,
    metric: Metric,
    k: int,
    documents: int,
    seed: int,
) -> tuple[_Bench, str, list[str]]:
    """Return all rows that are searched, what counts as found in words, and notes."""
    total = old.rows or 0
    notes: list[str] = []
    keep = torch.from_numpy(sample_of(total, documents, seed))
    if relevant is not None:
        wanted = torch.as_tensor(list(relevant), dtype=torch.int64)
        if len(wanted) and (int(wanted.min()) < 0 or int(wanted.max()) >= total):
            raise UsageError(f"`relevant` must hold rows from 0 to {total - 1:,}, got {int(wanted.max()):,}")
        keep = torch.unique(torch.cat([keep, wanted]))
    if len(keep) < total:
        notes.append(f"measured on {len(keep):,} of {total:,} documents; with more of them, less is found")
    unit = metric == "cosine"
    left, right = _rows_at(old, keep, unit=unit), _rows_at(new, keep, unit=unit)
    asked_old: Tensor | None = None
    if queries is None:
        held = torch.zeros(len(keep), dtype=torch.bool)
        held[torch.from_numpy(sample_of(len(keep), min(HELD_OUT, len(keep) // 5), seed + 1))] = True
        asked, asked_old = right[held], left[held]
        left, right = left[~held], right[~held]
        notes.append("without queries, documents were held out and asked: queries of your users may fare worse")
    else:
        asked = _rows_at(queries, None, unit=unit)
        if old_queries is not None:
            asked_old = _rows_at(old_queries, None, unit=unit)
    _check_queries(asked, asked_old, new, old, relevant)
    if relevant is not None:
        truth = torch.searchsorted(keep, wanted)[:, None]
        words = f"the relevant document is among the first {k}"
    else:
        truth = _ranked(_scores(asked, right, metric), k)
        words = f"share of the {k} documents that the new model finds, which are among the first {k}"
    if len(right) < 2 * k or not len(asked):
        raise InputError(f"{new.label} must have at least {3 * k} rows and a query, got {total}; give more")
    return _Bench(left, right, asked, asked_old, truth, k, metric), words, notes


def _check_queries(
    asked: Tensor, asked_old: Tensor | None, new: Source, old: Source, relevant: Sequence[int] | None
) -> None:
    if asked.shape[1] != new.dimension:
        raise UsageError(f"`queries` must have {new.dimension} dimensions like {new.label}, got {asked.shape[1]}")
    if asked_old is not None and asked_old.shape != (len(asked), old.dimension):
        raise UsageError(
            f"`old_queries` must have {len(asked)} rows of {old.dimension} dimensions, got {tuple(asked_old.shape)}; "
            "embed the same queries with the old model"
        )
    if relevant is not None and len(relevant) != len(asked):
        raise UsageError(f"`relevant` must have a row for each of {len(asked)} queries, got {len(relevant)}")


def _rows_at(source: Source, positions: Tensor | None, *, unit: bool) -> Tensor:
    """Return some rows of a source, finite and in float32, or all."""
    parts, start = [], 0
    for batch in source.batches(source.batch_rows):
        rows = batch.rows.float()
        if positions is not None:
            here = positions[(positions >= start) & (positions < start + len(batch))] - start
            rows = rows[here]
        parts.append(rows)
        start += len(batch)
    found = torch.cat(parts) if parts else torch.zeros(0, source.dimension or 1)
    if not bool(torch.isfinite(found).all()):
        raise InputError(f"{source.label} must hold finite rows to be searched, got NaN or Inf; leave such rows out")
    return torch.nn.functional.normalize(found) if unit else found


def _crossed(aligner: Aligner, bench: _Bench, side: Side) -> tuple[Tensor, Tensor]:
    """Return scores of native documents in the space of the map's other side, and scores through the bridge. (Q, N)."""
    if side == "corpus":
        return bench.score(bench.queries, bench.new), bench.score(bench.queries, _mapped(aligner, bench.old))
    asked = _mapped(aligner, bench.queries)
    return bench.score(asked, _mapped(aligner, bench.new)), bench.score(asked, bench.old)


def _mapped(aligner: Aligner, rows: Tensor) -> Tensor:
    return torch.from_numpy(mapped(aligner, rows.numpy()))


def _scores(asked: Tensor, rows: Tensor, metric: Metric) -> Tensor:
    return -torch.cdist(asked, rows) if metric == "euclidean" else asked @ rows.T


def _ranked(scores: Tensor, k: int) -> Tensor:
    """Return the rows of the k best of each query, best first. (Q, N) -> (Q, k)."""
    return scores.topk(min(k, scores.shape[1]), dim=1).indices


def fused(native: Tensor, bridged: Tensor, again: Tensor, k: int) -> Tensor:
    """Return rows ranked over two indexes, that of the documents embedded again and that of the others.

    Each document lies in one of them, so that reciprocal rank fusion takes turns: equal ranks, the first index first.

    Shape: (Q, N), (Q, N), (N,) -> (Q, k).
    """
    lists, points = [], []
    for scores, inside in ((native, again), (bridged, ~again)):
        rows = torch.nonzero(inside)[:, 0]
        if len(rows):
            lists.append(rows[_ranked(scores[:, rows], k)])  # (Q, n)
            points.append(1 / (RRF + 1 + torch.arange(lists[-1].shape[1])))
    order = torch.argsort(torch.cat(points), descending=True, stable=True)[:k]
    return torch.cat(lists, 1)[:, order]


def _gain(bench: _Bench, bridge: Tensor, today: Tensor) -> tuple[float, float, float]:
    """Return the mean difference of what both find, query by query, with its 95 % interval."""
    each = bench.found(bridge).any(1).double() - bench.found(today).any(1).double()  # (Q,), one target a query
    mean = float(each.mean())
    half = CONFIDENT * float(each.std(unbiased=False)) / max(1, len(each)) ** 0.5
    return mean, mean - half, mean + half


def _told(gain: tuple[float, float, float]) -> str:
    """Return what the rule of BCT says, in words."""
    mean, low, high = gain
    span = f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"
    if high < 0:
        return f"the bridge finds less than the old model does today, {span}: a bridge, not an upgrade"
    if low > 0:
        return f"the bridge finds more than the old model does today, {span}: compatible by the rule of BCT"
    return f"the bridge finds as much as the old model does today, within chance, {span}"


def _mixed(bench: _Bench, native: Tensor, crossed: Tensor, bridged: Tensor, again: Tensor, share: float) -> Stage:
    """Return what one index of both models would find, and whether old documents keep their fair share of it."""
    ranked = _ranked(torch.where(again, crossed, bridged), bench.k)
    old = ~again
    old_share = float(old[ranked].float().mean())
    fair = float(old[_ranked(native, bench.k)].float().mean())
    refused = ""
    if abs(old_share - fair) > FAIR:
        refused = (
            f"old documents have {old_share:.0%} of the first {bench.k} answers, fair is {fair:.0%}: "
            + ("they do not come up" if old_share < fair else "they push the new ones out")
            + "; keep two indexes"
        )
    recall = _old_recall(bench, ranked, again)
    return bench.stage("mixed", share, ranked, old_recall=recall, old_share=old_share, fair_share=fair, refused=refused)


def _old_recall(bench: _Bench, ranked: Tensor, again: Tensor) -> float | None:
    """Return how much of what should be found among documents not embedded again is found."""
    wanted = (bench.truth >= 0) & ~again[bench.truth.clamp_min(0)]
    count = int(wanted.sum())
    return None if not count else float((bench.found(ranked) & wanted).sum() / count)
