"""Heads that put out nothing, and heads that do what another one does."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

import torch
from torch import Tensor

from embedwatch.batch import FLOAT32_MAX, AttentionBatch
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.attention import ROUNDING, head_cosines, residual_attention
from embedwatch.hashing import hash_integers
from embedwatch.sketches import BatchStatistic, HeadArrays, HeadValues, example_attention, plain_rows

DEAD = 1e-3
"""A head puts out nothing where its mean output norm is at most so much of the median head's."""
TWIN = 0.99
"""Heads are twins from this cosine on; the most alike heads of three trained models have 0.985."""
BUCKETS = 1024
BOUND = 6
"""Standard errors within which a cosine lies, the largest of many pairs too."""
NAMED_PAIRS = 20

HEADS = Metric("attention_heads", "Heads that were seen.", "heads", digits=9, headline=False)
DEAD_HEADS = Metric(
    "attention_dead_heads_ratio",
    f"Share of heads whose mean output norm is at most {DEAD:g} of the median head's.",
    healthy="0",
)
FAINTEST = Metric(
    "attention_faintest_head_ratio",
    "Smallest mean output norm of a head over that of the median head.",
    healthy="0.3 to 1",
    headline=False,
)
COSINE = Metric(
    "attention_head_cosine_max",
    "Largest cosine between what two heads add to an even look, on the same queries, first and last token left out.",
    healthy="0.4 to 0.98 in trained models, near 0 in new ones",
)
TWINS = Metric(
    "attention_twin_heads_ratio",
    f"Share of heads for which another one has a cosine of {TWIN:g} or more.",
    healthy="0",
)


class AttentionHeads(BatchStatistic[AttentionBatch]):
    """Output norms of heads against the median head's, and the cosine of the most alike heads.

    Of two heads the attention on the same queries is compared: all weights of a head on all queries are one long
    vector, less an even share of each row, and without the first and the last key. Those take much in many heads of
    every trained model, and all heads of a new model are even: whole rows of two sound heads have cosines up to 0.999.

    The long vectors are folded into 1,024 numbers by a CountSketch: each pair of query and key has a bucket and a sign,
    chosen by hash. Heads that are equal have equal sketches.

    Shape: batches (N, T); `queries` tells which rows of two heads belong together, in one batch or in several.
    State: 1,024 numbers for up to 256 heads; merge exact.
    Error: a cosine c has a standard error of about `(1 - c²) / √1024`, which is 0.0006 at 0.99 and 0.03 at 0.
    NaN, Inf, empty: rows and output norms that hold them are left out; `None` without rows, or for a single head.
    References: Michel et al. 2019, "Are sixteen heads really better than one?" (arXiv 1905.10650); Charikar et al.
    2002, "Finding frequent items in data streams" (CountSketch).

    Example:
        >>> statistic = AttentionHeads()
        >>> for batch in example_attention(0):
        ...     statistic.update(batch)
        >>> found = {m.name: m.value for m in statistic.compute()}
        >>> found["attention_dead_heads_ratio"], found["attention_twin_heads_ratio"]
        (0.25, 0.5)
    """

    name = "attention_heads"
    title = "dead and redundant heads"
    consumes = "attention"
    metrics = (HEADS, DEAD_HEADS, FAINTEST, COSINE, TWINS)
    counts_defects = True  # a NaN at a key that nobody sees says nothing

    def __init__(self) -> None:
        super().__init__()
        self._values = self.keep("values", HeadValues(["output", "rows"]))
        self._folded = self.keep("folded", HeadArrays(columns=BUCKETS))

    def add(self, batch: AttentionBatch) -> None:
        """Add a batch."""
        batch = batch.clean
        if not len(batch):
            return
        ones = torch.ones(len(batch), dtype=torch.float64, device=batch.logits.device)
        outputs = torch.full_like(ones, torch.nan) if batch.outputs is None else batch.outputs.double()
        self._values.add(batch.heads, torch.stack([outputs, ones], 1))
        ends = torch.stack([batch.firsts, batch.lasts], 1)
        residual = residual_attention(batch.weights, batch.seen, ends)
        buckets, signs = _folding(batch.queries, residual.shape[1])
        folded = residual.new_zeros(len(batch), BUCKETS).scatter_add_(1, buckets, residual * signs)
        self._folded.add(batch.heads, folded)

    def _cosines(self) -> Tensor:
        """Return the cosine of each pair of heads that were seen, and 0 for a head with itself. Shape: (H, H)."""
        return head_cosines(self._folded.sums[:, 0][self._heads])

    @property
    def _heads(self) -> Tensor:
        """The heads that were seen. Shape: (H,)."""
        return (self._values.counts("rows") > 0).nonzero()[:, 0][: len(self._folded.sums)]

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        outputs = self._values.means("output")
        outputs = outputs[~outputs.isnan()]
        median = float(outputs.quantile(0.5)) if len(outputs) > 1 else 0.0
        most = float(outputs.max()) if len(outputs) > 1 else 0.0
        median = most if median <= DEAD * most else median  # where most heads are dead the median head is none
        cosines = self._cosines()
        several = len(cosines) > 1
        highest = cosines.amax(1) if several else cosines
        top = float(highest.max()) if several else None
        return [
            HEADS.measure(len(cosines)),
            DEAD_HEADS.measure(float((outputs <= DEAD * median).double().mean()) if median > 0 else None),
            FAINTEST.measure(float(outputs.min()) / median if median > 0 else None),
            COSINE.measure(top, error=None if top is None else (1 - top * top) / math.sqrt(BUCKETS)),
            TWINS.measure(float((highest >= TWIN).double().mean()) if several else None),
        ]

    def exhibits(self) -> list[Exhibit]:
        """Return the most alike pairs of heads, and the output norm of each head."""
        heads, cosines = self._heads.tolist(), self._cosines()
        pairs = [(float(cosines[i, j]), heads[i], heads[j]) for i, j in combinations(range(len(heads)), 2)]
        alike = [(i, j, cosine) for cosine, i, j in sorted(pairs, key=lambda pair: (-pair[0], *pair[1:]))[:NAMED_PAIRS]]
        outputs = enumerate(self._values.means("output").tolist())
        return [
            Exhibit.build(
                "attention_twins",
                "table",
                "Heads whose attention is most alike.",
                ("head", "other_head", "cosine"),
                alike,
            ),
            Exhibit.build(
                "attention_outputs",
                "curve",
                "Mean norm of what each head puts out.",
                ("head", "norm"),
                [(head, None if math.isnan(norm) else norm) for head, norm in outputs],
            ),
        ]

    def tolerance(self, metric: str) -> float:
        """Return the error bound against the oracle; the share of twins is sure unless a pair lies at the border."""
        error = BOUND / math.sqrt(BUCKETS)
        if metric == COSINE.name:
            return error
        near = (self._cosines() - TWIN).abs() < error * (1 - TWIN * TWIN)
        return 1.0 if metric == TWINS.name and bool(near.any()) else 1e-5

    def oracle(self, batch: AttentionBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula, row by row."""
        outputs: dict[int, list[float]] = {}
        vectors: dict[int, dict[tuple[int, int], float]] = {}
        norms = [math.nan] * len(batch) if batch.outputs is None else batch.outputs.tolist()
        for row in plain_rows(batch):
            if abs(norms[row.place]) <= FLOAT32_MAX:
                outputs.setdefault(row.head, []).append(norms[row.place])
            inner = {key: share for key, share in row.shares.items() if key not in (row.first, row.last)}
            vector = vectors.setdefault(row.head, {})
            even = sum(inner.values()) / len(inner) if inner else 0.0
            for key, share in inner.items():
                place = row.query, key
                added = share - even if abs(share - even) > ROUNDING * even else 0.0
                vector[place] = vector.get(place, 0.0) + added
        means = sorted(sum(held) / len(held) for held in outputs.values())
        middle = len(means) // 2
        median = (means[middle] + means[-1 - middle]) / 2 if len(means) > 1 else 0.0
        median = means[-1] if len(means) > 1 and median <= DEAD * means[-1] else median
        cosines = {pair: _cosine(vectors[pair[0]], vectors[pair[1]]) for pair in combinations(vectors, 2)}
        twins = {head for pair, cosine in cosines.items() if cosine >= TWIN for head in pair}
        return {
            HEADS.name: len(vectors),
            DEAD_HEADS.name: sum(mean <= DEAD * median for mean in means) / len(means) if median else None,
            FAINTEST.name: means[0] / median if median else None,
            COSINE.name: max(0.0, *cosines.values(), 0.0) if cosines else None,
            TWINS.name: len(twins) / len(vectors) if cosines else None,
        }

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[AttentionHeads, Sequence[AttentionBatch]]]:
        """Yield heads of which two do the same and one puts out nothing, and some whose output is not known."""
        yield cls(), example_attention(seed)
        both = example_attention(seed, causal=False)
        for batch in both:
            batch.outputs = None
        yield cls(), both


def _folding(queries: Tensor, keys: int) -> tuple[Tensor, Tensor]:
    """Return the bucket and the sign of each key of each query. Shape: (N,) -> (N, T) int64, (N, T) float32."""
    distinct, place = torch.unique(queries, return_inverse=True)
    numbers = torch.arange(keys, device=queries.device)
    hashes = hash_integers(hash_integers(distinct)[:, None] ^ numbers)  # (Q, T)
    signs = 1.0 - 2.0 * (hashes < 0).float()
    return (hashes & (BUCKETS - 1))[place], signs[place]


def _cosine(one: Mapping[tuple[int, int], float], other: Mapping[tuple[int, int], float]) -> float:
    product = math.fsum(value * other.get(place, 0.0) for place, value in one.items())
    norms = [math.sqrt(math.fsum(value * value for value in each.values())) for each in (one, other)]
    return product / (norms[0] * norms[1]) if all(norms) else 0.0
