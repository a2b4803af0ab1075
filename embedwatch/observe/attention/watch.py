"""All attention of one model: its sites, the hooks and patches that they need, and what they come to."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from embedwatch.core.boundary import Boundary
from embedwatch.observe.anatomy import Modules
from embedwatch.observe.attention import registry
from embedwatch.observe.attention.crossing import ORDER, compiling, detached, watches
from embedwatch.observe.attention.crossing import attend as cross
from embedwatch.observe.attention.frames import Enter, Leave
from embedwatch.observe.attention.interface_seam import interface_patch
from embedwatch.observe.attention.multihead_seam import MultiheadHook, multihead_patch
from embedwatch.observe.attention.patches import Patch
from embedwatch.observe.attention.sdpa_seam import sdpa_patch
from embedwatch.observe.attention.site import MOST_WAITING, STAGE, AttentionSite, Share
from embedwatch.observe.attention.sites import SiteModule, find_sites, is_cross, spread
from embedwatch.observe.attention.softmax_seam import softmax_patches
from embedwatch.observe.places import Place
from embedwatch.observe.pulse import Pulse
from embedwatch.observe.scopes import Padding, scopes_of

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
        self._share = Share(rows, seed)
        self._taken, self._padding = set(taken), padding
        self._handles: list[Any] = []
        self._patches: list[Patch] = []
        weakref.finalize(self, _release, self._patches).atexit = False
        self._paths: dict[int, str] = {}
        self.sites: list[AttentionSite] = []
        """All of them, those that were named in calls last."""
        for found in spread(find_sites(modules), layers) if rows else ():
            site = self._site(found, scopes_of(found.path, scopes, modules, tables))
            self.sites.append(site)
            self._paths[site.key] = found.path

    def _site(self, found: SiteModule, scopes: Sequence[str]) -> AttentionSite:
        name = found.path or ROLE
        name = f"{name}.{ROLE}" if name in self._taken else name
        fused = found.kind == "fused"
        place = Place(name, ROLE, found.module, whole=not found.path, optional=fused)
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
            module = site.place.module
            if site.kind == "multihead":
                self._before(module, MultiheadHook(site))
            elif site.kind == "own":
                self._before(module, Enter(site))
                after = module.register_forward_hook(Leave(site), with_kwargs=True, always_call=True)
                self._handles.append(after)
        kinds = {site.kind for site in self.sites}
        for patch in _patches(kinds):
            patch.hold()
            self._patches.append(patch)
        registry.add(self)

    def _before(self, module: nn.Module, hook: Enter | MultiheadHook) -> None:
        self._handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))

    def remove(self) -> None:
        """Take everything away. Calling it again does nothing."""
        registry.remove(self)
        for handle in self._handles:
            handle.remove()
        _release(self._patches)
        self._handles = []

    def renew(self, modules: Modules) -> int:
        """Follow modules that were replaced; return how many there were."""
        moved = 0
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
        with nullcontext() if compiling() else self._boundary.guard(STAGE, site):
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

    def mark(self) -> None:
        """End a window: sites that saw nothing, though others did, have been silent for it."""
        looked = any(site.fresh for site in self.sites)
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


def _release(patches: list[Patch]) -> None:
    """Let go of patches, each once."""
    while patches:
        patches.pop().release()


def _patches(kinds: set[str]) -> Iterator[Patch]:
    """Yield the patches that sites of these kinds need."""
    interface = interface_patch() if kinds & {"interface", "own"} else None
    if interface is not None:
        yield interface
    if "own" in kinds:
        yield sdpa_patch
        yield from softmax_patches
    if "fused" in kinds:
        yield multihead_patch
