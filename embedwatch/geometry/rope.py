"""Angular frequencies of rotary and sinusoidal positions, and the scalings that stretch them, in float64.

One formula serves both: pair i turns by `p ω_i` at position p, with `ω_i = base^(-2i/d)` over d dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from embedwatch.core.errors import UsageError

__all__ = ["SCALINGS", "Turning", "base_frequencies", "dynamic_base", "fitted_base", "turning"]

SCALINGS = ("default", "linear", "ntk", "dynamic", "yarn", "llama3", "longrope", "proportional")
"""Ways to turn: as it is, and those that reach beyond the trained length."""
YARN_FAST, YARN_SLOW = 32.0, 1.0
"""Turns within the trained length above which YaRN leaves a pair as it is, and below which it stretches it."""
YARN_GROWTH = 0.1
"""YaRN multiplies cosine and sine by `0.1 ln s + 1`."""
LLAMA3_SLOW, LLAMA3_FAST = 1.0, 4.0
LEAST_SPAN = 0.001


@dataclass(frozen=True)
class Turning:
    """How fast pairs turn, and by what cosine and sine are multiplied.

    Args:
        frequencies: ω_i in radians a position, (d/2,) float64.
        temperature: factor of cosine and sine; scores grow by its square.
    """

    frequencies: Tensor
    temperature: float = 1.0


def base_frequencies(dimensions: int, base: float) -> Tensor:
    """Return `ω_i = base^(-2i/d)` for each of the d/2 pairs. Shape: -> (d/2,) float64.

    Example:
        >>> base_frequencies(4, 10_000.0).tolist()
        [1.0, 0.01]
    """
    if dimensions < 2 or dimensions % 2:
        raise UsageError(f"`dimensions` must be even and at least 2, got {dimensions}; sine and cosine come in pairs")
    if base <= 1:
        raise UsageError(f"`base` must be above 1, got {base:g}; 10000 is usual")
    return float(base) ** -(torch.arange(0, dimensions, 2, dtype=torch.float64) / dimensions)  # (d/2,)


def dynamic_base(base: float, dimensions: int, factor: float, length: int, trained: int) -> float:
    """Return the base that dynamic NTK scaling takes at a length.

    `base · (s L / L0 - (s - 1))^(d / (d - 2))` for L beyond the trained length L0; the base itself up to it.

    References:
        emozilla 2023, "Dynamically scaled RoPE"; Peng et al. 2023 (YaRN), section 3.3.
    """
    stretched = factor * max(length, trained) / trained - (factor - 1)
    return float(base * stretched ** (dimensions / (dimensions - 2)))


def turning(
    kind: str,
    dimensions: int,
    base: float,
    parameters: Mapping[str, object] | None = None,
    *,
    trained: int = 0,
    length: int = 0,
) -> Turning:
    """Return how pairs turn under one of `SCALINGS`.

    - linear: `ω / s`: position p is read as p / s (Chen et al. 2023).
    - ntk: base `base · s^(d / (d - 2))`; dynamic: the same with s from the length.
    - yarn: pairs that make more than 32 turns in L0 stay, those below one are divided by s, a ramp between; cosine and
      sine times `0.1 ln s + 1` (Peng et al. 2023).
    - llama3: wavelengths below `L0 / 4` stay, those above L0 are divided by s, smooth between.
    - longrope: each pair is divided by a factor of its own, another set beyond L0; times `√(1 + ln s / ln L0)` (Ding et
      al. 2024).
    - proportional: only the first pairs turn, the others stand still; the exponent counts all dimensions.

    Args:
        kind: one of `SCALINGS`.
        dimensions: d, of what is turned.
        base: θ.
        parameters: what the scaling takes, under the names of transformers (`factor`, `beta_fast`, ...).
        trained: L0, the length before it was stretched.
        length: at which the model is used; dynamic and longrope depend on it.

    Shape: frequencies (d/2,).

    Raises:
        UsageError: if there is no such kind, or a parameter that it needs is missing.

    Example:
        >>> turning("linear", 4, 10_000.0, {"factor": 8.0}).frequencies.tolist()
        [0.125, 0.00125]
        >>> round(turning("yarn", 128, 10_000.0, {"factor": 8.0}, trained=4096).temperature, 3)
        1.208
    """
    values = dict(parameters or {})
    plain = base_frequencies(dimensions, base)
    if kind == "default":
        return Turning(plain)
    if kind == "proportional":
        return Turning(_proportional(plain, values))
    if kind == "longrope":
        return _longrope(plain, values, trained, length)
    factor = _number(values, "factor", kind)
    if kind == "linear":
        return Turning(plain / factor)
    if kind == "ntk":
        return Turning(base_frequencies(dimensions, base * factor ** (dimensions / (dimensions - 2))))
    if kind == "dynamic":
        return Turning(base_frequencies(dimensions, dynamic_base(base, dimensions, factor, length, _length(trained))))
    if kind == "yarn":
        return _yarn(plain, base, factor, values, _length(trained))
    if kind == "llama3":
        return Turning(_llama3(plain, factor, values, _length(trained)))
    raise UsageError(f"`kind` must be one of {', '.join(SCALINGS)}, got {kind!r}; choose one")


def fitted_base(frequencies: Tensor) -> float | None:
    """Return the base that frequencies come nearest to as `base^(-2i/d)`; `None` for too few, or none that turn.

    The slope of ln ω over i, by least squares: a base can be read off any model that turns plainly.

    Shape: (d/2,).

    Example:
        >>> round(fitted_base(base_frequencies(64, 500_000.0)))
        500000
    """
    pairs = len(frequencies)
    if pairs < 2 or not bool((frequencies > 0).all()):
        return None
    places = torch.arange(pairs, dtype=torch.float64) / pairs
    logs = frequencies.double().log()
    centred = places - places.mean()
    slope = float((centred * (logs - logs.mean())).sum() / centred.square().sum())
    return math.exp(min(-slope, 700.0))


def _yarn(plain: Tensor, base: float, factor: float, values: Mapping[str, object], trained: int) -> Turning:
    dimensions = 2 * len(plain)
    fast = _number(values, "beta_fast", "yarn", YARN_FAST)
    slow = _number(values, "beta_slow", "yarn", YARN_SLOW)
    ends = [_pair_with_turns(turns, dimensions, base, trained) for turns in (fast, slow)]
    if values.get("truncate", True):
        ends = [math.floor(ends[0]), math.ceil(ends[1])]
    first, last = max(ends[0], 0), min(ends[1], dimensions - 1)
    places = torch.arange(len(plain), dtype=torch.float64)
    ramp = ((places - first) / (last - first if last != first else LEAST_SPAN)).clamp(0, 1)
    given = values.get("attention_factor")
    temperature = float(given) if isinstance(given, (int, float)) else _yarn_temperature(factor, values)
    return Turning(plain * (1 - ramp) + plain / factor * ramp, temperature)


def _pair_with_turns(turns: float, dimensions: int, base: float, trained: int) -> float:
    """Return the index, a real number, of the pair that makes so many turns within the trained length."""
    return dimensions * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))


def _yarn_temperature(factor: float, values: Mapping[str, object]) -> float:
    def grown(weight: float) -> float:
        return YARN_GROWTH * weight * math.log(factor) + 1 if factor > 1 else 1.0

    one, every = values.get("mscale"), values.get("mscale_all_dim")
    if isinstance(one, (int, float)) and isinstance(every, (int, float)) and one and every:
        return grown(float(one)) / grown(float(every))
    return grown(1.0)


def _llama3(plain: Tensor, factor: float, values: Mapping[str, object], trained: int) -> Tensor:
    slow = _number(values, "low_freq_factor", "llama3", LLAMA3_SLOW)
    fast = _number(values, "high_freq_factor", "llama3", LLAMA3_FAST)
    lengths = 2 * math.pi / plain
    smooth = ((trained / lengths - slow) / (fast - slow)).clamp(0, 1)
    return (1 - smooth) * plain / factor + smooth * plain


def _longrope(plain: Tensor, values: Mapping[str, object], trained: int, length: int) -> Turning:
    far = bool(trained) and length > trained
    name = "long_factor" if far else "short_factor"
    factors = values.get(name)
    if not isinstance(factors, Sequence) or len(factors) != len(plain):
        got = len(factors) if isinstance(factors, Sequence) else factors
        raise UsageError(f"`{name}` must hold {len(plain)} numbers, one for each pair, got {got}; restore the file")
    given, factor = values.get("attention_factor"), values.get("factor")
    if isinstance(given, (int, float)):
        temperature = float(given)
    elif isinstance(factor, (int, float)) and factor > 1 and trained > 1:
        temperature = math.sqrt(1 + math.log(factor) / math.log(trained))
    else:
        temperature = 1.0
    return Turning(plain / torch.tensor([float(each) for each in factors], dtype=torch.float64), temperature)


def _proportional(plain: Tensor, values: Mapping[str, object]) -> Tensor:
    share = _number(values, "partial_rotary_factor", "proportional", 1.0)
    turned = int(share * 2 * len(plain) // 2)
    still = torch.arange(len(plain)) >= turned
    return plain.masked_fill(still, 0.0) / _number(values, "factor", "proportional", 1.0)


def _number(values: Mapping[str, object], name: str, kind: str, usual: float | None = None) -> float:
    value = values.get(name)
    if value is None and usual is not None:
        return usual
    if not isinstance(value, (int, float)) or value <= 0:
        raise UsageError(f"`{name}` must be a positive number for {kind} scaling, got {value!r}; give it")
    return float(value)


def _length(trained: int) -> int:
    if trained < 1:
        raise UsageError(f"`trained` must be at least 1, got {trained}; give the length before it was stretched")
    return trained
