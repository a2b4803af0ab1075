"""Drift: whether rows differ from a reference, how surely, and by how much."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.check import LEAST_DISTINCT
from embedwatch.core.errors import MergeError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.blocks import Blocks, block_features, join_blocks
from embedwatch.geometry.cells import Change, central, changes
from embedwatch.geometry.comparison import (
    LEADING,
    LEAST_BLOCKS,
    LENGTHS,
    UNIT,
    WEIGHTS,
    Paired,
    Side,
    compare_blocks,
    pair,
)
from embedwatch.geometry.effects import effects
from embedwatch.geometry.permutation import weighted_p_value
from embedwatch.geometry.persistence import cell_decay_length, decay_length
from embedwatch.geometry.samples import Sample, Scan, repeats_damping, scan_samples
from embedwatch.sketches import (
    MOST_BLOCKS,
    RUN,
    SAMPLE_ROWS,
    Additive,
    BlockSums,
    ComparedStatistic,
    DriftFitter,
    DriftMap,
    Extremes,
    RowRuns,
    SketchStatistic,
    SmallestKeys,
    example_batches,
    plain,
)

HEAD_ROWS = 4096
"""The first rows, in whose order persistence is looked for."""
GAP = 2
"""Decay lengths between what fits and what calibrates."""
NAMED_ROWS = 20
NAMED_CELLS = 5
PERMUTATIONS = 999
DEEP = 9_999
"""Where none of the first labellings differed as much, more are tried, so that evidence adds up faster over windows. A
p-value stays valid, since more labellings can only lower the least one (Besag & Clifford 1991)."""
SIDES = ("reference", "window")
CELL_COLUMNS = ("cell", "change", "share", "reference_share")
SAMPLE = "sample."
FARTHEST = torch.finfo(torch.float32).max

P_VALUE = Metric(
    "drift_p_value",
    "How likely so large a difference from the reference is by chance, all families of differences together.",
    healthy="> 0.01",
)
FAMILY = Metric(
    "drift_family_p_value",
    "The same of one family: content, shift of the mean, geometry, local regions.",
    labels=("family",),
)
FOREIGN = Metric("drift_foreign_ratio", "Share of rows that the reference does not explain, at least.")
CENTROID = Metric(
    "drift_centroid_ratio", "Distance of the mean from that of the reference, in standard deviations of its rows."
)
COSINE = Metric("drift_centroid_cosine", "Cosine between the mean and that of the reference.", headline=False)
VARIANCE = Metric("drift_variance_ratio", "Total variance over that of the reference.")
RANK = Metric("drift_rank_ratio", "Effective rank over that of the reference, in the directions of the reference.")
NORM = Metric("drift_norm_ratio", "Geometric mean of the norms over that of the reference.")
BLOCKS = Metric("drift_blocks", "Blocks that were compared.", "blocks", labels=("side",), headline=False)
LENGTH = Metric("drift_decay_length", "Rows for which a stream keeps to its topic; 1 for independent rows.", "rows")
NEEDED = Metric("drift_rows_needed", "Rows that each side needs for a comparison.", "rows", headline=False)
ROWS = Metric("drift_rows", "Rows that were compared.", "rows", headline=False)
DISTINCT = Metric(
    "drift_distinct_rows", "Distinct rows among those of the window that were sampled.", "rows", headline=False
)
KNOWN = Metric(
    "drift_known_ratio",
    "Share of rows that equal one on which the reference was fitted, bit for bit; they are left out.",
    headline=False,
)
Numbers = Mapping[str, "float | None"]


class Drift(ComparedStatistic):
    """Whether rows differ from those of a reference: p-values by block permutation, and the size of the difference.

    The first half of the reference fits a whitening `u = Λ^(-1/2) Vᵀ (x - μ)` with shrunk variances; the second half is
    what rows are compared with, so that fresh healthy rows are as strange as those. Blocks of consecutive rows hold
    sums of `‖u‖²`, of the distance from the mean, of u, of u² and histograms; their labels are permuted.
    Blocks are five decay lengths long. Where that leaves fewer than 10 blocks on a side, or a window has fewer than 10
    distinct rows, there is no p-value: one row a thousand times over is one row. Beside
    sums, the regions of up to 1,200 rows of a window and 2,400 of the reference are scanned: a new topic moves neither
    mean nor spread by much.

    Rows need numbers that tell their order. Rows that equal one on which the map was fitted are left out on both sides.

    Shape: batches (N, D); rows with NaN or Inf are left out, and rows without a number.
    State: 256 blocks of 2 D + 519 numbers, the first 4,096 rows in 16 directions, 1,200 rows in half precision; merge
    exact to rounding.
    Error: p-values of 999 permutations, of 9,999 where none of those differed as much, of 99 where those are above 0.1;
        one of 0.01 has a standard error of 0.003.
    Empty: `None`.

    References:
        Ledoit & Wolf 2004 for the shrinkage; Chwialkowski, Sejdinovic & Gretton 2014 (arXiv 1408.5404) for what
        dependence does to tests by permutation; Westfall & Young 1993 for the largest of several statistics.

    Example:
        >>> rows = torch.randn(2_000, 4, generator=torch.Generator().manual_seed(0))
        >>> statistic = Drift(frozen=Drift.fit([VectorBatch(rows, torch.arange(2_000))], rows=2_000))
        >>> statistic.update(VectorBatch(rows[:500] * 1.2, torch.arange(500)))
        >>> {m.name: m.number for m in statistic.compute()}["drift_p_value"] < 0.01
        True
    """

    name = "drift"
    title = "drift from a reference"
    live = True
    live_settings: ClassVar[Mapping[str, Any]] = {"local": False}
    metrics = (
        P_VALUE,
        FAMILY,
        FOREIGN,
        CENTROID,
        COSINE,
        VARIANCE,
        RANK,
        NORM,
        BLOCKS,
        LENGTH,
        NEEDED,
        ROWS,
        DISTINCT,
        KNOWN,
    )

    row_metrics = (f"{FAMILY.name}{{family=local}}",)

    def __init__(
        self, *, frozen: Mapping[str, Tensor], permutations: int = PERMUTATIONS, seed: int = 0, local: bool = True
    ) -> None:
        super().__init__(frozen=frozen, permutations=permutations, seed=seed, local=local)
        self._permutations, self._seed, self._local = permutations, seed, local
        self._map = DriftMap(self.frozen)
        columns, cells = self._map.columns, len(self._map.centres)
        self._blocks = self.keep("blocks", BlockSums(columns.width, unit=self._map.unit, most=self._map.most))
        self._head = self.keep("head", _head(min(LEADING, columns.alive)))
        self._totals = self.keep(
            "totals", Additive(sums={"fourths": (columns.alive,)}, counts={"rows": (), "known": (), "cells": (cells,)})
        )
        self._strangest = self.keep("strangest", Extremes(NAMED_ROWS))
        self._runs = self.keep("runs", RowRuns())
        self._sample = self.keep("sample", RowRuns(torch.float16))

    @classmethod
    def fitter(cls, **options: Any) -> DriftFitter:
        """Return what fits the whitening and the cells; options are those of `DriftFitter`."""
        return DriftFitter(**options)

    @property
    def space_dimension(self) -> int:
        """D of the rows that fitted the map."""
        return self._map.dimension

    def calibrated(self, start: int) -> dict[str, Tensor]:
        """Return the blocks of the rows seen, without those near the rows that fitted, and their head."""
        length = self._decay_length()
        blocks = self._blocks.without(start + math.ceil(GAP * length)) if length > 1 else self._blocks.blocks
        cells = self._totals["cells"] + torch.zeros(len(self._map.centres), dtype=torch.int64)  # also where none is
        found = {"size": torch.tensor(self._blocks.size), "length": torch.tensor(length, dtype=torch.float64)}
        found |= {"cells": cells, **blocks._asdict()}
        found |= {"fourths": self._totals["fourths"], "total": self._totals["rows"]}
        sample = self._sampled()
        found |= {f"{SAMPLE}{name}": getattr(sample, name) for name in ("numbers", "content", "rows")}
        found |= {f"{SAMPLE}whole": torch.tensor(sample.run is None)}
        return found | {
            "cell": self._head.values("cell"),
            "apart": self._head.values("apart"),
            "number": self._head.keys,
        }

    def add(self, batch: VectorBatch) -> None:
        """Add a batch whose dimension fits."""
        numbered = batch.clean
        if batch.ids is None or not len(numbered):
            return
        self._offer(numbered)
        known = self._map.is_known(numbered.content)
        self._totals.add("known", int(known.sum()))
        for part in self._map.mapped(numbered.take(~known)):
            columns, features = self._map.columns, part.features
            second = features[:, columns.second]
            self._blocks.add(part.ids, features)
            self._totals.add("fourths", second.square().sum(0))
            self._totals.add("rows", len(features))
            self._totals.add_at("cells", part.cells, torch.ones_like(part.cells))
            lead = features[:, columns.first][:, :LEADING].clamp(-FARTHEST, FARTHEST)
            apart = part.apart.double().clamp(max=FARTHEST)
            self._head.add(part.ids, lead=lead, cell=part.cells, apart=apart)
            self._strangest.add((features[:, 0] / columns.alive).sqrt(), part.ids)

    def _offer(self, rows: VectorBatch) -> None:
        """Offer rows to the sample, the known ones too."""
        keys = RowRuns.keys_of(rows.numbers)
        wanted = self._runs.wanted(keys)
        keys, numbers, content = keys[wanted], rows.numbers[wanted], rows.content[wanted]
        self._runs.add(keys, number=numbers, content=content)
        if self._local:
            self._sample.add(keys, rows=plain(rows.rows[wanted], self._map.whitening))

    def check_state(self) -> None:
        """Refuse a state whose parts did not see the same rows."""
        rows = int(self._totals["rows"])
        counts = {rows, int(self._blocks.blocks.rows.sum())}
        if "rows" in self._totals:
            counts.add(int(self._totals["cells"].sum()))
        cells, runs = self._head.values("cell"), self._runs.keys
        whole = bool(rows) == bool(len(self._head.keys)) == bool(len(self._strangest.values))
        whole &= bool(len(runs)) == bool(rows + int(self._totals["known"]))
        whole &= torch.equal(RowRuns.keys_of(self._runs.values("number")), runs)
        if len(counts) > 1 or not whole or bool(((cells < 0) | (cells >= len(self._map.centres))).any()):
            raise MergeError(f"state of {self.name} must come from the same rows in all parts; it is damaged")
        if rows and "fourths" not in self._totals:
            raise MergeError(f"state of {self.name} must hold `fourths`; it is damaged")

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        rows, known = int(self._totals["rows"]), int(self._totals["known"])
        return self._measured(self._numbers(self._side(), self._sampled(), rows, known))

    def _side(self) -> Side:
        """Return the rows seen, in blocks."""
        return Side(self._blocks.blocks, self._blocks.size, self._decay_length(), self._totals["fourths"])

    def _scanned(self, paired: Paired, sample: Sample) -> Scan | None:
        """Return what regions of a sample tell beside all rows of the reference that are kept."""
        calibrating = self._calibrating_sample
        if calibrating is None or not self._local:
            return None
        whole = Sample.joined(self._map.sample, calibrating)
        return scan_samples(whole, sample, paired, permutations=self._permutations, seed=self._seed)

    def _decay_length(self) -> float:
        """Return for how many rows the first rows keep to their topic, by their directions or by their cells."""
        return max(decay_length(self._head.values("lead")), cell_decay_length(self._head.values("cell")))

    def _sampled(self) -> Sample:
        """Return the sample of the rows seen; without the rows themselves where some are missing."""
        numbers, content, rows = self._runs.values("number"), self._runs.values("content"), self._sample.values("rows")
        run = None if len(numbers) == int(self._totals["rows"]) + int(self._totals["known"]) else RUN
        if not torch.equal(self._runs.keys, self._sample.keys):
            rows = rows[:0]
        return Sample(numbers, content, rows, run)

    @cached_property
    def _calibrating_sample(self) -> Sample | None:
        """The sample of the calibrating rows."""
        held = self.reference
        if held is None:
            return None
        numbers, content, rows = (held[f"{SAMPLE}{name}"] for name in ("numbers", "content", "rows"))
        return Sample(numbers, content, rows, None if bool(held[f"{SAMPLE}whole"]) else RUN)

    @cached_property
    def _calibration(self) -> Side | None:
        """The calibrating rows; `None` in the Statistic that sees those."""
        held = self.reference
        if held is None:
            return None
        blocks = Blocks(*(held[name] for name in Blocks._fields))
        return Side(blocks, int(held["size"]), float(held["length"]), held["fourths"])

    def _numbers(self, side: Side, sample: Sample, rows: int, known: int) -> Numbers:
        """Return the value of each measurement by its key."""
        different = len(torch.unique(sample.content))
        shared = {ROWS.name: rows, KNOWN.name: known / (rows + known) if rows + known else None}
        shared |= {DISTINCT.name: different if rows else None}
        reference, calibrating = self._calibration, self._calibrating_sample
        if self.reference is None or reference is None or calibrating is None or not rows:
            return shared
        by = self._map.whitening
        paired = pair(reference, side, self._map.columns)
        tries = {"permutations": self._permutations, "seed": self._seed}
        fourths, total = reference.fourths + side.fourths, int(self.reference["total"]) + rows
        new = [each.where(~self._map.is_known(each.content)) for each in (calibrating, sample)]
        damping = repeats_damping(new[0], new[1], paired)
        families = compare_blocks(paired, by, fourths, total, damping=damping, **tries)
        least = 1 / (1 + self._permutations)
        if self._permutations < DEEP and any(value <= least for value in families.values() if value is not None):
            tries["permutations"] = DEEP
            deeper = compare_blocks(paired, by, fourths, total, damping=damping, **tries)
            families |= {name: min(least, deeper[name]) for name, value in families.items() if value <= least}
        scanned = self._scanned(paired, sample) if families else None
        if scanned is not None:
            families["local"] = scanned.p_value
        numbers = {
            **shared,
            P_VALUE.name: weighted_p_value(families, WEIGHTS) if families and different >= LEAST_DISTINCT else None,
            **{f"{FAMILY.name}{{family={family}}}": value for family, value in families.items()},
            f"{BLOCKS.name}{{side=reference}}": len(paired.left.keys),
            f"{BLOCKS.name}{{side=window}}": len(paired.right.keys),
            LENGTH.name: paired.length,
            NEEDED.name: math.ceil(LEAST_BLOCKS * max(UNIT, LENGTHS * paired.length if paired.length > 1 else 0)),
        }
        sizes = effects(paired.left, paired.right, by) if paired.fewest >= LEAST_BLOCKS else None
        if sizes is None:
            return numbers
        return {
            **numbers,
            FOREIGN.name: max(sizes.foreign, 0.0 if scanned is None else scanned.foreign),
            CENTROID.name: sizes.centroid_distance,
            COSINE.name: sizes.centroid_cosine,
            VARIANCE.name: sizes.variance,
            RANK.name: sizes.rank,
            NORM.name: sizes.norm,
        }

    def _measured(self, numbers: Numbers) -> list[Measurement]:
        plain = [metric for metric in self.metrics if not metric.labels]
        return [
            *(metric.measure(numbers.get(metric.name)) for metric in plain),
            *(FAMILY.measure(numbers.get(f"{FAMILY.name}{{family={name}}}"), family=name) for name in WEIGHTS),
            *(BLOCKS.measure(numbers.get(f"{BLOCKS.name}{{side={name}}}"), side=name) for name in SIDES),
        ]

    def exhibits(self) -> list[Exhibit]:
        """Return the rows farthest from the reference, those in crowds of their own, and changed cells."""
        strangest = "Rows farthest from the reference, in units of a usual row."
        gained, lost = self._changes()
        crowded = "Rows among many of the window and few of the reference, with the excess in standard deviations."
        return [
            Exhibit.build("foreign_rows", "table", strangest, ("row", "distance"), self._strangest.entries()),
            Exhibit.build("crowded_rows", "table", crowded, ("row", "excess"), self._crowded()),
            Exhibit.build(
                "cells_gained", "table", "Regions that hold more rows, each with a row.", (*CELL_COLUMNS, "row"), gained
            ),
            Exhibit.build(
                "cells_lost",
                "table",
                "Regions that hold fewer rows, each with a row of the reference.",
                (*CELL_COLUMNS, "reference_row"),
                lost,
            ),
        ]

    def _crowded(self) -> list[tuple[int, float]]:
        """Return the rows in whose neighbourhoods the window outnumbers its share most."""
        reference = self._calibration
        if reference is None or not int(self._totals["rows"]):
            return []
        scanned = self._scanned(pair(reference, self._side(), self._map.columns), self._sampled())
        return [] if scanned is None else scanned.most_crowded(NAMED_ROWS)

    def _changes(self) -> tuple[list[Change], list[Change]]:
        """Return the cells that gained and lost most: change, share now and before, the row nearest to the centre."""
        rows, held = int(self._totals["rows"]), self.reference
        if held is None or not rows:
            return [], []
        now = self._totals["cells"].double() / rows
        before = held["cells"].double()
        before = before / before.sum().clamp(min=1)
        here = central(self._head.values("cell"), self._head.values("apart"), self._head.keys, len(now))
        there = central(held["cell"], held["apart"], held["number"], len(now))
        gained, lost = changes(now, before, here, there)
        return gained[:NAMED_CELLS], lost[:NAMED_CELLS]

    def memory(self, dimension: int) -> int:
        """Return an upper bound of the state's size in bytes, were all directions of this dimension alive."""
        more = max(0, dimension - self._map.columns.alive)
        return super().memory(dimension) + 8 * more * (2 * self._map.most + 1) + 8 * LEADING * HEAD_ROWS

    def tolerance(self, metric: str) -> float:
        """Return the error bound of one metric against the oracle: labellings that nearly tie may be counted apart."""
        return 5 / self._permutations if "p_value" in metric else 1e-3

    def merge_tolerance(self, metric: str) -> float:
        """Return the error within which any split and merge gives the same."""
        return self.tolerance(metric)

    def oracle(self, batch: VectorBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on all rows at once."""
        kept = batch.rows.double().isfinite().all(1)
        rows, ids = batch.rows.double()[kept], batch.numbers[kept]
        by, size = self._map.whitening, self._map.unit
        features = block_features(rows, rows.norm(dim=1), by, float(self.frozen["norm"]))
        while len({int(number) // size for number in ids}) > self._map.most:
            size *= 2
        blocks = join_blocks([Blocks(ids // size, torch.ones_like(ids), features)])
        white = features[:, self._map.columns.first][ids.argsort()]
        apart = torch.cdist(rows, self._map.centres.double())
        length = max(decay_length(white[:, :LEADING]), cell_decay_length(apart.argmin(1)[ids.argsort()]))
        side = Side(blocks, size, length, white.pow(4).sum(0))
        keys = RowRuns.keys_of(ids)
        chosen = keys.argsort()[:SAMPLE_ROWS]
        content, run = batch.content[kept], None if len(chosen) == len(ids) else RUN
        sample = Sample(ids[chosen], content[chosen], plain(batch.rows[kept].float(), by)[chosen], run)
        return {m.key: m.number for m in self._measured(self._numbers(side, sample, len(rows), 0))}

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[SketchStatistic, Sequence[VectorBatch]]]:
        """Yield small blocks that are few, few blocks that must be joined, and a stream that keeps to its topics."""
        for unit, most, sizes in ((2, MOST_BLOCKS, (60, 40)), (1, 24, (50, 50)), (10, MOST_BLOCKS, (20, 20))):
            reference = example_batches(seed + 1, sizes=sizes)
            frozen = cls.fit(reference, rows=sum(sizes), cells=3, unit=unit, most=most)
            yield cls(frozen=frozen, permutations=99), example_batches(seed)


def _head(leading: int) -> SmallestKeys:
    """Return an empty sketch of the first rows: their leading directions, cell and distance from its centre."""
    return SmallestKeys(
        HEAD_ROWS,
        {
            "lead": ((leading,), torch.float32, "first"),
            "cell": ((), torch.int64, "first"),
            "apart": ((), torch.float32, "first"),
        },
    )
