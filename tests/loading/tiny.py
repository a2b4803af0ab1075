"""Tiny random models of many architectures, saved by transformers itself, with a tokenizer of 60 words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = 50
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VOCABULARY = 60
"""Rows of the token table: five more than the tokenizer has tokens."""
TOKENS = WORDS + len(SPECIAL)

SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
HALVES: dict[str, Any] = {**SIZES, "num_key_value_heads": 1, "head_dim": 8}
SEQUENCE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "decoder_start_token_id": 2,
}
T5 = {
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 32,
    "num_layers": 2,
    "num_heads": 2,
    "vocab_size": VOCABULARY,
    "pad_token_id": 0,
}
XLNET = {"vocab_size": VOCABULARY, "d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 32, "pad_token_id": 0}
GPT2 = {
    "vocab_size": VOCABULARY,
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": 64,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
TOWER = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
VISION = {**TOWER, "image_size": 8, "patch_size": 4}

TEXT: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertModel", SIZES),
    "roberta": ("RobertaModel", {**SIZES, "pad_token_id": 1}),
    "xlm-roberta": ("XLMRobertaModel", {**SIZES, "pad_token_id": 1}),
    "mpnet": ("MPNetModel", {**SIZES, "pad_token_id": 1}),
    "distilbert": (
        "DistilBertModel",
        {"vocab_size": VOCABULARY, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32},
    ),
    "albert": ("AlbertModel", {**SIZES, "embedding_size": 8}),
    "electra": ("ElectraModel", {**SIZES, "embedding_size": 8}),
    "deberta-v2": ("DebertaV2Model", {**SIZES, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    "modernbert": ("ModernBertModel", SIZES),
    "xlnet": ("XLNetModel", XLNET),
    "funnel": (
        "FunnelModel",
        {"vocab_size": VOCABULARY, "d_model": 16, "n_head": 2, "d_head": 8, "block_sizes": [1, 1]},
    ),
    "fnet": ("FNetModel", SIZES),
    "convbert": ("ConvBertModel", {**SIZES, "embedding_size": 16}),
    "gpt2": ("GPT2Model", GPT2),
    "gpt_neox": ("GPTNeoXModel", SIZES),
    "opt": ("OPTModel", {**SIZES, "ffn_dim": 32, "word_embed_proj_dim": 16}),
    "bloom": ("BloomModel", {"vocab_size": VOCABULARY, "hidden_size": 16, "n_layer": 2, "n_head": 2}),
    "llama": ("LlamaModel", HALVES),
    "mistral": ("MistralModel", HALVES),
    "qwen3": ("Qwen3Model", HALVES),
    "gemma3_text": ("Gemma3TextModel", HALVES),
    "mamba": ("MambaModel", {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4}),
    "t5": ("T5Model", T5),
    "mt5": ("MT5EncoderModel", T5),
    "bart": ("BartModel", SEQUENCE),
    "marian": ("MarianModel", SEQUENCE),
    "llama-lm": ("LlamaForCausalLM", {**HALVES, "tie_word_embeddings": True}),
    "llama-lm-untied": ("LlamaForCausalLM", {**HALVES, "tie_word_embeddings": False}),
    "gpt2-lm": ("GPT2LMHeadModel", GPT2),
    "bert-mlm": ("BertForMaskedLM", SIZES),
    "roberta-classifier": ("RobertaForSequenceClassification", {**SIZES, "pad_token_id": 1}),
    "t5-lm": ("T5ForConditionalGeneration", T5),
    "bart-lm": ("BartForConditionalGeneration", SEQUENCE),
}
"""Name to class and configuration of models that encode plain texts by their hidden states."""


def _of(model_class: str, **settings: Any) -> Any:
    cls = getattr(hf, model_class)
    return cls(cls.config_class(**settings))


def _pair() -> Any:
    part = {**SIZES, "is_decoder": True, "add_cross_attention": True}
    config = hf.EncoderDecoderConfig.from_encoder_decoder_configs(hf.BertConfig(**SIZES), hf.BertConfig(**part))
    return hf.EncoderDecoderModel(config)


def _clip() -> Any:
    text = {**TOWER, "vocab_size": VOCABULARY, "max_position_embeddings": 20, "bos_token_id": 2, "eos_token_id": 3}
    return _of("CLIPModel", text_config=text, vision_config=VISION, projection_dim=12)


def _siglip() -> Any:
    text = {**TOWER, "vocab_size": VOCABULARY, "max_position_embeddings": 20, "pad_token_id": 0, "projection_size": 16}
    return _of("SiglipModel", text_config=text, vision_config=VISION)


def _llava() -> Any:
    text = {**HALVES, "model_type": "llama"}
    vision = {**VISION, "model_type": "clip_vision_model"}
    return _of("LlavaForConditionalGeneration", text_config=text, vision_config=vision, image_token_index=4)


COMPOSITE: dict[str, Callable[[], Any]] = {
    "clip": _clip,
    "siglip": _siglip,
    "llava": _llava,
    "encoder-decoder": _pair,
    "whisper": lambda: _of(
        "WhisperModel", **SEQUENCE, num_mel_bins=8, max_source_positions=16, max_target_positions=16
    ),
}
"""Name to maker of models with several parts."""


def build(kind: str) -> Any:
    """Return a random model, the same every time."""
    torch.manual_seed(0)
    if kind in COMPOSITE:
        return COMPOSITE[kind]().eval()
    if kind == "vit":
        return _of("ViTModel", **VISION).eval()
    model_class, settings = TEXT[kind]
    return _of(model_class, **settings).eval()


def tokenizer(**options: Any) -> Any:
    """Return a tokenizer of 50 words, `w0` to `w49`, that frames a text with [CLS] and [SEP]."""
    vocabulary = {word: row for row, word in enumerate([*SPECIAL, *(f"w{i}" for i in range(WORDS))])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    return hf.PreTrainedTokenizerFast(tokenizer_object=words, **{**names, **options})


def save(kind: str, folder: Path, *, dtype: torch.dtype | None = None, **options: Any) -> Path:
    """Save a random model and its tokenizer as transformers does; options go to `save_pretrained` of the model."""
    model = build(kind)
    (model if dtype is None else model.to(dtype)).save_pretrained(folder, **options)
    tokenizer().save_pretrained(folder)
    return folder


def texts(count: int = 12, longest: int = 17) -> list[str]:
    """Return texts of very different lengths, in no order of length."""
    return [" ".join(f"w{(i * 7 + j * 3) % WORDS}" for j in range(1 + (i * 5) % longest)) for i in range(count)]
