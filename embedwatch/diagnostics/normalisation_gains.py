"""Gains and biases of normalisations, and units whose weights are all zero."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.inquiry import Inquiry
from embedwatch.observe.normalisations import Normalisation, normalisations
from embedwatch.observe.passes import reader_of, stack_of

SMALL = 1e-3
"""A gain below this share of its normalisation's median takes a dimension out."""
EMPTY = 1e-6
"""A row or column of a matrix is empty where its norm is below this share of the median one."""

NORMS = Metric("normalisations", "Normalisations with a gain for each dimension.", "modules", headline=False)
LARGEST = Metric("norm_gain_max", "Largest gain of a normalisation, in size.", healthy="< 100")
PEAK = Metric("norm_gain_peak_ratio", "Largest gain over the median one of the same normalisation.", healthy="< 1000")
DEAD = Metric(
    "norm_gain_dead_ratio", "Share of the dimensions that the worst normalisation takes out.", healthy="< 0.1"
)
BIAS = Metric("norm_bias_max", "Largest bias of a normalisation, in size.", healthy="< 50")
BROKEN = Metric("nonfinite_norms", "Normalisations with a gain or bias that is not finite.", "modules", healthy="0")
UNITS = Metric("empty_unit_ratio", "Share of rows and columns of the layers' matrices that are all zero.", healthy="0")
WORST = Metric("empty_unit_layer_max", "The same in the worst layer.", healthy="0")


class NormalisationGains(Diagnostic):
    """What normalisations multiply by and add, and which units of the layers have no weights at all.

    Gains and biases are those that the module applies, whatever it keeps: `f(x) = gain x + bias` for entries ±1. A gain
    counts as one that takes its dimension out below a thousandth of the median gain of its normalisation. A row or
    column of a layer's matrix is empty where its norm is below 10⁻⁶ of the median one.

    Range: gains and biases any number; shares in [0, 1]. NaN, Inf, empty: what is not finite is counted and left out;
    `None` where there are no normalisations or layers. References: Ba et al. 2016, https://arxiv.org/abs/1607.06450;
    Zhang & Sennrich 2019, https://arxiv.org/abs/1910.07467
    """

    name = "normalisation_gains"
    title = "gains of normalisations, empty units"
    place = "layers"
    metrics = (NORMS, LARGEST, PEAK, DEAD, BIAS, BROKEN, UNITS, WORST)

    def examine(self, subject: Any) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return the measurements of an Inquiry, normalisation by normalisation."""
        inquiry: Inquiry = subject
        model = inquiry.subject.module()
        told = [_told(norm) for norm in normalisations(model)]
        empty = [(name, *_empty(layer)) for name, layer in stack_of(reader_of(model))]
        shares = [found / number for _, found, number in empty if number]
        units = sum(number for *_, number in empty)
        found = [
            NORMS.measure(len(told)),
            LARGEST.measure(_largest(row["gain_max"] for row in told)),
            PEAK.measure(_largest(row["peak"] for row in told)),
            DEAD.measure(_largest(row["dead"] for row in told)),
            BIAS.measure(_largest(row["bias_max"] for row in told)),
            BROKEN.measure(sum(not row["finite"] for row in told)),
            UNITS.measure(sum(empties for _, empties, _ in empty) / units if units else None),
            WORST.measure(max(shares, default=None)),
        ]
        columns = ("module", "gain_median", "gain_max", "bias_max", "dead_dimensions")
        rows = [(r["name"], r["gain_median"], r["gain_max"], r["bias_max"], r["dead"]) for r in told]
        layers = [(name, empties, number) for name, empties, number in empty]
        return found, [
            Exhibit.build("norm_gains", "table", "Gains and biases of normalisations, in size.", columns, rows),
            Exhibit.build(
                "empty_units",
                "table",
                "Rows and columns of each layer's matrices that are all zero.",
                ("layer", "empty", "rows_and_columns"),
                layers,
            ),
        ]

    @classmethod
    def examples(cls) -> Iterable[Inquiry]:
        """Yield a model with LayerNorm."""
        from embedwatch.loading.tiny import tiny_subject

        yield Inquiry(tiny_subject("bert"))


def _told(norm: Normalisation) -> dict[str, Any]:
    gain, bias = norm.gain.abs(), norm.bias.abs()
    finite = bool(gain.isfinite().all()) and bool(bias.isfinite().all())
    sizes = gain[gain.isfinite()]
    median = float(sizes.median()) if len(sizes) else None
    largest = float(sizes.max()) if len(sizes) else None
    dead = float((sizes <= SMALL * median).double().mean()) if median is not None else None
    return {
        "name": norm.name,
        "finite": finite,
        "gain_median": median,
        "gain_max": largest,
        "peak": largest / median if largest and median else None,
        "dead": 1.0 if largest == 0 else dead,
        "bias_max": float(bias[bias.isfinite()].max()) if norm.has_bias and bool(bias.isfinite().any()) else None,
    }


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _empty(layer: nn.Module) -> tuple[int, int]:
    """Return how many rows and columns of a layer's matrices are all zero, and how many there are."""
    empty = number = 0
    for lengths in _lengths(layer):
        sound = lengths[lengths.isfinite()]
        if len(sound):
            empty += int((sound <= EMPTY * sound.median()).sum())
            number += len(sound)
    return empty, number


def _lengths(layer: nn.Module) -> Iterator[Tensor]:
    for module in layer.modules():
        weight = getattr(module, "weight", None)
        if isinstance(weight, Tensor) and weight.ndim == 2 and not isinstance(module, nn.Embedding):
            wide = weight.detach().float()
            yield from (torch.linalg.vector_norm(wide, dim=dim).cpu() for dim in (0, 1))
