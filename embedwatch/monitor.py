"""The Monitor: watches a live model. `embedwatch.watch(model)` makes one."""

from __future__ import annotations

import inspect
import logging
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from torch import Tensor, nn

from embedwatch.align.probing import Bridge
from embedwatch.calibration import USUAL_BUDGET
from embedwatch.core.boundary import Boundary, OnError
from embedwatch.core.errors import UsageError, did_you_mean
from embedwatch.core.registry import get
from embedwatch.core.sink import Sink
from embedwatch.course_maker import CourseMaker
from embedwatch.courses import Courses
from embedwatch.integrations.distributed import find_ranks
from embedwatch.joining import Joining
from embedwatch.judged import Judged
from embedwatch.lexicons import load_lexicons
from embedwatch.monitor_options import check_options, listed, steps_done
from embedwatch.monitor_view import MonitorView
from embedwatch.observe.anatomy import lies_in_parts
from embedwatch.observe.arrival import arriving
from embedwatch.observe.attachment import Attachment
from embedwatch.observe.attention.watch import ROLE
from embedwatch.observe.modes import outside_modes
from embedwatch.observe.places import Places, unwrapped
from embedwatch.observe.pulse import Pulse
from embedwatch.references.fitting import LEAST_ROWS
from embedwatch.references.opening import open_references
from embedwatch.rounds import Rounds, Scalar
from embedwatch.step_scalars import ScalarNames
from embedwatch.watched_models import forget, free_name, remember, watched_by

__all__ = ["Monitor", "check_options", "watch"]

log = logging.getLogger(__name__)

WAIT = 120.0
"""Seconds to wait for what is left to judge."""


def watch(model: nn.Module, **options: Any) -> Monitor:
    """Watch a live model, in training or serving; see `Monitor` for the options.

    A model that is watched already is watched anew: the earlier Monitor is detached.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 50))
        >>> with watch(model, places=["0"], every=1, sinks=[]) as monitor:
        ...     _ = model(torch.arange(50)[None])
        ...     monitor.step(loss=4.0)
        >>> monitor.snapshots["0"].provenance.rows
        50
    """
    known = list(inspect.signature(Monitor).parameters)[1:]
    for option in options:
        if option not in known:
            hint = did_you_mean(option, known)
            raise UsageError(
                " ".join(filter(None, (f"`watch` has no option {option!r};", hint, f"it has {', '.join(known)}")))
            )
    return Monitor(model, **options)


class Monitor(MonitorView):
    """Watches a live model: hooks its places, samples rows at armed steps, and judges each closed window.

    Outputs, gradients and random numbers of the model are the same as without. Hooks only copy a few rows; one thread
    of its own does the rest. An exception of ours is counted and logged once, and stops nothing.

    A step is over when `step` is called, or else when an optimizer of the model has stepped, or else, in serving, when
    the next forward pass begins. The first step is looked at, then one in `every`; a window closes after `window`
    steps, the first after one.

    Args:
        model: any module, also compiled, wrapped or shared between threads.
        name: label of the model; by default its class, or the name it was loaded by.
        places: names and globs of modules (`layers.*`), or a predicate over (name, module); found by itself otherwise.
        every: one step in so many is looked at. This and `window` grow while watching costs more than `budget`.
        rows: the most rows of a place that are looked at in a step.
        attention: the most queries of each attention that are looked at; 0 for none.
        attention_every: of the steps that are looked at, attention is in those so many steps apart. It grows likewise.
        attention_layers: the most layers whose attention is watched, evenly spread from the first to the last.
        window: steps after which a window is closed, measured and judged.
        only, skip: names of statistics, measurements or checks to keep, to leave out.
        sinks: where windows go: Sinks, or texts as in `--sink`: "jsonl:run.jsonl", "prometheus:9477". Those given as
            texts are closed at the end. By default findings go to Python's log.
        tokenizer: names tokens in exhibits; of transformers, or of tokenizers.
        budget: the share of the model's time that watching may take; `None` for no limit.
        seed: of samples.
        step: number of steps done before, when a training goes on.
        on_error: what happens to exceptions of ours.
        reference: what healthy rows of its places are: a Reference, its folder, a folder of several (`save_reference`
            writes one), or these by place. Rows of these places are compared with it in each window.
        alarms: false alarms of `drift` that are accepted over time, in all places together.
        diagnostics: whether the model itself is examined at the start and at checkpoints: its positions, scale,
            vocabulary and layers, as far as it need not be run for that. `diagnose` examines more, when asked.
        bridge: a map in use between the space of this model and another one: at the start, at checkpoints and by
            `diagnose` the model embeds its texts on the thread that asks, and `alignment_lost` says whether the map
            still holds.
        together: whether all ranks train this model together, each on rows of its own: then what they see is put
            together at the first, which alone has sinks. By default where DistributedDataParallel or `fully_shard`
            spread it over all ranks. Each rank must watch, and close windows at the same steps.

    Raises:
        UsageError: if an option does not fit the model.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        name: str | None = None,
        places: Places | None = None,
        every: int = 10,
        rows: int = 256,
        attention: int = 16,
        attention_every: int = 50,
        attention_layers: int = 8,
        window: int = 100,
        only: Sequence[str] = (),
        skip: Sequence[str] = (),
        sinks: Iterable[Sink | str] = ("log",),
        tokenizer: Any = None,
        budget: float | None = 0.01,
        seed: int = 0,
        step: int = 0,
        on_error: OnError = "count",
        together: bool | None = None,
        reference: Any = None,
        alarms: str = USUAL_BUDGET,
        diagnostics: bool = True,
        bridge: Bridge | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise UsageError(f"`model` must be a torch module, got {type(model).__name__}; pass the model itself")
        check_options(
            every=every,
            rows=rows,
            window=window,
            budget=budget,
            seed=seed,
            step=step,
            on_error=on_error,
            attention=attention,
            attention_every=attention_every,
            attention_layers=attention_layers,
            alarms=alarms,
            name=name,
        )
        if bridge is not None and not isinstance(bridge, Bridge):
            raise UsageError(f"`bridge` must be a Bridge, got {type(bridge).__name__}; make one of a canary and a map")
        references = open_references(reference)
        self.model = unwrapped(model)
        self.name = name or free_name(self.model)
        self.boundary = Boundary(on_error=on_error)
        ranks = find_ranks(model, together=together)
        self.pulse = Pulse(every=every, step=step, ticked=self._ticked, rank=0 if ranks is None else ranks.rank)
        measured = CourseMaker(only=listed("only", only), skip=listed("skip", skip)).classes(ROLE)
        attention = attention if measured else 0
        self.pulse.attention_every = attention_every if attention else None
        joining = None if ranks is None else Joining(ranks, self.boundary)
        with outside_modes():
            self._attachment = Attachment(
                self.model,
                places,
                self.pulse,
                self.boundary,
                rows=rows,
                seed=seed,
                parts=ranks is not None,
                attention=attention,
                attention_layers=attention_layers,
            )
            self._courses = Courses(
                self.name,
                self._attachment,
                self.boundary,
                only=listed("only", only),
                skip=listed("skip", skip),
                tokenizer=tokenizer,
                joining=joining,
                references=references,
                alarms=alarms,
                bridge=bridge if ranks is None or ranks.first else None,
            )
        opened = _known_sinks(sinks)
        self._courses.check_references(references)
        earlier = watched_by(self.model)
        with nullcontext() if earlier is None else earlier.unwatched():
            crossing = self._courses.embedded(start=True)
        if earlier is not None:  # now that nothing but targets can be wrong: sinks may want what it holds, as a port
            earlier.detach()
        self._courses.open(opened if ranks is None or ranks.first else ())
        together = ranks is not None
        self._rounds = Rounds(
            self._attachment, self._courses, self.pulse, self.boundary, window=window, budget=budget, together=together
        )
        self._scalar_names = ScalarNames(self.name)
        self.detached, self._diagnosed = False, diagnostics
        self._attachment.attach()
        remember(self)
        self._rounds.evaluator.put(self._courses.expect, extra=True)  # part of the start
        self._look_through(crossing)
        log.info("embedwatch: watching %s, at most %.0f MB", self.name, self.memory() / 1e6)

    def step(self, step: int | None = None, **scalars: Scalar | None) -> None:
        """Say that a training step is over.

        Args:
            step: number of steps that are done now; counted otherwise.
            scalars: what is known of it, such as `loss`, `lr`, `batch_size`, `validation_loss`; a tensor is read
                later, so that nothing waits for the device; `None` is not known. A name that no statistic reads is
                told of once.
        """
        if step is not None:
            step = steps_done(step)
        known = {name: _kept(value) for name, value in scalars.items() if value is not None}
        self._scalar_names.check(known)
        self._rounds.tick("manual", step, known)

    def attention(
        self,
        query: Tensor,
        key: Tensor,
        *,
        site: str,
        mask: Tensor | None = None,
        is_causal: bool = False,
        scale: float | None = None,
        output: Tensor | None = None,
    ) -> None:
        """Show attention that nothing sees by itself, from the model's own code; it may be compiled.

        Arguments are those of `scaled_dot_product_attention`. Where nothing is looked at now it does nothing. What
        does not fit is counted among `errors`, and stops nothing.

        Args:
            query: (B, H, T, K).
            key: (B, G, S, K), each for H / G heads.
            site: name of the place.
            mask: broadcasts to (B, H, T, S); bool, true where a query attends, or added to the scores.
            is_causal: whether a query sees no key after it, counted from the first.
            scale: of the scores; 1 / √K by default.
            output: (B, H, T, V) what heads put out.
        """
        self._attachment.attention.attend(
            query, key, site=site, output=output, mask=mask, is_causal=is_causal, scale=scale
        )

    def flush(self, *, wait: bool = True) -> None:
        """Close the open windows now, and by default wait until they are judged and delivered."""
        if not self.detached:
            self._rounds.close_windows()
        if wait and not self._rounds.evaluator.wait(WAIT):
            log.warning("embedwatch: %s: windows are not judged after %.0f s", self.name, WAIT)

    def examine(self) -> None:
        """Let the embedding table and the model be examined in full: at the start, at a checkpoint, at the end."""
        if not self.detached:
            with self.unwatched():
                crossing = self._courses.embedded()
            self._look_through(crossing)

    def _look_through(self, crossing: Tensor | None) -> None:
        """Let all be examined that is at the start and at checkpoints, and what the model made of its bridge."""
        self._rounds.examine()
        if self._diagnosed:
            self._rounds.diagnose()
        if crossing is not None:
            self._rounds.evaluator.put(partial(self._courses.cross, crossing, self.pulse.step), extra=True)

    @contextmanager
    def unwatched(self) -> Iterator[None]:
        """See nothing of what the model does in the block, such as what it is run for on our behalf."""
        was_off, self.pulse.off = self.pulse.off, True
        try:
            yield
        finally:
            self.pulse.off = was_off

    def diagnose(
        self,
        *,
        texts: Sequence[str] = (),
        prompts: Sequence[str] = (),
        length: int | None = None,
        words: Any = None,
        encode: Callable[[Sequence[str]], Any] | None = None,
    ) -> list[Judged]:
        """Examine the model now, on this thread, and run it for that: all diagnostics that apply are asked.

        The model is in evaluation mode meanwhile, on random numbers of its own, and is not watched; afterwards it is
        as it was. What is found joins `snapshots`, `verdicts` and the sinks.

        Args:
            texts: ordinary texts for it; needs a tokenizer of transformers.
            prompts: beginnings that it goes on from.
            length: number of tokens that it is to be used with.
            words: groups of words: a file, or a name of those that come with the package.
            encode: turns texts into vectors (N, D), where the model does not do that itself.

        Returns:
            what was found, place by place, with exhibits of what is not well.

        Raises:
            UsageError: for a model that lies in parts on several ranks, and for what is no list of texts.
            InputError: for groups of words that cannot be read.
        """
        if self.detached:
            return []
        if lies_in_parts(self.model):
            raise UsageError(
                "`model` must lie whole on this rank to be examined, got one in parts on several; save a checkpoint,"
                " and run `embedwatch audit` on it"
            )
        if words is not None:
            load_lexicons(words)  # refused at once, and not counted as a diagnostic that failed
        given = {"texts": texts, "prompts": prompts}
        for name, value in given.items():
            if isinstance(value, str) or not isinstance(value, Iterable):
                raise UsageError(f"`{name}` must be a list of texts, got {value!r:.40}; put each in a list")
        with self.unwatched():
            found = self._courses.diagnose(
                step=self.pulse.step,
                texts=tuple(texts),
                prompts=tuple(prompts),
                length=length,
                words=words,
                deep=True,
                encode=encode,
            )
            crossing = self._courses.embedded()
        if crossing is None:  # what was found of it before is not of now
            return found
        self._rounds.evaluator.put(partial(self._courses.cross, crossing, self.pulse.step), extra=True)
        self._rounds.evaluator.wait(WAIT)
        return [*found, *self._courses.crossed()]

    def save_reference(self, path: str | os.PathLike[str], *, rows: int = 4_000) -> None:
        """Make references of the next rows that are looked at, and write each once it has them.

        Each place that has vectors gets a folder of its name below the path, which `watch(reference=path)` takes.
        `gathering` says what is still to come; what is not complete at the end is not written.

        Args:
            path: folder to write below; references of the same places are replaced.
            rows: of each place; the first half fits, the second calibrates.

        Raises:
            UsageError: if there are too few rows for a reference.
        """
        if not isinstance(rows, int) or isinstance(rows, bool) or rows < LEAST_ROWS:
            raise UsageError(f"`rows` must be a whole number of at least {LEAST_ROWS}, got {rows!r}; 4,000 is usual")
        self._rounds.evaluator.put(partial(self._courses.gather, Path(path), rows))

    def detach(self) -> None:
        """Judge what is open, take every hook away, and end. Calling it again does nothing.

        Nothing of ours remains in the model, and nothing here keeps it alive: what was found and what was watched stay
        by their names, `model` is a weak proxy. Sinks that were given as texts are closed.
        """
        if self.detached:
            return
        try:
            if self.pulse.forwards:  # a model that never ran has nothing to say
                self.examine()
                if self._rounds.has_news:
                    self._rounds.close_windows()
        finally:
            self._end()

    def _end(self) -> None:
        """Leave the model, wait for what is left to judge, and close."""
        self.leave()
        self._rounds.optimizers.close()
        forget(self)
        evaluator = self._rounds.evaluator
        evaluator.put(self._courses.close)
        for place, missing in self.gathering.items():
            log.warning("embedwatch: %s: no reference of %s: %s rows are missing", self.name, place, f"{missing:,}")
        try:
            if not evaluator.wait(WAIT):
                log.warning("embedwatch: %s: what was left is not judged after %.0f s, and is lost", self.name, WAIT)
        finally:
            evaluator.close(timeout=1.0)
            self._attachment.release()
            self.model = cast("nn.Module", weakref.proxy(self.model))

    def leave(self) -> None:
        """Take every hook away and see nothing more, at once and whatever is open; `detach` ends in good order."""
        self.detached = self.pulse.off = True
        self._attachment.remove()

    def _ticked(self) -> None:
        self._rounds.ticked()

    def __enter__(self) -> Monitor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()


watch.__signature__ = inspect.signature(Monitor)  # type: ignore[attr-defined]  # what help() and editors show


def _kept(value: Scalar) -> Scalar:
    return arriving(value.detach().clone()) if isinstance(value, Tensor) else value


def _known_sinks(given: Any) -> list[Sink | str]:
    """Return the sinks as a list, refused where there is none of a name; nothing is opened yet."""
    sinks = listed("sinks", given)
    for sink in sinks:
        if isinstance(sink, str):
            get(Sink, sink.partition(":")[0])
    return sinks
