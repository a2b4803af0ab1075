"""The attachment of a Monitor to a model: all hooks that it has there, and how they are kept up to date."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from embedwatch.core.boundary import Boundary
from embedwatch.observe.observer import Added, Begin, End, Observer
from embedwatch.observe.outputs import POOLED
from embedwatch.observe.places import Place, Places, find_places, find_positions, token_embeddings
from embedwatch.observe.pulse import Pulse
from embedwatch.observe.scopes import Scope, find_scopes
from embedwatch.observe.seam import Hook
from embedwatch.observe.tables import TableWatch

__all__ = ["Attachment"]

log = logging.getLogger(__name__)
NEVER_CALLED = "the model never calls this module: an unused part, a fused path, or vectors given in place of tokens"
GONE = "the module is no longer in the model"
NO_FORWARD = (
    "no forward pass was seen: the model was compiled before watching began (call `torch.compiler.reset()`, or watch "
    "first), or it is not called"
)


@dataclass
class _Fixed:
    """A hook on one module, as long as the module stays in its place."""

    path: str
    module: nn.Module
    hook: Hook
    handle: Any


class Attachment:
    """Hooks on a model. What it adds to the model goes with `remove`, and nothing else of the model is touched.

    Args:
        model: the model itself, out of its wrappers.
        places: names and globs of modules, a predicate, or `None` to find them.
        pulse: of the Monitor.
        boundary: where exceptions of ours end.
        rows: the most rows of one look.
        seed: of samples.
    """

    def __init__(
        self, model: nn.Module, places: Places | None, pulse: Pulse, boundary: Boundary, *, rows: int, seed: int
    ) -> None:
        self.model = model
        self._pulse, self._boundary, self._rows, self._seed = pulse, boundary, rows, seed
        self.reattached = 0
        self._fixed: list[_Fixed] = []
        self.places = find_places(model, places)
        tables = token_embeddings(model)
        self.table = self._table(tables)
        self.padding = _padding(model)
        self._scopes = find_scopes(dict(model.named_modules()), [place.path for place in self.places])
        self.observers = [self._observer(place, tables) for place in self.places]
        whole = [
            Observer(Place(name, "pooled", model, optional=True), pulse, boundary, rows=rows, part=name)
            for name in POOLED
        ]
        added = [Added(place, pulse, boundary, rows=rows, seed=seed) for place in find_positions(model)]
        self.unplaced = [*whole, *added]
        """Observers of what a model may have: pooled outputs by their names, and what positions add."""
        self._attach(whole)

    def _table(self, tables: dict[str, nn.Embedding]) -> TableWatch | None:
        name = next(iter(tables), None)
        if name is None or hasattr(tables[name].weight, "to_local") or tables[name].weight.device.type == "meta":
            return None
        return TableWatch(f"{name}.weight" if name else "weight", tables[name], self._pulse, seed=self._seed)

    def _observer(self, place: Place, tables: dict[str, nn.Embedding]) -> Observer:
        above = [name for name in self._scopes if place.path == name or _is_above(name, place.path)]
        return Observer(
            place,
            self._pulse,
            self._boundary,
            rows=self._rows,
            seed=self._seed,
            scopes=sorted(above, key=len, reverse=True),
            padding=self.padding,
            tokens=self.table.saw if self.table is not None and place.name in tables else None,
        )

    def _attach(self, whole: list[Observer]) -> None:
        """Hang all hooks: the beginning of a forward pass first, its end last."""
        modules = dict(self.model.named_modules())
        self._before("", self.model, Begin(self._pulse))
        for name in self._scopes:
            self._before(name, modules[name], Scope(name, modules[name], self._pulse, self._boundary))
        for observer in [*self.observers, *self.unplaced]:
            if observer in whole:
                self._after("", self.model, observer)
            else:
                self._hang(observer)
        self._after("", self.model, End(self._pulse))

    def _hang(self, observer: Observer) -> None:
        place = observer.place
        hang = self._before if place.side == "input" else self._after
        hang(place.path, place.module, observer)

    def _before(self, path: str, module: nn.Module, hook: Hook) -> None:
        handle = module.register_forward_pre_hook(hook, with_kwargs=True)
        self._fixed.append(_Fixed(path, module, hook, handle))

    def _after(self, path: str, module: nn.Module, hook: Hook) -> None:
        handle = module.register_forward_hook(hook, with_kwargs=True)
        self._fixed.append(_Fixed(path, module, hook, handle))

    def remove(self) -> None:
        """Take every hook away. Calling it again does nothing."""
        for fixed in self._fixed:
            fixed.handle.remove()
        self._fixed = []

    def renew(self) -> None:
        """Follow modules that were replaced, as resizing an embedding does: hooks move to what stands there now."""
        modules = dict(self.model.named_modules())
        for fixed in list(self._fixed):
            now = modules.get(fixed.path)
            if now is None or now is fixed.module:
                continue
            fixed.handle.remove()
            self._fixed.remove(fixed)
            if isinstance(fixed.hook, Observer):
                fixed.hook.place = replace(fixed.hook.place, module=now)
                self._hang(fixed.hook)
            elif isinstance(fixed.hook, Scope):
                self._before(fixed.path, now, fixed.hook)
            self.reattached += 1
            log.info("embedwatch: %s was replaced, and is watched again", fixed.path)
        self._renew_table(modules)

    def _renew_table(self, modules: dict[str, nn.Module]) -> None:
        table = self.table
        if table is None:
            return
        now = modules.get(table.name.removesuffix("weight").removesuffix("."))
        if isinstance(now, nn.Embedding) and (now is not table.module or table.replaced):
            table.module = now
            if table.replaced:
                table.start()

    def blind(self) -> dict[str, str]:
        """Return the places that saw nothing, each with the likely cause."""
        modules = dict(self.model.named_modules())
        seen = [observer for observer in self.observers if observer.looks]
        if not self._pulse.forwards:
            return {observer.place.name: NO_FORWARD for observer in self._due()}
        shared = {id(_weight(observer.place.module)) for observer in seen if observer.place.role == "token"}
        return {
            observer.place.name: GONE if observer.place.path not in modules else observer.unfit or NEVER_CALLED
            for observer in self._due()
            if not observer.looks and id(_weight(observer.place.module)) not in shared
        }

    def _due(self) -> Iterator[Observer]:
        return (observer for observer in self.observers if not observer.place.optional)

    @property
    def expected(self) -> int:
        """Number of places that should be seen."""
        return sum(1 for _ in self._due())


def _weight(module: nn.Module) -> object:
    return getattr(module, "weight", None) if isinstance(module, nn.Embedding) else module


def _is_above(name: str, path: str) -> bool:
    return name == "" or path.startswith(f"{name}.")


def _padding(model: nn.Module) -> int | None:
    """Return the padding token where the configuration has one that stands for nothing else."""
    config = getattr(model, "config", None)
    padding = getattr(config, "pad_token_id", getattr(config, "padding", None))
    others = (getattr(config, "eos_token_id", None), getattr(config, "bos_token_id", None))
    return padding if isinstance(padding, int) and not isinstance(padding, bool) and padding not in others else None
