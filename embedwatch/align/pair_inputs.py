"""Two sides of a pair are opened: files of vectors, Sources, or models that encode the same texts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from embedwatch.checks.compatibility import RECIPES
from embedwatch.core.errors import UsageError
from embedwatch.core.source import Source
from embedwatch.loading.find import cached_directory, is_model
from embedwatch.sources import open_source
from embedwatch.sources.paired import Join, PairedSource

__all__ = ["Given", "Recipe", "open_pair", "open_side", "recipe_notes"]

Given = str | os.PathLike[str] | Source


class Recipe(NamedTuple):
    """How one side's vectors come about.

    Args:
        pooling: how token vectors become one, where a model encodes; by default as the model says.
        prefix: stands before each text.
        kind: name of the Source, where it is ambiguous.
        select: array, tensor or column to read.
    """

    pooling: str | None = None
    prefix: str | None = None
    kind: str | None = None
    select: str | None = None


def open_pair(
    left: Given,
    right: Given,
    *,
    text: str | os.PathLike[str] | None = None,
    recipes: tuple[Recipe, Recipe] = (Recipe(), Recipe()),
    join: Join = "auto",
) -> PairedSource:
    """Return the same items in two spaces.

    Args:
        left: a file of vectors, a Source, or with `text` a model.
        right: the same.
        text: file with one text a line, which models encode.
        recipes: how each side is read.
        join: by row `number`, by `name`, or `auto`.

    Raises:
        InputError: if a side cannot be read, or both have no item in common.
        UsageError: if an argument does not fit.
    """
    sides = [
        open_side(given, text, recipe, name) for given, recipe, name in zip((left, right), recipes, SIDES, strict=True)
    ]
    if text is not None and not any(side.place == ENCODED for side in sides):
        raise UsageError(f"`text` must come with a model, got {text} and two files of vectors; leave it out")
    return PairedSource(*sides, join=join)


SIDES = ("left", "right")
ENCODED = "sentences"
"""Place of a Source of texts that a model encodes."""


def open_side(given: Given, text: str | os.PathLike[str] | None, recipe: Recipe, name: str) -> Source:
    """Return one side, opened."""
    if isinstance(given, Source):
        return given
    if not isinstance(given, str | os.PathLike):
        raise UsageError(
            f"`{name}` must be a path or a Source, got {type(given).__name__}; save an array with numpy.save"
        )
    path = Path(given)
    if text is not None and recipe.kind is None and is_a_model(path):
        from embedwatch.loading import load_subject
        from embedwatch.sources.subject import EncodedTexts

        return EncodedTexts(load_subject(path), Path(text), pooling=recipe.pooling, prefix=recipe.prefix)
    for option, value in (("pooling", recipe.pooling), ("prefix", recipe.prefix)):
        if value is not None:
            raise UsageError(f"`{name}_{option}` must come with a model and `text`, got {value!r} for {path}; drop it")
    return open_source(path, recipe.kind, select=recipe.select)


def is_a_model(path: Path) -> bool:
    """Return whether this is a directory of a model, or the name of one in the local hub cache."""
    try:
        return is_model(path) or (not path.exists() and cached_directory(path.as_posix()) is not None)
    except (OSError, ValueError):
        return False


def recipe_notes(pair: PairedSource, recipes: tuple[Recipe, Recipe]) -> list[str]:
    """Return in what the ways from text to vector differ, where both sides are one model; an empty list otherwise."""
    from embedwatch.sources.subject import EncodedTexts

    sides = pair.left, pair.right
    if not all(isinstance(side, EncodedTexts) for side in sides):
        return []
    subjects = [side.subject for side in sides if isinstance(side, EncodedTexts)]
    if subjects[0].fingerprint() != subjects[1].fingerprint():
        return []
    told = [
        subject.encoder(pooling=recipe.pooling, prefix=recipe.prefix).notes
        for subject, recipe in zip(subjects, recipes, strict=True)
    ]
    words = []
    poolings = [next((note.split(" pooling")[0] for note in notes if " pooling" in note), "") for notes in told]
    if poolings[0] != poolings[1]:
        words.append(f"pooling ({poolings[0]} and {poolings[1]})")
    prefixes = [
        next((note.split('"')[1] for note in notes if note.startswith("every text begins")), "") for notes in told
    ]
    if prefixes[0] != prefixes[1]:
        words.append(f'prefix ("{prefixes[0]}" and "{prefixes[1]}")')
    if not words and told[0] != told[1]:
        words.append(f"{'; '.join(told[0])} and {'; '.join(told[1])}")
    return [RECIPES + " and ".join(words)] if words else []
