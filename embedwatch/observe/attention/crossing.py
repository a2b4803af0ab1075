"""The crossing from compiled code: opaque operators that carry what seams see, and find out who looks when they run.

As in `embedwatch.observe.seam`, an operator writes to `order` in name only: so it stays in the graph, and in its place.
Rules of flex attention are no tensors, and cannot cross: such a call is passed by, and its site says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from embedwatch.observe.attention.calls import QueryKeyCall
from embedwatch.observe.attention.frames import enter, is_open, leave, take_frame, take_open
from embedwatch.observe.attention.masks import Alignment, Masking
from embedwatch.observe.attention.multihead import projected_call
from embedwatch.observe.attention.registry import named_site, sites_with
from embedwatch.observe.attention.scored import scores_call
from embedwatch.observe.attention.shown import check_shown
from embedwatch.observe.attention.site import AttentionSite
from embedwatch.observe.seam import ORDER

__all__ = ["OPEN", "ORDER", "attend", "compiling", "detached", "watches"]

OPEN, HOOKED = 0, 1
"""In place of a module: whichever attends now; one with a hook of its own."""
INTERFACE_KINDS = ("interface", "own")
RULE = "its mask is a rule of flex attention, which cannot leave compiled code"

_library = torch.library.Library("embedwatch", "FRAGMENT")
_library.define(
    "attend(Tensor query, Tensor key, Tensor? output, Tensor[] masks, Tensor? padding, Tensor? sinks, "
    "Tensor? mark, Tensor(a!) order, int site, str name, float scale, float softcap, str causal, int window) -> ()"
)
_library.define("attend_scores(Tensor scores, Tensor(a!) order) -> ()")
_library.define(
    "attend_inputs(Tensor query, Tensor key, Tensor? weight, Tensor? mask, Tensor? padding, Tensor(a!) order, "
    "int site) -> ()"
)
_library.define("attend_within(Tensor? mark, Tensor? entered, Tensor(a!) order, bool begins) -> ()")
_library.define("attend_rule(Tensor? mark, Tensor(a!) order) -> ()")


def attend(
    query: Tensor,
    key: Tensor,
    output: Tensor | None,
    masks: Sequence[Tensor],
    padding: Tensor | None,
    sinks: Tensor | None,
    mark: Tensor | None,
    order: Tensor,
    site: int,
    name: str,
    scale: float,
    softcap: float,
    causal: str,
    window: int,
) -> None:
    """Look at a call of attention."""
    masking = Masking(tuple(masks), padding, cast("Alignment", causal), window)
    for found in _sites(site, name, mark):

        def call(cross: bool = found.cross) -> QueryKeyCall:  # noqa: FBT001
            if name:
                check_shown(query, key, masks[0] if masks else None, output)
            return QueryKeyCall(query, key, scale, output, masking, softcap, sinks, cross=cross)

        found.attend(call)


def _sites(site: int, name: str, mark: Tensor | None) -> list[AttentionSite]:
    if name:
        named = named_site(site, name)
        return [] if named is None else [named]
    if mark is not None:
        return [each for each in sites_with(mark, INTERFACE_KINDS) if is_open(each)]
    opened = take_open()
    return [] if opened is None else [opened]


def _scores(scores: Tensor, order: Tensor) -> None:
    frame = take_frame()
    if frame is not None:
        frame.site.attend(lambda: scores_call(frame.site, scores, frame.shape))


def _inputs(
    query: Tensor,
    key: Tensor,
    weight: Tensor | None,
    mask: Tensor | None,
    padding: Tensor | None,
    order: Tensor,
    site: int,
) -> None:
    kinds = ("multihead",) if site == HOOKED else ("fused",)
    for found in () if weight is None else list(sites_with(weight, kinds)):
        found.attend(lambda found=found: projected_call(found, query, key, mask, padding))  # type: ignore[misc]


def _within(mark: Tensor | None, entered: Tensor | None, order: Tensor, begins: bool) -> None:  # noqa: FBT001
    """Take note that a module begins to attend, or has ended."""
    for found in () if mark is None else list(sites_with(mark, ("own",))):
        if begins:
            enter(found, () if entered is None else tuple(entered.shape))
        else:
            leave(found)


def _rule(mark: Tensor | None, order: Tensor) -> None:
    for found in () if mark is None else list(sites_with(mark, INTERFACE_KINDS)):
        if found.attends:
            found.unfit = RULE


def _nothing(*given: object) -> None:
    """Say to a compiler that nothing is returned."""


for _name, _function in {
    "attend": attend,
    "attend_scores": _scores,
    "attend_inputs": _inputs,
    "attend_within": _within,
    "attend_rule": _rule,
}.items():
    _library.impl(_name, _function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"embedwatch::{_name}", _nothing)


def detached(tensor: Tensor | None) -> Tensor | None:
    """Return a tensor without its history."""
    return None if tensor is None else tensor.detach()


def compiling() -> bool:
    """Return whether this is read by the compiler, and not run.

    What it has read may be run later by names, and come to a seam again, as `torch.nn.functional.softmax` does.
    """
    return bool(torch.compiler.is_dynamo_compiling())


def watches() -> bool:
    """Return whether this is code that is run, or compiled to be: neither exported nor traced by an example."""
    if torch.compiler.is_compiling():
        return compiling() and not torch.compiler.is_exporting()
    return not torch._C._get_tracing_state()
