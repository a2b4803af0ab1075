"""A model directory comes back as a model and its tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .config import ModelConfig
from .errors import ModelError
from .storage import load_weights, read_json
from .text import open_tokenizer
from .transformer import Transformer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["open_model"]

CONFIG, WEIGHTS = "config.json", "model.safetensors"


def open_model(directory: Path) -> tuple[Transformer, Tokenizer]:
    """Return the model of a directory with `config.json`, `model.safetensors` and `tokenizer.json`, ready for use.

    Raises:
        ModelError: if a file is missing, damaged, or does not fit the others.
    """
    if not (directory / CONFIG).is_file():
        what = "a folder without config.json" if directory.is_dir() else "no folder"
        raise ModelError(
            f"`{directory}` must be a run with a checkpoint, got {what}; train one with `embedwatch train`"
        )
    values = read_json(directory / CONFIG)
    if values.get("model_type") != "embedwatch":
        raise ModelError(
            f"`{directory / CONFIG}` must have the model_type 'embedwatch', got {values.get('model_type')!r}; "
            "give a run of `embedwatch train`"
        )
    try:
        config = ModelConfig.from_json(values)
    except TypeError as error:  # a required field is missing, or of another type
        raise ModelError(f"`{directory / CONFIG}` must be a whole configuration, got {error}; restore it") from error
    model = Transformer(config)
    load_weights(model, directory / WEIGHTS)
    tokenizer = open_tokenizer(directory)
    if tokenizer.get_vocab_size() > config.vocabulary:
        raise ModelError(
            f"`{directory}` must hold a tokenizer of at most {config.vocabulary} tokens, "
            f"got {tokenizer.get_vocab_size()}; the files are of two models"
        )
    return model.eval(), tokenizer
