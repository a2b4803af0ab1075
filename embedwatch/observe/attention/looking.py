"""Attention of single passes that are made for our sake: every site of a model, as many queries as have room."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from torch import nn

from embedwatch.batch import AttentionBatch
from embedwatch.core.boundary import Boundary
from embedwatch.observe.attention.site import AttentionSite
from embedwatch.observe.attention.watch import AttentionWatch
from embedwatch.observe.pulse import Pulse
from embedwatch.observe.resting import check_rest

__all__ = ["Looking", "looking"]

MOST_SITES = 1_000
Found = TypeVar("Found")


@dataclass(frozen=True)
class Looking:
    """A model that is looked at, pass by pass.

    Args:
        pulse: says when a pass begins and ends.
        sites: all of them, in the order of the model.
    """

    pulse: Pulse
    sites: tuple[AttentionSite, ...]

    def look(self, run: Callable[[], Found]) -> tuple[Found, Mapping[str, AttentionBatch]]:
        """Make one pass; return what it gives, and the rows of each site that was seen, by its name.

        A module that attends several times in a pass is several sites: `name`, `name#1`, and so on.
        """
        self.pulse.begin(grad=False)
        try:
            found = run()
        finally:
            self.pulse.end()
        rows: dict[str, list[AttentionBatch]] = {}
        for site in self.sites:
            for seen in site.collect():
                name = site.name if seen.call == 0 else f"{site.name}#{seen.call}"
                rows.setdefault(name, []).append(seen.rows.finished())
        return found, {name: AttentionBatch.concat(parts) for name, parts in rows.items()}

    def missed(self) -> Mapping[str, str]:
        """Return the sites of which nothing was seen, and why where that is known."""
        return {site.name: site.unfit for site in self.sites if not site.looks}


@contextmanager
def looking(model: nn.Module, *, rows: int, seed: int = 0, boundary: Boundary | None = None) -> Iterator[Looking]:
    """Look at the attention of a model within; hooks hang on it meanwhile, so it must be a copy of our own.

    `embedwatch.loading.probing.shadow` makes one that shares the weights.

    Args:
        model: whose passes are made within, on this thread.
        rows: the most queries of one pass; long texts, and models of many sites, leave fewer.
        seed: of the sample.
        boundary: where exceptions of the seams end.

    Raises:
        InputError: where models may be at work.

    Example:
        >>> import torch
        >>> from embedwatch_model import ModelConfig, Transformer
        >>> model = Transformer(ModelConfig(vocabulary=50, d_model=16, layers=2, heads=2)).eval()
        >>> with torch.no_grad(), looking(model, rows=8) as eyes:
        ...     _, seen = eyes.look(lambda: model(torch.arange(10)[None]))
        >>> len(seen), [len(batch) for batch in seen.values()]
        (2, [16, 16])
    """
    check_rest()
    pulse = Pulse(every=1)
    pulse.attention_every = 1
    modules = dict(model.named_modules())
    watch = AttentionWatch(modules, pulse, boundary or Boundary(), rows=rows, layers=MOST_SITES, seed=seed)
    watch.attach()
    try:
        yield Looking(pulse, tuple(watch.sites))
    finally:
        watch.remove()
