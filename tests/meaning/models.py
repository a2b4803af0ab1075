"""Models of one layer that know the English words, over a table that somebody gives."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from embedwatch.lexicons import Lexicon, load_lexicon
from embedwatch.loading.live import LiveSubject
from tests.meaning.words import DIMENSION

ENGLISH = load_lexicon("en")
SOME = Lexicon("en", (*ENGLISH.of("synonyms")[:30], *ENGLISH.of("topics")[:10]), ENGLISH.templates)
"""Enough of its groups to tell meaning from chance."""
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SENTENCE = ("They", "talked", "about", "for", "a", "while", ".")


def tokenizer(words: Sequence[str]) -> PreTrainedTokenizerFast:
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys([*SPECIAL, *SENTENCE, *words]))}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing("[CLS] $0 [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=made, **names)


def bert(table: torch.Tensor) -> LiveSubject:
    """Return a model of one layer over this table of the English words, in training mode, with dropout."""
    knows = tokenizer(ENGLISH.words)
    torch.manual_seed(0)
    model = BertModel(
        BertConfig(
            vocab_size=len(knows),
            hidden_size=DIMENSION,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=32,
        )
    )
    with torch.no_grad():
        weight = model.get_input_embeddings().weight
        for word, row in zip(ENGLISH.words, table, strict=True):
            weight[knows.convert_tokens_to_ids(word)] = row

    def encode(texts: Sequence[str]) -> torch.Tensor:
        ids = knows(list(texts), return_tensors="pt", padding=True)
        return model(**ids).last_hidden_state.mean(1)

    return LiveSubject(model.train(), tokenizer=knows, label="tiny", encode=encode)
