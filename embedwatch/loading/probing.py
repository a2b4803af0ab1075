"""A model is run to see what it makes of places: a copy that shares its weights, so that nothing changes."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from embedwatch.core.errors import InputError
from embedwatch.loading.examinable import Examinable
from embedwatch.loading.messages import first_line
from embedwatch.loading.position_schemes import rotary_buffers
from embedwatch_model.attention import MultiHeadAttention
from embedwatch_model.positions import Positions
from embedwatch_model.rotary import RotaryPositions
from embedwatch_model.transformer import Transformer

__all__ = [
    "attention_of",
    "hidden_of",
    "is_causal",
    "losses_of",
    "prose",
    "reader_of",
    "shadow",
    "stream",
    "turned_with",
]

PROSE = 400_000
"""Characters of prose are enough for every length."""
LEAST_LETTERS = 60
"""Shorter lines are headings and code."""


def shadow(model: nn.Module) -> nn.Module:
    """Return a copy that shares the weights of a model and has settings and buffers of its own, for evaluation."""
    kept = {id(weight): weight for weight in model.parameters()}
    made = copy.deepcopy(model, kept)
    for module in made.modules():
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()
    return made.eval()


def prose() -> str:
    """Return English prose that every Python brings: the topics of its manual. Empty where it is left out."""
    try:
        from pydoc_data import topics
    except ImportError:
        return ""
    lines = []
    for name in sorted(topics.topics):
        for paragraph in topics.topics[name].split("\n\n"):
            line = " ".join(paragraph.split())
            letters = sum(character.isalpha() or character == " " for character in line)
            if len(line) >= LEAST_LETTERS and letters > 0.9 * len(line):
                lines.append(line)
    return "\n".join(lines)[:PROSE]


def stream(subject: Examinable, length: int, *, texts: Sequence[str] = (), seed: int = 0) -> tuple[Tensor, bool]:
    """Return token ids of texts, and whether they are texts: else tokens by chance, none of them special.

    Shape: -> (length,) int64.
    """
    try:
        tokenizer = subject.tokenizer
    except InputError:
        tokenizer = None
    special = set(getattr(tokenizer, "all_special_ids", None) or ())
    if tokenizer is not None:
        text = "\n".join(texts) if texts else prose()
        found = tokenizer(text, add_special_tokens=False, truncation=False, verbose=False)["input_ids"] if text else []
        ids = [each for each in found if each not in special]
        if len(ids) >= length:
            return torch.tensor(ids[:length]), True
    generator = torch.Generator().manual_seed(seed)
    usual = torch.tensor([each for each in range(max(subject.vocabulary, 2)) if each not in special])
    if tokenizer is not None and len(tokenizer) < subject.vocabulary:
        usual = usual[usual < len(tokenizer)]  # rows beyond the tokenizer belong to no token
    return usual[torch.randint(0, len(usual), (length,), generator=generator)], False


def _device(model: nn.Module) -> torch.device:
    return next(iter(model.parameters())).device


def _call(model: nn.Module, ids: Tensor, **options: Any) -> Any:
    accepted = inspect.signature(model.forward).parameters
    many = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in accepted.values())
    options = {name: value for name, value in options.items() if name in accepted or many}
    if "use_cache" in accepted:
        options["use_cache"] = False
    try:
        with torch.inference_mode():
            return model(ids.to(_device(model)), **options)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(
            f"`{type(model).__name__}` must take {ids.shape[1]:,} token ids, got {first_line(error)}; "
            "give the part that reads texts, or a length that it takes"
        ) from error


def reader_of(model: nn.Module) -> nn.Module:
    """Return what reads texts: the encoder of a model that has one beside a decoder, or the model itself."""
    if isinstance(model, Transformer):
        return model if model.encoder is None else model.encoder
    getter = getattr(model, "get_encoder", None)
    paired = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    return getter() if paired and callable(getter) else model


def hidden_of(model: nn.Module, ids: Tensor) -> Tensor:
    """Return hidden states of the last layer. Shape: (B, T) -> (B, T, D) float32, on the CPU.

    Raises:
        InputError: if the model puts out none.
    """
    found = _call(model, ids, output_hidden_states=True)
    states = found if isinstance(found, Tensor) else getattr(found, "last_hidden_state", None)
    if states is None:
        states = getattr(found, "hidden", None)
    if states is None:
        layers = getattr(found, "hidden_states", None)
        states = layers[-1] if isinstance(layers, tuple) and layers else None
    if not isinstance(states, Tensor) or states.shape[:2] != ids.shape:
        raise InputError(
            f"`{type(model).__name__}` must put out hidden states of each token, got {type(found).__name__}; "
            "give the part that reads texts"
        )
    return states.float().cpu()


def is_causal(model: nn.Module, ids: Tensor) -> bool:
    """Return whether a change of the last token leaves all others as they were. Shape: (T,)."""
    other = ids.clone()
    other[-1] = ids[0] if ids[0] != ids[-1] else ids[1]
    first, second = hidden_of(model, torch.stack([ids, other]))
    if not (first.isfinite().all() and second.isfinite().all()):
        raise InputError(f"`{type(model).__name__}` must put out finite states, got NaN or Inf; look at its weights")
    return bool(torch.allclose(first[:-1], second[:-1], rtol=1e-3, atol=1e-4 * float(first.abs().max())))


def attention_of(model: nn.Module, ids: Tensor) -> Tensor | None:
    """Return attention in the mean over layers and heads; `None` where the model tells none. Shape: (T,) -> (T, T).

    The model must be a shadow: it is switched to the attention that tells its weights.
    """
    if isinstance(model, Transformer):
        return _own_attention(model, ids)
    switch = getattr(model, "set_attn_implementation", None)
    if not callable(switch):
        return None
    try:
        switch("eager")
        found = _call(model, ids[None], output_attentions=True)
    except Exception:  # noqa: BLE001 - a model that cannot tell its attention is examined by its hidden states alone
        return None
    layers = getattr(found, "attentions", None) or getattr(found, "encoder_attentions", None)
    length = len(ids)
    square = [each for each in layers or () if isinstance(each, Tensor) and each.shape[-2:] == (length, length)]
    return torch.stack([each[0].double().mean(0) for each in square]).mean(0).cpu() if square else None


def _own_attention(model: Transformer, ids: Tensor) -> Tensor | None:
    kept: list[tuple[Tensor, Tensor]] = []
    queries: list[Tensor] = []
    handles = []
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            handles.append(module.query.register_forward_hook(lambda *call: queries.append(call[2])))
            handles.append(module.key.register_forward_hook(lambda *call: kept.append((queries.pop(), call[2]))))
    positions = next((part for part in model.modules() if isinstance(part, Positions)), None)
    try:
        _call(model, ids[None])
    finally:
        for handle in handles:
            handle.remove()
    length = len(ids)
    at = torch.arange(length, device=_device(model))[None]
    bias = positions.bias(at, at) if positions is not None else None
    hidden = torch.ones(length, length, dtype=torch.bool, device=at.device).triu(1)
    found = []
    for query, key in kept:
        if query.shape[2] != length or key.shape[2] != length:
            continue
        key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
        scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])
        scores = scores if bias is None else scores + bias
        if model.config.kind == "decoder":
            scores = scores.masked_fill(hidden, -torch.inf)
        found.append(scores.softmax(-1)[0].detach().double().mean(0))
    return torch.stack(found).mean(0).cpu() if found else None


def losses_of(writer: nn.Module, ids: Tensor) -> Tensor:
    """Return the loss of each next token in nats. Shape: (B, T) -> (B, T - 1) float32, on the CPU.

    Raises:
        InputError: if the model puts out no logits of each token.
    """
    if isinstance(writer, Transformer):  # as a Subject holds it, its forward pass ends at the hidden states
        with torch.inference_mode():
            logits: Any = Transformer.forward(writer, ids.to(_device(writer))).logits
    else:
        logits = getattr(_call(writer, ids), "logits", None)
    if not isinstance(logits, Tensor) or logits.shape[:2] != ids.shape:
        raise InputError(f"`{type(writer).__name__}` must put out logits of each token, got none; give a decoder")
    flat = logits[:, :-1].float().flatten(0, 1).cpu()
    return functional.cross_entropy(flat, ids[:, 1:].flatten().cpu(), reduction="none").view(len(ids), -1)


@contextmanager
def turned_with(model: nn.Module, base: float) -> Iterator[None]:
    """Let a shadow turn its queries and keys with another θ."""
    before: list[tuple[nn.Module, str, Any]] = []
    for (_, kind), (module, buffer) in rotary_buffers(model).items():
        prefix = "" if kind == "all" else f"{kind}_"
        size = 2 * len(buffer)
        wanted = base ** -(torch.arange(0, size, 2, dtype=torch.float64) / size)
        for name in (f"{prefix}inv_freq", f"{prefix}original_inv_freq"):
            if hasattr(module, name):
                before.append((module, name, getattr(module, name)))
                setattr(module, name, wanted.to(buffer))
    for module in model.modules():
        if isinstance(module, RotaryPositions):
            made = RotaryPositions(2 * module.cos.shape[1], len(module.cos), base=base)
            for name in ("frequencies", "cos", "sin"):
                before.append((module, name, getattr(module, name)))
                setattr(module, name, getattr(made, name).to(getattr(module, name)))
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
