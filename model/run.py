"""A run: its directory, and everything in it that is settled before the first step.

```
RUN/run.json            all settings; written last, so that a directory with it is prepared
RUN/tokenizer.json      trained on the corpus
RUN/data/*.bin          the corpus as tokens, read by mapping
RUN/history.jsonl       one line for each step and validation
RUN/checkpoints/        see checkpoint.py
```
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .config import ModelConfig
from .corpora import fingerprint, read_documentation, read_pairs, read_table, read_text
from .data import Data, Pairs, Windows
from .errors import ModelError, check_one_of
from .storage import read_json
from .text import BEGIN, END, PADDING, check_vocabulary, encode, open_tokenizer, save_tokenizer, train_tokenizer
from .token_files import open_tokens, write_tokens
from .training import Callback, Trainer
from .training_settings import TrainingSettings
from .transformer import Transformer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["OBJECTIVES", "RunSettings", "open_run"]

OBJECTIVES = {"causal": "decoder", "masked": "encoder", "translation": "encoder_decoder"}
"""What is learned, and the kind of model that learns it."""
RUN = "run.json"
OURS = frozenset({"tokenizer.json", "tokenizer_config.json", "data", f".{RUN}"})
"""What a preparation that was cut short may have left."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """All that decides the outcome of a run.

    Args:
        objective: a key of `OBJECTIVES`.
        corpus: text files; for translation a pair of files or one TSV. None: the standard library's documentation.
        size: `tiny`, `small`, `base` or a number of layers.
        vocabulary: the most tokens.
        batch: sequences in a batch.
        model: fields of `ModelConfig` that differ from those of the size.
        training: how the model is trained; its seed serves data and weights too.
    """

    objective: str = "causal"
    corpus: tuple[str, ...] = ()
    size: str | int = "tiny"
    vocabulary: int = 4096
    batch: int = 16
    model: dict[str, Any] = field(default_factory=dict)
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def __post_init__(self) -> None:
        check_one_of("objective", self.objective, tuple(OBJECTIVES))
        if self.objective == "translation" and len(self.corpus) not in (1, 2):
            raise ModelError(
                f"`corpus` must be two parallel files or one TSV to translate, got {len(self.corpus)} files; give those"
            )

    def to_json(self) -> dict[str, Any]:
        """Return all settings as JSON."""
        return {**asdict(self), "corpus": list(self.corpus), "training": self.training.to_json()}

    def texts(self) -> Iterator[str]:
        """Yield the corpus, in pieces."""
        if self.objective == "translation":
            return chain.from_iterable(self.pairs())
        return chain.from_iterable(self.documents())

    def documents(self) -> Iterator[Iterable[str]]:
        """Yield each document as its pieces: a file is one, a documentation string too."""
        if self.corpus:
            return (read_text(Path(path)) for path in self.corpus)
        return ((text,) for text in _documentation())

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield each sentence and its translation."""
        first, *others = map(Path, self.corpus)
        return read_pairs(first, others[0]) if others else read_table(first)


def open_run(
    directory: Path,
    settings: RunSettings,
    *,
    callbacks: Iterable[Callback] = (),
    preparing: Callable[[], None] = lambda: None,
) -> Trainer:
    """Return a trainer for a run directory: a new one is prepared, one that exists goes on where it was.

    Args:
        directory: new, or that of a run.
        settings: all that decides the outcome.
        callbacks: of the trainer.
        preparing: called before a corpus is read, which takes long, when the settings have been found to fit.

    Raises:
        ModelError: if the corpus cannot be read, the directory holds other things, or a run with other settings.
    """
    is_new = not (directory / RUN).exists()
    if is_new:
        _prepare(directory, settings, preparing)
    else:
        _check_same(directory, settings)
    tokenizer = open_tokenizer(directory)
    with torch.random.fork_rng(list(range(torch.cuda.device_count()))):
        torch.manual_seed(settings.training.seed)
        model = Transformer(_config(settings, tokenizer))
    if torch.cuda.is_available():
        model.cuda()
    data = _data(directory / "data", settings, model.config)
    trainer = Trainer(model, data, settings.training, run=directory, tokenizer=tokenizer, callbacks=tuple(callbacks))
    if is_new:  # at the end: a corpus or a length that was refused binds nobody
        _write_settings(directory, settings)
    return trainer


def _config(settings: RunSettings, tokenizer: Tokenizer) -> ModelConfig:
    return ModelConfig.sized(
        settings.size,
        vocabulary=tokenizer.get_vocab_size(),
        **{"kind": OBJECTIVES[settings.objective], "padding": PADDING, **settings.model},
    )


def _data(folder: Path, settings: RunSettings, config: ModelConfig) -> Data:
    seed = settings.training.seed
    if settings.objective == "translation":
        sources, targets = (
            open_tokens(folder / f"{side}.bin").split(open_tokens(folder / f"{side}_lengths.bin").tolist())
            for side in ("source", "target")
        )
        return Pairs(sources, targets, length=config.length, batch=settings.batch, seed=seed)
    return Windows(
        open_tokens(folder / "tokens.bin"),
        length=config.length,
        batch=settings.batch,
        objective=settings.objective,
        vocabulary=config.vocabulary,
        seed=seed,
    )


def _prepare(directory: Path, settings: RunSettings, preparing: Callable[[], None]) -> None:
    """Train the tokenizer and write the corpus as tokens."""
    others = sorted(path.name for path in directory.iterdir() if path.name not in OURS) if directory.exists() else []
    if others:
        raise ModelError(f"`{directory}` must be new or a run, got a folder with {others[0]}; choose another one")
    ModelConfig.sized(settings.size, vocabulary=settings.vocabulary, **settings.model)
    check_vocabulary(settings.vocabulary)
    preparing()  # nothing but the corpus is refused from here on
    tokenizer = train_tokenizer(settings.texts(), vocabulary=settings.vocabulary)
    folder = directory / "data"
    folder.mkdir(parents=True, exist_ok=True)
    save_tokenizer(tokenizer, directory)
    if settings.objective == "translation":
        for side, name in enumerate(("source", "target")):
            lengths = array("i")
            write_tokens(folder / f"{name}.bin", _sentences(tokenizer, settings.pairs(), side, lengths))
            write_tokens(folder / f"{name}_lengths.bin", [lengths])
    else:
        write_tokens(folder / "tokens.bin", _stream(tokenizer, settings.documents()))


def _write_settings(directory: Path, settings: RunSettings) -> None:
    content = {**settings.to_json(), "corpus_fingerprint": _fingerprint(settings)}
    part = directory / f".{RUN}"
    part.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    part.replace(directory / RUN)


def _stream(tokenizer: Tokenizer, documents: Iterable[Iterable[str]]) -> Iterator[list[int]]:
    for document in documents:
        yield [BEGIN]
        for piece in document:
            yield encode(tokenizer, piece)
        yield [END]


def _sentences(
    tokenizer: Tokenizer, pairs: Iterable[tuple[str, str]], side: int, lengths: array[int]
) -> Iterator[list[int]]:
    """Yield the tokens of one side, and note their numbers."""
    for pair in pairs:
        ids = encode(tokenizer, pair[side])
        lengths.append(len(ids))
        yield ids


@lru_cache(maxsize=1)
def _documentation() -> tuple[str, ...]:
    """Return the documentation of the standard library: it takes seconds to parse and is read twice."""
    return tuple(read_documentation())


def _fingerprint(settings: RunSettings) -> str | None:
    """Return what changes with the corpus; None for the documentation, whose tokens are in the run already."""
    return fingerprint([Path(path) for path in settings.corpus]) if settings.corpus else None


def _check_same(directory: Path, settings: RunSettings) -> None:
    """Refuse to go on with other settings or another corpus: the result would be neither run."""
    stored = _flat(read_json(directory / RUN))
    given = _flat({**settings.to_json(), "corpus_fingerprint": _fingerprint(settings)})
    for name in sorted(stored.keys() | given.keys()):
        if stored.get(name) != given.get(name) and name != "corpus":  # files may have moved; their content counts
            raise ModelError(
                f"`{name}` must be {stored.get(name)!r} to go on with `{directory}`, got {given.get(name)!r}; "
                "give the same settings, or another directory for a new run"
            )


def _flat(content: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in content.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
