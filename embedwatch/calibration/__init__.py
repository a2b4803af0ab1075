"""Calibration: what many looks at one stream may claim, for a stated number of false alarms. Pure numbers, no torch."""

from embedwatch.calibration.budget import USUAL_BUDGET, Budget, evaluations_per_day
from embedwatch.calibration.detector import Accumulated, accumulate
from embedwatch.calibration.evalues import FINEST, e_value
from embedwatch.calibration.shared import MOST_WINDOWS, Plan, lucky_references, plan
from embedwatch.calibration.windows import windows_together

__all__ = [
    "FINEST",
    "MOST_WINDOWS",
    "USUAL_BUDGET",
    "Accumulated",
    "Budget",
    "Plan",
    "accumulate",
    "e_value",
    "evaluations_per_day",
    "lucky_references",
    "plan",
    "windows_together",
]
