"""What follows the hidden states: the pooling and the steps that modules.json lists, or what a person asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from embedwatch.core.errors import InputError, UsageError
from embedwatch.loading.find import CONFIG, MODULES, read_json
from embedwatch.loading.messages import printable
from embedwatch.loading.modules import Module
from embedwatch.loading.pooling import POOLINGS
from embedwatch.loading.steps import STEPS, Step

__all__ = ["CHOICES", "Pipeline", "read_pipeline"]

CHOICES = ("mean", "cls", "last", "max")
"""The poolings that a person may ask for."""

FIRST = frozenset({"Transformer", "CLIPModel"})
"""Modules that read texts; one of them comes first."""

LEGACY = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "last",
}
"""Switches of older versions to our names, in the order in which several are joined."""

RENAMED = {"mean_sqrt_len_tokens": "mean_sqrt_len", "lasttoken": "last"}


@dataclass(frozen=True)
class Pipeline:
    """What follows the hidden states.

    Args:
        modes: poolings, side by side; empty where the model pools by itself.
        skip_prompt: whether the tokens of a prompt are left out of the pooling.
        steps: maps of pooled vectors, in order.
        words: what is done, for people.
    """

    modes: tuple[str, ...]
    words: tuple[str, ...]
    skip_prompt: bool = False
    steps: tuple[Step, ...] = ()

    @property
    def width(self) -> int | None:
        """Dimension of the vectors, where a step sets it."""
        return next((step.width for step in reversed(self.steps) if step.width is not None), None)


def read_pipeline(modules: tuple[Module, ...], *, label: str, pooling: str | None = None) -> Pipeline:
    """Return what modules.json says happens after the hidden states, with the pooling that a person asked for.

    Args:
        modules: entries of modules.json; none where there is no such file: then the mean of the tokens is taken.
        label: name of the model, for messages.
        pooling: one of `CHOICES`. It replaces the pooling alone: the steps after it stay, where every module is known.

    Raises:
        InputError: if a module is unknown, or its files do not fit.
        UsageError: if there is no such pooling.
    """
    if pooling is not None and pooling not in CHOICES:
        choices = ", ".join(CHOICES)
        raise UsageError(f"`pooling` must be one of {choices}, got {pooling!r}; leave it out for the model's own")
    asked = () if pooling is None else (f"{pooling} pooling, as asked for",)
    if not modules:
        return Pipeline((pooling or "mean",), asked or (f"mean pooling, because there is no {MODULES}",))
    unknown = [module.type for module in modules if module.name not in {*FIRST, "Pooling", *STEPS}]
    if unknown and pooling is not None:
        return Pipeline((pooling,), (*asked, f"{MODULES} was left aside, for its {printable(unknown[0])}"))
    if unknown:
        raise InputError(
            f"`{label}` must list known modules in {MODULES}, got the type {unknown[0]!r}, which is never run; "
            f"choose a pooling yourself with `--pooling` ({', '.join(CHOICES)})"
        )
    return _follow(modules, label, pooling, asked)


def _follow(modules: tuple[Module, ...], label: str, pooling: str | None, asked: tuple[str, ...]) -> Pipeline:
    first, *rest = (module.name for module in modules)
    if first not in FIRST or FIRST & set(rest) or rest.count("Pooling") > 1 or "Pooling" in rest[1:]:
        raise InputError(
            f"`{label}` must list one encoder, one pooling and what follows it in {MODULES}, got "
            f"{', '.join([first, *rest])}; choose a pooling yourself with `--pooling`"
        )
    modes: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    skip = False
    if "Pooling" in rest:
        modes, skip = _read_pooling(modules[1].folder)
        words = (f"{' and '.join(modes)} pooling, from {MODULES}",)
    steps = tuple(STEPS[module.name](module.folder) for module in modules[1:] if module.name != "Pooling")
    return Pipeline(
        (pooling,) if pooling else modes,
        (*(asked or words), *(step.words for step in steps if step.words)),
        skip,
        steps,
    )


def _read_pooling(folder: Path) -> tuple[tuple[str, ...], bool]:
    """Return the poolings, and whether they leave out the tokens of a prompt."""
    config = read_json(folder / CONFIG)
    written = config.get("pooling_mode") or [mode for key, mode in LEGACY.items() if config.get(key)] or "mean"
    names = written if isinstance(written, list) else [written]
    modes = tuple(RENAMED.get(str(name), str(name)) for name in names)
    unknown = [mode for mode in modes if mode not in POOLINGS]
    if unknown:
        raise InputError(
            f"`{folder.name}/{CONFIG}` must name known poolings, got {unknown[0]!r}; "
            f"choose one yourself with `--pooling` ({', '.join(CHOICES)})"
        )
    return modes, config.get("include_prompt") is False
