"""What operators load beside the metrics: Prometheus rules with their tests, and a Grafana dashboard, all generated.

Nothing here runs while a model is watched. `dashboards/generate.py` writes what `files` returns.
"""

from embedwatch.operations.alerts import Alert, Signal, Trial
from embedwatch.operations.files import files
from embedwatch.operations.overview import overview
from embedwatch.operations.queries import Query, dashboard_queries, expressions, resolve, rule_expressions
from embedwatch.operations.rules import all_alerts, rule_file, shipped
from embedwatch.operations.trials import trial_file

__all__ = [
    "Alert",
    "Query",
    "Signal",
    "Trial",
    "all_alerts",
    "dashboard_queries",
    "expressions",
    "files",
    "overview",
    "resolve",
    "rule_expressions",
    "rule_file",
    "shipped",
    "trial_file",
]
