"""What the nearest neighbours inside a sample tell: hubs, intrinsic dimension, near-duplicates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.neighbours import dimension_mle, dimension_two_nn, occurrences, robin_hood, skewness
from embedwatch.sketches import RowSample, SketchStatistic, example_batches

SAMPLE = 4096
K_HUBS = 10
K_DIMENSION = 20
NEAR_COSINE = 0.99
NAMED_ROWS = 20

HUBNESS = Metric(
    "hubness_skewness", "Skewness of how often a row is among the 10 nearest of another (hubness).", headline=False
)
ROBIN_HOOD = Metric(
    "hubness_robin_hood_ratio", "Share of neighbour slots that would have to move for all rows to get the same."
)
ANTIHUBS = Metric(
    "antihub_rows_ratio", "Share of sampled rows that are among the 10 nearest of no other.", headline=False
)
DIMENSION = Metric(
    "intrinsic_dimension",
    "Intrinsic dimension of the unit rows at the scale of the sample.",
    "dimensions",
    labels=("estimator",),
)
NEAR = Metric(
    "near_duplicate_rows_ratio",
    "Share of up to 4,096 sampled distinct rows whose nearest other in the sample has a cosine of 0.99 or more.",
)


class Neighbours(SketchStatistic):
    """Hubness, intrinsic dimension and near-duplicates from the graph of nearest neighbours in a sample of fixed size.

    N_10 counts how often a row is among the 10 nearest of another: its skewness and Robin Hood index, and the share of
    anti-hubs with N_10 = 0. The intrinsic dimension is estimated by maximum likelihood over 20 neighbours and by the
    two nearest. Neighbours are exact (FAISS), on unit rows, so Euclidean and cosine order agree. All of these depend
    on the size of the sample: compare only numbers of equal sample size.

    Shape: batches (N, D); rows with NaN or Inf, zero rows and exact repeats of a sampled row are left out.
    State: 4,096 rows in float32 with row number; merge exact.
    Empty: `None` for fewer than 40 rows.

    References:
        Radovanović, Nanopoulos & Ivanović 2010, "Hubs in space"; Feldbauer & Flexer 2019, "A comprehensive empirical
        comparison of hubness reduction"; Levina & Bickel 2004; Facco et al. 2017.

    Example:
        >>> statistic = Neighbours()
        >>> statistic.update(VectorBatch(torch.randn(64, 8, generator=torch.Generator().manual_seed(0))))
        >>> statistic.compute()[4].metric.name
        'intrinsic_dimension'
    """

    name = "neighbours"
    title = "hubness, intrinsic dimension, near-duplicates"
    live = False
    metrics = (HUBNESS, ROBIN_HOOD, ANTIHUBS, DIMENSION, NEAR)

    def __init__(self, *, sample: int = SAMPLE) -> None:
        super().__init__(sample=sample)
        self._sample = self.keep("sample", RowSample(sample))

    def add(self, batch: VectorBatch) -> None:
        """Add a batch whose dimension fits."""
        self._sample.offer(batch)

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        return _measure(self._rows())

    def _rows(self) -> Tensor:
        return self._sample.values("unit")[self._sample.distinct()]

    def exhibits(self) -> list[Exhibit]:
        """Return the largest hubs, and the pairs of near-duplicates."""
        from embedwatch.ann import nearest_neighbours

        ids = self._sample.values("id")[self._sample.distinct()].tolist()
        if len(ids) < 2:
            return []
        graph = nearest_neighbours(self._rows(), K_HUBS)
        counts = occurrences(graph.rows, len(ids))
        order = torch.argsort(counts, descending=True, stable=True)[:NAMED_ROWS].tolist()
        hubs = [(ids[place], int(counts[place])) for place in order]
        close = torch.argsort(graph.distances[:, 0], stable=True).tolist()
        pairs: dict[tuple[int, int], float] = {}
        for place in close:
            cosine = 1 - float(graph.distances[place, 0]) ** 2 / 2
            if cosine < NEAR_COSINE or len(pairs) >= NAMED_ROWS:
                break
            other = int(graph.rows[place, 0])
            pairs.setdefault((min(ids[place], ids[other]), max(ids[place], ids[other])), cosine)
        near = [(first, second, cosine) for (first, second), cosine in pairs.items()]
        return [
            Exhibit.build(
                "hubs", "table", "Sampled rows that are nearest to the most others.", ("row", "times_nearest"), hubs
            ),
            Exhibit.build(
                "near_duplicates", "table", "Nearest pairs of sampled rows.", ("row", "other_row", "cosine"), near
            ),
        ]

    def oracle(self, batch: VectorBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on the same rows, if the sample holds them all."""
        rows = batch.rows.double()
        rows = rows[rows.isfinite().all(1) & (rows != 0).any(1)]
        unit = torch.unique(rows / rows.norm(dim=1, keepdim=True), dim=0)
        if len(unit) > self._sample.capacity:
            return {}
        found = _measure(unit, exact=True)
        return {m.key: m.number for m in found}

    def tolerance(self, metric: str) -> float:
        """Return the error bound of one metric against the oracle: near ties may be ordered otherwise in float32."""
        return 0.02 if metric in (HUBNESS.name, ROBIN_HOOD.name, ANTIHUBS.name) else 1e-3

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[SketchStatistic, Sequence[VectorBatch]]]:
        """Yield rows that the sample holds, and more rows than it holds."""
        yield cls(), example_batches(seed)
        yield cls(sample=48), example_batches(seed, sizes=(80, 1, 60))


MINIMUM_ROWS = 40


def _measure(unit: Tensor, *, exact: bool = False) -> list[Measurement]:
    from embedwatch.ann import nearest_neighbours

    if len(unit) < MINIMUM_ROWS:
        empty = [metric.measure(None) for metric in (HUBNESS, ROBIN_HOOD, ANTIHUBS, NEAR)]
        return [*empty, *(DIMENSION.measure(None, estimator=name) for name in ("mle", "two_nn"))]
    if exact:
        every = torch.cdist(unit, unit).fill_diagonal_(torch.inf)
        distances, index = every.sort(dim=1, stable=True)
        distances, index = distances[:, :K_DIMENSION], index[:, :K_DIMENSION]
    else:
        distances, index = nearest_neighbours(unit, K_DIMENSION)
    counts = occurrences(index[:, :K_HUBS], len(unit))
    cosine = 1 - distances[:, 0].square() / 2
    return [
        HUBNESS.measure(skewness(counts)),
        ROBIN_HOOD.measure(robin_hood(counts)),
        ANTIHUBS.measure(float((counts == 0).double().mean())),
        NEAR.measure(float((cosine >= NEAR_COSINE).double().mean())),
        DIMENSION.measure(dimension_mle(distances), estimator="mle"),
        DIMENSION.measure(dimension_two_nn(distances), estimator="two_nn"),
    ]
