"""Tiny random models, opened for examination: what diagnostics yield as examples of what they examine."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from embedwatch.loading.live import LiveSubject
from embedwatch.loading.quiet import quiet
from embedwatch_model.config import ModelConfig
from embedwatch_model.transformer import Transformer

__all__ = ["KINDS", "tiny_subject"]

WORDS = 50
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VOCABULARY, WIDTH, LENGTH = 60, 16, 64
OWN = ("sinusoidal", "learned", "alibi", "relative", "none")
"""Schemes of positions of our own model."""
KINDS = ("bert", "llama", *OWN)


def tiny_subject(kind: str) -> LiveSubject:
    """Return a random model of a kind, the same every time, with a tokenizer of fifty words.

    Args:
        kind: `bert`, a `llama` that writes, or a scheme of positions, for our own model with it.

    Example:
        >>> tiny_subject("sinusoidal").vocabulary
        60
    """
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(0)
        model = _own(kind) if kind in OWN else _of_transformers(kind)
        return LiveSubject(model.eval(), tokenizer=_tokenizer(), label=kind)


def _own(kind: str) -> nn.Module:
    return Transformer(
        ModelConfig(vocabulary=VOCABULARY, d_model=WIDTH, layers=2, heads=2, length=LENGTH, positions=kind)
    )


def _of_transformers(kind: str) -> nn.Module:
    from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 2 * WIDTH,
        "max_position_embeddings": LENGTH,
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 3,
    }
    model: nn.Module = BertModel(BertConfig(**sizes)) if kind == "bert" else LlamaForCausalLM(LlamaConfig(**sizes))
    return model


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [*SPECIAL, *(f"w{number}" for number in range(WORDS))]
    backend = Tokenizer(models.WordLevel({word: row for row, word in enumerate(words)}, unk_token="[UNK]"))  # noqa: S106
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)
