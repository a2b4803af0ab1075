"""References: saved healthy states that later rows are compared with."""

from embedwatch.references.creating import create_reference
from embedwatch.references.fitting import Fitting, compared_statistics
from embedwatch.references.folder import check_target, is_reference, load_reference, save_reference
from embedwatch.references.origin import Origin, Part
from embedwatch.references.reference import Reference

__all__ = [
    "Fitting",
    "Origin",
    "Part",
    "Reference",
    "check_target",
    "compared_statistics",
    "create_reference",
    "is_reference",
    "load_reference",
    "save_reference",
]
