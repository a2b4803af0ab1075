"""The attachment of a Monitor to a model: all hooks that it has there, and how they are kept up to date."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from embedwatch.core.boundary import Boundary
from embedwatch.observe.anatomy import find_stacks, is_computed, weight_of
from embedwatch.observe.attention.site import AttentionSite
from embedwatch.observe.attention.watch import AttentionWatch
from embedwatch.observe.masks import Padding
from embedwatch.observe.observer import Added, Begin, End, Observer, TokensSeen
from embedwatch.observe.outputs import POOLED
from embedwatch.observe.places import Place, Places, find_places, find_positions, token_groups
from embedwatch.observe.pulse import Pulse
from embedwatch.observe.scopes import Scope, find_scopes, inputs_of, part_inputs, scopes_of
from embedwatch.observe.seam import Hook
from embedwatch.observe.tables import TableWatch, first_row_here

__all__ = ["Attachment"]

log = logging.getLogger(__name__)
SILENT = 2
"""A place that was seen before, and saw nothing for so many windows in which the model was looked at, is blind."""
SILENT_NOW = (
    "nothing was seen for some windows, though it was before: it is not called now, or passes are not looked at"
)
MANY_PASSES = 100
"""After so many forward passes something should have been looked at."""
NEVER_CALLED = (
    "the model never calls this module: an unused part, a fused path, vectors given in place of tokens, or its "
    "`forward` is called by name, past all hooks"
)
GONE = "the module is no longer in the model"
FAILED = "looking at it failed too often in a row, see the log"
COMPILED = "the model was compiled before watching began (call `torch.compiler.reset()`, or watch first)"
UNSEEN = (
    "its attention was not seen: the module is not called, or attends in a way that nothing sees, as by a fused kernel "
    "or, in compiled code, by flex attention"
)
CALLED = (
    "it was called, and attends in a way that nothing sees: by a fused kernel, by a function that it held before "
    "watching began, or, in compiled code, by flex attention"
)
NO_FORWARD = f"no forward pass was seen: {COMPILED}, or it is not called"
NOTHING = f"nothing was seen, though the model ran: {COMPILED}, or it calls none of these modules"
NOT_YET = (NEVER_CALLED, NOTHING, UNSEEN)
"""What is said of a place that was not looked at; where looking pauses it may only be too early."""


@dataclass
class _Fixed:
    """A hook on one module, as long as the module stays in its place."""

    path: str
    module: nn.Module
    hook: Hook
    handle: Any


class Attachment:
    """Hooks on a model, from `attach` to `remove`. Nothing else of the model is touched.

    Args:
        model: the model itself, out of its wrappers.
        places: names and globs of modules, a predicate, or `None` to find them.
        pulse: of the Monitor.
        boundary: where exceptions of ours end.
        rows: the most rows of one look.
        seed: of samples.
        parts: whether tables are followed of which only a part lies here.
        attention: the most queries of one look at attention; 0 for none.
        attention_layers: the most layers whose attention is watched.
    """

    def __init__(
        self,
        model: nn.Module,
        places: Places | None,
        pulse: Pulse,
        boundary: Boundary,
        *,
        rows: int,
        seed: int,
        parts: bool = False,
        attention: int = 0,
        attention_layers: int = 8,
    ) -> None:
        self.model, self._parts = model, parts
        self._pulse, self._boundary, self._rows, self._seed = pulse, boundary, rows, seed
        self.reattached = 0
        self._forwards = self._looks = 0  # of the pulse, at the last mark
        self._fixed: list[_Fixed] = []
        self._left: dict[str, str] | None = None  # what was blind when the model was let go of
        found = find_places(model, places)
        groups = token_groups(model)
        self.tables = [table for table in map(self._table, groups) if table is not None]
        """Embedding tables, that of the model's input first."""
        self.padding = _padding(model)
        modules = dict(model.named_modules())
        stacks = find_stacks(modules) if attention else ()
        self._scopes = find_scopes(modules, [*(place.path for place in found), *stacks])
        tables = {name: module for group in groups for name, module in group.items()}
        self.observers = [self._observer(place, tables, modules) for place in found]
        whole = [
            Observer(
                Place(name, "pooled", model, whole=True, optional=True),
                pulse,
                boundary,
                rows=rows,
                padding=self.padding,
                inputs=part_inputs(name, self._scopes, modules),
                part=name,
            )
            for name in POOLED
        ]
        added = [self._observer(place, tables, modules, kind=Added) for place in find_positions(model)]
        self.unplaced = [*whole, *added]
        """Observers of what a model may have: pooled outputs by their names, and what positions add."""
        self.attention = AttentionWatch(
            modules,
            pulse,
            boundary,
            rows=attention,
            layers=attention_layers,
            seed=seed,
            taken=[place.name for place in found],
            scopes=self._scopes,
            tables=tables,
            padding=self.padding,
        )

    def tables_positions(self, dimension: int) -> bool:
        """Return whether what adds positions has them from a table of this width."""
        modules = (observer.place.module for observer in self.unplaced if observer.place.role == "position")
        held = (tensor for module in modules for tensor in (*module.parameters(), *module.buffers()))
        return any(tensor.dim() > 1 and tensor.shape[-1] == dimension for tensor in held)

    def _table(self, tables: dict[str, nn.Embedding]) -> TableWatch | None:
        name = next(iter(tables), None)
        if name is None or is_computed(tables[name]) or tables[name].weight.device.type == "meta":
            return None
        apart = hasattr(tables[name].weight, "to_local")
        if apart and (not self._parts or first_row_here(tables[name].weight) is None):
            return None
        return TableWatch(f"{name}.weight" if name else "weight", tables[name], self._pulse, seed=self._seed)

    def _observer(
        self,
        place: Place,
        tables: dict[str, nn.Embedding],
        modules: dict[str, nn.Module],
        kind: type[Observer] = Observer,
    ) -> Observer:
        return kind(
            place,
            self._pulse,
            self._boundary,
            rows=self._rows,
            seed=self._seed,
            scopes=scopes_of(place.path, self._scopes, modules, tables),
            padding=self.padding,
            inputs=inputs_of(place.path, self._scopes, modules, tables),
            tokens=self._counter(tables.get(place.path)),
        )

    def _counter(self, module: nn.Module | None) -> TokensSeen | None:
        """Return what counts the tokens that a module looks up."""
        watched = (
            table for table in self.tables if module is not None and weight_of(table.module) is weight_of(module)
        )
        table = next(watched, None)
        return None if table is None else table.saw

    @property
    def table(self) -> TableWatch | None:
        """The table of the model's input."""
        return self.tables[0] if self.tables else None

    def attach(self) -> None:
        """Hang all hooks: the beginning of a forward pass first, its end last."""
        modules = dict(self.model.named_modules())
        self._before("", self.model, Begin(self._pulse, self._boundary))
        for name in self._scopes:
            self._before(name, modules[name], Scope(name, modules[name], self._pulse, self._boundary))
        for observer in [*self.observers, *self.unplaced]:
            self._hang(observer)
        self.attention.attach()
        self._after("", self.model, self._end(), always=True)

    def _end(self) -> End:
        """Return the last hook; it looks at predictions where they are as many as the first table has rows."""
        return End(self._pulse, self._boundary, vocabulary=self._vocabulary, padding=self.padding)

    def _vocabulary(self) -> int | None:
        """Return V as it is now: a table may be resized."""
        return None if self.table is None else len(self.table.counts)

    def _hang(self, observer: Observer) -> None:
        place = observer.place
        hang = self._before if place.side == "input" else self._after
        hang(place.path, place.module, observer)

    def _before(self, path: str, module: nn.Module, hook: Hook) -> None:
        handle = module.register_forward_pre_hook(hook, with_kwargs=True)
        self._fixed.append(_Fixed(path, module, hook, handle))

    def _after(self, path: str, module: nn.Module, hook: Hook, *, always: bool = False) -> None:
        handle = module.register_forward_hook(hook, with_kwargs=True, always_call=always)
        self._fixed.append(_Fixed(path, module, hook, handle))

    def remove(self) -> None:
        """Take every hook away. Calling it again does nothing."""
        for fixed in self._fixed:
            fixed.handle.remove()
        self._fixed = []
        self.attention.remove()

    def release(self) -> None:
        """Let go of the model, when it is watched no longer; names, roles and what was found stay."""
        if self._left is not None:
            return
        self._left = self.blind()
        self.model = gone = nn.Module()
        for observer in (*self.observers, *self.unplaced):
            observer.place = replace(observer.place, module=gone)
        for table in self.tables:
            table.release()
        self.attention.release(gone)

    def renew(self) -> None:
        """Follow modules that were replaced, as resizing an embedding does: hooks move to what stands there now."""
        modules = dict(self.model.named_modules(remove_duplicate=False))
        for fixed in list(self._fixed):
            now = modules.get(fixed.path)
            if now is None or now is fixed.module:
                continue
            fixed.handle.remove()
            self._fixed.remove(fixed)
            if isinstance(fixed.hook, Observer):
                self._move(fixed, now)
            elif isinstance(fixed.hook, Scope):
                self._before(fixed.path, now, Scope(fixed.path, now, self._pulse, self._boundary))
            self.reattached += 1
            log.info("embedwatch: %s was replaced, and is watched again", fixed.path)
        self.reattached += self.attention.renew(modules) if self._fixed else 0
        for table in self.tables:
            _renew(table, modules)

    def _move(self, fixed: _Fixed, now: nn.Module) -> None:
        """Hang an observer on another module, unless one of the same sort sees it, as where tables were tied."""
        observer = fixed.hook
        if not isinstance(observer, Observer):
            return
        observer.place = replace(observer.place, module=now)
        others = [each.hook.place for each in self._fixed if each.module is now and isinstance(each.hook, Observer)]
        if any(place.side == observer.place.side and place.role == observer.place.role for place in others):
            self._fixed.append(replace(fixed, module=now))  # its handle is spent: it waits for the next change
        else:
            self._hang(observer)

    def mark(self) -> None:
        """End a window: places that were not seen, though the model was looked at, have been silent for it.

        A window with a pause in it, which keeps to the budget, says nothing about a place that was not seen in it.
        """
        rested, armed = self._pulse.rested, self._pulse.looks > self._looks
        fresh = any(observer.fresh for observer in self.observers)
        looked = not rested and (fresh or (armed and self._passes >= MANY_PASSES))
        for observer in self.observers:
            observer.mark(looked=looked)
        self.attention.mark(rested=rested)
        self._forwards, self._looks = self._pulse.forwards, self._pulse.looks

    @property
    def _passes(self) -> int:
        """Forward passes since the last mark."""
        return self._pulse.forwards - self._forwards

    def blind(self) -> dict[str, str]:
        """Return the places that saw nothing, or nothing for a while, each with the likely cause.

        What is only `waiting` is none of them.
        """
        if self._left is not None:
            return dict(self._left)
        waits = self._waits()
        return {name: cause for name, cause in self._unseen().items() if not (waits and cause in NOT_YET)}

    def waiting(self) -> tuple[str, ...]:
        """Return the places that were not looked at yet, while looking pauses to keep to the budget."""
        if self._left is not None or not self._waits():
            return ()
        return tuple(name for name, cause in self._unseen().items() if cause in NOT_YET)

    def _waits(self) -> bool:
        """Return whether looking pauses, or did in this window, before so many passes were looked at that all was."""
        few = self._pulse.looks < MANY_PASSES
        return few and self._pulse.rested and not self._pulse.training

    def _unseen(self) -> dict[str, str]:
        paths = {name for name, _ in self.model.named_modules(remove_duplicate=False)}
        seen = [observer for observer in self.observers if observer.looks]
        usual = NEVER_CALLED if seen else NOTHING if self._pulse.forwards else NO_FORWARD
        lively = (observer.place for observer in seen if observer.silent < SILENT)
        shared = {id(_weight(place.module)) for place in lively if place.role == "token"}
        found = {}
        for observer in self._due():
            place = observer.place
            twin = id(_weight(place.module)) in shared
            if place.path not in paths:
                found[place.name] = GONE
            elif observer.off:
                found[place.name] = FAILED
            elif not observer.looks and not twin:
                found[place.name] = observer.unfit or usual
            elif observer.silent >= SILENT and not twin:
                found[place.name] = observer.unfit or SILENT_NOW
        return {**found, **self._unattended(bool(seen))}

    def _unattended(self, seen: bool) -> dict[str, str]:  # noqa: FBT001
        """Return the modules whose attention was not seen, or not for a while, each with the likely cause."""
        modules = {id(module) for module in self.model.modules()}
        sites = list(self.attention.due())
        seen = seen or any(site.looks for site in sites)
        usual = UNSEEN if seen else NOTHING if self._pulse.forwards else NO_FORWARD
        causes = ((site.name, _cause(site, usual, modules)) for site in sites)
        return {name: cause for name, cause in causes if cause}

    def _due(self) -> Iterator[Observer]:
        return (observer for observer in self.observers if not observer.place.optional)

    @property
    def expected(self) -> int:
        """Number of places that should be seen."""
        return sum(1 for _ in (*self._due(), *self.attention.due()))


def _cause(site: AttentionSite, usual: str, modules: Collection[int]) -> str:
    """Return why the attention of a module is not seen; empty where it is."""
    if id(site.place.module) not in modules:
        return GONE
    if site.off:
        return FAILED
    if not site.looks:
        return site.unfit or (CALLED if site.entered else usual)
    return (site.unfit or SILENT_NOW) if site.silent >= SILENT else ""


def _renew(table: TableWatch, modules: Mapping[str, nn.Module]) -> None:
    """Let a table be that of the module which stands in its place now."""
    now = modules.get(table.name.removesuffix("weight").removesuffix("."))
    if isinstance(now, type(table.module)) and (now is not table.module or table.replaced):
        table.module = now
        if table.replaced:
            table.start()


def _weight(module: nn.Module) -> object:
    return weight_of(module) if isinstance(module, nn.Embedding) else module


def _padding(model: nn.Module) -> Padding | None:
    """Return the padding token where the configuration has one that stands for nothing else but a start."""
    config = getattr(model, "config", None)
    config = getattr(config, "text_config", None) or config
    token = getattr(config, "pad_token_id", getattr(config, "padding", None))
    others = _numbers(getattr(config, "eos_token_id", None)) + _numbers(getattr(config, "bos_token_id", None))
    if not isinstance(token, int) or _numbers(token) != [token] or token in others:
        return None
    return Padding(token, starts=token in _numbers(getattr(config, "decoder_start_token_id", None)))


def _numbers(value: object) -> list[int]:
    """Return the tokens that an entry of a configuration names: one, several or none."""
    values = value if isinstance(value, (list, tuple)) else [value]
    return [each for each in values if isinstance(each, int) and not isinstance(each, bool)]
