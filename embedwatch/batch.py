"""The five batches: what flows from observers and sources into statistics.

Values that several statistics need (finite mask, norms, unit rows, moments) are computed once and cached on the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from embedwatch.core.errors import UsageError
from embedwatch.core.exhibit import NO_ID
from embedwatch.geometry.norms import row_norms
from embedwatch.hashing import combine, hash_rows, hash_text

__all__ = ["AttentionBatch", "BatchMoments", "PairBatch", "TokenBatch", "TrainingStep", "VectorBatch"]

FLOAT32_MAX = torch.finfo(torch.float32).max
FLOAT32_LEAST = 2.0**-149
SAFE_NORM = 1e15
"""Beyond this norm, or below its inverse, squares may leave the range of float32: float64 is used instead."""


class BatchMoments(NamedTuple):
    """Moments of a batch's finite rows, in float64.

    Args:
        number: of rows.
        mean: (D,).
        scatter: `Σ (x - mean)(x - mean)ᵀ`, (D, D), or its diagonal, (D,).
    """

    number: int
    mean: Tensor
    scatter: Tensor


def _check_matrix(name: str, rows: Tensor) -> None:
    if not isinstance(rows, Tensor):
        raise UsageError(f"`{name}` must be a torch tensor (N, D), got {type(rows).__name__}; use torch.as_tensor")
    if rows.ndim != 2:
        raise UsageError(
            f"`{name}` must be a 2-D tensor (N, D), got shape {tuple(rows.shape)}; flatten batch and position first"
        )
    if not rows.is_floating_point():
        raise UsageError(f"`{name}` must be floating point, got {rows.dtype}; convert with .float()")
    if rows.shape[1] == 0:
        raise UsageError(f"`{name}` must have at least one dimension, got shape {tuple(rows.shape)}")


def _check_column(name: str, column: Tensor | None, count: int) -> None:
    if column is not None and (column.shape != (count,) or column.dtype != torch.int64):
        raise UsageError(
            f"`{name}` must be int64 of shape ({count},), one for each row, got {column.dtype} {tuple(column.shape)}"
        )


RowsT = TypeVar("RowsT", bound="_Rows")


class _Rows:
    """What batches of rows share: a length, and being cut and joined along their rows.

    A field that is a tensor holds one entry for each row; everything else belongs to the batch as a whole.
    """

    def __len__(self) -> int:
        return len(next(value for value in vars(self).values() if isinstance(value, Tensor)))

    def take(self: RowsT, index: Tensor | slice) -> RowsT:
        """Return some of the rows, chosen by a mask, by positions or by a slice."""
        chosen = {field.name: getattr(self, field.name) for field in fields(cast("Any", self))}
        return type(self)(
            **{name: value[index] if isinstance(value, Tensor) else value for name, value in chosen.items()}
        )

    def split(self: RowsT, sizes: Sequence[int]) -> list[RowsT]:
        """Cut into consecutive batches of these sizes."""
        ends = list(accumulate(sizes))
        return [self.take(slice(end - size, end)) for size, end in zip(sizes, ends, strict=True)]

    def chunks(self: RowsT, size: int) -> Iterator[RowsT]:
        """Yield consecutive batches of this size, the last one shorter; none where there are no rows."""
        for start in range(0, len(self), size):
            yield self.take(slice(start, start + size))

    @classmethod
    def concat(cls: type[RowsT], batches: Sequence[RowsT]) -> RowsT:
        """Join batches of one source; what belongs to a batch as a whole is taken from the first."""
        first = batches[0]
        joined = {field.name: getattr(first, field.name) for field in fields(cast("Any", first))}
        for name in joined:
            columns = [getattr(batch, name) for batch in batches]
            given = sum(isinstance(column, Tensor) for column in columns)
            if given == len(columns):
                joined[name] = torch.cat(columns)
            elif given:
                raise UsageError(
                    f"all batches or none must have `{name}`, got {given} of {len(columns)}; give it to all"
                )
        return cls(**joined)


@dataclass(eq=False)
class VectorBatch(_Rows):
    """Rows of one Space.

    Args:
        rows: (N, D) floating point, on any device. Never modified.
        ids: (N,) int64 row numbers in the source, each used once. With them a row is sampled by its identity and named.
            Without them it is sampled by its content, so that equal rows count once in samples.
        labels: (N,) int64 index into `groups`, -1 for none.
        groups: names of the groups.
        source: name of the source; together with the id it is a row's identity.
        segment: segment of the Space.
        inputs: (N,) int64 identity of what each row was made of, a token or a text: rows of one input have the same.
        order: (N,) int64 place of each row in its stream, without gaps, where the ids have some or are missing.
    """

    kind: ClassVar[str] = "vectors"

    rows: Tensor
    ids: Tensor | None = None
    labels: Tensor | None = None
    groups: Sequence[str] = ()
    source: str = ""
    segment: str = "all"
    inputs: Tensor | None = None
    order: Tensor | None = None

    def __post_init__(self) -> None:
        _check_matrix("rows", self.rows)
        _check_column("ids", self.ids, len(self))
        _check_column("labels", self.labels, len(self))
        _check_column("inputs", self.inputs, len(self))
        _check_column("order", self.order, len(self))
        if self.labels is not None and len(self) and int(self.labels.max()) >= len(self.groups):
            raise UsageError(
                f"`labels` must index into {len(self.groups)} `groups`, got {int(self.labels.max())}; name every group"
            )
        self.rows = self.rows.detach()

    @property
    def numbers(self) -> Tensor:
        """The row numbers, `NO_ID` for each where the rows have none. Shape: (N,) int64."""
        if self.ids is not None:
            return self.ids
        return torch.full((len(self),), NO_ID, dtype=torch.int64, device=self.rows.device)

    @property
    def dimension(self) -> int:
        """D."""
        return self.rows.shape[1]

    @cached_property
    def norms(self) -> Tensor:
        """Euclidean norm of each row, in float64; not finite for rows that hold NaN or Inf. Shape: (N,).

        What float32 cannot tell from zero, which only float64 rows can be, counts as zero.
        """
        norms = row_norms(self.rows)
        return torch.where(norms < FLOAT32_LEAST, 0.0, norms)

    @cached_property
    def finite(self) -> Tensor:
        """Rows without NaN and Inf; a float64 value beyond the range of float32 counts as Inf. Shape: (N,) bool."""
        if self.rows.dtype == torch.float64:
            return self.rows.abs().amax(1) <= FLOAT32_MAX
        return torch.isfinite(self.norms)

    def take(self, index: Tensor | slice) -> VectorBatch:
        """Return some of the rows, chosen by a mask, by positions or by a slice; what is cached goes with them."""
        taken = super().take(index)
        for name in ("norms", "content"):
            if name in self.__dict__:
                taken.__dict__[name] = self.__dict__[name][index]
        return taken

    def ordered(self, start: int) -> VectorBatch:
        """Return the batch with places in a stream from this one on; what is cached goes with it."""
        taken = self.take(slice(None))
        taken.order = torch.arange(start, start + len(self))
        return taken

    @classmethod
    def concat(cls, batches: Sequence[VectorBatch]) -> VectorBatch:
        """Join batches of one source; their groups share one table afterwards."""
        groups = list(dict.fromkeys(group for batch in batches for group in batch.groups))
        return super().concat([_relabelled(batch, groups) for batch in batches])

    @property
    def clean(self) -> VectorBatch:
        """The finite rows, in float32, or in float64 where float32 could not hold their squares."""
        return self if self._cleaned is None else self._cleaned  # a batch without rows is false

    @property
    def directed(self) -> VectorBatch:
        """The rows of `clean` that have a direction: all but the zero rows."""
        clean = self.clean
        return clean if clean._nonzero is None else clean._nonzero

    @cached_property
    def _cleaned(self) -> VectorBatch | None:
        """The batch `clean` where it is another one: a batch that held itself would stay until a garbage collection."""
        batch = self if bool(self.finite.all()) else self.take(self.finite)
        wide = batch.rows.dtype == torch.float64 or bool(_is_extreme(batch.norms).any())
        dtype = torch.float64 if wide else torch.float32
        if batch.rows.dtype == dtype:
            return None if batch is self else batch
        if dtype == torch.float64:
            _ = batch.content  # cached before the bits change
        converted = batch.take(slice(None))
        converted.rows = batch.rows.to(dtype)
        return converted

    @cached_property
    def _nonzero(self) -> VectorBatch | None:
        nonzero = self.norms > 0
        return None if bool(nonzero.all()) else self.take(nonzero)

    @cached_property
    def unit(self) -> Tensor:
        """The rows of `directed`, scaled to norm 1, in float32 unless given in float64. Shape: (M, D).

        A row's unit row does not depend on the others of its batch, also where some need float64 to be scaled.
        """
        batch = self.directed
        if self.rows.dtype == torch.float64:
            return batch.rows * batch.norms.reciprocal()[:, None]  # (M, D)
        unit = batch.rows.float() * batch.norms.reciprocal().float()[:, None]  # (M, D)
        if batch.rows.dtype == torch.float64:
            hard = _is_extreme(batch.norms)
            unit[hard] = (batch.rows[hard] / batch.norms[hard, None]).float()
        return unit

    @cached_property
    def _centred(self) -> tuple[Tensor, Tensor, Tensor]:
        """A rough mean, the rows without it, and the rest that rounding left: squares of these keep a small spread."""
        rows = self.clean.rows
        rough = rows.mean(0)
        centred = rows - rough  # (N, D)
        return rough, centred, centred.mean(0).double()

    @cached_property
    def moments(self) -> BatchMoments:
        """Number, mean and scatter matrix of the rows of `clean`: one product of matrices."""
        count = len(self.clean)
        if count == 0:
            zero = torch.zeros(self.dimension, dtype=torch.float64, device=self.rows.device)
            return BatchMoments(0, zero, zero.new_zeros(self.dimension, self.dimension))
        rough, centred, rest = self._centred
        scatter = (centred.T @ centred).double() - count * torch.outer(rest, rest)  # (D, D)
        return BatchMoments(count, rough.double() + rest, scatter)

    @cached_property
    def variances(self) -> BatchMoments:
        """Number, mean and the diagonal of the scatter matrix of the rows of `clean`, without the product."""
        count = len(self.clean)
        if count == 0:
            zero = torch.zeros(self.dimension, dtype=torch.float64, device=self.rows.device)
            return BatchMoments(0, zero, zero)
        if "moments" in self.__dict__:
            return BatchMoments(count, self.moments.mean, self.moments.scatter.diagonal())
        rough, centred, rest = self._centred
        return BatchMoments(count, rough.double() + rest, centred.square().sum(0).double() - count * rest.square())

    @cached_property
    def content(self) -> Tensor:
        """64-bit hash of each row's bits. Shape: (N,) int64."""
        return hash_rows(self.rows)

    @cached_property
    def keys(self) -> Tensor:
        """64-bit identity of each row: source and row number, or its content where it has no number. (N,) int64."""
        return self.content if self.ids is None else combine(self.ids, hash_text(self.source))


def _is_extreme(norms: Tensor) -> Tensor:
    """Return which rows have squares, or a reciprocal, that float32 does not hold well. Shape: (N,) -> (N,) bool."""
    return (norms > SAFE_NORM) | ((norms > 0) & (norms < 1 / SAFE_NORM))


def _relabelled(batch: VectorBatch, groups: list[str]) -> VectorBatch:
    """Return the batch with labels that index into these groups."""
    if batch.labels is None:
        return batch
    table = torch.tensor([groups.index(group) for group in batch.groups] + [-1], device=batch.labels.device)
    return replace(batch, labels=table[batch.labels], groups=groups)


@dataclass(eq=False)
class PairBatch(_Rows):
    """The same items in two spaces: (N, D1) and (N, D2) with the row numbers that pair them."""

    kind: ClassVar[str] = "pairs"

    left: Tensor
    right: Tensor
    ids: Tensor | None = None
    source: str = ""
    segment: str = "all"

    def __post_init__(self) -> None:
        _check_matrix("left", self.left)
        _check_matrix("right", self.right)
        if len(self.left) != len(self.right):
            raise UsageError(
                f"`left` and `right` must have the same number of rows, got {len(self.left)} and {len(self.right)}; "
                "pair them by id first"
            )
        _check_column("ids", self.ids, len(self.left))

    def sides(self) -> tuple[VectorBatch, VectorBatch]:
        """Return both sides as batches of vectors."""
        return (
            VectorBatch(self.left, self.ids, source=self.source, segment=self.segment),
            VectorBatch(self.right, self.ids, source=self.source, segment=self.segment),
        )


@dataclass(eq=False)
class AttentionBatch(_Rows):
    """Sampled query rows of one attention layer: one row for each head of each sampled query.

    Where a value is not known the field is `None`. Batches of one layer may see different numbers of keys; `concat`
    fills up with keys that nobody sees.

    Args:
        logits: (N, T) scores of a query against all keys as the softmax takes them: scaled, capped, with every bias.
        visible: (N, T) bool, the keys that the query may attend to; padding is none of them.
        positions: (N,) int64 index of the query's own key; -1 where it has none, as in cross-attention.
        heads: (N,) int64 head of the query.
        queries: (N,) int64 identity of the query: the same for all heads that look from one token.
        firsts, lasts: (N,) int64 index of the first and the last real key of the query's sequence, seen by it or not.
        head_size: K, for the spread that √d_k predicts.
        outputs: (N,) Euclidean norm of what the head puts out for the query.
        bounds: (N,) what no logit of this head exceeds in the whole layer, sampled or not.
        sinks: (N,) logit of a learned sink: it takes a share of attention and belongs to no key.
        placed: whether anything in the model holds positions; true where that is not known.
        segment: segment of the Space.
    """

    kind: ClassVar[str] = "attention"

    logits: Tensor
    visible: Tensor
    positions: Tensor
    heads: Tensor
    queries: Tensor
    firsts: Tensor
    lasts: Tensor
    head_size: int
    outputs: Tensor | None = None
    bounds: Tensor | None = None
    sinks: Tensor | None = None
    placed: bool = True
    segment: str = "all"

    def __post_init__(self) -> None:
        _check_matrix("logits", self.logits)
        if self.visible.shape != self.logits.shape or self.visible.dtype != torch.bool:
            raise UsageError(
                f"`visible` must be bool of shape {tuple(self.logits.shape)}, got {self.visible.dtype} "
                f"{tuple(self.visible.shape)}; give the mask in the shape of the logits"
            )
        for name in ("positions", "heads", "queries", "firsts", "lasts"):
            _check_column(name, getattr(self, name), len(self.logits))
        for name in ("outputs", "bounds", "sinks"):
            _check_numbers(name, getattr(self, name), len(self.logits))

    @classmethod
    def concat(cls, batches: Sequence[AttentionBatch]) -> AttentionBatch:
        """Join batches of one layer; those with fewer keys are filled up with keys that nobody sees."""
        keys = max(batch.logits.shape[1] for batch in batches)
        return super().concat([_with_keys(batch, keys) for batch in batches])

    @cached_property
    def seen(self) -> Tensor:
        """The keys that take part: visible, and not masked by a logit of -Inf. Shape: (N, T) bool."""
        return self.visible & (self.logits.float() != -torch.inf)

    @cached_property
    def counts(self) -> Tensor:
        """Number of keys that each row sees. Shape: (N,) int64."""
        return self.seen.sum(1)

    @cached_property
    def scores(self) -> Tensor:
        """The logits of the keys that each row sees, in float32; -Inf at all others. Shape: (N, T)."""
        return self.logits.float().masked_fill(~self.seen, -torch.inf)

    @cached_property
    def finite(self) -> Tensor:
        """Rows without NaN and Inf among what the softmax takes, whose softmax is a number. Shape: (N,) bool."""
        finite = torch.isfinite(self.scores.amax(1)) | ~self.visible.any(1)
        if self.sinks is None:
            return finite
        return finite & (self.sinks.float() < torch.inf)  # NaN is not; a sink at -Inf takes nothing

    @property
    def clean(self) -> AttentionBatch:
        """The rows that are finite and see a key."""
        return self if self._cleaned is None else self._cleaned  # a batch without rows is false

    @cached_property
    def _cleaned(self) -> AttentionBatch | None:
        """The batch `clean` where it is another one: a batch that held itself would stay until a garbage collection."""
        good = self.finite & (self.counts > 0)
        return None if bool(good.all()) else self.take(good)

    @cached_property
    def weights(self) -> Tensor:
        """Attention of each row over the visible keys, in float32; zero for a row that sees no key. Shape: (N, T).

        Rows sum to 1, or to less where a learned sink takes a share.
        """
        scores = self.scores
        if self.sinks is not None:
            scores = torch.cat([scores, self.sinks.float()[:, None]], 1)  # (N, T + 1)
        return torch.softmax(scores, dim=1)[:, : self.logits.shape[1]].nan_to_num(0.0)

    @cached_property
    def cumulated(self) -> Tensor:
        """Attention that the keys before each place take together, in float64. Shape: (N, T + 1)."""
        return torch.nn.functional.pad(self.weights.double().cumsum(1), (1, 0))


def _with_keys(batch: AttentionBatch, keys: int) -> AttentionBatch:
    """Return the batch with so many keys, those that are new unseen."""
    more = keys - batch.logits.shape[1]
    if not more:
        return batch
    pad = torch.nn.functional.pad
    return replace(batch, logits=pad(batch.logits, (0, more)), visible=pad(batch.visible, (0, more)))


def _check_numbers(name: str, column: Tensor | None, count: int) -> None:
    if column is not None and (column.shape != (count,) or not column.is_floating_point()):
        raise UsageError(
            f"`{name}` must be floating point of shape ({count},), one for each row, "
            f"got {column.dtype} {tuple(column.shape)}"
        )


@dataclass(eq=False)
class TokenBatch(_Rows):
    """What is known of the rows of an embedding table at one time, token by token; no row twice.

    Args:
        ids: (N,) int64 token ids.
        norms: (N,) Euclidean norm of each row now.
        counts: (N,) int64 how often each token was seen since watching began.
        drift: (N,) distance from the row as it was when watching began, over its norm then; NaN where it is not known.
        update: (N,) distance that the row moved in one step, over its norm before; NaN where it is not known.
    """

    kind: ClassVar[str] = "tokens"

    ids: Tensor
    norms: Tensor
    counts: Tensor
    drift: Tensor
    update: Tensor

    def __post_init__(self) -> None:
        for name in ("ids", "counts"):
            _check_column(name, getattr(self, name), len(self.norms))
        for name in ("norms", "drift", "update"):
            _check_numbers(name, getattr(self, name), len(self.ids))


@dataclass(frozen=True)
class TrainingStep:
    """Scalars of one training step, by name: `loss`, `validation_loss`, `lr`, `batch_size`, `gradient_norm`."""

    kind: ClassVar[str] = "steps"

    step: int
    scalars: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.step < 0:
            raise UsageError(f"`step` must be at least 0, got {self.step}; count from the start of the run")

    def __len__(self) -> int:
        return 1
