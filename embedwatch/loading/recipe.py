"""The recipe of a model: what its files say about prompt, tokens, pooling and length, put into an encoder."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from embedwatch.core.errors import InputError
from embedwatch.loading.encoder import TextEncoder
from embedwatch.loading.find import read_json
from embedwatch.loading.messages import printable
from embedwatch.loading.pipeline import Pipeline, read_pipeline
from embedwatch.loading.tokens import encoder_settings, lowercase, open_tokenizer, text_limit

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedTokenizerBase

    from embedwatch.loading.backbone import Backbone
    from embedwatch.loading.blueprint import Blueprint
    from embedwatch.loading.modules import Module

__all__ = ["Described", "make_encoder"]

FAMILY = "config_sentence_transformers.json"
FULL_LENGTH = frozenset({"siglip", "siglip2"})
"""Model types trained on texts that padding fills up to the last position, and that never saw a mask."""


class Described(Protocol):
    """A model on disk, as far as its recipe needs it: a Subject."""

    label: str
    directory: Path
    home: Path
    modules: tuple[Module, ...]
    blueprint: Blueprint

    @property
    def vocabulary(self) -> int:
        """V."""

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Its tokenizer."""

    def token_table(self) -> object:
        """Return the matrix that turns tokens into vectors; refuses where there is none."""

    def backbone(self, *, features: bool = False) -> Backbone:
        """Return the model itself."""


def make_encoder(subject: Described, *, pooling: str | None = None, prefix: str | None = None) -> TextEncoder:
    """Read a model's recipe and build its encoder; see `Subject.encoder`."""
    label, blueprint = subject.label, subject.blueprint
    family = read_json(subject.directory / FAMILY) if (subject.directory / FAMILY).is_file() else {}
    settings = encoder_settings(subject.home)
    pipeline = read_pipeline(subject.modules, label=label, pooling=pooling)
    features = pooling is None and _has_features(subject, settings)
    if pooling is None:
        _check_family(family, settings, label=label, features=features)
    if features:
        others = tuple(step.words for step in pipeline.steps if step.words)
        pipeline = replace(pipeline, modes=(), words=("the model's own text features", *others))
    elif not pipeline.modes:
        raise InputError(f"`{label}` must pool its tokens, got no Pooling in modules.json; choose one with `--pooling`")
    subject.token_table()  # refuses what has none before the costly part
    tokenizer = subject.tokenizer
    if settings.get("do_lower_case") is True:  # in one of its own: the tokens of the table keep their names
        tokenizer = lowercase(open_tokenizer(subject.home, blueprint.config, label=label))
    backbone = subject.backbone(features=features)
    prompt, said = _prompt(family, prefix, label)
    truncate = family.get("truncate_dim")
    return TextEncoder(
        label=label,
        tokenizer=tokenizer,
        backbone=backbone,
        pipeline=pipeline,
        rows=subject.vocabulary,
        prefix=prompt,
        limit=text_limit(tokenizer, blueprint, settings),
        pad=_pad(tokenizer, blueprint.text_config, subject.vocabulary),
        full=features and blueprint.config.model_type in FULL_LENGTH,
        truncate=truncate if isinstance(truncate, int) else None,
        width=_width(pipeline, blueprint, features=features),
        notes=(", ".join(pipeline.words), *said, *backbone.notes),
    )


def _has_features(subject: Described, settings: dict[str, Any]) -> bool:
    """Return whether the model turns texts into vectors by itself, as two-tower models of texts and images do."""
    if not hasattr(subject.blueprint.model_class, "get_text_features"):
        return False
    if not subject.modules:
        return True
    return subject.modules[0].name == "CLIPModel" or _text_method(settings) == "get_text_features"


def _text_method(settings: dict[str, Any]) -> Any:
    modalities = settings.get("modality_config")
    text = modalities.get("text") if isinstance(modalities, dict) else None
    return text.get("method") if isinstance(text, dict) else None


def _check_family(family: dict[str, Any], settings: dict[str, Any], *, label: str, features: bool) -> None:
    """Refuse models of sentence-transformers that do not map one plain text to one vector."""
    kind = family.get("model_type", "SentenceTransformer")
    if kind != "SentenceTransformer":
        raise InputError(f"`{label}` must map a text to one vector, got {kind!r}; choose a pooling with `--pooling`")
    task = settings.get("transformer_task", "feature-extraction")
    modalities = settings.get("modality_config")
    chats = isinstance(modalities, dict) and "message" in modalities
    method = _text_method(settings)
    if chats or task != "feature-extraction" or method not in (None, "get_text_features" if features else "forward"):
        what = "a chat template" if chats else f"{task!r} by {method!r}"
        raise InputError(
            f"`{label}` must encode plain texts by its last hidden state, got {what}; choose a pooling with `--pooling`"
        )


def _prompt(family: dict[str, Any], prefix: str | None, label: str) -> tuple[str, tuple[str, ...]]:
    """Return what stands before every text, and a note on it."""
    if prefix is not None:
        return prefix, (f'every text begins with "{printable(prefix)}", as asked for',) if prefix else ()
    saved = family.get("prompts")
    prompts = {name: text for name, text in saved.items() if isinstance(text, str)} if isinstance(saved, dict) else {}
    default = family.get("default_prompt_name")
    if default is None:
        named = [name for name, text in prompts.items() if text]
        if not named:
            return "", ()
        listed = printable(", ".join(named))
        return "", (f"no prompt was used: the model names {listed} and no default; choose with `--prefix`",)
    if not isinstance(default, str) or default not in prompts:
        raise InputError(
            f"`{label}` must name its default prompt {default!r} among its prompts, "
            f"got {printable(', '.join(prompts)) or 'none'}; choose one with `--prefix`"
        )
    text = prompts[default]
    return text, (f'every text begins with "{printable(text)}", the model\'s default prompt',) if text else ()


def _pad(tokenizer: Any, text_config: Any, rows: int) -> int:
    """Return a token to fill up batches with. Decoders often have none: any will do, the mask hides it."""
    choices = (tokenizer.pad_token_id, getattr(text_config, "pad_token_id", None), tokenizer.eos_token_id)
    return next((choice for choice in choices if isinstance(choice, int) and 0 <= choice < rows), 0)


def _width(pipeline: Pipeline, blueprint: Blueprint, *, features: bool) -> int | None:
    """Return the dimension of the vectors where it is known before the first one."""
    if pipeline.width is not None:
        return pipeline.width
    if features:
        width = getattr(blueprint.config, "projection_dim", None)
        return width if isinstance(width, int) else None
    size = getattr(blueprint.text_config, "hidden_size", None)
    return size * len(pipeline.modes) if isinstance(size, int) else None
