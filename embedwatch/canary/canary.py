"""Canary: fixed texts with the vectors that they had, and how much those vary by themselves."""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor

from embedwatch.batch import PairBatch
from embedwatch.canary.embedding import BATCH, Embed, Round, embed_in, rounds
from embedwatch.canary.files import LARGEST_VALUES, read_canary, write_canary
from embedwatch.canary.floor import Floor
from embedwatch.canary.outcome import Outcome
from embedwatch.canary.probes import PROBES
from embedwatch.checks.canary import Canary as CanaryCheck
from embedwatch.core.boundary import Boundary, OnError
from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.snapshot import Space
from embedwatch.judging import Judge
from embedwatch.stats.canary import MOST_TEXTS
from embedwatch.stats.canary import Canary as CanaryStatistic
from embedwatch.window import Window

__all__ = ["LEAST_TEXTS", "METRICS", "Canary", "CanaryMetric", "text_hash"]

CanaryMetric = Literal["cosine", "dot", "euclidean"]
METRICS: tuple[CanaryMetric, ...] = get_args(CanaryMetric)
LEAST_TEXTS = 12
"""Texts of a canary: of fewer, five nearest neighbours say nothing."""
REPEATS = 3
MOST_REPEATS = 100
PLACE = "canary"
SHOWN = 60


def text_hash(text: str) -> str:
    """Return 16 hex digits that identify a text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


@dataclass(frozen=True, eq=False)
class Canary:
    """Fixed texts with the vectors that they had.

    Args:
        vectors: (N, D) float32, finite, none of them zero.
        floor: how far a text lies from itself when nothing changed.
        hashes: of the texts, 16 hex digits each; empty where they were never known.
        texts: what is embedded again; empty where they were left out.
        model: name of what embedded them.
        fingerprint: of what embedded them, where it is known.
        metric: by which its vectors are compared.
        recorded: seconds since the epoch.
        notes: how texts became vectors.

    Example:
        >>> embed = lambda texts: [[len(text), text.count("e"), text.count(" "), 1.0] for text in texts]
        >>> canary = Canary.record(embed, model="letters")
        >>> canary.check(embed).status
        'ok'
        >>> canary.check(lambda texts: [row[::-1] for row in embed(texts)]).status
        'fail'
    """

    vectors: Tensor
    floor: Floor
    hashes: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    model: str = "model"
    fingerprint: str = ""
    metric: CanaryMetric = "cosine"
    recorded: float = 0.0
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_vectors(self.vectors, "vectors")
        if self.metric not in METRICS:
            raise UsageError(f"`metric` must be one of {', '.join(METRICS)}, got {self.metric!r}; choose one")
        for name, held in (("hashes", self.hashes), ("texts", self.texts)):
            if held and len(held) != len(self.vectors):
                raise UsageError(
                    f"`{name}` must be one for each of {len(self.vectors)} vectors, got {len(held)}; give all or none"
                )

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dimension(self) -> int:
        """D."""
        return int(self.vectors.shape[1])

    @classmethod
    def record(
        cls,
        embed: Embed,
        texts: Sequence[str] = PROBES,
        *,
        repeats: int = REPEATS,
        keep_texts: bool = True,
        model: str = "model",
        fingerprint: str = "",
        metric: CanaryMetric = "cosine",
        notes: Sequence[str] = (),
    ) -> Canary:
        """Embed texts several times, in other orders and batches each time, and keep them with the noise.

        Args:
            embed: takes a list of texts, and returns as many vectors.
            texts: 12 to 1,024 of them, all different; by default a set of ours.
            repeats: how often; one leaves the noise unknown.
            keep_texts: whether the texts are kept; without them `check` must be given them again.
            model: name of what embeds.
            fingerprint: of what embeds.
            metric: by which the vectors are compared: `cosine`, or `dot` or `euclidean`, for which lengths count.
            notes: how texts become vectors.

        Raises:
            UsageError: if an argument does not fit.
            InputError: if `embed` returns something else than finite vectors, one for each text.
        """
        if not 1 <= repeats <= MOST_REPEATS:
            raise UsageError(f"`repeats` must be from 1 to {MOST_REPEATS}, got {repeats}; {REPEATS} is usual")
        _check_texts(texts)
        repeated = []
        for turn in rounds(len(texts), repeats):
            repeated.append(embed_in(embed, texts, turn))
            check_vectors(repeated[-1], "embed", like=repeated[0])
        return cls.of_vectors(
            repeated, texts, keep_texts=keep_texts, model=model, fingerprint=fingerprint, metric=metric, notes=notes
        )

    @classmethod
    def of_vectors(
        cls,
        repeated: Sequence[Tensor],
        texts: Sequence[str] = (),
        *,
        keep_texts: bool = True,
        model: str = "model",
        fingerprint: str = "",
        metric: CanaryMetric = "cosine",
        notes: Sequence[str] = (),
    ) -> Canary:
        """Make a canary from vectors that somebody else computed: the same texts once, or better several times.

        Args:
            repeated: each (N, D), row i always of the same text.
            texts: the texts, where they are known.
            keep_texts: whether they are kept.
            model: as for `record`.
            fingerprint: as for `record`.
            metric: as for `record`.
            notes: as for `record`.
        """
        if not repeated:
            raise UsageError("`repeated` must hold at least one embedding of all texts, got none; give vectors")
        for rows in repeated:
            check_vectors(rows, "vectors", like=repeated[0])
        if texts:
            _check_texts(texts)
        return cls(
            vectors=repeated[0].detach().cpu().float().clone(),
            floor=Floor.measure([rows.float() for rows in repeated]),
            hashes=tuple(map(text_hash, texts)),
            texts=tuple(texts) if keep_texts else (),
            model=model,
            fingerprint=fingerprint,
            metric=metric,
            recorded=time.time(),
            notes=tuple(notes),
        )

    def check(
        self,
        embed: Embed,
        *,
        texts: Sequence[str] = (),
        model: str | None = None,
        fingerprint: str = "",
        on_error: OnError = "count",
    ) -> Outcome:
        """Embed the texts again, and say whether it is the same space.

        Args:
            embed: takes a list of texts, and returns as many vectors; NaN or `None` for one that failed.
            texts: where the canary was recorded without them.
            model: name of what embeds now; by default as it was recorded.
            fingerprint: of what embeds now.
            on_error: what happens to exceptions of our own Statistic or Check.

        Raises:
            UsageError: if the texts are missing, or are others than those that were recorded.
            InputError: if `embed` does not return one vector for each text.
        """
        asked = self.asked(texts)
        began = time.perf_counter()
        now = embed_in(embed, asked, Round(torch.arange(len(asked)), BATCH))
        return self.compare(
            now, model=model, fingerprint=fingerprint, texts=asked, on_error=on_error,
            seconds=time.perf_counter() - began,
        )  # fmt: skip

    def asked(self, texts: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the texts to embed again: those that were kept, or these, where they are what was recorded.

        Raises:
            UsageError: if they are missing, or are others.
        """
        if not texts:
            if not self.texts:
                raise UsageError("`texts` must be given for a canary recorded without them, got none; give the texts")
            return self.texts
        wrong = [
            place
            for place, pair in enumerate(zip(map(text_hash, texts), self.hashes, strict=False))
            if len({*pair}) > 1
        ]
        if len(texts) != len(self) or wrong:
            told = f"{len(texts)} texts" if len(texts) != len(self) else f"another text {wrong[0] + 1}"
            raise UsageError(
                f"`texts` must be the {len(self)} texts that were recorded, in their order, got {told}; give those"
            )
        return tuple(texts)

    def compare(
        self,
        now: Tensor,
        *,
        model: str | None = None,
        fingerprint: str = "",
        texts: Sequence[str] = (),
        on_error: OnError = "count",
        seconds: float = 0.0,
    ) -> Outcome:
        """Judge vectors that the same texts have now.

        Args:
            now: (N, D'), row i of the same text as then.
            model: name of what embedded them; by default as it was recorded.
            fingerprint: of what embedded them.
            texts: names for people, where the canary has none.
            on_error: what happens to exceptions of our own Statistic or Check.
            seconds: that embedding took.
        """
        if now.ndim != 2 or len(now) != len(self):
            raise InputError(
                f"`now` must hold one vector for each of {len(self)} texts, got {tuple(now.shape)}; embed them all"
            )
        began = time.perf_counter()
        boundary = Boundary(on_error=on_error)
        statistic = CanaryStatistic(
            floor=self.floor.distance, length_floor=self.floor.length, lengths=self.metric != "cosine"
        )
        window = Window([statistic], boundary=boundary)
        window.update(PairBatch(self.vectors, now.detach().cpu().float(), torch.arange(len(self)), source=PLACE))
        window.close(time.time())
        window.dimension = int(now.shape[1])
        snapshot = window.snapshot(
            Space(model or self.model, PLACE),
            fingerprint=fingerprint,
            coverage={"rows_expected": len(self), "rows_read": len(now)},
            notes=self._remarks(fingerprint),
            role="pooled",
        )
        verdicts = Judge([CanaryCheck()], boundary=boundary).judge(snapshot)
        names = texts or self.texts
        exhibits = [each.with_names(lambda rows: [_shown(names, row) for row in rows]) for each in window.exhibits()]
        errors = tuple((stage, name, count) for (stage, name), count in boundary.errors.items())
        return Outcome(snapshot, tuple(verdicts), tuple(exhibits), seconds + time.perf_counter() - began, errors)

    def _remarks(self, fingerprint: str) -> list[str]:
        """Return what a reader of the numbers must know."""
        floor, date = self.floor, time.strftime("%Y-%m-%d", time.gmtime(self.recorded))
        noise = f"a text lay up to {floor.largest:.2g} from itself in {floor.repeats} repeats"
        found = [f"recorded {date} from {self.model}: {len(self)} texts, {self.dimension}-d; {noise}"]
        if floor.repeats == 1:
            found[0] = found[0].partition(";")[0] + "; the noise was not measured, embed more than once"
        if fingerprint and self.fingerprint:
            told = "is as it was" if fingerprint == self.fingerprint else f"was {self.fingerprint[:8]}"
            found.append(f"fingerprint of model and recipe {told}")
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, whole or not at all."""
        write_canary(self.to_json(), self.vectors, Path(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Canary:
        """Read what `save` wrote.

        Raises:
            InputError: if it is no canary, or damaged.
        """
        about, vectors = read_canary(Path(path))
        return _read(about, vectors, Path(path).name)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the vectors, as plain JSON types."""
        return {
            "model": self.model,
            "fingerprint": self.fingerprint,
            "metric": self.metric,
            "recorded": self.recorded,
            "count": len(self),
            "dimension": self.dimension,
            "floor": self.floor.to_json(),
            "notes": list(self.notes),
            "hashes": list(self.hashes),
            "texts": list(self.texts),
        }


def _shown(names: Sequence[str], row: int) -> str:
    """Return a text in one short line, or its number."""
    if not 0 <= row < len(names):
        return str(row)
    line = " ".join(names[row].split())
    return line if len(line) <= SHOWN else line[: SHOWN - 1] + "…"


def check_vectors(rows: Tensor, name: str, *, like: Tensor | None = None) -> None:
    """Refuse what cannot be remembered as healthy.

    Raises:
        InputError: if the rows are no matrix of finite numbers, too few, too many, or unlike others.
    """
    if rows.ndim != 2 or not rows.is_floating_point():
        raise InputError(
            f"`{name}` must give floating point (N, D), got {rows.dtype} {tuple(rows.shape)}; convert them"
        )
    if not LEAST_TEXTS <= len(rows) <= MOST_TEXTS or rows.numel() > LARGEST_VALUES:
        raise InputError(
            f"`{name}` must give {LEAST_TEXTS} to {MOST_TEXTS:,} vectors of at most {LARGEST_VALUES:,} numbers in all, "
            f"got {len(rows):,} × {rows.shape[1]:,}; 64 texts are usual"
        )
    if like is not None and rows.shape != like.shape:
        raise InputError(
            f"`{name}` must give the same shape each time, got {tuple(like.shape)} and {tuple(rows.shape)}; embed alike"
        )
    bad = (~rows.float().isfinite().all(1) | (rows.float() == 0).all(1)).nonzero()[:, 0]
    if len(bad):
        raise InputError(
            f"`{name}` must give finite vectors that are not zero, got one for text {int(bad[0]) + 1}, {len(bad)} "
            "in all; record a healthy state"
        )


def _check_texts(texts: Sequence[str]) -> None:
    if isinstance(texts, str) or not LEAST_TEXTS <= len(texts) <= MOST_TEXTS:
        told = "one text" if isinstance(texts, str) else f"{len(texts):,}"
        raise UsageError(f"`texts` must be {LEAST_TEXTS} to {MOST_TEXTS:,} texts, got {told}; 64 are usual")
    first: dict[str, int] = {}
    for place, text in enumerate(texts):
        if not isinstance(text, str) or not text.strip():
            raise UsageError(f"`texts` must each hold words, got {text!r} as text {place + 1}; leave it out")
        if text in first:
            raise UsageError(
                f"`texts` must all differ, got text {first[text] + 1} again as text {place + 1}; leave it out"
            )
        first[text] = place


def _read(about: Mapping[str, Any], vectors: Tensor, name: str) -> Canary:
    """Return the canary that a header and its vectors make."""
    texts, hashes, notes = (about.get(key) for key in ("texts", "hashes", "notes"))
    model, fingerprint, metric = (about.get(key) for key in ("model", "fingerprint", "metric"))
    recorded, floor = about.get("recorded"), about.get("floor")
    sound = all(isinstance(each, list) and all(isinstance(one, str) for one in each) for each in (texts, hashes, notes))
    sound = sound and all(isinstance(each, str) for each in (model, fingerprint, metric)) and isinstance(floor, dict)
    if not sound or not isinstance(recorded, int | float) or not math.isfinite(recorded):
        raise InputError(f"{name} is damaged: its header lacks something; record it again")
    try:
        canary = Canary(
            vectors=vectors,
            floor=Floor.from_json(floor or {}),
            hashes=tuple(hashes or ()),
            texts=tuple(texts or ()),
            model=str(model),
            fingerprint=str(fingerprint),
            metric=cast("CanaryMetric", metric),
            recorded=float(recorded),
            notes=tuple(notes or ()),
        )
    except ValueError as error:
        raise InputError(f"{name} is damaged: {error}") from error
    if canary.texts and tuple(map(text_hash, canary.texts)) != canary.hashes:
        raise InputError(f"{name} is damaged: its texts and their hashes differ; record it again")
    return canary
