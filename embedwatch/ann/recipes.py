"""Recipes: what `faiss.index_factory` takes, for vectors of another dimension."""

from __future__ import annotations

import re

__all__ = ["fitting_recipe", "plain_recipe"]

PRODUCT = re.compile(r"PQ(\d+)x(\d+)np")
OPQ = re.compile(r"OPQ(\d+)(_\d+)?,")
ID_MAP = re.compile(r"\bIDMap2?,")


def plain_recipe(recipe: str) -> str:
    """Return a recipe without its id map."""
    return ID_MAP.sub("", recipe)


def fitting_recipe(recipe: str, dimension: int) -> str:
    """Return a recipe for another dimension: a product quantiser keeps its bytes, or takes the next more that divide.

    Example:
        >>> fitting_recipe("IDMap2,IVF64,PQ48x8np", 100), fitting_recipe("OPQ16,IVF4,PQ16x8np", 24)
        ('IVF64,PQ50x8np', 'OPQ24,IVF4,PQ24x8np')
    """
    plain = plain_recipe(recipe)
    found = PRODUCT.search(plain)
    if found is None:
        return plain
    parts = next((m for m in range(int(found[1]), dimension + 1) if dimension % m == 0), dimension)
    plain = PRODUCT.sub(f"PQ{parts}x{found[2]}np", plain)
    return OPQ.sub(f"OPQ{parts},", plain)
