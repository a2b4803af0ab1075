"""References: saved healthy states that later rows are compared with."""

from embedwatch.references.creating import create_reference
from embedwatch.references.fitting import Fitting, compared_statistics
from embedwatch.references.folder import FOLDER, is_reference, load_reference, save_reference
from embedwatch.references.origin import Origin, Part
from embedwatch.references.reference import Reference

__all__ = [
    "FOLDER",
    "Fitting",
    "Origin",
    "Part",
    "Reference",
    "compared_statistics",
    "create_reference",
    "is_reference",
    "load_reference",
    "save_reference",
]
