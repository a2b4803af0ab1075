"""All attention of one model: its sites, the hooks and patches that they need, and what they come to."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from embedwatch.core.boundary import Boundary
from embedwatch.observe.anatomy import Modules
from embedwatch.observe.attention import registry
from embedwatch.observe.attention.crossing import ORDER, compiling, detached, watches
from embedwatch.observe.attention.crossing import attend as cross
from embedwatch.observe.attention.interface_seam import interface_patch
from embedwatch.observe.attention.multihead_seam import MultiheadHook, multihead_patch
from embedwatch.observe.attention.named_seam import named_patches
from embedwatch.observe.attention.own_seam import Enter, Leave
from embedwatch.observe.attention.patches import Patch
from embedwatch.observe.attention.positions import holds_positions
from embedwatch.observe.attention.sdpa_seam import sdpa_patch
from embedwatch.observe.attention.shown import check_site
from embedwatch.observe.attention.site import MOST_WAITING, STAGE, AttentionSite, Share
from embedwatch.observe.attention.sites import SiteModule, find_sites, is_cross, spread
from embedwatch.observe.attention.softmax_seam import compiled_method, softmax_patches
from embedwatch.observe.masks import Padding
from embedwatch.observe.places import Place
from embedwatch.observe.pulse import Pulse
from embedwatch.observe.scopes import scopes_of

__all__ = ["ROLE", "AttentionWatch"]

ROLE = "attention"
"""Of places, and name of one that would have none."""
EXPLICIT = "explicit"
_keys = itertools.count(1)


class AttentionWatch:
    """Watches the attention of a model from `attach` to `remove`. In the module tree there are hooks only.

    Args:
        modules: of the model, by name.
        pulse: of the Monitor.
        boundary: where exceptions of ours end.
        rows: the most queries of one look at a site; 0 watches nothing.
        layers: the most sites that are found by themselves.
        seed: of samples.
        taken: names of places that are no attention.
        scopes: names of modules that are told about padding.
        tables: names of embeddings that look tokens up.
        padding: what stands for padding, where the model is told no mask.
    """

    def __init__(
        self,
        modules: Modules,
        pulse: Pulse,
        boundary: Boundary,
        *,
        rows: int,
        layers: int,
        seed: int = 0,
        taken: Sequence[str] = (),
        scopes: Sequence[str] = (),
        tables: Collection[str] = (),
        padding: Padding | None = None,
    ) -> None:
        self.key = next(_keys)
        self.rows = rows
        self._pulse, self._boundary, self._root = pulse, boundary, modules[""]
        self._share = Share(rows, seed, placed=not rows or holds_positions(modules))
        self._taken, self._padding = set(taken), padding
        self._handles: list[Any] = []
        self._number = RemovableHandle(OrderedDict()).id
        self._patches: list[Patch] = []
        weakref.finalize(self, _release, self._patches).atexit = False
        self._paths: dict[int, str] = {}
        self._bound: set[tuple[str, str]] = set()
        self.sites: list[AttentionSite] = []
        """All of them, those that were named in calls last."""
        every = find_sites(modules) if rows else []
        chosen = spread(every, layers)
        self._others = [found for found in every if found not in chosen]
        for found in chosen:
            site = self._site(found, scopes_of(found.path, scopes, modules, tables))
            self.sites.append(site)
            self._bound.update(found.bound)
            self._paths[site.key] = found.path

    def _site(self, found: SiteModule, scopes: Sequence[str]) -> AttentionSite:
        name = found.path or ROLE
        name = f"{name}.{ROLE}" if name in self._taken else name
        fused = found.kind == "fused"
        place = Place(name, ROLE, found.module, whole=not found.path, optional=fused or not found.sure)
        return AttentionSite(
            place,
            found.kind,
            self._share,
            self._pulse,
            self._boundary,
            cross=is_cross(found),
            scopes=scopes,
            padding=self._padding,
        )

    @property
    def attends(self) -> bool:
        """Whether attention is looked at in this forward pass, on this thread."""
        return self._pulse.attends

    def named(self, name: str) -> AttentionSite:
        """Return the site of this name, a new one where there is none."""
        for site in list(self.sites):
            if site.name == name:
                return site
        place = Place(name, ROLE, self._root, whole=True, optional=True)
        site = AttentionSite(place, EXPLICIT, self._share, self._pulse, self._boundary)
        self.sites = [*self.sites, site]
        return site

    def attach(self) -> None:
        """Hang the hooks and put the patches in place that the sites need."""
        if not self.rows:
            return
        for site in self.sites:
            self._hang(site.kind, site.place.module, site)
        for other in self._others:  # what is compiled for one layer is run by all
            self._hang(other.kind, other.module)
        kinds = {site.kind for site in self.sites}
        for patch in _patches(kinds, self._bound):
            patch.hold()
            self._patches.append(patch)
        registry.add(self)

    def _hang(self, kind: str, module: nn.Module, site: AttentionSite | None = None) -> None:
        if kind == "multihead":
            self._before(module, MultiheadHook(self._boundary, site))
        elif kind == "own":
            self._before(module, Enter(self._boundary, module, site))
            hook = Leave(self._boundary, module, site)
            handle = module.register_forward_hook(hook, with_kwargs=True, always_call=True)
            self._handles.append(_with_number(handle, module, self._number))

    def _before(self, module: nn.Module, hook: Enter | MultiheadHook) -> None:
        self._handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))

    def remove(self) -> None:
        """Take everything away. Calling it again does nothing."""
        registry.remove(self)
        for handle in self._handles:
            handle.remove()
        _release(self._patches)
        self._handles = []

    def release(self, gone: nn.Module) -> None:
        """Let go of the model; another module stands for its own."""
        self._root, self._others = gone, []
        for site in self.sites:
            site.place = replace(site.place, module=gone)

    def renew(self, modules: Modules) -> int:
        """Follow modules that were replaced; return how many there were."""
        moved = 0
        for place, other in enumerate(self._others):
            now = modules.get(other.path)
            if now is not None and now is not other.module:
                self._others[place] = replace(other, module=now)
        for site in self.sites:
            now = modules.get(self._paths.get(site.key, ""))
            if site.key in self._paths and now is not None and now is not site.place.module:
                site.place = replace(site.place, module=now)
                moved += 1
        if moved:
            self.remove()
            self.attach()
        return moved

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        *,
        site: str,
        output: Tensor | None,
        mask: Tensor | None,
        is_causal: bool,
        scale: float | None,
    ) -> None:
        """Look at a call that the model's own code tells of; what does not fit is counted, and stops nothing."""
        if not self.rows or not watches() or not (compiling() or self.attends):
            return
        with nullcontext() if compiling() else self._boundary.guard(STAGE, str(site)):
            if not compiling():
                check_site(site, self._taken)
            scale = query.shape[-1] ** -0.5 if scale is None else scale
            (torch.ops.embedwatch.attend if compiling() else cross)(
                query.detach(),
                key.detach(),
                detached(output),
                [] if mask is None else [mask.detach()],
                None,
                None,
                None,
                ORDER,
                self.key,
                site,
                float(scale),
                0.0,
                "first" if is_causal else "",
                0,
            )

    def mark(self, *, rested: bool) -> None:
        """End a window: sites that saw nothing, though others did, have been silent for it, unless looking paused."""
        looked = not rested and any(site.fresh for site in self.sites)
        for site in self.sites:
            site.mark(looked=looked)

    def due(self) -> Iterator[AttentionSite]:
        """Yield the sites that should be seen."""
        return (site for site in self.sites if not site.place.optional)

    def coverage(self) -> Mapping[str, tuple[int, int]]:
        """Return how many sites were seen of those there are, by the seam through which they are."""
        found: dict[str, tuple[int, int]] = {}
        for site in self.sites:
            seen, number = found.get(site.kind, (0, 0))
            found[site.kind] = (seen + (site.looks > 0), number + 1)
        return found

    def memory(self) -> int:
        """Return the most bytes that rows take until they are handed on."""
        return MOST_WAITING if self.sites else 0


def _with_number(handle: RemovableHandle, module: nn.Module, number: int) -> RemovableHandle:
    """Let a hook that is always called have this number: compiled code asks for it, and layers share compiled code."""
    tables: tuple[Any, ...] = (
        module._forward_hooks,
        module._forward_hooks_with_kwargs,
        module._forward_hooks_always_called,
    )
    for table in tables:
        table[number] = table.pop(handle.id)
    handle.id = number
    return handle


def _release(patches: list[Patch]) -> None:
    """Let go of patches, each once."""
    while patches:
        patches.pop().release()


def _patches(kinds: set[str], bound: Collection[tuple[str, str]]) -> Iterator[Patch]:
    """Yield the patches that sites of these kinds need, whose code has such names for what it calls."""
    interface = interface_patch() if kinds & {"interface", "own"} else None
    if interface is not None:
        yield interface
    if "own" in kinds:
        yield from named_patches(bound)
        yield sdpa_patch
        yield from softmax_patches
        method = compiled_method()
        if method is not None:
            yield method
    if "fused" in kinds:
        yield multihead_patch
