"""A model goes on from prompts, greedy or drawn, and reads again what it wrote: transformers' models and ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from embedwatch.core.errors import InputError
from embedwatch.loading.examinable import Examinable
from embedwatch.loading.messages import first_line
from embedwatch.loading.own import EmbedwatchModel
from embedwatch.loading.probing import shadow
from embedwatch.loading.quiet import quiet
from embedwatch_model.generation import generate
from embedwatch_model.rule_chain import usual_rules
from embedwatch_model.stopping import Stop
from embedwatch_model.text import BEGIN, END
from embedwatch_model.transformer import Transformer

__all__ = ["TOP_P", "Pen", "Written"]

TOP_P = 0.95
"""Drawn is from the likeliest tokens that have so much together (Holtzman et al. 2020), at temperature 1."""
MOST_PROMPT = 128
"""So many tokens of a prompt are read, the last ones."""
TOGETHER = 8
"""So many texts are written at once."""
FAILURES = (ArithmeticError, AttributeError, LookupError, NotImplementedError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class Written:
    """A text that a model wrote.

    Args:
        prompt: ids that it went on from.
        ids: what it wrote, without the token that ended it.
        finished: whether it ended the text itself.
    """

    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    finished: bool


class Pen:
    """A copy of a model that writes: it shares the weights, and has hooks and buffers of its own.

    Args:
        subject: whose writer it is.

    Raises:
        InputError: if there is no head that writes, or no tokenizer.
    """

    def __init__(self, subject: Examinable) -> None:
        writer = subject.writer()
        if writer is None:
            raise InputError(f"`{subject.label}` must have a head that writes texts, got {subject.architecture}")
        self.model: Any = shadow(writer)
        if isinstance(self.model, EmbedwatchModel):
            self.model.__class__ = Transformer  # type: ignore[assignment] # as a Subject holds it, its forward pass ends at the hidden states
        self.tokenizer = subject.tokenizer
        self.vocabulary = subject.vocabulary
        limit = getattr(subject.settings, "max_position_embeddings", None)
        self.limit = limit if isinstance(limit, int) and limit > 1 else None
        self.own = isinstance(self.model, Transformer)
        self.ends = self._ends(subject.settings)

    @property
    def pair(self) -> bool:
        """Whether prompts are read by an encoder of their own."""
        if isinstance(self.model, Transformer):
            return self.model.encoder is not None
        return bool(getattr(self.model.config, "is_encoder_decoder", False))

    @property
    def device(self) -> torch.device:
        """Where it is."""
        weight: Tensor = next(iter(self.model.parameters()))
        return weight.device

    def prompts(self, texts: Sequence[str], tokens: int) -> list[tuple[int, ...]]:
        """Return the ids of prompts, cut at their front to what leaves room for so many tokens."""
        most = MOST_PROMPT if self.limit is None else max(1, min(MOST_PROMPT, self.limit - tokens))
        found = []
        for text in texts:
            ids = [each for each in self._encoded(text) if 0 <= each < self.vocabulary]
            if ids:
                found.append(tuple(ids[-most:]))
        if not found:
            raise InputError("`prompts` must hold tokens that the model knows, got none; give other prompts")
        return found

    def _encoded(self, text: str) -> list[int]:
        if self.own:
            ids = list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
            return [*ids, END] if self.pair else [BEGIN, *ids]
        ids = list(self.tokenizer(text)["input_ids"])
        if not self.pair:  # a tokenizer of encoders closes texts: nothing would be left to write
            while len(ids) > 1 and ids[-1] in self.ends:
                ids.pop()
        return ids

    def _ends(self, settings: Any) -> frozenset[int]:
        if self.own:
            return frozenset({END})
        told = getattr(getattr(self.model, "generation_config", None), "eos_token_id", None)
        told = getattr(settings, "eos_token_id", None) if told is None else told
        found = told if isinstance(told, list | tuple) else [told, getattr(self.tokenizer, "eos_token_id", None)]
        return frozenset(each for each in found if isinstance(each, int))

    def room(self, tokens: int) -> int:
        """Return how many tokens of so many can be written: half of what the model takes at most."""
        return tokens if self.limit is None else max(1, min(tokens, self.limit // 2))

    def write(self, prompts: Sequence[tuple[int, ...]], *, tokens: int, drawn: bool, seed: int = 0) -> list[Written]:
        """Return a text for each prompt, of so many tokens at most.

        Args:
            prompts: from `prompts`.
            tokens: the most.
            drawn: draw from the likeliest tokens, at temperature 1; else take the likeliest each time.
            seed: of what is drawn.

        Raises:
            InputError: if the model cannot write, as where its logits are no numbers.
        """
        found: list[Written] = []
        for start in range(0, len(prompts), TOGETHER):
            part = prompts[start : start + TOGETHER]
            with self._failing(), self._seeded(seed + start), quiet():
                made = self._own(part, tokens, drawn, seed + start) if self.own else self._theirs(part, tokens, drawn)
            found += [self._written(prompt, ids) for prompt, ids in zip(part, made, strict=True)]
        return found

    def read(self, written: Written) -> Tensor:
        """Let the model read a prompt and what it wrote; return its logits for each token of the text.

        Shape: -> (T, V) float32, on the CPU.

        Raises:
            InputError: if the model gives no logits.
        """
        prompt = torch.tensor([written.prompt], device=self.device)
        text = torch.tensor([written.ids], device=self.device)
        with self._failing(), torch.no_grad():
            logits = self._logits(prompt, text)
        if not isinstance(logits, Tensor) or logits.ndim != 3 or logits.shape[1] < len(written.ids):
            name = type(self.model).__name__
            raise InputError(f"`{name}` must put out logits of each token, got none; give a model that writes")
        return logits[0, -len(written.ids) - 1 : -1].float().cpu()  # those that each token was chosen from

    def start(self, written: Written) -> int:
        """Return the place of the first token that was written among those that its attention sees."""
        return 1 if self.pair else len(written.prompt)

    def _logits(self, prompt: Tensor, text: Tensor) -> Any:
        if not self.pair:
            ids = torch.cat([prompt, text], 1)
            return self.model(ids).logits if self.own else self.model(ids, use_cache=False).logits
        if self.own:
            return self.model(self._begun(text, BEGIN), source=prompt).logits
        return self.model(prompt, decoder_input_ids=self._begun(text, self._first), use_cache=False).logits

    @property
    def _first(self) -> int:
        """What the decoder of a pair of transformers begins with; that of T5 is its padding."""
        settings = (self.model.generation_config, self.model.config)
        told = [getattr(each, "decoder_start_token_id", None) for each in settings]
        return next((each for each in (*told, self._padding) if isinstance(each, int)), 0)

    @property
    def _padding(self) -> int:
        return next((each for each in (self.tokenizer.pad_token_id, *sorted(self.ends)) if each is not None), 0)

    def _begun(self, text: Tensor, first: int) -> Tensor:
        return functional.pad(text, (1, 0), value=first)

    def _own(self, prompts: Sequence[tuple[int, ...]], tokens: int, drawn: bool, seed: int) -> list[list[int]]:  # noqa: FBT001
        starts: Mapping[str, Any] = {"prompts": prompts}
        if self.pair:
            starts = {"prompts": [[BEGIN]] * len(prompts), "source": prompts}
        found = generate(
            self.model,
            **starts,
            max_tokens=tokens,
            temperature=1.0 if drawn else 0.0,
            rules=usual_rules(top_p=TOP_P) if drawn else (),
            stop=Stop(tokens=[END]),
            generator=torch.Generator(self.device).manual_seed(seed) if drawn else None,
        )
        return [list(text.ids) for text in found.texts]

    def _theirs(self, prompts: Sequence[tuple[int, ...]], tokens: int, drawn: bool) -> list[list[int]]:  # noqa: FBT001
        from transformers import GenerationConfig

        pad, longest = self._padding, max(map(len, prompts))

        def padded(row: Sequence[int], value: int) -> list[int]:
            rest = [value] * (longest - len(row))
            return [*row, *rest] if self.pair else [*rest, *row]

        ids = torch.tensor([padded(prompt, pad) for prompt in prompts], device=self.device)
        mask = torch.tensor([padded([1] * len(prompt), 0) for prompt in prompts], device=self.device)
        ways: dict[str, Any] = {"do_sample": True, "top_p": TOP_P, "top_k": 0, "temperature": 1.0} if drawn else {}
        config = GenerationConfig(
            max_new_tokens=tokens,
            min_new_tokens=1,
            num_beams=1,
            repetition_penalty=1.0,
            no_repeat_ngram_size=0,
            pad_token_id=pad,
            **({"do_sample": False} | ways | ({"decoder_start_token_id": self._first} if self.pair else {})),
        )
        made = self.model.generate(ids, attention_mask=mask, generation_config=config)
        begun = 1 if self.pair else longest
        return [row[begun:].tolist() for row in made]

    def _written(self, prompt: tuple[int, ...], ids: list[int]) -> Written:
        end = next((place for place, each in enumerate(ids) if each in self.ends), None)
        return Written(prompt, tuple(ids if end is None else ids[:end]), end is not None)

    @contextmanager
    def _seeded(self, seed: int) -> Iterator[None]:
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            yield

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except FAILURES as error:
            raise InputError(
                f"`{type(self.model).__name__}` must go on from prompts, got {type(error).__name__}: "
                f"{first_line(error)}; see whether it writes at all"
            ) from error
