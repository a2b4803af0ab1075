"""What operators load beside the metrics: rules with their tests, Grafana dashboards, manifests; all generated.

Nothing here runs while a model is watched. `dashboards/generate.py` writes what `files` and `deployment` return.
"""

from embedwatch.operations.alerts import Alert, Signal, Trial
from embedwatch.operations.boards import boards
from embedwatch.operations.deployment import deployment
from embedwatch.operations.files import files
from embedwatch.operations.queries import Query, dashboard_queries, expressions, resolve, rule_expressions
from embedwatch.operations.rules import all_alerts, rule_file, shipped
from embedwatch.operations.trials import trial_file

__all__ = [
    "Alert",
    "Query",
    "Signal",
    "Trial",
    "all_alerts",
    "boards",
    "dashboard_queries",
    "deployment",
    "expressions",
    "files",
    "resolve",
    "rule_expressions",
    "rule_file",
    "shipped",
    "trial_file",
]
