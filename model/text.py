"""Byte-level BPE: how text becomes tokens and comes back, trained on the corpus at hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from .errors import ModelError

__all__ = [
    "BEGIN",
    "END",
    "MASK",
    "PADDING",
    "SPECIAL",
    "check_vocabulary",
    "decode",
    "encode",
    "open_tokenizer",
    "save_tokenizer",
    "train_tokenizer",
]

SPECIAL = ("<pad>", "<bos>", "<eos>", "<mask>")
"""The special tokens; each has its place here as its id."""
PADDING, BEGIN, END, MASK = range(len(SPECIAL))

BYTES = 256
SMALLEST = len(SPECIAL) + BYTES
"""Every byte has a token of its own, so that no text is unknown: a vocabulary has at least so many."""

FILE = "tokenizer.json"
HINTS = "tokenizer_config.json"


def check_vocabulary(vocabulary: int) -> None:
    """Raise unless so many tokens have a place for every byte."""
    if vocabulary < SMALLEST:
        raise ModelError(
            f"`vocabulary` must be at least {SMALLEST}, got {vocabulary}; {BYTES} bytes and {len(SPECIAL)} special "
            "tokens need their places"
        )


def train_tokenizer(texts: Iterable[str], *, vocabulary: int = 4096) -> Tokenizer:
    """Learn a byte-level BPE from texts: the same texts in the same order give the same tokens.

    Byte-pair encoding starts from single symbols and joins, again and again, the pair that stands side by side most
    often, `argmax_(a,b) count(ab)`, until the vocabulary is full. On bytes instead of characters, nothing is ever
    unknown: Chinese, German and binary noise all become tokens and come back byte for byte.

    State: counts of the distinct words of the corpus; the texts themselves are not kept.

    References:
        Sennrich et al. 2016, "Neural machine translation of rare words with subword units",
        https://arxiv.org/abs/1508.07909; on bytes: Radford et al. 2019, "Language models are unsupervised multitask
        learners", section 2.2.

    Args:
        texts: the corpus, in pieces; read once.
        vocabulary: V, the most tokens there will be; a small corpus yields fewer.

    Raises:
        ModelError: if the vocabulary cannot hold every byte.

    Example:
        >>> tokenizer = train_tokenizer(["low lower lowest"] * 9, vocabulary=264)
        >>> decode(tokenizer, encode(tokenizer, "slow 慢"))
        'slow 慢'
    """
    check_vocabulary(vocabulary)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _plain(tokenizer)


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the tokens of a text, with no special ones: text that reads `<eos>` stays text."""
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def decode(tokenizer: Tokenizer, ids: Iterable[int]) -> str:
    """Return the text of tokens; special ones are left out, a character cut in two shows as U+FFFD."""
    text: str = tokenizer.decode(list(ids), skip_special_tokens=True)
    return text


def save_tokenizer(tokenizer: Tokenizer, directory: Path) -> None:
    """Write `tokenizer.json`, and `tokenizer_config.json` by which transformers opens it too."""
    (directory / FILE).write_text(tokenizer.to_str(), encoding="utf-8")
    names = dict(zip(("pad_token", "bos_token", "eos_token", "mask_token"), SPECIAL, strict=True))
    hints = {"tokenizer_class": "PreTrainedTokenizerFast", **names, "clean_up_tokenization_spaces": False}
    (directory / HINTS).write_text(json.dumps(hints, indent=2) + "\n", encoding="utf-8")


def open_tokenizer(directory: Path) -> Tokenizer:
    """Read the tokenizer of a checkpoint.

    Raises:
        ModelError: if there is none, or it is another one's.
    """
    path = directory / FILE
    try:
        tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"`{path}` must be readable, got {type(error).__name__}; give a checkpoint") from error
    except Exception as error:  # tokenizers raises bare Exception
        raise ModelError(f"`{path}` must be a tokenizer, got {str(error)[:80]}; restore the file") from error
    if [tokenizer.id_to_token(row) for row in range(len(SPECIAL))] != list(SPECIAL):
        raise ModelError(f"`{path}` must begin with {', '.join(SPECIAL)}, got another order; it is another model's")
    return _plain(tokenizer)


def _plain(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.encode_special_tokens = True  # the names of special tokens in a text are text, and inject nothing
    return tokenizer
