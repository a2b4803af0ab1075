"""Cohesion and separation of labelled groups."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.cohesion import GroupCosines, group_cosines, group_sums, remove_mean, silhouette
from embedwatch.hashing import hash_text
from embedwatch.sketches import GroupSums, RowSample, SketchStatistic, example_batches

GROUPS = 1024
SAMPLE = 4096

COUNT = Metric("groups", "Labelled groups that are kept: all, up to 1,024.", "groups", digits=9)
COHESION = Metric("cohesion", "Mean cosine inside labelled groups, each group with the same weight.", labels=("mean",))
SEPARATION = Metric("separation", "Mean cosine between rows of different groups.", labels=("mean",))
MARGIN = Metric("cohesion_margin", "Cohesion minus separation.", healthy="> 0.02", labels=("mean",))
SILHOUETTE = Metric("silhouette", "Mean silhouette of the sampled rows, by cosine distance.", healthy="> 0")


class Cohesion(SketchStatistic):
    """Cohesion and separation of labelled groups: mean cosine inside and between, margin, silhouette.

    Raw (`mean="kept"`) over all rows, without pairs: `(‖S_g‖² - n_g) / (n_g (n_g - 1))` inside group g, averaged
    over groups of two rows or more, and `(‖S‖² - Σ ‖S_g‖²) / (n² - Σ n_g²)` between. With the common mean removed
    (`mean="removed"`), which takes out what all rows share and makes models of different anisotropy comparable, on a
    sample of 4,096 rows, as is the silhouette (Rousseeuw 1987, by scikit-learn).

    Shape: batches (N, D) with labels; rows with NaN or Inf, zero rows and rows without a label are left out.
    Range: cosines -1 to 1, silhouette -1 to 1.
    State: number and sum of up to 1,024 groups, 4,096 sampled rows; merge exact.
    Empty: `None` for fewer than two groups, inside for no group of two rows.

    Example:
        >>> statistic = Cohesion()
        >>> rows = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
        >>> statistic.update(VectorBatch(rows, labels=torch.tensor([0, 0, 1, 1]), groups=["a", "b"]))
        >>> [m.value for m in statistic.compute()][:4]
        [2, 1.0, 0.0, 1.0]
    """

    name = "cohesion"
    title = "cohesion and separation of groups"
    live = False
    metrics = (COUNT, COHESION, SEPARATION, MARGIN, SILHOUETTE)
    needs_labels = True

    def __init__(self, *, groups: int = GROUPS, sample: int = SAMPLE) -> None:
        super().__init__(groups=groups, sample=sample)
        self._groups = self.keep("groups", GroupSums(groups))
        self._sample = self.keep("sample", RowSample(sample))

    def add(self, batch: VectorBatch) -> None:
        """Add a batch whose dimension fits."""
        if batch.labels is None:
            return
        labelled = batch.take(batch.labels >= 0).directed
        if labelled.labels is None or not len(labelled):
            return
        counts, sums = group_sums(labelled.unit, labelled.labels, len(batch.groups))
        self._groups.add(batch.groups, counts.tolist(), sums)
        hashes = torch.tensor([hash_text(name) for name in batch.groups], device=labelled.labels.device)
        self._sample.offer(labelled, groups=hashes[labelled.labels])

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        names = self._groups.names
        if not names:
            return [COUNT.measure(0)]
        kept = group_cosines(self._groups.counts, self._groups.sums)
        unit, labels = self._sampled()
        centred, moved = remove_mean(unit)
        removed = group_cosines(*group_sums(centred, labels[moved], len(names)))
        return [
            COUNT.measure(len(names)),
            *_measure(kept, "kept"),
            *_measure(removed, "removed"),
            SILHOUETTE.measure(silhouette(unit, labels)),
        ]

    def _sampled(self) -> tuple[Tensor, Tensor]:
        """Return the sampled unit rows and the position of the group of each among the kept names."""
        hashes = torch.tensor([hash_text(name) for name in self._groups.names])
        order = torch.argsort(hashes)
        group = self._sample.values("group").cpu()
        place = torch.searchsorted(hashes[order], group).clamp(max=len(hashes) - 1)
        known = hashes[order][place] == group
        return self._sample.values("unit").cpu()[known], order[place][known]

    def exhibits(self) -> list[Exhibit]:
        """Return each group with its size and cohesion, the loosest first."""
        names, counts = self._groups.names, self._groups.counts.tolist()
        if not names:
            return []
        inside = group_cosines(self._groups.counts, self._groups.sums).by_group.tolist()
        cosines = [None if math.isnan(value) else value for value in inside]
        order = sorted(range(len(names)), key=lambda place: (cosines[place] is None, cosines[place] or 0.0))
        rows = [(names[place], counts[place], cosines[place]) for place in order]
        caption = "Groups by the mean cosine inside them, the loosest first."
        return [Exhibit.build("groups", "table", caption, ("group", "rows", "cohesion"), rows)]

    def oracle(self, batch: VectorBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on all pairs, if the sample holds all rows."""
        rows = batch.rows.double()
        labels = batch.labels if batch.labels is not None else torch.full((len(batch),), -1)
        kept = sorted({batch.groups[label] for label in labels[labels >= 0].tolist()}, key=hash_text)[
            : self._groups.capacity
        ]
        known = torch.tensor([name in kept for name in batch.groups] + [False])
        labels = torch.where(known[labels], labels, -1)
        good = rows.isfinite().all(1) & (rows != 0).any(1) & (labels >= 0)
        unit, labels = rows[good] / rows[good].norm(dim=1, keepdim=True), labels[good]
        present = labels.unique()
        if not len(present):
            return {COUNT.name: 0}
        found: dict[str, float | None] = {COUNT.name: len(present)}
        centred, moved = remove_mean(unit)
        for name, space, group in (("kept", unit, labels), ("removed", centred, labels[moved])):
            cosines = space @ space.T
            same = (group[:, None] == group[None, :]) & ~torch.eye(len(space), dtype=torch.bool)
            inside = [cosines[same & (group == label)[:, None]] for label in present]
            means = [float(cells.mean()) for cells in inside if len(cells)]
            apart = cosines[group[:, None] != group[None, :]]
            cohesion = sum(means) / len(means) if means else None
            separation = float(apart.mean()) if len(apart) else None
            found[f"{COHESION.name}{{mean={name}}}"] = cohesion
            found[f"{SEPARATION.name}{{mean={name}}}"] = separation
            found[f"{MARGIN.name}{{mean={name}}}"] = GroupCosines(cohesion, separation, labels).margin
        return {**found, SILHOUETTE.name: silhouette(unit, labels)}

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[SketchStatistic, Sequence[VectorBatch]]]:
        """Yield labelled rows, some without a label, and more groups than are kept."""
        yield cls(), example_batches(seed)
        whole = VectorBatch.concat(example_batches(seed, groups=4))
        labels = torch.arange(len(whole)) % 5 - 1
        batches = VectorBatch(whole.rows, whole.ids, labels, whole.groups, whole.source).split((40, len(whole) - 40))
        yield cls(), batches
        yield cls(groups=2), batches


def _measure(cosines: GroupCosines, mean: str) -> list[Measurement]:
    return [
        COHESION.measure(cosines.inside, mean=mean),
        SEPARATION.measure(cosines.between, mean=mean),
        MARGIN.measure(cosines.margin, mean=mean),
    ]
