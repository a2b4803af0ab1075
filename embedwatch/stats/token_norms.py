"""Norms of the rows of an embedding table, token by token."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from embedwatch.batch import TokenBatch
from embedwatch.core.errors import MergeError, UsageError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.sketches import Additive, BatchStatistic, Extremes, LogHistogram, Moments, example_tokens

LIMIT = 10.0
"""A row longer than so many median rows is a long one; checks judge against the same number."""
NAMED_ROWS = 20
LEAST_TOKENS = 3
"""A correlation of two points is always 1 or -1."""
SAME = 1e-6
"""Logarithms that spread by less are equal: float32 holds no more digits of a norm."""

MEAN = Metric("token_norm_mean", "Mean norm of the table's rows.")
MAX = Metric("token_norm_max", "Norm of the table's longest row.")
MEDIAN = Metric("token_norm_median", "Median norm of the table's rows, within 0.55 %.")
EXTREME = Metric(
    "token_norm_extreme_ratio", "Longest row of the table over the median row.", healthy="< 10, and not growing"
)
OVER = Metric(
    "token_norm_over_ratio",
    "Share of the table's rows that are longer than 10 median rows, or what `limit` says.",
    healthy="0",
)
CORRELATION = Metric(
    "token_norm_frequency_correlation",
    "Correlation of the logarithms of norm and frequency, over tokens that came.",
)
SEEN = Metric("tokens_seen_ratio", "Share of the table's rows whose token came since watching began.")
NONFINITE = Metric("nonfinite_token_rows", "Rows of the table without a finite norm.", "rows", healthy="0", digits=9)
ZERO = Metric("zero_token_rows", "Rows of the table that are zero, as that of padding.", "rows", digits=9)


class TokenNorms(BatchStatistic[TokenBatch]):
    """Norms of the table's rows: mean, median and longest, how many are far longer, and whether frequent ones are.

    An embedding row gets a gradient only when its token comes, so without weight decay frequent rows may grow without
    bound. What a norm encodes beside frequency is how much a word tells about its neighbours. The correlation is
    Pearson's, of `log(1 + n)` and `log ‖x‖` over tokens with n ≥ 1, with its standard error `(1 - r²) / √(m - 1)`.

    Shape: batches of tokens; each row of the table once.
    State: sums, 16,384 logarithmic bins (see `LogHistogram`), 20 rows, moments of two columns; merge exact.
    Error: the median, and what is derived from it, within 0.55 %, so that the share of long rows is exact but for rows
        within 1.1 % of the limit; the rest exact.
    NaN, Inf, empty: rows without a finite norm and zero rows are counted apart, and enter nothing else; no correlation
        of fewer than 3 tokens, or where either side is constant.
    References: Oyama, Yokoi & Shimodaira 2023, "Norm of word embedding encodes information gain" (EMNLP).

    Args:
        limit: a row longer than so many medians is counted as long.

    Example:
        >>> unknown, ids = torch.full((4,), torch.nan), torch.arange(4)
        >>> statistic = TokenNorms()
        >>> statistic.update(TokenBatch(ids, torch.tensor([1.0, 1.0, 1.0, 30.0]), ids, unknown, unknown))
        >>> found = {m.name: m.value for m in statistic.compute()}
        >>> found["token_norm_extreme_ratio"], found["token_norm_over_ratio"], found["tokens_seen_ratio"]
        (30.0, 0.25, 0.75)
    """

    name = "token_norms"
    title = "norms of a table's rows"
    consumes = "tokens"
    metrics = (MEAN, MAX, MEDIAN, EXTREME, OVER, CORRELATION, SEEN, NONFINITE, ZERO)
    counts_defects = True

    def __init__(self, *, limit: float = LIMIT) -> None:
        if not limit > 1:
            raise UsageError(f"`limit` must be above 1, got {limit}; it counts median rows")
        super().__init__(limit=limit)
        self.limit = limit
        counts: dict[str, tuple[int, ...]] = {"rows": (), "seen": (), "nonfinite": (), "zero": ()}
        self._totals = self.keep("totals", Additive(sums={"norms": ()}, counts=counts))
        self._bins = self.keep("bins", LogHistogram())
        self._largest = self.keep("largest", Extremes(NAMED_ROWS, notes=("seen",)))
        self._smallest = self.keep("smallest", Extremes(1))
        self._logarithms = self.keep("logarithms", Moments(scatter="matrix", columns=2))

    def add(self, batch: TokenBatch) -> None:
        """Add a batch."""
        norms = batch.norms.double()
        finite = norms.isfinite() & (norms >= 0)
        sound = finite & (norms > 0)
        self._totals.add("rows", len(norms))
        self._totals.add("seen", (batch.counts > 0).sum())
        self._totals.add("nonfinite", (~finite).sum())
        self._totals.add("zero", (norms == 0).sum())
        if bool(sound.any()):
            self._add_sound(norms[sound], batch.ids[sound], batch.counts[sound])

    def _add_sound(self, norms: Tensor, ids: Tensor, seen: Tensor) -> None:
        self._totals.add("norms", norms.sum())
        self._bins.add(norms)
        self._largest.add(norms, ids, seen=seen)
        self._smallest.add(-norms, ids)
        points = _logarithms(norms, seen)  # (M, 2)
        if len(points):
            mean = points.mean(0)
            self._logarithms.combine(len(points), mean, (points - mean).T @ (points - mean))

    def check_state(self) -> None:
        """Refuse a state whose parts did not see the same rows."""
        seen = {int(self._bins.counts.sum()), self._sound}
        if len(seen) > 1 or (self._sound > 0) != (len(self._largest.values) > 0 < len(self._smallest.values)):
            raise MergeError(f"state of {self.name} must come from the same rows in all parts, got {sorted(seen)} rows")

    @property
    def _sound(self) -> int:
        """Number of rows with a finite norm above 0."""
        return int(self._totals["rows"] - self._totals["nonfinite"] - self._totals["zero"])

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        rows = int(self._totals["rows"])
        return [
            *self._norms(),
            self._correlation(),
            SEEN.measure(int(self._totals["seen"]) / rows if rows else None),
            NONFINITE.measure(int(self._totals["nonfinite"])),
            ZERO.measure(int(self._totals["zero"])),
        ]

    def _norms(self) -> list[Measurement]:
        if not self._sound:
            return [metric.measure(None) for metric in (MEAN, MAX, MEDIAN, EXTREME, OVER)]
        low, high = -float(self._smallest.values[0]), float(self._largest.values[0])
        median = min(high, max(low, self._bins.quantile(0.5)))
        edges = self._bins.edges()
        long = (edges[:-1] * edges[1:]).sqrt() > self.limit * median
        return [
            MEAN.measure(float(self._totals["norms"]) / self._sound),
            MAX.measure(high),
            MEDIAN.measure(median),
            EXTREME.measure(high / median if median > 0 else None),
            OVER.measure(int(self._bins.counts[long].sum()) / self._sound),
        ]

    def _correlation(self) -> Measurement:
        number, scatter = self._logarithms.count, self._logarithms.scatter
        if scatter is None or number < LEAST_TOKENS or float(scatter.diagonal().min()) <= number * SAME**2:
            return CORRELATION.measure(None)
        found = float(scatter[0, 1] / scatter.diagonal().prod().sqrt())
        found = max(-1.0, min(1.0, found))
        return CORRELATION.measure(found, error=(1 - found**2) / math.sqrt(number - 1))

    def exhibits(self) -> list[Exhibit]:
        """Return the longest rows."""
        rows = zip(self._largest.entries(), self._largest.note("seen"), strict=True)
        return [
            Exhibit.build(
                "largest_tokens",
                "table",
                "Tokens with the longest rows.",
                ("row", "norm", "times_seen"),
                [(row, norm, seen) for (row, norm), seen in rows],
            )
        ]

    def tolerance(self, metric: str) -> float:
        """Return the error bound of one metric against the oracle."""
        return 1.05 * LogHistogram.ERROR + 1e-5 if metric in (MEDIAN.name, EXTREME.name) else 1e-5

    def oracle(self, batch: TokenBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on all rows at once."""
        every = batch.norms.double()
        kept = every.isfinite() & (every > 0)
        norms = every[kept].sort().values
        found: dict[str, float | None] = dict.fromkeys((m.name for m in self.metrics), None)
        if len(norms):
            median = float(norms[(len(norms) - 1) // 2])
            found |= {MEAN.name: float(norms.mean()), MAX.name: float(norms[-1]), MEDIAN.name: median}
            found |= {EXTREME.name: float(norms[-1]) / median}
            found |= {OVER.name: float((norms > self.limit * median).double().mean())}
        points = _logarithms(every[kept], batch.counts[kept])
        if len(points) >= LEAST_TOKENS and float(points.std(0, correction=0).min()) > SAME:
            found[CORRELATION.name] = float(torch.corrcoef(points.T)[0, 1])
        found[SEEN.name] = float((batch.counts > 0).double().mean()) if len(every) else None
        return {**found, NONFINITE.name: int((~every.isfinite()).sum()), ZERO.name: int((every == 0).sum())}

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[TokenNorms, Sequence[TokenBatch]]]:
        """Yield a sound table, another limit, and a table with rows that are zero or not finite."""
        yield cls(), example_tokens(seed)
        yield cls(limit=4.0), example_tokens(seed + 1)
        whole = TokenBatch.concat(example_tokens(seed + 2))
        whole.norms[[0, 9, 30]] = torch.tensor([0.0, torch.nan, torch.inf])
        yield cls(), whole.split((20, 30, len(whole) - 50))


def _logarithms(norms: Tensor, seen: Tensor) -> Tensor:
    """Return `log(1 + n)` and `log ‖x‖` of the tokens that came. Shape: (N,), (N,) -> (M, 2)."""
    came = seen > 0
    return torch.stack([torch.log1p(seen[came].double()), norms[came].log()], dim=1)
