"""A Transformer in plain PyTorch whose every place of interest can be observed. Imported as `embedwatch_model`.

It is self-contained: it imports torch and its own modules, nothing of `embedwatch`.
"""

from .attention import MultiHeadAttention
from .beam import beam_search
from .cache import Cache
from .checkpoint import checkpoints, latest
from .completion import Completion, complete
from .config import ModelConfig
from .corpora import read_documentation, read_pairs, read_table, read_text
from .data import Data, Pairs, Windows, unigram_entropy
from .embedding import InputEmbedding, TokenEmbedding
from .errors import ModelError
from .events import Outcome, Progress, StepRecord, ValidationRecord
from .feed_forward import FeedForward
from .generated import Generated
from .generation import generate
from .heads import LanguageHead, MaskedHead
from .layers import CrossLayer, Layer
from .length_penalty import LengthPenalty, power_penalty, wu_penalty
from .masks import AttentionMask, attention_mask
from .memory import Memory
from .objectives import IGNORE, Batch, Loss, causal, cross_entropy, masked, translation
from .opening import open_model
from .optimizer import Clip, adamw, check_groups, clip_by_global_norm, parameter_groups
from .position_bias import AlibiPositions, RelativePositions, alibi_slopes, relative_buckets
from .positions import LearnedPositions, NoPositions, Positions, SinusoidalPositions
from .rotary import RotaryPositions
from .rule_chain import usual_rules
from .rules import Rule, no_repeat_ngram, repetition_penalty, temperature, top_k, top_p
from .run import RunSettings, open_run
from .sampling import greedy, sample
from .schedules import Schedule, scale_rate
from .stack import Stack
from .stopping import Stop
from .text import decode, encode, open_tokenizer, train_tokenizer
from .training import Callback, Trainer
from .training_settings import TrainingSettings
from .transformer import Output, Transformer

__all__ = [
    "IGNORE",
    "AlibiPositions",
    "AttentionMask",
    "Batch",
    "Cache",
    "Callback",
    "Clip",
    "Completion",
    "CrossLayer",
    "Data",
    "FeedForward",
    "Generated",
    "InputEmbedding",
    "LanguageHead",
    "Layer",
    "LearnedPositions",
    "LengthPenalty",
    "Loss",
    "MaskedHead",
    "Memory",
    "ModelConfig",
    "ModelError",
    "MultiHeadAttention",
    "NoPositions",
    "Outcome",
    "Output",
    "Pairs",
    "Positions",
    "Progress",
    "RelativePositions",
    "RotaryPositions",
    "Rule",
    "RunSettings",
    "Schedule",
    "SinusoidalPositions",
    "Stack",
    "StepRecord",
    "Stop",
    "TokenEmbedding",
    "Trainer",
    "TrainingSettings",
    "Transformer",
    "ValidationRecord",
    "Windows",
    "adamw",
    "alibi_slopes",
    "attention_mask",
    "beam_search",
    "causal",
    "check_groups",
    "checkpoints",
    "clip_by_global_norm",
    "complete",
    "cross_entropy",
    "decode",
    "encode",
    "generate",
    "greedy",
    "latest",
    "masked",
    "no_repeat_ngram",
    "open_model",
    "open_run",
    "open_tokenizer",
    "parameter_groups",
    "power_penalty",
    "read_documentation",
    "read_pairs",
    "read_table",
    "read_text",
    "relative_buckets",
    "repetition_penalty",
    "sample",
    "scale_rate",
    "temperature",
    "top_k",
    "top_p",
    "train_tokenizer",
    "translation",
    "unigram_entropy",
    "usual_rules",
    "wu_penalty",
]
