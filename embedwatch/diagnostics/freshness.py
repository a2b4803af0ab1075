"""Whether a model was ever trained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.errors import InputError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.freshness import norm_spread, spectrum_edge
from embedwatch.inquiry import Inquiry
from embedwatch.loading.examinable import Rows
from embedwatch.loading.settings import initial_spread
from embedwatch.observe.normalisations import NORM, normalisations
from embedwatch.observe.passes import reader_of, stack_of

SAMPLE = 4096
"""So many rows of the table, evenly spaced, are looked at."""
BLOCK = 512
"""Of each layer's largest matrix, a block of at most so many rows and columns."""
EVEN = 1.5
"""Norms that spread by less than this times what chance makes of them are those of rows as they were drawn."""
EDGE = 1.3
"""A spectrum that ends below this times the edge of independent entries is one of entries as they were drawn."""
SAME = 1e-5

SPREAD = Metric(
    "row_norm_spread_ratio",
    "Spread of the table's norms over that of rows as they are drawn.",
    healthy="several; 1 before training",
)
TOP = Metric(
    "table_edge_ratio",
    "Largest eigenvalue of the table's covariance over the edge of independent entries.",
    healthy="several; 1 before training",
)
GAINS = Metric("unit_gain_ratio", "Share of normalisations whose gains are all 1.", healthy="0; 1 before training")
BIASES = Metric("zero_bias_ratio", "Share of biases that are all 0.", healthy="0; near 1 before training")
LAYERS = Metric(
    "fresh_layers_ratio",
    "Share of layers whose largest matrix has the spectrum of independent entries.",
    healthy="0; 1 before training",
)
SIGNS = Metric("fresh_signs_ratio", "Share of these signs that speak of a model as it was drawn.", healthy="< 1")
DRAWN = Metric(
    "table_initial_ratio",
    "Root mean square entry of the table over the deviation that the configuration draws it with.",
    headline=False,
)


class Freshness(Diagnostic):
    """What tells a model that was only drawn from one that was trained: norms, spectra, gains, biases.

    Five signs, each known or not: norms of the table's rows spread no more than chance makes them; the spectrum of the
    table ends at the edge `(1 + √(D / n))²` of independent entries; gains of normalisations are all 1; more than half
    of the biases are all 0; most layers have matrices with such a spectrum. Training leaves none of them.

    Range: shares in [0, 1], quotients near 1 or above.
    NaN, Inf, empty: rows that are not finite are left out; a sign that cannot be read is `None`, and does not count.
    References: Marchenko & Pastur 1967; Martin & Mahoney 2021, "Implicit self-regularization in deep neural networks",
        https://arxiv.org/abs/1810.01075
    """

    name = "freshness"
    title = "signs of a model that was never trained"
    place = "scale"
    metrics = (SPREAD, TOP, GAINS, BIASES, LAYERS, SIGNS, DRAWN)

    def examine(self, subject: Any) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return the measurements of an Inquiry."""
        inquiry: Inquiry = subject
        rows = _rows(inquiry)
        spread = None if rows is None else norm_spread(rows)
        top = None if rows is None else spectrum_edge(rows)
        model = _module(inquiry)
        gains = biases = fresh = None
        edges: list[tuple[str, float]] = []
        if model is not None:
            gains = _share(bool(((norm.gain - 1).abs() < SAME).all()) for norm in normalisations(model))
            biases = _share(not bool(bias.detach().any()) for bias in _biases(model))
            edges = list(_edges(model))
            fresh = _share(edge < EDGE for _, edge in edges)
        signs = [
            None if spread is None else spread < EVEN,
            None if top is None else top < EDGE,
            None if gains is None else gains == 1,
            None if biases is None else biases > 0.5,
            None if fresh is None else fresh > 0.5,
        ]
        known = [sign for sign in signs if sign is not None]
        drawn = initial_spread(inquiry.subject.settings)
        size = None if rows is None else float(rows[rows.isfinite().all(1)].square().mean().sqrt())
        found = (spread, top, gains, biases, fresh, _share(known), size / drawn if size and drawn else None)
        exhibit = Exhibit.build(
            "layer_spectra",
            "curve",
            "Largest eigenvalue of each layer's largest matrix over the edge of independent entries, by depth.",
            ("layer", "edge_ratio"),
            edges,
        )
        return [metric.measure(value) for metric, value in zip(self.metrics, found, strict=True)], [exhibit]

    @classmethod
    def examples(cls) -> Iterable[Inquiry]:
        """Yield a model that was only drawn."""
        from embedwatch.loading.tiny import tiny_subject

        yield Inquiry(tiny_subject("bert"))


def _rows(inquiry: Inquiry) -> Tensor | None:
    """Return an even sample of the table's rows. Shape: (N, D)."""
    if inquiry.subject.vocabulary < 2:
        return None
    table: Rows = inquiry.subject.token_table()
    number = len(table)
    if number <= SAMPLE:
        return table.read(0, number).float()
    block = SAMPLE // 32
    starts = [round(at * (number - block) / 31) for at in range(32)]
    return torch.cat([table.read(start, start + block).float() for start in starts])


def _module(inquiry: Inquiry) -> nn.Module | None:
    try:
        return reader_of(inquiry.subject.module())
    except InputError:
        return None


def _share(signs: Iterable[bool]) -> float | None:
    known = list(signs)
    return sum(known) / len(known) if known else None


def _biases(model: nn.Module) -> Iterator[Tensor]:
    """Yield the biases of linear maps and of normalisations."""
    for module in model.modules():
        bias = getattr(module, "bias", None)
        linear = getattr(getattr(module, "weight", None), "ndim", 0) == 2
        if isinstance(bias, Tensor) and bias.ndim == 1 and (linear or NORM.search(type(module).__name__)):
            yield bias


def _edges(model: nn.Module) -> Iterator[tuple[str, float]]:
    """Yield each layer with the top of the spectrum of a block of its largest matrix."""
    for name, layer in stack_of(model):
        matrices = [weight.detach() for weight in layer.parameters() if weight.ndim == 2 and min(weight.shape) > 1]
        if matrices:
            largest = max(matrices, key=lambda weight: weight.numel())
            block = largest[:BLOCK, :BLOCK].float().cpu()
            edge = spectrum_edge(block if block.shape[0] >= block.shape[1] else block.T)
            if edge is not None:
                yield name, edge
