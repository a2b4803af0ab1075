"""Pairs of rows that exercise a Statistic, and their measures by plain loops."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from embedwatch.batch import PairBatch

__all__ = ["example_pairs", "paired_by_loops"]

TIE = 1e-9
RANK = 1e-6
NOTHING = 1e-12
LEVELS = 256


def example_pairs(
    seed: int, change: str, *, dimension: int = 6, sizes: Sequence[int] = (23, 1, 18, 2)
) -> list[PairBatch]:
    """Return rows in a few clusters, and beside each what it became.

    Args:
        seed: of the random numbers.
        change: `same`; `other` for unrelated rows of more dimensions; `narrow` for fewer; `padded` for some noise, and
            zeros behind; `rotated` for a rotation with some noise; `cut` for a few rows that moved.
        dimension: D1.
        sizes: rows of each batch.

    Example:
        >>> [(len(batch), tuple(batch.right.shape)) for batch in example_pairs(0, "narrow", sizes=(3, 2))]
        [(3, (3, 4)), (2, (2, 4))]
    """
    generator = torch.Generator().manual_seed(seed)
    count = sum(sizes)
    centres = torch.randn(4, dimension, generator=generator)
    rows = centres[torch.arange(count) % 4] + 0.7 * torch.randn(count, dimension, generator=generator)
    turn = torch.linalg.qr(torch.randn(dimension, dimension, generator=generator)).Q
    noise = torch.randn(count, 2 * dimension, generator=generator)
    now = {
        "same": rows,
        "other": noise,
        "narrow": rows[:, : dimension - 2],
        "padded": torch.nn.functional.pad(rows + 0.1 * noise[:, :dimension], (0, 2)),
        "rotated": rows @ turn + 0.05 * noise[:, :dimension],
        "cut": rows + (torch.arange(count) % 9 == 0)[:, None] * noise[:, :dimension],
    }[change]
    return PairBatch(rows, now.clone(), torch.arange(count), source=f"example {seed}").split(sizes)


def paired_by_loops(batch: PairBatch, floor: float, k: int, unit_length: float) -> dict[str, float | int | None]:
    """Return what `embedwatch.stats.canary` measures, pair by pair, from its definitions alone."""
    pairs = list(zip(batch.left.float().double(), batch.right.float().double(), strict=True))
    sound = [pair for pair in pairs if all(bool(side.isfinite().all()) for side in pair)]
    lost = [pair for pair in sound if bool((pair[0] != 0).any()) and not bool((pair[1] != 0).any())]
    good = [pair for pair in sound if all(bool((side != 0).any()) for side in pair)]
    numbers: dict[str, float | int | None] = {
        "canary_texts": len(pairs),
        "canary_nonfinite_texts": len(pairs) - len(sound),
        "canary_zero_texts": len(lost),
    }
    if not good:
        return numbers
    left, right = (torch.stack(side) for side in zip(*good, strict=True))
    numbers |= _lengths(left, right, unit_length)
    u, v = ([row / row.norm() for row in side] for side in (left, right))
    numbers |= _together(u, v, k)
    widths = [max(j for j in range(side.shape[1]) if bool((side[:, j] != 0).any())) + 1 for side in (left, right)]
    numbers |= {"canary_dimension{side=then}": widths[0], "canary_dimension{side=now}": widths[1]}
    if widths[0] != widths[1]:
        shared = [(a[: min(widths)], b[: min(widths)]) for a, b in zip(u, v, strict=True)]
        ends = [_apart(a / a.norm(), b / b.norm()) for a, b in shared if float(a.norm()) > 0 and float(b.norm()) > 0]
        numbers["canary_leading_distance"] = max(ends) if ends else None
    if left.shape[1] == right.shape[1] or widths[0] == widths[1]:
        shared_width = min(left.shape[1], right.shape[1])
        numbers |= _moved([row[:shared_width] for row in u], [row[:shared_width] for row in v], floor)
        numbers["canary_difference"] = float((left[:, :shared_width] - right[:, :shared_width]).abs().max())
    return numbers


def _apart(a: Tensor, b: Tensor) -> float:
    return float((a - b).pow(2).sum() / 2)


def _lengths(left: Tensor, right: Tensor, unit_length: float) -> dict[str, float | int | None]:
    found: dict[str, float | int | None] = {}
    ratios = torch.stack([b.norm() / a.norm() for a, b in zip(left, right, strict=True)])
    for name in ("0", "0.5", "1"):
        found[f"canary_norm_ratio{{q={name}}}"] = float(ratios.quantile(float(name)))
    for side, rows in (("then", left), ("now", right)):
        ones = [abs(float(row.norm()) - 1) < unit_length for row in rows]
        found[f"canary_unit_ratio{{side={side}}}"] = sum(ones) / len(ones)
        for grid, bits in (("bfloat16", 8), ("float16", 11)):
            exact = [all(_fits(float(value), bits, grid) for value in row) for row in rows]
            found[f"canary_grid_ratio{{side={side},grid={grid}}}"] = sum(exact) / len(exact)
        found |= {f"canary_grid_ratio{{side={side},grid={grid}}}": 0.0 for grid in ("binary", "int8")}  # rows are short
    return found


def _fits(value: float, bits: int, grid: str) -> bool:
    """Return whether a number has so few binary digits, within the exponents of its type."""
    least, largest = (-24, 65504.0) if grid == "float16" else (-133, 3.3895313892515355e38)
    _, exponent = math.frexp(value)
    step = 2.0 ** max(exponent - bits, least)
    return abs(value) <= largest and value == math.floor(value / step) * step


def _moved(u: Sequence[Tensor], v: Sequence[Tensor], floor: float) -> dict[str, float | int | None]:
    apart = torch.tensor([_apart(a, b) for a, b in zip(u, v, strict=True)], dtype=torch.float64)
    swapped = 0
    for place, b in enumerate(v):
        others = [float(1 - a @ b) for other, a in enumerate(u) if other != place]
        swapped += bool(apart[place] > floor) and any(distance <= floor for distance in others)
    shift = sum((b - a for a, b in zip(u, v, strict=True)), torch.zeros_like(u[0])) / len(u)
    total = 2 * float(apart.sum())
    means = [sum(side, torch.zeros_like(side[0])) / len(side) for side in (u, v)]
    parts = [(a - means[0], b - means[1]) for a, b in zip(u, v, strict=True)]
    x, y, both = (sum(float(pair[i] @ pair[j]) for pair in parts) for i, j in ((0, 0), (1, 1), (0, 1)))
    quantiles = {f"canary_distance{{q={name}}}": float(apart.quantile(float(name))) for name in ("0.5", "0.9", "1")}
    return {
        **quantiles,
        "canary_moved_ratio": float((apart > floor).double().mean()),
        "canary_displaced_ratio": swapped / len(u),
        "canary_centred_cosine": None if min(x, y) <= NOTHING * len(u) else both / (x * y) ** 0.5,
        "canary_offset_ratio": None
        if total <= NOTHING**2 * len(u) or len(u) < 2
        else max(0.0, (float(shift @ shift) - total / len(u) ** 2) / (total / len(u)) * len(u) / (len(u) - 1)),
    }


def _together(u: Sequence[Tensor], v: Sequence[Tensor], k: int) -> dict[str, float | int | None]:
    count = len(u)
    then, now = ([[float(a @ b) for b in side] for a in side] for side in (u, v))
    found: dict[str, float | int | None] = {}
    if count > 2 * k:
        near, other = (_near(cosines, k) for cosines in (then, now))
        shares = [len(a & b) / max(len(a), len(b)) for a, b in zip(near, other, strict=True)]
        found["canary_overlap_ratio"] = sum(shares) / count
        expected = [len(a) * len(b) / (count - 1) / max(len(a), len(b)) for a in near for b in other]
        found["canary_overlap_chance_ratio"] = sum(expected) / len(expected)
    if count >= 4:
        above = [(i, j) for i in range(count) for j in range(i)]
        before, after = ([cosines[i][j] for i, j in above] for cosines in (then, now))
        mean = sum(before) / len(above)
        spread = sum((value - mean) ** 2 for value in before)
        error = sum((a - b) ** 2 for a, b in zip(before, after, strict=True))
        found["canary_similarity_ratio"] = None if spread <= NOTHING * len(above) else max(0.0, 1 - error / spread)
        found["canary_cka"] = _cka(then, now)
        found |= _rotation(torch.stack(list(u)), torch.stack(list(v)))
    return found


def _near(cosines: list[list[float]], k: int) -> list[set[int]]:
    found = []
    for place, row in enumerate(cosines):
        least = sorted((value for other, value in enumerate(row) if other != place), reverse=True)[k - 1]
        found.append({other for other, value in enumerate(row) if other != place and value >= least - TIE})
    return found


def _cka(then: list[list[float]], now: list[list[float]]) -> float | None:
    """By U-centring, in which HSIC₁ is a plain mean (Székely & Rizzo 2014, Annals of Statistics 42)."""
    centred = []
    for cosines in (then, now):
        gram = torch.tensor(cosines, dtype=torch.float64)
        gram.fill_diagonal_(0)
        n = len(gram)
        rows = gram.sum(1) / (n - 2)
        gram = gram - rows[:, None] - rows[None, :] + gram.sum() / ((n - 1) * (n - 2))
        centred.append(gram.fill_diagonal_(0))
    n = len(then)
    own, other, both = (
        float((a * b).sum()) / (n * (n - 3)) for a, b in ((centred[0],) * 2, (centred[1],) * 2, tuple(centred))
    )
    return None if own <= NOTHING or other <= NOTHING else both / (own * other) ** 0.5


def _rotation(then: Tensor, now: Tensor) -> dict[str, float | int | None]:
    """By the D1 × D2 matrix itself."""
    values = torch.linalg.eigvalsh((then - then.mean(0)).T @ (then - then.mean(0))).clamp(min=0)
    total = float(values.sum())
    if total <= 1e-18 * len(then):
        rank = 0.0
    else:
        rank = math.exp(-sum(float(x / total) * math.log(float(x / total)) for x in values if float(x) > 0))
    if len(then) < 2 * rank:
        return {}
    whole, rotated, scaled = 0.0, 0.0, 0.0
    for first in (0, 1):
        x, y = then[first::2], now[first::2]
        m, n = x.mean(0), y.mean(0)
        svd = torch.linalg.svd((x - m).T @ (y - n), full_matrices=False)
        kept = RANK * svd.S[0] < svd.S
        turn = svd.U[:, kept] @ svd.Vh[kept]
        scale = float(svd.S.sum() / (x - m).pow(2).sum()) if float((x - m).pow(2).sum()) > 0 else 1.0
        moved = (then[1 - first :: 2] - m) @ turn
        wanted = (now[1 - first :: 2] - n) @ svd.Vh[kept].T @ svd.Vh[kept]
        whole += float(wanted.pow(2).sum())
        rotated += float((wanted - moved).pow(2).sum())
        scaled += float((wanted - scale * moved).pow(2).sum())
    if whole <= 1e-18 * len(then):
        return {}
    return {"canary_rotation_ratio": 1 - rotated / whole, "canary_scaled_rotation_ratio": 1 - scaled / whole}
