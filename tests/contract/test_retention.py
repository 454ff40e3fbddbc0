"""Retention: rules in the store define how long finished records are kept, and every process prunes by them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import dibs
from dibs import NewTask, Records, RetentionRule, procedures
from dibs.server.config import ServerConfig
from dibs.store.open import open_store
from dibs.store.operations import upkeep
from dibs.store.operations.upkeep import QUEUES_READ
from tests.helpers.clients import Clock
from tests.helpers.databases import run_sql
from tests.helpers.tasks import moment, task_in

DAY = 24 * 3600.0
FINAL = ("completed", "cancelled", "failed")


def finished(app: Any, kind: str = "resize", queue: str = "default", count: int = 1) -> list[int]:
    """Cancel this number of tasks; return their ids."""
    ids = [task.id for task in app.enqueue_many([NewTask(kind, queue=queue) for _ in range(count)])]
    for task_id in ids:
        app.cancel(task_id)
    return ids


def left(app: Any) -> set[tuple[str, str]]:
    """(queue, type) of the tasks that there are."""
    return {(task.queue, task.type) for task in app.list_tasks(limit=1000)}


def rules(app: Any) -> dict[tuple[str, str | None, str | None, str | None], float | None]:
    return {(rule.records.value, rule.queue, rule.type, rule.workflow): rule.keep for rule in app.retention()}


# Rules


def test_without_rules_the_defaults_are_listed_without_author_and_time(app: Any) -> None:
    assert app.retention() == [
        RetentionRule(Records.COMPLETED, DAY),
        RetentionRule(Records.FAILED, 30 * DAY),
        RetentionRule(Records.CANCELLED, DAY),
        RetentionRule(Records.HISTORY, 30 * DAY),
        RetentionRule(Records.WORKERS, DAY),
    ]
    assert app.retention_changes() == []


def test_a_rule_is_stored_with_its_author_and_its_time(app: Any, clock: Clock) -> None:
    rule = app.signed("ann").set_retention("completed", 7 * DAY, type="invoice")
    assert (rule.records, rule.keep, rule.queue, rule.type) == (Records.COMPLETED, 7 * DAY, None, "invoice")
    assert (rule.changed_at, rule.changed_by.endswith("ann")) == (moment(clock), True)
    assert app.retention()[5:] == [rule]


def test_every_client_of_the_store_sees_the_rules(url: str, open_app: Callable[..., Any]) -> None:
    open_app(url).set_retention("failed", None, queue="audit")
    assert rules(open_app(url))["failed", "audit", None, None] is None


def test_a_rule_is_changed_by_setting_it_again(app: Any, clock: Clock) -> None:
    app.set_retention("completed", 10)
    clock.advance(5)
    changed = app.set_retention("completed", 20)
    assert (changed.keep, changed.changed_at) == (20, moment(clock))
    assert len(app.retention()) == 5


def test_setting_a_rule_to_its_current_value_changes_nothing(app: Any, clock: Clock) -> None:
    first = app.signed("ann").set_retention("completed", None, queue="audit")
    clock.advance(5)
    assert app.signed("ben").set_retention("completed", None, queue="audit") == first
    assert len(app.retention_changes()) == 1


def test_a_removed_rule_no_longer_applies_and_a_removed_default_returns_to_its_first_value(app: Any) -> None:
    app.set_retention("completed", 5)
    app.set_retention("completed", 6, queue="mail")
    app.set_retention("completed", 7, workflow="order")
    app.remove_retention("completed", queue="mail")
    app.remove_retention("completed", workflow="order")
    app.remove_retention("completed")
    app.remove_retention("failed")  # a default that was never changed
    assert rules(app)["completed", None, None, None] == DAY
    assert len(app.retention()) == 5


def test_a_rule_that_is_not_set_cannot_be_removed(app: Any) -> None:
    app.set_retention("completed", 5, type="mail")
    with pytest.raises(dibs.RetentionNotFound, match="No retention rule is set for completed of queue 'mail'"):
        app.remove_retention("completed", queue="mail")


def test_every_change_is_recorded_with_its_author_and_its_time(app: Any, clock: Clock) -> None:
    app.signed("ann").set_retention("completed", 10, queue="mail")
    clock.advance(1)
    app.signed("ben").set_retention("completed", None, queue="mail")
    clock.advance(1)
    app.signed("cy").remove_retention("completed", queue="mail")
    changes = app.retention_changes()
    assert [(change.keep, change.removed, change.queue) for change in changes] == [
        (None, True, "mail"),
        (None, False, "mail"),
        (10, False, "mail"),
    ]
    assert [change.by[-3:].strip("/") for change in changes] == ["cy", "ben", "ann"]
    assert changes[0].at == moment(clock)
    assert [change.removed for change in app.retention_changes(limit=1)] == [True]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("pending", 1, {}), "pending"),
        (("completed", -1, {}), "keep"),
        (("completed", float("nan"), {}), "keep"),
        (("completed", "1d", {}), "keep"),
        (("completed", 1, {"queue": "a", "type": "b"}), "not to several"),
        (("completed", 1, {"queue": ""}), "queue"),
        (("history", 1, {"queue": "a"}), "history"),
        (("workers", 1, {"type": "a"}), "workers"),
    ],
)
def test_an_invalid_rule_is_refused(app: Any, given: tuple[str, Any, dict[str, Any]], said: str) -> None:
    records, keep, target = given
    with pytest.raises(dibs.InvalidValue, match=said):
        app.set_retention(records, keep, **target)
    assert app.retention_changes() == []


# Pruning by them


def test_every_client_prunes_by_the_rules_of_the_store(url: str, clock: Clock, open_app: Callable[..., Any]) -> None:
    one, other = open_app(url, clock=clock), open_app(url, clock=clock)
    task = task_in(one, "completed")
    one.set_retention("completed", None)
    clock.advance(1000 * DAY)
    assert other.upkeep().pruned == 0
    one.set_retention("completed", 1001 * DAY)
    clock.advance(DAY)
    assert other.upkeep().pruned == 1
    assert one.get(task.id) is None


def test_no_client_worker_or_server_has_a_retention_of_its_own(app: Any, url: str) -> None:
    with dibs.Dibs(url) as client:
        for take in (client.worker, client.prune, client.upkeep, ServerConfig):
            with pytest.raises(TypeError, match="retention"):
                take(retention=None)  # type: ignore[call-arg, operator]


@pytest.mark.parametrize("state", FINAL)
def test_each_state_has_its_own_rules(app: Any, clock: Clock, state: str) -> None:
    tasks = {each: task_in(app, each) for each in FINAL}
    app.set_retention(state, 100, type=tasks[state].type)
    clock.advance(100)
    assert app.prune() == 1
    assert [each for each in FINAL if app.get(tasks[each].id) is None] == [state]


def test_a_rule_for_a_type_precedes_a_rule_for_a_queue_and_both_precede_the_default(app: Any, clock: Clock) -> None:
    for queue in ("default", "mail"):
        for kind in ("resize", "invoice"):
            finished(app, kind, queue)
    app.set_retention("cancelled", 10)
    app.set_retention("cancelled", 20, queue="mail")
    app.set_retention("cancelled", 30, type="invoice")
    clock.advance(10)
    app.prune()
    assert left(app) == {("default", "invoice"), ("mail", "resize"), ("mail", "invoice")}
    clock.advance(10)
    app.prune()
    assert left(app) == {("default", "invoice"), ("mail", "invoice")}
    clock.advance(10)
    app.prune()
    assert left(app) == set()


def test_a_rule_may_keep_less_than_the_default(app: Any, clock: Clock) -> None:
    finished(app, "resize")
    finished(app, "heartbeat")
    app.set_retention("cancelled", 0, type="heartbeat")
    assert app.prune() == 1
    assert left(app) == {("default", "resize")}


def test_a_retention_of_none_keeps_records_forever(app: Any, clock: Clock) -> None:
    finished(app, "invoice")
    finished(app, "resize")
    app.set_retention("cancelled", None, type="invoice")
    app.set_retention("history", None)
    app.set_retention("workers", None)
    app.heartbeat("worker-1")
    clock.advance(100 * 365 * DAY)
    done = app.upkeep()
    assert (done.pruned, done.history_pruned, done.workers_pruned) == (1, 0, 0)
    assert left(app) == {("default", "invoice")}


def test_a_retention_of_zero_deletes_at_the_next_upkeep(app: Any) -> None:
    finished(app)
    app.heartbeat("worker-1", leaving=True)
    for records in Records:
        app.set_retention(records, 0)
    done = app.upkeep()
    assert (done.pruned, done.workers_pruned) == (1, 1)
    assert app.all_history() == []


def test_a_removed_rule_leaves_the_next_upkeep_to_the_default(app: Any, clock: Clock) -> None:
    finished(app, "invoice")
    app.set_retention("cancelled", None, type="invoice")
    clock.advance(DAY)
    assert app.prune() == 0
    app.remove_retention("cancelled", type="invoice")
    assert app.prune() == 1


@pytest.mark.database("one batch is an operation of the store")
def test_a_batch_of_pruning_is_bounded_and_takes_the_longest_overdue_first(app: Any, url: str, clock: Clock) -> None:
    finished(app, "zebra", count=30)
    clock.advance(10)
    finished(app, "ape", count=30)
    clock.advance(DAY)
    store = open_store(url, clock=clock)
    assert store.run(store.upkeep.prune(20)).count == 20
    assert Counter(task.type for task in app.list_tasks()) == {"zebra": 10, "ape": 30}
    assert store.run(store.upkeep.prune(20)).count == 20
    assert Counter(task.type for task in app.list_tasks()) == {"ape": 20}
    store.close()


def test_many_queues_and_types_are_pruned_each_by_its_rule(app: Any, clock: Clock) -> None:
    for n in range(30):
        finished(app, f"type-{n % 5}", f"queue-{n}")
    for n in range(0, 30, 2):
        app.set_retention("cancelled", None, queue=f"queue-{n}")
    clock.advance(DAY)
    assert app.prune() == 15
    assert {queue for queue, _ in left(app)} == {f"queue-{n}" for n in range(0, 30, 2)}


# Walking past tasks that are kept longer


@pytest.fixture
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch reads ten finished tasks of each state."""
    monkeypatch.setattr(upkeep, "STRETCH", 10)


def mixed(app: Any, clock: Clock, rare: int = 3, often: int = 60) -> None:
    """So many tasks of a type that are kept for ever, with rare ones among them, each finished at its own moment."""
    app.set_retention("cancelled", None)
    for n in range(often):
        finished(app, "often")
        clock.advance(0.001)
        if n % (often // rare) == often // rare - 1:
            finished(app, "rare")
            clock.advance(0.001)


def test_one_call_prunes_all_due_tasks_among_tasks_that_are_kept(app: Any, clock: Clock, short_stretches: None) -> None:
    mixed(app, clock)
    app.set_retention("cancelled", 0, type="rare")
    assert app.prune() == 3
    assert left(app) == {("default", "often")}
    finished(app, "rare")
    assert app.upkeep().pruned == 1


@pytest.mark.database("one batch is an operation of the store")
def test_one_batch_of_pruning_reads_a_bounded_range_of_kept_tasks(
    app: Any, url: str, clock: Clock, short_stretches: None
) -> None:
    mixed(app, clock)
    app.set_retention("cancelled", 0, type="rare")
    store = open_store(url, clock=clock)
    batches = [store.run(store.upkeep.prune())]
    while batches[-1].next is not None:
        batches.append(store.run(store.upkeep.prune(after=batches[-1].next)))
    assert [batch.count for batch in batches] == [0, 0, 1, 0, 1, 0, 1]
    store.close()


@pytest.mark.database("one batch is an operation of the store")
def test_a_change_of_the_rules_restarts_the_pass(app: Any, url: str, clock: Clock, short_stretches: None) -> None:
    mixed(app, clock)
    app.set_retention("cancelled", 0, type="none")
    store = open_store(url, clock=clock)
    position = store.run(store.upkeep.prune()).next
    position = store.run(store.upkeep.prune(after=position)).next
    app.set_retention("cancelled", 0, type="often")
    assert store.run(store.upkeep.prune(after=position)).count == 10
    assert app.get(1) is None
    store.close()


def test_pruning_finds_all_tasks_that_finished_at_the_same_time(app: Any, short_stretches: None) -> None:
    finished(app, "often", count=25)
    finished(app, "rare", count=15)
    app.set_retention("cancelled", 0, type="rare")
    assert app.prune() == 15
    assert left(app) == {("default", "often")}


@pytest.mark.database("the rounds of a worker are a plan on a database")
def test_a_round_of_upkeep_of_a_worker_continues_where_the_round_before_ended(
    app: Any, url: str, clock: Clock, short_stretches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procedures, "MAX_IDLE_BATCHES", 2)
    mixed(app, clock)
    app.set_retention("cancelled", 0, type="rare")
    client, rounds = dibs.Dibs(url, clock=clock), procedures.Pruning()
    pruned = [client._follow(procedures.run_cleanup(client._store, rounds))[0] for _ in range(8)]
    assert sum(pruned[:4]) == 3
    assert pruned[0] == 0
    client.close()


@pytest.mark.database("the rounds of a worker are a plan on a database")
def test_a_task_that_was_committed_late_is_found_by_the_next_pass(
    app: Any, url: str, clock: Clock, short_stretches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procedures, "MAX_IDLE_BATCHES", 2)
    mixed(app, clock, rare=1)
    app.set_retention("cancelled", 0, type="late")
    client, rounds = dibs.Dibs(url, clock=clock), procedures.Pruning()
    client._follow(procedures.run_cleanup(client._store, rounds))
    [late] = finished(app, "late")
    run_sql(url, f"UPDATE dibs_tasks SET finished_at = 1 WHERE id = {late}")  # before all that was read
    assert client._follow(procedures.run_cleanup(client._store, rounds))[0] == 0
    assert sum(client._follow(procedures.run_cleanup(client._store, rounds))[0] for _ in range(4)) == 1
    assert app.get(late) is None
    client.close()


def test_many_small_workflows_are_pruned_by_one_call(app: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "WORKFLOW_BATCH", 2)
    flows = [workflow(app, "order", "default") for _ in range(5)]
    clock.advance(DAY)
    app.prune()
    assert [app.get_workflow(flow) for flow in flows] == [None] * 5


# Workflows


def workflow(app: Any, name: str, *queues: str) -> int:
    """The id of a cancelled workflow with one step in each queue."""
    steps = [dibs.NewStep(name=f"step-{n}", task=NewTask("resize", queue=queue)) for n, queue in enumerate(queues)]
    flow = app.start_workflow(dibs.NewWorkflow(name=name, steps=steps))
    app.cancel_workflow(flow.id)
    app.upkeep()
    assert app.get_workflow(flow.id).state == "cancelled"
    return int(flow.id)


def test_a_workflow_is_kept_by_the_rule_for_its_name_and_its_steps_with_it(app: Any, clock: Clock) -> None:
    kept, gone = workflow(app, "order", "default"), workflow(app, "import", "default")
    app.set_retention("cancelled", 1, queue="default")
    app.set_retention("cancelled", 1, type="resize")
    app.set_retention("cancelled", None, workflow="order")
    clock.advance(100 * DAY)
    app.upkeep()
    assert (app.get_workflow(gone), app.get_workflow(kept).name, len(app.steps(kept))) == (None, "order", 1)
    assert len(app.list_tasks()) == 1


def test_a_workflow_is_kept_for_the_longest_retention_of_its_queues(app: Any, clock: Clock) -> None:
    both, one = workflow(app, "order", "mail", "audit"), workflow(app, "order", "mail")
    app.set_retention("cancelled", 10, queue="mail")
    app.set_retention("cancelled", 20, queue="audit")
    clock.advance(10)
    app.prune()
    assert (app.get_workflow(one), app.get_workflow(both) is None) == (None, False)
    clock.advance(10)
    app.prune()
    assert app.get_workflow(both) is None


def test_a_workflow_in_a_queue_without_a_rule_is_kept_at_least_for_the_default_retention(
    app: Any, clock: Clock
) -> None:
    flow = workflow(app, "order", "mail", "other")
    app.set_retention("cancelled", 10, queue="mail")
    clock.advance(DAY - 1)
    assert app.prune() == 0
    clock.advance(1)
    app.prune()
    assert app.get_workflow(flow) is None


def test_a_workflow_in_very_many_queues_is_kept_for_the_longest_retention_of_all_queues(app: Any, clock: Clock) -> None:
    queues = [f"{'q' * 250}-{n}" for n in range(5)]
    assert len(json.dumps(queues)) > QUEUES_READ
    flow = workflow(app, "order", *queues)
    app.set_retention("cancelled", 2 * DAY, queue="another")
    clock.advance(2 * DAY - 1)
    assert app.prune() == 0
    clock.advance(1)
    app.prune()
    assert app.get_workflow(flow) is None


# Many at once


def test_concurrent_changes_and_prunings_lose_no_change_and_delete_each_task_once(
    url: str, clock: Clock, open_app: Callable[..., Any]
) -> None:
    apps = [open_app(url, clock=clock) for _ in range(4)]
    old = finished(apps[0], count=300)
    clock.advance(DAY)

    def work(n: int) -> int:
        apps[n % 4].set_retention("cancelled", 10.0 + n, queue=f"queue-{n % 8}")
        return int(apps[n % 4].prune())

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(16))) == 300
    pruned = Counter(entry.task_id for entry in apps[0].all_history() if entry.event == "pruned")
    assert pruned == dict.fromkeys(old, 1)
    assert len(apps[0].retention_changes()) == 16
    assert {rule.queue for rule in apps[0].retention()[5:]} == {f"queue-{n}" for n in range(8)}
