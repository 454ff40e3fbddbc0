"""A real Prometheus scrapes a real server and a real worker: each alert fires on its problem, and each panel of the
Grafana dashboard has data.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

import dibs
from dibs import NewStep, NewTask, NewWorkflow
from tests.deploy.expressions import by_panel
from tests.deploy.prometheus import Prometheus, hastened, prometheus, rules, write_rules
from tests.deploy.watched import Watched, watched
from tests.helpers.prometheus import needed
from tests.helpers.waiting import until

SOON = {
    "DibsBacklogAge": ("> 300", "> 1"),
    "DibsGroupStarved": ("> 50", "> 1"),
    "DibsLimitExhausted": ("> 1800", "> 1"),
    "DibsPostgresOldTransaction": ("> 600", "> 1"),
    "DibsSlowClaims": ("> 0.1", "> 0"),
    "DibsSqliteWalLarge": ("> 2 ^ 30", "> 2 ^ 12"),
    "SlowFinalizationClaims": ("> 0.5", "> 0"),
}
"""Thresholds that no test can wait for, and what they are here. All the others are as they ship."""

IN_ANY_CASE = {"DibsSlowClaims", "DibsSqliteWalLarge"}
"""With these thresholds, also where nothing is wrong."""

OF_OTHERS = {"sqlite": {"PostgreSQL: oldest transaction"}, "postgres": {"SQLite: WAL"}}
"""Panels about another engine."""

Alert = tuple[str, dict[str, str]]


@pytest.fixture
def scene(url: str, tmp_path: Path) -> Any:
    """Server and worker run, and Prometheus has scraped both without an alert."""
    needed("prometheus")
    write_rules(tmp_path, [hastened(rule, SOON.get(rule["alert"])) for rule in rules()])
    with watched(url, tmp_path) as stage, prometheus(tmp_path, stage.key, stage.places) as watcher:
        stage.far.enqueue("work")
        until(lambda: watcher.ask('dibs_dead_letter_tasks{queue="default"}'), 30)
        until(lambda: watcher.ask('task_completed_total{queue="default"}'), 30)
        until(lambda: {target["health"] for target in watcher.targets()} == {"up"}, 30)
        until(lambda: {name(alert) for alert in watcher.firing()} <= IN_ANY_CASE, 30)
        yield stage, watcher


@pytest.mark.timeout(240)
def test_each_alert_fires_when_what_it_is_about_happens(engine: str, scene: Any, url: str) -> None:
    stage: Watched
    watcher: Prometheus
    stage, watcher = scene
    with contextlib.ExitStack() as closing:
        each_fires(watcher, provoke(stage, engine, url, closing))
        show_themselves(watcher, engine)
        assert not fires(watcher, "DibsNoWorkerForQueue", {"queue": "default"}), "a worker serves it"
        until(lambda: not fires(watcher, "DibsBacklogAge", {"queue": "default"}), 30)
    calm(stage, watcher)
    stage.hand.terminate()
    until(lambda: fires(watcher, "DibsDown", {"job": "dibs-workers"}), 30)
    until(lambda: not fires(watcher, "DibsDown", {"job": "dibs-server"}), 30)


def provoke(stage: Watched, engine: str, url: str, closing: contextlib.ExitStack) -> list[Alert]:
    """Make everything happen; the alerts that must follow."""
    stage.far.enqueue("work", queue="lonely")
    stage.far.enqueue_many([NewTask("fall", max_attempts=1) for _ in range(40)])
    let_leases_run_out(stage.far)
    write_with_stale_tokens(stage.far)
    contend(stage.far)
    use_up_a_limit(stage.far)
    starve_a_group(stage.far)
    wanted: list[Alert] = [
        ("DibsNoWorkerForQueue", {"queue": "lonely", "store": "shop"}),
        ("DibsBacklogAge", {"queue": "lonely", "store": "shop"}),
        ("DibsDeadLetterRate", {"queue": "default", "store": "shop"}),
        ("DibsLimitExhausted", {"limit": "stripe", "store": "shop"}),
        ("DibsGroupStarved", {"queue": "fair", "store": "shop"}),
        ("DibsLeaseExpiries", {"store": "shop"}),
        ("DibsStaleTokens", {"operation": "complete", "job": "dibs-server"}),
        ("DibsSlowClaims", {"job": "dibs-server"}),
        ("DibsSlowClaims", {"job": "dibs-workers"}),
        ("HighFinalizationContention", {"store": "shop"}),
        ("SlowFinalizationClaims", {"job": "dibs-server"}),
    ]
    if engine == "sqlite":
        return [*wanted, ("DibsSqliteWalLarge", {"store": "shop"})]
    forgotten = closing.enter_context(psycopg.connect(url))
    forgotten.execute("SELECT 1 FROM dibs_tasks LIMIT 1")
    return [*wanted, ("DibsPostgresOldTransaction", {"store": "shop"})]


def let_leases_run_out(far: dibs.Dibs) -> None:
    far.enqueue_many([NewTask("work", queue="left") for _ in range(10)])
    assert len(far.claim_many("sleeper", 10, queues=["left"], lease=0.5)) == 10


def write_with_stale_tokens(far: dibs.Dibs) -> None:
    far.enqueue("work", queue="stale")
    claim = far.claim("slow", queues=["stale"])
    assert claim is not None
    far.release(claim)
    for _ in range(5):
        with pytest.raises(dibs.ClaimLost):
            far.complete(claim)


def use_up_a_limit(far: dibs.Dibs) -> None:
    """One task has waited for the limit and runs, and another one still waits."""
    far.set_limit("stripe", max=1)
    far.enqueue_many([NewTask("work", queue="limited", limits=["stripe"]) for _ in range(3)])
    claim = far.claim("holder", queues=["limited"])
    assert claim is not None
    assert far.claim("holder", queues=["limited"]) is None
    far.complete(claim)
    assert far.claim("holder", queues=["limited"]) is not None
    assert far.claim("holder", queues=["limited"]) is None


def starve_a_group(far: dibs.Dibs) -> None:
    """No worker serves the type of a group's task."""
    far.set_queue("fair", fair=True)
    far.enqueue("forgotten", queue="fair", group="starved")
    far.enqueue_many([NewTask("work", queue="fair", group="served") for _ in range(5)])
    for _ in range(5):
        assert far.claim("partial", queues=["fair"], types=["work"]) is not None


def contend(far: dibs.Dibs) -> None:
    """Ask to finalize what is not ready to be."""
    steps = [NewStep(name="only", task=NewTask("work", queue="never"))]
    workflow = far.start_workflow(NewWorkflow(name="waiting", steps=steps))
    for _ in range(10):
        assert not far.claim_finalization(workflow.id, "eager").claimed


def each_fires(watcher: Prometheus, wanted: list[Alert]) -> None:
    """Each of them sooner or later: some are over when others begin."""
    left, spoken = list(wanted), dict[str, dict[str, str]]()

    def look() -> bool:
        left[:] = [(alert, labels) for alert, labels in left if not fires(watcher, alert, labels)]
        spoken.update({name(alert): alert["annotations"] for alert in watcher.firing()})
        return not left

    with contextlib.suppress(AssertionError):
        until(look, 90)
    assert left == [], watcher.firing()
    for said in spoken.values():
        assert said["summary"].endswith("."), said
        assert not re.search(r"error|<no value>|\{\{|\(\)| in the queue \.", said["summary"]), said


def calm(stage: Watched, watcher: Prometheus) -> None:
    """What waits is taken away, and the alerts about it go."""
    for task in stage.far.list_tasks(state="pending"):
        stage.far.cancel(task.id)
    until(lambda: not fires(watcher, "DibsNoWorkerForQueue") and not fires(watcher, "DibsBacklogAge"), 60)


def show_themselves(watcher: Prometheus, engine: str) -> None:
    """Each expression of each panel gives something, now that everything has happened once."""
    empty = {
        (title, expr)
        for title, exprs in by_panel().items()
        for expr in exprs
        if title not in OF_OTHERS[engine] and not watcher.ask(expr)
    }
    assert empty == set()


def fires(watcher: Prometheus, alert: str, labels: dict[str, str] | None = None) -> bool:
    return any(name(each) == alert and (labels or {}).items() <= each["labels"].items() for each in watcher.firing())


def name(alert: dict[str, Any]) -> str:
    found: str = alert["labels"]["alertname"]
    return found
