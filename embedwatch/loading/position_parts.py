"""What a model in fact holds of its positions: frequencies, cosines and sines, tables, and numbers of positions."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from embedwatch.loading.backbone import text_part
from embedwatch.loading.blueprint import outline
from embedwatch.loading.examinable import Examinable, Rows
from embedwatch.loading.live import MatrixRows
from embedwatch.loading.position_schemes import (
    EVERY_LAYER,
    PositionScheme,
    RotaryScheme,
    has_sinusoids,
    rotary_buffers,
    scheme_of,
    text_tower,
)
from embedwatch.loading.positions import position_module
from embedwatch.loading.subject import Subject
from embedwatch_model.positions import SinusoidalPositions
from embedwatch_model.rotary import RotaryPositions

__all__ = ["FixedTable", "PositionParts", "Turned", "read_parts"]

USUAL_BASE = 10_000.0
CACHED = (("cos_cached", "sin_cached"), ("cos", "sin"))
"""Names under which modules keep cosines and sines of positions."""
GPTJ = "embed_positions"


class Turn(Protocol):
    """Makes cosines and sines (T, d/2) of positions (T,), as the model does."""

    def __call__(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor] | None:
        """Return them; `None` where the module makes something else."""


@dataclass(frozen=True)
class Turned:
    """A module that turns queries and keys, or holds what they are turned by.

    Args:
        path: its name in the model.
        scheme: what the configuration says of it.
        frequencies: that it holds, as they are; `None` where it holds cosines and sines alone.
        fresh: frequencies that a new module of its class makes of the configuration, where one can be made.
        turn: makes cosines and sines as the model does; `None` where that cannot be asked.
        cached: positions for which it keeps cosines and sines, where that is all that it has.
        length: that its frequencies are for, where they change with the length.
    """

    path: str
    scheme: RotaryScheme
    frequencies: Tensor | None = None
    fresh: Tensor | None = None
    turn: Turn | None = None
    cached: int | None = None
    length: int = 0


@dataclass(frozen=True)
class FixedTable:
    """A table of waves that was worked out, not learned.

    Args:
        path: its name.
        rows: to be read.
        base: of its waves, by the configuration.
        grows: whether longer texts make it longer.
    """

    path: str
    rows: Rows
    base: float
    grows: bool


@dataclass(frozen=True)
class PositionParts:
    """What a model holds of its positions.

    Args:
        scheme: what it is by its modules and its configuration.
        dtype: in which it is meant to run.
        turned: modules that turn queries and keys.
        table: the whole table of learned positions.
        fixed: tables of waves.
        numbers: buffers of positions by name.
    """

    scheme: PositionScheme
    dtype: torch.dtype
    turned: tuple[Turned, ...] = ()
    table: Rows | None = None
    fixed: tuple[FixedTable, ...] = ()
    numbers: tuple[tuple[str, Tensor], ...] = ()


_read: WeakKeyDictionary[Subject, PositionParts] = WeakKeyDictionary()


def read_parts(subject: Examinable) -> PositionParts:
    """Return what a model holds of its positions. A model on a disk is not built for it, and read once.

    Example:
        >>> from embedwatch.loading.live import LiveSubject
        >>> from embedwatch_model import ModelConfig, Transformer
        >>> model = Transformer(ModelConfig(vocabulary=9, d_model=16, heads=2, layers=1, positions="rope"))
        >>> parts = read_parts(LiveSubject(model))
        >>> parts.scheme.kinds, parts.turned[0].cached
        (('rope',), 256)
    """
    if not isinstance(subject, Subject):
        return _of_module(subject, subject.module())
    if subject not in _read:
        model = outline(subject.blueprint)
        _read[subject] = _of_files(subject, text_part(model))
    return _read[subject]


def _of_module(subject: Examinable, part: nn.Module) -> PositionParts:
    scheme = scheme_of(part, subject.settings)
    tower = text_tower(part)
    table = None if "sinusoidal" in scheme.kinds else position_module(tower)
    table = (
        table if table is not None or "learned" not in scheme.kinds else getattr(_own_positions(part), "table", None)
    )
    return PositionParts(
        scheme,
        subject.stored_dtype,
        tuple(_turned(tower, scheme)),
        MatrixRows(table.weight) if isinstance(table, nn.Embedding) else None,
        tuple(_fixed(tower)),
        tuple(_numbers(tower)),
    )


def _of_files(subject: Subject, part: nn.Module) -> PositionParts:
    """Return what the files hold; what they do not is made of the configuration, as when it is loaded."""
    scheme = scheme_of(part, subject.settings)
    rows = subject.position_table()
    tower = text_tower(part)
    turned = list(_turned(tower, scheme))
    stored = [name for name in subject.weights if name.endswith("inv_freq") and len(subject.weights[name].shape) == 1]
    turned += [Turned(name, scheme.rotary[0], subject.weights.tensor(name)) for name in stored if scheme.rotary]
    fixed = tuple(_fixed(tower))
    if rows is not None and "sinusoidal" in scheme.kinds:
        fixed, rows = (FixedTable("position table", rows, USUAL_BASE, grows=False),), None
    return PositionParts(scheme, subject.stored_dtype, tuple(turned), rows, fixed)


def _own_positions(part: nn.Module) -> Any:
    return getattr(getattr(part, "embedding", None), "positions", None)


def _turned(part: nn.Module, scheme: PositionScheme) -> Iterator[Turned]:
    named = {each.part: each for each in scheme.rotary}
    for (path, kind), (module, buffer) in rotary_buffers(part).items():
        if kind not in named:
            continue
        fresh = _fresh(module, kind)
        real = fresh if buffer.is_meta else module
        name = _buffer_name(kind)
        yield Turned(
            f"{path}.{name}".strip("."),
            named[kind],
            None if real is None else getattr(real, name),
            None if fresh is None else getattr(fresh, name),
            None if real is None else partial(_run, real, kind),
            length=_cached_length(module),
        )
    for path, module in part.named_modules():
        made = _holder(path, module, named.get(EVERY_LAYER))
        if made is not None:
            yield made


def _holder(path: str, module: nn.Module, scheme: RotaryScheme | None) -> Turned | None:
    """Return a module that keeps cosines and sines of all positions."""
    if scheme is None:
        return None
    if isinstance(module, RotaryPositions):
        if module.cos.is_meta:
            scaling = {"kind": scheme.kind, "factor": scheme.parameters.get("factor")}
            module = RotaryPositions(
                scheme.dimensions,
                scheme.trained,
                base=scheme.base,
                scaling=None if scheme.kind == "default" else scaling,
            )
        return Turned(path, scheme, turn=partial(_look_up, module.cos, module.sin), cached=len(module.cos))
    buffers = dict(module.named_buffers(recurse=False))
    for names in CACHED:
        if all(name in buffers and not buffers[name].is_meta for name in names):
            cos, sin = (buffers[name].reshape(-1, buffers[name].shape[-1]) for name in names)
            cos, sin = _half(cos), _half(sin)
            return Turned(path, scheme, turn=partial(_look_up, cos, sin), cached=len(cos))
    table = buffers.get(GPTJ)
    if isinstance(table, Tensor) and table.ndim == 2 and not table.is_meta:
        sin, cos = table.chunk(2, dim=1)
        return Turned(path, scheme, turn=partial(_look_up, cos, sin), cached=len(table))
    return None


def _look_up(cos: Tensor, sin: Tensor, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor] | None:
    del dtype
    at = positions[positions < len(cos)]
    return cos[at].cpu(), sin[at].cpu()


def _run(module: nn.Module, kind: str, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor] | None:
    """Let a copy of a rotary module of transformers turn positions, and return cosines and sines of its pairs."""
    alone = copy.deepcopy(module)
    taken = inspect.signature(alone.forward).parameters
    device = next(alone.buffers()).device
    options = {"layer_type": kind} if "layer_type" in taken and kind != EVERY_LAYER else {}
    if "position_ids" not in taken:
        return None
    inputs = torch.zeros(1, 1, 1, dtype=dtype, device=device)
    with torch.inference_mode():
        found = alone(inputs, position_ids=positions[None].to(device), **options)
    if isinstance(found, Tensor) and found.is_complex():
        found = (found.real, found.imag)
    if not isinstance(found, tuple) or len(found) != 2 or found[0].ndim != 3:
        return None  # several axes, as for images in texts
    return _half(found[0][0]).cpu(), _half(found[1][0]).cpu()


def _half(values: Tensor) -> Tensor:
    """Return one of each two equal columns, side by side or half a width apart. Shape: (T, d) -> (T, d/2)."""
    width = values.shape[1] // 2
    if not width or values.shape[1] % 2:
        return values
    if torch.equal(values[:, :width], values[:, width:]):
        return values[:, :width]
    if torch.equal(values[:, ::2], values[:, 1::2]):
        return values[:, ::2]
    return values


def _fresh(module: nn.Module, kind: str) -> nn.Module | None:
    """Return a new module of the same class and configuration, as it is before anybody changes it."""
    config = getattr(module, "config", None)
    if config is None:
        return None
    try:
        made = type(module)(copy.deepcopy(config))
    except Exception:  # noqa: BLE001 - a class that takes something else has no second opinion
        return None
    buffer = getattr(made, _buffer_name(kind), None)
    return made if isinstance(buffer, Tensor) and not buffer.is_meta else None


def _buffer_name(kind: str) -> str:
    return "inv_freq" if kind == EVERY_LAYER else f"{kind}_inv_freq"


def _cached_length(module: nn.Module) -> int:
    value = getattr(module, "max_seq_len_cached", 0)
    return int(value) if isinstance(value, (int, Tensor)) else 0


def _fixed(part: nn.Module) -> Iterator[FixedTable]:
    for path, module in part.named_modules():
        own = isinstance(module, SinusoidalPositions)
        base = float(module.base) if isinstance(module, SinusoidalPositions) else USUAL_BASE
        if not own and not (has_sinusoids_itself(module) or _is_switched(part, path, module)):
            continue
        for name in ("table", "weights", "weight"):
            matrix = getattr(module, name, None)
            if isinstance(matrix, Tensor) and matrix.ndim == 2:
                if matrix.is_meta and own:
                    matrix = SinusoidalPositions(matrix.shape[1], len(matrix), base=base).table
                if not matrix.is_meta:
                    yield FixedTable(f"{path}.{name}".strip("."), MatrixRows(matrix), base, own or name == "weights")
                break


def has_sinusoids_itself(module: nn.Module) -> bool:
    """Return whether this very module holds waves, by the name of its class."""
    return "Sinusoidal" in type(module).__name__


def _is_switched(part: nn.Module, path: str, module: nn.Module) -> bool:
    del path
    return isinstance(module, nn.Embedding) and has_sinusoids(part) and module is position_module(part)


def _numbers(part: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for path, buffer in part.named_buffers():
        if path.rpartition(".")[2] in ("position_ids", "positions") and not buffer.is_meta and buffer.numel() > 1:
            yield path, buffer.detach().reshape(-1).cpu()
