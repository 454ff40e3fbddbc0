"""Every metric in an alert or a panel is a metric of a server or a worker."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.deploy.expressions import by_panel, metrics_in
from tests.deploy.prometheus import DEPLOY, rules
from tests.deploy.watched import watched

OF_PROMETHEUS = {"up"}
OF_OTHERS = {
    "sqlite": {"dibs_postgres_oldest_transaction_age_seconds"},
    "postgres": {"dibs_sqlite_wal_size_bytes"},
}
"""What only servers on another engine have."""

SUFFIXES = {"histogram": ("_bucket", "_count", "_sum"), "summary": ("", "_count", "_sum")}


def shown(page: str) -> set[str]:
    """The names of the samples of a page, also of families without samples."""
    types = re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE)
    return {name + suffix for name, kind in types for suffix in SUFFIXES.get(kind, ("",))}


def test_each_metric_in_a_rule_or_panel_exists(engine: str, url: str, tmp_path: Path) -> None:
    with watched(url, tmp_path) as dibs:
        there = set.union(*map(shown, dibs.pages().values()))
    asked = {rule["alert"]: metrics_in(rule["expr"]) for rule in rules()} | {
        title: set.union(*map(metrics_in, exprs)) for title, exprs in by_panel().items()
    }
    missing = {name: metrics - there - OF_PROMETHEUS - OF_OTHERS[engine] for name, metrics in asked.items()}
    assert {name: metrics for name, metrics in missing.items() if metrics} == {}
    assert not OF_OTHERS[engine] & there, "they are of other engines only"


def test_metrics_are_found_in_any_expression() -> None:
    assert metrics_in('max by (store, queue) (a_b{c="d_e"}) > 1 unless on (f) g == 1') == {"a_b", "g"}
    assert metrics_in('histogram_quantile(0.95, sum by (le) (rate(a_bucket{s=~"$s"}[$__rate_interval])))') == {
        "a_bucket"
    }
    assert metrics_in('up{job=~"dibs.*"} == 0 or absent(up{job=~"dibs.*"})') == {"up"}
    assert metrics_in("x > 2 ^ 30 and y offset 5m") == {"x", "y"}


def test_panels_and_targets_have_unique_names() -> None:
    panels = json.loads((DEPLOY / "grafana/dibs.json").read_text(encoding="utf-8"))["panels"]
    for names in ([each["id"] for each in panels], [each["title"] for each in panels]):
        assert len(set(names)) == len(names)
    for panel in panels:
        refs = [each["refId"] for each in panel.get("targets", [])]
        assert len(set(refs)) == len(refs)


def test_no_panel_overlaps_another() -> None:
    panels = json.loads((DEPLOY / "grafana/dibs.json").read_text(encoding="utf-8"))["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


@pytest.mark.parametrize("subject", ["backlog", "throughput", "wait", "claims", "workers", "dead letter", "database"])
def test_the_grafana_dashboard_has_a_row_for_each_subject(subject: str) -> None:
    panels = json.loads((DEPLOY / "grafana/dibs.json").read_text(encoding="utf-8"))["panels"]
    assert any(subject in panel["title"].lower() for panel in panels if panel["type"] == "row")
