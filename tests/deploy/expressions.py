"""The expressions of the Grafana dashboard, and the metrics that an expression asks for."""

from __future__ import annotations

import json
import re

from tests.deploy.prometheus import DEPLOY

NO_METRICS = re.compile(
    r"""
    "[^"]*"                                                         # text
    | \{[^}]*\}                                                     # labels
    | \[[^\]]*\]                                                    # windows
    | \b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)
    | \b(?:offset\s+\w+|and|or|unless|bool)\b
    """,
    re.VERBOSE,
)
NAME = re.compile(r"\b[a-zA-Z_:][\w:]*\b(?!\s*\()")
VARIABLES = {"$__rate_interval": "10s", "$store": ".*", "$queue": ".*"}


def metrics_in(expr: str) -> set[str]:
    """The metrics that an expression asks for."""
    return set(NAME.findall(NO_METRICS.sub(" ", expr)))


def by_panel() -> dict[str, list[str]]:
    """The expressions of each panel, as they are where everything is chosen."""
    panels = json.loads((DEPLOY / "grafana/dibs.json").read_text(encoding="utf-8"))["panels"]
    return {
        panel["title"]: [_filled(each["expr"]) for each in panel["targets"]] for panel in panels if "targets" in panel
    }


def _filled(expr: str) -> str:
    for name, value in VARIABLES.items():
        expr = expr.replace(name, value)
    assert "$" not in expr, expr
    return expr
