"""What flows through the layers of a model: massive entries, tokens that grow alike, units that never speak."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.errors import InputError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.norms import row_norms
from embedwatch.geometry.residual import alike_distance, massive_entry
from embedwatch.inquiry import Inquiry
from embedwatch.loading.tokens import token_name
from embedwatch.observe.passes import leaving, reader_of, stack_of

TEXTS, LENGTH = 16, 128
"""So many texts, of so many tokens, are run."""
DRAWN = 4
"""Without texts so many sequences of random tokens are run."""
MASSIVE, TIMES = 100.0, 1000.0
"""Entries are massive above this size and this many medians (Sun et al. 2024)."""
SILENT = 1e-3
"""A unit never speaks where all it says is below this share of what the median unit says at most."""

READ = Metric("tokens_read", "Tokens that the model was given.", "tokens", headline=False)
LARGEST = Metric("massive_entry_max", "Largest entry of the residual stream, in size.")
RATIO = Metric("massive_entry_ratio", "Largest entry of the residual stream over the median entry of its layer.")
LAYERS = Metric("massive_layers", "Layers that leave a massive entry: above 100, and above 1,000 medians.", "layers")
GROWTH = Metric("stream_growth_ratio", "Median norm of tokens behind the last layer over that before the first.")
FIRST = Metric(
    "alike_distance_first", "How far tokens are from being all alike before the first layer: 0 alike, 1 not."
)
LAST = Metric("alike_distance_last", "The same behind the last layer.")
LEAST = Metric("alike_distance_min", "The least of it over the layers.", healthy="> 0.1")
WITHIN = Metric("alike_distance_in_text", "The same behind the last layer, within each text.")
SILENT_UNITS = Metric("silent_unit_ratio", "Share of the inner units of the layers that no token of these texts woke.")


class ResidualStream(Diagnostic):
    """Entries, norms and likeness of tokens from layer to layer, and inner units that never speak, on given texts.

    For each layer: the largest entry over the median one, the median norm, and `√(1 - ‖mean(x / ‖x‖)‖²)` over the
    tokens of all texts, how far they are from being all alike. Attention without anything beside it makes all tokens
    alike with depth. Massive entries are usual in large trained models, at few tokens and dimensions. Inner units are
    the inputs of each layer's last widening map.

    Range: distances and shares in [0, 1].
    NaN, Inf, empty: what is not finite is left out; without texts random tokens are run, and units are not judged.
    References: Dong et al. 2021, https://arxiv.org/abs/2103.03404; Sun et al. 2024, https://arxiv.org/abs/2402.17762
    """

    name = "residual_stream"
    title = "what flows through the layers"
    place = "layers"
    runs_model = True
    metrics = (READ, LARGEST, RATIO, LAYERS, GROWTH, FIRST, LAST, LEAST, WITHIN, SILENT_UNITS)

    def applies(self, inquiry: Inquiry) -> bool:
        """Return whether the model reads tokens."""
        return inquiry.subject.vocabulary > 1

    def examine(self, subject: Any) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return the measurements of an Inquiry, and the layers one by one."""
        inquiry: Inquiry = subject
        model = inquiry.subject.module()
        units = _Units(reader_of(model))
        texts = _texts(inquiry)
        passes = [leaving(model, ids[None], extra=units.heard) for ids in texts]
        passes = [found for found in passes if len(found) > 1]
        if not passes:
            return [READ.measure(0), *(metric.measure(None) for metric in self.metrics[1:])], []
        depths = min(len(found) for found in passes)
        layers = [torch.cat([found[at][0] for found in passes]) for at in range(depths)]  # (N, D) each
        apart = [alike_distance(rows) for rows in layers]
        massive = [massive_entry(rows) for rows in layers]
        sizes = [_median(row_norms(rows)) for rows in layers]
        inside = [found for each in passes if (found := alike_distance(each[depths - 1][0])) is not None]
        behind = [distance for distance in apart[1:] if distance is not None]
        first, last = sizes[0], sizes[-1]
        known = [found for found in massive if found is not None]
        told = [
            READ.measure(len(layers[0])),
            LARGEST.measure(max((entry for entry, *_ in known), default=None)),
            RATIO.measure(max((times for _, times, *_ in known), default=None)),
            LAYERS.measure(sum(entry > MASSIVE and times > TIMES for entry, times, *_ in known)),
            GROWTH.measure(last / first if first and last else None),
            FIRST.measure(apart[0]),
            LAST.measure(apart[-1]),
            LEAST.measure(min(behind, default=None)),
            WITHIN.measure(sum(inside) / len(inside) if inside else None),
            SILENT_UNITS.measure(units.silent() if inquiry.texts else None),
        ]
        return told, [self._depths(inquiry, texts, sizes, apart, massive)]

    def _depths(
        self, inquiry: Inquiry, texts: Sequence[Tensor], sizes: Sequence[float | None], apart: Any, massive: Any
    ) -> Exhibit:
        tokens = torch.cat(list(texts))
        rows = []
        for depth, (size, distance, found) in enumerate(zip(sizes, apart, massive, strict=True)):
            entry, times, row, dimension = found or (None, None, None, None)
            name = "" if row is None or row >= len(tokens) else _name(inquiry, int(tokens[row]))
            rows.append((depth, size, distance, entry, times, name, dimension))
        columns = ("depth", "norm_median", "alike_distance", "largest_entry", "over_median", "token", "dimension")
        return Exhibit.build(
            "residual_depths", "curve", "The residual stream by depth; 0 is what enters the first layer.", columns, rows
        )

    @classmethod
    def examples(cls) -> Iterable[Inquiry]:
        """Yield models that are given random tokens."""
        from embedwatch.loading.tiny import tiny_subject

        yield Inquiry(tiny_subject("bert"), deep=True)
        yield Inquiry(tiny_subject("llama"), deep=True)


class _Units:
    """The loudest that each inner unit of each layer has been.

    Args:
        model: the part that reads.
    """

    def __init__(self, model: nn.Module) -> None:
        self._maps = [found for _, layer in stack_of(model) if (found := _narrowing(layer)) is not None]
        self._loudest: dict[int, Tensor] = {}

    def heard(self) -> Iterator[None]:
        """Listen while a model is run."""
        handles = [module.register_forward_pre_hook(self._listen(at)) for at, module in enumerate(self._maps)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _listen(self, at: int) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
            del module
            if args and isinstance(args[0], Tensor):
                loud = args[0].detach().abs().flatten(0, -2).amax(0).float().cpu()
                self._loudest[at] = torch.maximum(self._loudest[at], loud) if at in self._loudest else loud

        return hook

    def silent(self) -> float | None:
        """Return the share of units that never spoke."""
        silent = number = 0
        for loud in self._loudest.values():
            sound = loud[loud.isfinite()]
            if len(sound):
                silent += int((sound <= SILENT * sound.median()).sum())
                number += len(sound)
        return silent / number if number else None


def _narrowing(layer: nn.Module) -> nn.Module | None:
    """Return the last map of a layer that takes more entries than it gives."""
    found = None
    for module in layer.modules():
        weight = getattr(module, "weight", None)
        if isinstance(weight, Tensor) and weight.ndim == 2 and not isinstance(module, nn.Embedding):
            transposed = type(module).__name__ == "Conv1D"  # of GPT-2
            gives, takes = weight.shape[::-1] if transposed else weight.shape
            found = module if takes > gives else found
    return found


def _texts(inquiry: Inquiry) -> list[Tensor]:
    """Return the tokens of some texts, or random ones. Shape: (T,) each."""
    if inquiry.texts:
        tokenizer = inquiry.subject.tokenizer
        cut = [tokenizer(text)["input_ids"][:LENGTH] for text in inquiry.texts[:TEXTS]]
        return [torch.tensor(ids) for ids in cut if len(ids) > 1]
    generator = torch.Generator().manual_seed(inquiry.seed)
    limit = getattr(inquiry.subject.settings, "max_position_embeddings", None)
    length = min(LENGTH, limit // 2) if isinstance(limit, int) and limit > 3 else LENGTH
    return list(torch.randint(inquiry.subject.vocabulary, (DRAWN, length), generator=generator))


def _name(inquiry: Inquiry, row: int) -> str:
    try:
        return token_name(inquiry.subject.tokenizer, row)
    except InputError:
        return str(row)


def _median(values: Tensor) -> float | None:
    sound = values[values.isfinite()]
    return float(sound.median()) if len(sound) else None
