"""The alert rules: valid for Prometheus, fire when they should and only then, and contain an instruction."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.prometheus import DEPLOY, PROMETHEUS, rules, write_rules
from tests.helpers.prometheus import needed

GUIDE = DEPLOY.parent / "docs/guides/alerts.md"
RULES = {rule["alert"]: rule for rule in rules()}
WANTED = {
    "DibsBacklogAge",
    "DibsDeadLetterRate",
    "DibsDown",
    "DibsGroupStarved",
    "DibsLeaseExpiries",
    "DibsLimitExhausted",
    "DibsNoWorkerForQueue",
    "DibsPostgresOldTransaction",
    "DibsSlowClaims",
    "DibsSqliteWalLarge",
    "DibsStaleTokens",
    "HighFinalizationContention",
    "SlowFinalizationClaims",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the rules, their tests and the configuration, with a key."""
    shutil.copytree(PROMETHEUS, tmp_path / "prometheus")
    (tmp_path / "prometheus" / "dibs.key").write_text("dibs_x_y", encoding="utf-8")
    return tmp_path / "prometheus"


def promtool(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [needed("promtool"), *args], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )


def test_promtool_accepts_the_alert_rules(folder: Path) -> None:
    done = promtool(folder, "check", "rules", "--lint=all", "--lint-fatal", "alerts.yml")
    assert done.returncode == 0, done.stderr + done.stdout


def test_promtool_accepts_the_example_configuration(folder: Path) -> None:
    done = promtool(folder, "check", "config", "prometheus.yml")
    assert done.returncode == 0, done.stderr + done.stdout


def test_each_alert_fires_when_it_should_and_not_when_it_should_not(folder: Path) -> None:
    done = promtool(folder, "test", "rules", "alerts_test.yml")
    assert done.returncode == 0, done.stderr + done.stdout


@pytest.mark.parametrize(
    "change",
    [{"expr": "vector(0) > 1"}, {"expr": "vector(1)", "for": "0s"}, {"for": "0s"}],
    ids=["never", "always", "at once"],
)
def test_the_rule_tests_find_an_alert_that_fires_never_always_or_too_soon(folder: Path, change: dict[str, str]) -> None:
    write_rules(folder, [{**rule, **change} for rule in RULES.values()])
    done = promtool(folder, "test", "rules", "alerts_test.yml")
    failures = re.findall(r'expr: ".*?alertname=\\"(\w+)', done.stdout + done.stderr)
    assert set(failures) == WANTED, done.stdout + done.stderr


def test_every_known_problem_has_an_alert() -> None:
    assert RULES.keys() == WANTED


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_an_alert_has_a_severity_and_an_instruction(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"].keys() == {"summary", "description", "runbook"}
    assert rule["annotations"]["summary"].endswith(".")
    assert len(rule["annotations"]["description"]) > 80


def test_each_alert_has_its_section_in_the_guide() -> None:
    headings = re.findall(r"^## (.+)$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for name in headings if name in RULES] == list(RULES), "in the same order"
    page = GUIDE.relative_to(DEPLOY.parent)
    assert {name: rule["annotations"]["runbook"] for name, rule in RULES.items()} == {
        name: f"{page}#{name.lower()}" for name in RULES
    }


def test_the_links_inside_the_guide_lead_to_its_sections() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    anchors = {heading.lower().replace(" ", "-") for heading in re.findall(r"^## (.+)$", text, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= anchors


def test_the_grafana_dashboard_names_only_existing_alerts() -> None:
    board = (DEPLOY / "grafana/dibs.json").read_text(encoding="utf-8")
    told = " ".join(panel.get("description", "") for panel in json.loads(board)["panels"])
    named = set(re.findall(r"alert (\w+)", told))
    assert named
    assert named <= RULES.keys()
