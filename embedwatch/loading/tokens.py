"""The tokenizer of a model: opened without running code, named for people, with the length that texts are cut at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from embedwatch.core.errors import InputError
from embedwatch.loading.blueprint import Blueprint
from embedwatch.loading.find import read_json
from embedwatch.loading.messages import first_line, printable
from embedwatch.loading.quiet import quiet

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["encoder_settings", "lowercase", "open_tokenizer", "text_limit", "token_name"]

ENDLESS = 1 << 24
"""A tokenizer that names no limit says 10^30."""
VOCABULARIES = (
    "tokenizer.json",
    "vocab*",
    "*.model",
    "*.tiktoken",
    "tekken.json",
    "*.codes",
    "merges.txt",
    "*.tokenizer",
)
"""Files that hold a vocabulary."""
UNREADABLE = "\ufffd"


def open_tokenizer(directory: Path, config: Any, *, label: str) -> PreTrainedTokenizerBase:
    """Return the tokenizer in a directory.

    Raises:
        InputError: if there is none, if it needs code of its own, or cannot be read.
    """
    with quiet():
        from transformers import AutoTokenizer

        try:
            tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
                str(directory), config=config, local_files_only=True, trust_remote_code=False
            )
        except Exception as error:
            if "trust_remote_code" in str(error):
                raise InputError(
                    f"`{label}` needs a tokenizer with its own code, which is never run; "
                    "save a tokenizer.json beside the model"
                ) from error
            what = "none" if "backend tokenizer" in str(error) else first_line(error)
            raise InputError(
                f"`{label}` must hold a tokenizer to encode texts or name tokens, got {what}; "
                "save the tokenizer beside the model"
            ) from error
    # Without its files transformers makes up a tokenizer that knows its special tokens alone. Those of bytes need none.
    if tokenizer.vocab_files_names and not any(next(directory.glob(name), None) for name in VOCABULARIES):
        raise InputError(
            f"`{label}` must hold a tokenizer to encode texts or name tokens, got one with no vocabulary; "
            "save the tokenizer beside the model"
        )
    return tokenizer


def text_limit(tokenizer: PreTrainedTokenizerBase, blueprint: Blueprint, settings: dict[str, Any]) -> int | None:
    """Return the number of tokens that texts are cut at, or None where nothing sets one.

    What sentence-transformers was told comes first, then the smaller of what tokenizer and configuration say; the
    learned positions bound them all.
    """
    told = settings.get("max_seq_length")
    if type(told) is int and told > 0:
        limits: list[Any] = [told]
    else:
        limits = [tokenizer.model_max_length, getattr(blueprint.text_config, "max_position_embeddings", None)]
    known = [int(limit) for limit in [*limits, blueprint.limit] if isinstance(limit, int) and 0 < limit < ENDLESS]
    return min(known, default=None)


def encoder_settings(directory: Path) -> dict[str, Any]:
    """Return what sentence-transformers saved about its encoder, under any of the names that it used."""
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"):
        path = directory / f"sentence_{name}_config.json"
        if path.is_file():
            settings: dict[str, Any] = read_json(path)
            return settings
    return {}


def lowercase(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Make a tokenizer lower its input, as `do_lower_case` of sentence-transformers does, and return it."""
    from tokenizers import normalizers

    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        tokenizer.do_lower_case = True
    else:
        present = [backend.normalizer] if backend.normalizer else []
        backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *present])
    return tokenizer


def token_name(tokenizer: Any, row: int) -> str:
    """Return what people read for a token: its piece; where pieces are of bytes, the text that they are."""
    from tokenizers import decoders

    try:
        piece = tokenizer.convert_ids_to_tokens(row)
    except (IndexError, KeyError, ValueError, OverflowError):  # those written in Python do not answer None
        piece = None
    if not isinstance(piece, str):
        return f"row {row} (no token)"
    if not piece.isascii() and row not in tokenizer.all_special_ids and _bytes(tokenizer):
        text = decoders.ByteLevel().decode([piece])
        if UNREADABLE not in text:  # else a part of a character: the piece says more
            piece = "Ġ" + text[1:] if text.startswith(" ") else text
    return printable(piece)


def _bytes(tokenizer: Any) -> bool:
    """Return whether the vocabulary is of bytes, each written as one visible character: `Ġ` is the space."""
    row = tokenizer.convert_tokens_to_ids("Ġ")
    return row is not None and row != tokenizer.unk_token_id
