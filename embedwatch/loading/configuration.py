"""config.json as a configuration of transformers: only what describes the model, nothing that names code or files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from embedwatch.core.errors import InputError, did_you_mean
from embedwatch.loading.messages import first_line
from embedwatch.loading.own import OWN, EmbedwatchConfig

__all__ = ["configure", "text_config_of"]

MOST_LAYERS = 10_000
"""A configuration with more is damaged or hostile: building it would take for ever."""
TURNING = ("rope_parameters", "rope_scaling")
"""Keys of what says how positions turn; they may have a part for each sort of layer."""

NOT_OURS = frozenset(
    {
        "auto_map",
        "quantization_config",
        "fusion_config",
        "transformers_weights",
        "distributed_config",
        "return_dict",
        "output_attentions",
        "output_hidden_states",
        "torch_dtype",
        "dtype",
        "use_cache",
        "sub_configs",
        "attribute_map",
    }
)
"""Keys of config.json that name code, kernels or files to fetch, or that change what a forward pass returns."""


def configure(raw: dict[str, Any], label: str) -> Any:
    """Return the configuration object that config.json describes.

    Args:
        raw: config.json as it was read.
        label: its name, for messages.

    Raises:
        InputError: if it names no architecture of transformers, or does not fit the one that it names.
    """
    from transformers import CONFIG_MAPPING

    kind = raw.get("model_type")
    if not isinstance(kind, str):
        raise InputError(f"`{label}` must name a `model_type`, got {kind!r}; this is not the file of a transformer")
    if kind != OWN and kind not in CONFIG_MAPPING:
        if "auto_map" in raw:
            raise InputError(
                f"`{label}` needs code from the directory for model type {kind!r}, which is never run; "
                "save the vectors to a file and audit that"
            )
        hint = did_you_mean(kind, [*CONFIG_MAPPING.keys(), OWN]) or "a newer transformers may know it"
        raise InputError(f"`{label}` must name a model type that transformers knows, got {kind!r}; {hint}")
    if kind == "mistral" and "layer_types" in raw:
        kind = "ministral"  # as transformers reads it: the layers of this one differ
    clean = _clean(raw)
    deep = max((value for key, value in _integers(clean) if "layer" in key), default=0)
    if deep > MOST_LAYERS:
        raise InputError(f"`{label}` must have at most {MOST_LAYERS:,} layers, got {deep:,}; restore the file")
    _check_turning(clean, label)
    try:
        if kind == OWN:
            return EmbedwatchConfig.from_json(raw)
        config = CONFIG_MAPPING[kind].from_dict(clean)
        _without_cache(config)
        return config
    except Exception as error:
        raise InputError(
            f"`{label}` must be a whole {kind} configuration, got {first_line(error)}; restore it"
        ) from error


def _check_turning(values: Mapping[str, Any], label: str, *, turning: bool = False) -> None:
    """Refuse a base or a factor of rotary positions that turns nothing: transformers lets it pass."""
    for key, value in values.items():
        if isinstance(value, dict):
            _check_turning(value, label, turning=turning or key in TURNING)
        elif value is not None and (key == "rope_theta" or (turning and key == "factor")):
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not 0 < value < math.inf:
                raise InputError(f"`{label}` must have a positive number as `{key}`, got {value!r}; restore the file")


def _without_cache(config: Any) -> None:
    """Switch off what speeds up generation: one pass over a text has no use for it, and some models cannot fill it."""
    config.use_cache = False
    for name in config.sub_configs:
        if getattr(config, name, None) is not None:
            _without_cache(getattr(config, name))


def _clean(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration without the keys that are not ours to follow, at every depth."""
    from transformers import PreTrainedConfig

    return {
        key: _clean_value(value)
        for key, value in raw.items()
        if key not in NOT_OURS
        and "_implementation" not in key
        and not key.startswith("__")
        and not callable(getattr(PreTrainedConfig, key, None))  # every key becomes an attribute, even over a method
    }


def _clean_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_clean_value(item) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"__float__"}:  # how transformers writes numbers that JSON has no word for
        return {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}.get(value["__float__"])
    return _clean(value)


def _integers(config: dict[str, Any]) -> Iterator[tuple[str, int]]:
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _integers(value)
        elif isinstance(value, int):
            yield key, value


def text_config_of(config: Any) -> Any:
    """Return the part of a configuration that is about texts: all of it, but for models of several inputs."""
    try:
        return config.get_text_config()
    except ValueError:  # several of them, and none that goes first
        return config
