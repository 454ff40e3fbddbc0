"""Upkeep: due tasks are promoted, lost tasks recovered, old records pruned, by any client and by many concurrently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dibs import NewTask, State, Upkept
from dibs.observe.verify import verify
from tests.helpers.clients import Clock, run
from tests.helpers.databases import run_sql
from tests.helpers.retention import NOTHING, keep
from tests.helpers.tasks import enqueue_all, events, moment, task_in

DAY = 24 * 3600.0
FINAL = ("completed", "cancelled", "failed")


def claimed(app: Any, count: int, **options: Any) -> list[int]:
    """The ids of tasks that worker-1 holds for 60 seconds."""
    ids = [task.id for task in enqueue_all(app, [NewTask("resize", **options) for _ in range(count)])]
    taken = [claim.task_id for _ in range(0, count, 1000) for claim in app.claim_many("worker-1", 1000)]
    assert taken == ids
    return ids


# Promote


def test_a_scheduled_task_is_promoted_when_it_is_due_and_not_before(app: Any, clock: Clock) -> None:
    task = app.enqueue("resize", delay=10)
    clock.advance(9.999999)
    assert app.promote() == 0
    clock.advance(0.000001)
    assert app.promote() == 1
    assert app.get(task.id).state is State.PENDING
    assert events(app, task.id) == ["enqueued", "promoted"]


def test_a_second_promotion_finds_nothing_to_do(app: Any, clock: Clock) -> None:
    app.enqueue("resize", delay=1)
    clock.advance(1)
    assert [app.promote(), app.promote()] == [1, 0]


def test_promotion_works_in_batches(app: Any, clock: Clock) -> None:
    enqueue_all(app, [NewTask("resize", delay=1) for _ in range(1200)])
    clock.advance(1)
    assert [app.promote() for _ in range(4)] == [500, 500, 200, 0]


def test_the_longest_due_are_promoted_first(app: Any, clock: Clock) -> None:
    app.enqueue_many([NewTask("late", delay=2) for _ in range(500)])
    early = app.enqueue("early", delay=1)
    clock.advance(2)
    assert app.promote() == 500
    assert app.get(early.id).state is State.PENDING
    assert app.stats().by_type["late"] == {"pending": 499, "scheduled": 1}


def test_one_upkeep_promotes_all_due_tasks_in_as_many_batches_as_needed(app: Any, clock: Clock) -> None:
    enqueue_all(app, [NewTask("resize", delay=1) for _ in range(1200)])
    app.enqueue("resize", delay=2)
    clock.advance(1)
    assert app.upkeep().promoted == 1200
    assert app.stats().depth == {"pending": 1200, "scheduled": 1}


# Recover


def test_a_task_is_recovered_when_its_lease_ran_out_and_not_before(app: Any, clock: Clock) -> None:
    [task_id] = claimed(app, 1)
    clock.advance(59.999999)
    assert app.recover() == 0
    clock.advance(0.000001)
    assert app.recover() == 1
    task = app.get(task_id)
    assert (task.state, task.attempts, task.lease_until, task.error.type) == (State.PENDING, 1, None, "LeaseLost")
    assert events(app, task_id) == ["enqueued", "claimed", "recovered"]


def test_a_renewed_task_is_not_recovered(app: Any, clock: Clock) -> None:
    app.enqueue("resize")
    claim = app.claim("worker-1")
    clock.advance(59)
    app.renew(claim)
    clock.advance(59)
    assert app.recover() == 0


def test_a_task_without_attempts_left_goes_to_the_dead_letter(app: Any, clock: Clock) -> None:
    [task_id] = claimed(app, 1, max_attempts=1)
    clock.advance(60)
    assert app.recover() == 1
    task = app.get(task_id)
    assert (task.state, task.attempts, task.finished_at) == (State.FAILED, 1, moment(clock))
    assert task.error.type == "LeaseLost"


def test_recovery_works_in_batches(app: Any, clock: Clock) -> None:
    claimed(app, 600)
    clock.advance(60)
    assert [app.recover() for _ in range(3)] == [500, 100, 0]


def test_one_upkeep_recovers_all_lost_tasks_in_as_many_batches_as_needed(app: Any, clock: Clock) -> None:
    claimed(app, 1200)
    clock.advance(60)
    assert app.upkeep().recovered == 1200
    assert app.stats().depth == {"pending": 1200}


def test_upkeep_of_a_starting_program_leaves_live_claims_alone(
    app: Any, url: str, open_app: Callable[..., Any], clock: Clock
) -> None:
    task = task_in(app, "claimed")
    newcomer = open_app(url, clock=clock)
    assert newcomer.upkeep().recovered == 0
    assert newcomer.get(task.id) == task


# Prune


@pytest.mark.parametrize("state", FINAL)
def test_each_final_state_is_kept_for_its_own_time(app: Any, clock: Clock, state: str) -> None:
    tasks = {each: task_in(app, each) for each in FINAL}
    keep(app, **{each: 100.0 if each == state else 1000.0 for each in FINAL})
    clock.advance(99.999999)
    assert app.prune() == 0
    clock.advance(0.000001)
    assert app.prune() == 1
    assert [each for each in FINAL if app.get(tasks[each].id) is None] == [state]


@pytest.mark.parametrize(("state", "kept"), [("completed", DAY), ("cancelled", DAY), ("failed", 30 * DAY)])
def test_the_default_retention_of_finished_tasks_differs_by_state(
    app: Any, clock: Clock, state: str, kept: float
) -> None:
    task = task_in(app, state)
    clock.advance(kept - 1)
    assert app.upkeep().pruned == 0
    clock.advance(1)
    assert app.upkeep().pruned == 1
    assert app.get(task.id) is None


@pytest.mark.parametrize("state", ["scheduled", "pending", "claimed"])
def test_an_unfinished_task_is_never_pruned(app: Any, clock: Clock, state: str) -> None:
    task = task_in(app, state)
    clock.advance(1)
    keep(app, **NOTHING, workers=0)
    assert app.prune() == 0
    assert app.get(task.id) == task


def test_the_history_of_a_pruned_task_remains_and_records_the_pruning(app: Any, clock: Clock) -> None:
    task = task_in(app, "completed")
    clock.advance(DAY)
    app.signed("janitor").prune()
    *_, last = app.history(task.id)
    assert events(app, task.id) == ["enqueued", "claimed", "completed", "pruned"]
    assert (last.from_state, last.to_state, last.token) == (State.COMPLETED, State.COMPLETED, 1)
    assert (last.at, last.by, last.worker_id) == (moment(clock), "janitor", None)


def test_a_task_that_is_retried_in_time_is_kept(app: Any, clock: Clock) -> None:
    task = task_in(app, "cancelled")
    clock.advance(DAY - 1)
    app.retry(task.id)
    clock.advance(1)
    assert app.prune() == 0
    assert app.get(task.id).state is State.PENDING


def test_history_is_kept_for_its_own_time(app: Any, clock: Clock) -> None:
    task = app.enqueue("resize")
    clock.advance(50)
    app.claim("worker-1", lease=1000)
    clock.advance(50)
    keep(app, history=100)
    assert app.prune() == 1
    assert events(app, task.id) == ["claimed"]
    clock.advance(50)
    keep(app, history=100)
    assert app.upkeep().history_pruned == 1
    assert app.history(task.id) == []
    assert app.get(task.id).state is State.CLAIMED


def test_the_default_retention_of_history_is_thirty_days(app: Any, clock: Clock) -> None:
    app.enqueue("resize")
    clock.advance(30 * DAY - 1)
    assert app.upkeep().history_pruned == 0
    clock.advance(1)
    assert app.upkeep().history_pruned == 1


def test_workers_are_kept_for_their_own_time(app: Any, clock: Clock) -> None:
    app.heartbeat("worker-1")
    clock.advance(50)
    app.heartbeat("worker-2")
    clock.advance(50)
    keep(app, workers=100)
    assert app.upkeep().workers_pruned == 1
    assert [worker.id for worker in app.workers()] == ["worker-2"]


def test_the_default_retention_of_workers_is_a_day(app: Any, clock: Clock) -> None:
    app.heartbeat("worker-1", leaving=True)
    clock.advance(DAY - 1)
    assert app.upkeep().workers_pruned == 0
    clock.advance(1)
    assert app.upkeep().workers_pruned == 1


def test_pruning_takes_more_than_one_batch_of_tasks_and_history(app: Any, clock: Clock) -> None:
    for task in app.enqueue_many([NewTask("resize") for _ in range(600)]):
        app.cancel(task.id)
    clock.advance(DAY)
    assert app.prune() == 600
    clock.advance(30 * DAY)
    assert app.prune() == 1800
    assert (app.list_tasks(), app.all_history()) == ([], [])


def test_the_id_of_a_pruned_task_is_never_used_again(app: Any, clock: Clock) -> None:
    old = task_in(app, "cancelled")
    clock.advance(DAY)
    app.prune()
    assert app.enqueue("resize").id > old.id


def test_the_key_of_a_pruned_task_is_free_again(app: Any, clock: Clock) -> None:
    old = app.enqueue("resize", key="once")
    app.cancel(old.id)
    assert app.enqueue("resize", key="once").deduplicated
    clock.advance(DAY)
    app.prune()
    again = app.enqueue("crop", key="once")
    assert (again.deduplicated, again.id == old.id) == (False, False)


def test_upkeep_returns_counts_of_its_changes(app: Any, clock: Clock) -> None:
    claimed(app, 2)
    app.enqueue("resize", delay=5)
    app.cancel(app.enqueue("resize").id)
    app.heartbeat("worker-1")
    clock.advance(100)
    keep(app, cancelled=50, history=200, workers=50)
    done = app.upkeep()
    assert done == Upkept(promoted=1, recovered=2, pruned=1, history_pruned=0, workers_pruned=1)
    assert app.upkeep() == Upkept()


def test_upkeep_of_an_empty_store_does_nothing(app: Any) -> None:
    assert app.upkeep() == Upkept()


# Many at once


def test_eight_concurrent_upkeeps_of_several_clients_move_each_task_once(
    url: str, clock: Clock, open_app: Callable[..., Any]
) -> None:
    apps = [open_app(url, clock=clock) for _ in range(4)]
    lost = claimed(apps[0], 300)
    due = [task.id for task in enqueue_all(apps[0], [NewTask("resize", delay=1) for _ in range(1200)])]
    old = [task.id for task in apps[0].enqueue_many([NewTask("resize") for _ in range(50)])]
    for task_id in old:
        apps[0].cancel(task_id)
    clock.advance(60)
    keep(apps[0], cancelled=60)
    with ThreadPoolExecutor(8) as pool:
        rounds = list(pool.map(lambda n: apps[n % 4].upkeep(), range(16)))
    history = apps[0].all_history()
    moved = Counter((entry.event.value, entry.task_id) for entry in history)
    assert {key: count for key, count in moved.items() if count > 1} == {}
    assert {task_id for event, task_id in moved if event == "promoted"} == set(due)
    assert {task_id for event, task_id in moved if event == "recovered"} == set(lost)
    assert {task_id for event, task_id in moved if event == "pruned"} == set(old)
    assert [sum(getattr(done, what) for done in rounds) for what in ("promoted", "recovered", "pruned")] == [
        1200,
        300,
        50,
    ]
    assert verify(history).ok


def test_upkeep_concurrent_with_busy_workers_does_no_harm(url: str, clock: Clock, open_app: Callable[..., Any]) -> None:
    apps = [open_app(url, clock=clock) for _ in range(3)]
    apps[0].enqueue_many([NewTask("resize", delay=n % 2) for n in range(120)])
    clock.advance(1)

    def work(number: int) -> int:
        done = 0
        while claim := apps[number % 3].claim(f"worker-{number}"):
            apps[number % 3].complete(claim)
            done += 1
        return done

    with ThreadPoolExecutor(6) as pool:
        upkeeps = [pool.submit(apps[n % 3].upkeep) for n in range(12)]
        assert sum(pool.map(work, range(4))) == 120
        assert [upkeep.exception() for upkeep in upkeeps] == [None] * 12
    assert apps[0].stats().depth == {"completed": 120}
    assert verify(apps[0].all_history()).ok


@pytest.mark.database("only a server keeps sessions and samples")
def test_upkeep_deletes_ended_sessions_and_samples_older_than_eight_days(app: Any, clock: Clock, url: str) -> None:
    store = app._store
    run(app, store.keys.create_session("short", "key-1", 3_600_000_000))
    run(app, store.keys.create_session("long", "key-1", 30 * 86_400_000_000))
    for days in (9, 7):
        run(app, store.statistics.save_sample(clock.now + round((9 - days) * DAY * 1e6), str(days)))
    clock.advance(9 * DAY)
    assert app.upkeep() == Upkept()
    assert [body for _, body in run(app, store.statistics.samples_since(0))] == ["7"]
    assert run_sql(url, "SELECT digest FROM dibs_sessions") == [("long",)]
