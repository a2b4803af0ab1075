"""What config.json says the model is: its class, built without weights, and the names of its tables.

Only classes of transformers itself are built, and our own model. Nothing in the directory is ever imported.
"""

from __future__ import annotations

import copy
import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from embedwatch.core.errors import InputError
from embedwatch.loading.configuration import configure, text_config_of
from embedwatch.loading.find import CONFIG, read_json, short
from embedwatch.loading.messages import first_line
from embedwatch.loading.own import EmbedwatchConfig, EmbedwatchModel
from embedwatch.loading.positions import position_limit, position_module, position_words
from embedwatch.loading.quiet import quiet

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["Blueprint", "class_named", "draw", "outline"]


@dataclass(frozen=True)
class Blueprint:
    """A model's class and names, without its weights.

    Args:
        raw: config.json as it was read.
        config: the configuration object of transformers.
        model_class: class of transformers that encodes texts.
        tables: names of the token table in the model: several where it is shared, none where there is none.
        table_shape: (V, D) that the configuration promises.
        position_names: names of the table of learned positions; none where positions are not learned.
        position_shape: its shape.
        positions: the scheme in a few words.
        limit: number of positions that exist, None where the scheme sets no end.
        custom: whether config.json names code of its own, which was not run.
        numbers: how many parameters the class has with this configuration; what is shared counts once.
    """

    raw: dict[str, Any]
    config: Any
    model_class: type[PreTrainedModel]
    tables: tuple[str, ...] = ()
    table_shape: tuple[int, ...] = ()
    position_names: tuple[str, ...] = ()
    position_shape: tuple[int, ...] = ()
    positions: str = ""
    limit: int | None = None
    custom: bool = False
    numbers: int = 0

    @property
    def architecture(self) -> str:
        """Name of the class that the weights were saved from."""
        named = self.raw.get("architectures")
        first = named[0] if isinstance(named, list) and named else None
        return first if isinstance(first, str) and first.isidentifier() else self.model_class.__name__

    @property
    def text_config(self) -> Any:
        """The part of the configuration that is about texts: all of it, but for models of several inputs."""
        return text_config_of(self.config)


def draw(directory: Path) -> Blueprint:
    """Read config.json and build the model it describes on the meta device: names and shapes, no memory.

    Raises:
        InputError: if there is no such architecture, or it cannot be built.
    """
    raw = read_json(directory / CONFIG)
    label = short(directory / CONFIG)
    with quiet():
        config = configure(raw, label)
        model = _build(config, label, custom="auto_map" in raw)
        owner, table = _token_table(model, config)
        place = position_module(owner)
        return Blueprint(
            raw=raw,
            config=config,
            model_class=type(model),
            tables=_names(model, table),
            table_shape=tuple(table.weight.shape) if table is not None else (),
            position_names=_names(model, place),
            position_shape=tuple(place.weight.shape) if place is not None else (),
            positions=position_words(owner),
            limit=position_limit(owner),
            custom="auto_map" in raw,
            numbers=sum(weight.numel() for weight in model.parameters()),
        )


def outline(blueprint: Blueprint) -> nn.Module:
    """Return the model on the meta device: its modules, names and shapes, without memory."""
    with quiet():
        model: nn.Module = _build(blueprint.config, blueprint.architecture, custom=blueprint.custom)
    return model


def _build(config: Any, label: str, *, custom: bool) -> PreTrainedModel:
    """Return the model on the meta device, of the first class that takes the configuration."""
    failure: Exception | None = None
    for model_class in _classes(config):
        try:
            with torch.device("meta"):
                return model_class(copy.deepcopy(config))
        except Exception as error:  # noqa: BLE001 - told below, unless the next class takes it
            failure = failure or error
    if failure is not None:
        raise InputError(
            f"`{label}` must describe a whole {config.model_type} model, got {first_line(failure)}; restore the file"
        ) from failure
    why = "its own code is never run" if custom else "transformers has no class for it alone"
    raise InputError(f"`{label}` must describe a model that reads tokens, got {config.model_type!r}; {why}")


def _classes(config: Any) -> list[type[Any]]:
    """Return the classes that may encode texts: the encoder alone where transformers has one, then the base model."""
    from transformers import MODEL_FOR_TEXT_ENCODING_MAPPING, MODEL_MAPPING

    if isinstance(config, EmbedwatchConfig):
        return [EmbedwatchModel]
    names = getattr(config, "architectures", None)
    named = [cls for name in (names if isinstance(names, list) else []) if (cls := class_named(name, config))]
    bases = MODEL_MAPPING.get(type(config), None) or ()
    if isinstance(bases, (tuple, list)):  # several: first the one that the weights were saved from
        bases = sorted(bases, key=lambda cls: cls not in named)
    else:
        bases = [bases]
    encoder = MODEL_FOR_TEXT_ENCODING_MAPPING.get(type(config), None)
    if encoder is not None and (getattr(config, "is_encoder_decoder", False) or encoder in named):
        bases = [encoder, *bases]
    return [*bases, *named] if bases else named


def class_named(name: Any, config: Any) -> type[PreTrainedModel] | None:
    """Return a class of transformers by its name, or None. Some stand only in the module beside their configuration."""
    import transformers

    for place in ("transformers", type(config).__module__.replace(".configuration_", ".modeling_")):
        try:
            found = getattr(importlib.import_module(place), name, None)
        except (ImportError, TypeError, RuntimeError):  # not a string, or it needs a package that is not here
            continue
        if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
            return found
    return None


def _token_table(model: PreTrainedModel, config: Any) -> tuple[nn.Module, Any]:
    """Return the token table and the part of the model that owns it."""
    from transformers import PreTrainedModel

    owner: nn.Module = model
    table: Any = None
    for part in model.modules():
        if not isinstance(part, PreTrainedModel):
            continue
        try:
            found = part.get_input_embeddings()
        except (NotImplementedError, AttributeError):  # two towers: each has its own
            continue
        if _is_table(found) and (table is None or found is table):
            owner, table = part, found  # the innermost part comes last
    if table is None:
        size = getattr(text_config_of(config), "vocab_size", None)
        table = next((m for m in model.modules() if isinstance(m, nn.Embedding) and m.num_embeddings == size), None)
    return owner, table


def _is_table(module: Any) -> bool:
    weight = getattr(module, "weight", None)
    return (
        isinstance(module, nn.Module)
        and type(module).__name__.endswith("Embedding")
        and getattr(weight, "ndim", 0) == 2
    )


def _names(model: nn.Module, part: Any) -> tuple[str, ...]:
    if part is None:
        return ()
    return tuple(name for name, weight in model.named_parameters(remove_duplicate=False) if weight is part.weight)
