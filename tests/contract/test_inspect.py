"""Reads change nothing and are exact: one task, pages of tasks, statistics, queues, and why a task waits."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import chain
from typing import Any

import pytest

import dibs
from dibs import Backoff, Explanation, NewTask, State, TaskNotFound
from tests.helpers.clients import Clock
from tests.helpers.tasks import STATES, dead, moment, task_in

# Get


def test_get_shows_the_task_as_it_was_enqueued(app: Any, clock: Clock) -> None:
    task = app.enqueue("resize", {"image": 7}, queue="slow", priority=-3, max_attempts=9, timeout=2.5, key="once")
    found = app.get(task.id)
    assert found == task
    assert (found.params, found.queue, found.priority, found.max_attempts) == ({"image": 7}, "slow", -3, 9)
    assert (found.timeout, found.key, found.created_at, found.run_at) == (2.5, "once", moment(clock), moment(clock))


def test_get_shows_the_holder_and_the_progress_of_a_running_task(app: Any, clock: Clock) -> None:
    app.enqueue("resize")
    claim = app.claim("worker-1", lease=30)
    app.progress(claim, 40, "nearly half")
    found = app.get(claim.task_id)
    assert (found.worker_id, found.claimed_at) == ("worker-1", moment(clock))
    assert (found.token, found.lease_until) == (1, moment(clock) + timedelta(seconds=30))
    assert (found.progress, found.progress_message) == (40, "nearly half")


def test_get_shows_how_the_task_ended(app: Any, clock: Clock) -> None:
    app.enqueue("resize")
    claim = app.claim("worker-1")
    clock.advance(3)
    app.complete(claim, {"size": [1, 2.5, None, "ü"]})
    found = app.get(claim.task_id)
    assert (found.finished, found.result) == (True, {"size": [1, 2.5, None, "ü"]})
    assert (found.finished_at, found.attempts, found.lease_until) == (moment(clock), 1, None)


def test_get_of_a_task_that_does_not_exist_returns_none(app: Any) -> None:
    assert app.get(404) is None
    assert app.get(2**63 - 1) is None


def test_a_malformed_id_is_refused(app: Any) -> None:
    for bad in (-1, 2**63, "1", 1.0, True, None):
        with pytest.raises(dibs.InvalidValue):
            app.get(bad)


# List


def ids(tasks: list[dibs.Task]) -> list[int]:
    return [task.id for task in tasks]


def test_a_list_shows_the_newest_first(app: Any) -> None:
    tasks = app.enqueue_many([NewTask("resize", {"n": n}) for n in range(5)])
    assert app.list_tasks() == tasks[::-1]


def test_an_empty_store_lists_nothing(app: Any) -> None:
    assert app.list_tasks() == []


@pytest.mark.parametrize("state", STATES)
def test_tasks_are_listed_by_state(app: Any, state: str) -> None:
    tasks = {each: task_in(app, each) for each in STATES}
    assert app.list_tasks(state=state) == [tasks[state]]
    assert app.list_tasks(state=State(state)) == [tasks[state]]


def test_tasks_are_listed_by_type_by_queue_and_by_both(app: Any) -> None:
    one = app.enqueue("resize", queue="slow")
    two = app.enqueue("resize", queue="fast")
    three = app.enqueue("crop", queue="fast", delay=5)
    assert ids(app.list_tasks(type="resize")) == [two.id, one.id]
    assert ids(app.list_tasks(queue="fast")) == [three.id, two.id]
    assert ids(app.list_tasks(queue="fast", type="resize", state="pending")) == [two.id]
    assert app.list_tasks(queue="slow", type="crop") == []


def pages(app: Any, between: Callable[[], Any], **options: Any) -> list[list[int]]:
    """The ids of all pages; `between` is called after each."""
    found: list[list[int]] = []
    cursor = None
    while page := app.list_tasks(cursor=cursor, **options):
        found.append(ids(page))
        cursor = page[-1].id
        between()
    return found


def test_pages_leave_no_gap_and_repeat_nothing(app: Any) -> None:
    tasks = app.enqueue_many([NewTask("resize") for _ in range(10)])
    found = pages(app, lambda: None, limit=3)
    assert [len(page) for page in found] == [3, 3, 3, 1]
    assert list(chain(*found)) == ids(tasks)[::-1]


def test_pages_stay_complete_while_tasks_are_added(app: Any) -> None:
    tasks = app.enqueue_many([NewTask("resize") for _ in range(10)])
    found = pages(app, lambda: app.enqueue_many([NewTask("resize")] * 4), limit=3)
    assert list(chain(*found)) == ids(tasks)[::-1]


def test_pages_of_a_filter_stay_complete_while_tasks_are_added_and_removed(app: Any) -> None:
    tasks = app.enqueue_many([NewTask(f"type-{n % 2}") for n in range(12)])

    def change() -> None:
        app.enqueue("type-0")
        app.cancel(app.enqueue("type-0").id)

    found = pages(app, change, limit=2, type="type-0", state="pending")
    assert list(chain(*found)) == ids(tasks)[::-1][1::2]


def test_a_page_has_a_hundred_tasks_by_default(app: Any) -> None:
    app.enqueue_many([NewTask("resize") for _ in range(101)])
    assert len(app.list_tasks()) == 100
    assert len(app.list_tasks(limit=1000)) == 101


BAD_FILTERS: list[dict[str, Any]] = [
    {"state": "running"},
    {"state": ""},
    {"type": ""},
    {"queue": "a\nb"},
    {"limit": 0},
    {"limit": 1001},
    {"limit": "10"},
    {"cursor": -1},
    {"cursor": "10"},
]


def test_a_bad_filter_is_refused(app: Any) -> None:
    for bad in BAD_FILTERS:
        with pytest.raises(dibs.InvalidValue):
            app.list_tasks(**bad)


def test_an_unknown_filter_is_refused(app: Any) -> None:
    with pytest.raises(TypeError, match="colour"):
        app.list_tasks(colour="red")


def test_names_with_sql_in_them_are_only_names(app: Any) -> None:
    app.enqueue("other", queue="other")
    for name in ("'; DROP TABLE dibs_tasks; --", "%", "{{task}}", "%(now)s", ":now", "a_b"):
        task = app.enqueue(name, queue=name)
        assert ids(app.list_tasks(type=name, queue=name)) == [task.id]
        assert app.claim("worker-1", queues=[name], types=[name]).task_id == task.id


# Stats


def test_an_empty_store_has_empty_stats(app: Any) -> None:
    stats = app.stats()
    assert (stats.depth, stats.by_queue, stats.by_type, stats.oldest_pending_age) == ({}, {}, {}, None)
    assert (stats.finished_last_minute, stats.finished_last_hour) == ({}, {})
    assert (stats.wait.p50, stats.run.p50, stats.run.p99) == (None, None, None)


def test_depth_counts_by_state_queue_and_type(app: Any) -> None:
    for state in STATES:
        task_in(app, state, "resize", queue="slow")
    app.enqueue_many([NewTask("crop", queue="slow"), NewTask("crop", queue="fast")])
    stats = app.stats()
    each = dict.fromkeys(STATES, 1)
    assert stats.depth == each | {"pending": 3}
    assert stats.by_queue == {"slow": each | {"pending": 2}, "fast": {"pending": 1}}
    assert stats.by_type == {"resize": each, "crop": {"pending": 2}}


def test_the_oldest_pending_age_is_the_age_of_the_task_that_waits_longest(app: Any, clock: Clock) -> None:
    app.enqueue("resize")
    clock.advance(10)
    app.enqueue_many([NewTask("crop", queue="other"), NewTask("resize")])
    clock.advance(5)
    assert app.stats().oldest_pending_age == 15
    app.claim("worker-1")
    assert app.stats().oldest_pending_age == 5
    app.claim_many("worker-1", 2)
    assert app.stats().oldest_pending_age is None


def test_the_age_of_a_pending_task_begins_when_it_becomes_claimable(app: Any, clock: Clock) -> None:
    app.enqueue("resize", delay=100)
    assert app.stats().oldest_pending_age is None
    clock.advance(100)
    app.promote()
    clock.advance(7)
    assert app.stats().oldest_pending_age == 7


def test_the_age_of_a_released_task_begins_again(app: Any, clock: Clock) -> None:
    app.enqueue("resize")
    claim = app.claim("worker-1")
    clock.advance(30)
    app.release(claim)
    clock.advance(4)
    assert app.stats().oldest_pending_age == 4


def test_throughput_counts_the_tasks_finished_in_the_last_minute_and_hour(app: Any, clock: Clock) -> None:
    task_in(app, "completed")
    clock.advance(3000)
    task_in(app, "completed")
    task_in(app, "failed")
    clock.advance(59)
    task_in(app, "cancelled")
    stats = app.stats()
    assert stats.finished_last_minute == {"completed": 1, "failed": 1, "cancelled": 1}
    assert stats.finished_last_hour == {"completed": 2, "failed": 1, "cancelled": 1}
    clock.advance(1)
    assert app.stats().finished_last_minute == {"cancelled": 1}
    clock.advance(3600)
    assert app.stats().finished_last_hour == {}


def test_percentiles_of_run_times_are_those_of_completed_tasks(app: Any, clock: Clock) -> None:
    app.enqueue_many([NewTask("resize") for _ in range(100)])
    for claim in app.claim_many("worker-1", 100, lease=1000):
        clock.advance(1)
        app.complete(claim)
    run = app.stats().run
    assert run.p50 == pytest.approx(50, abs=1)
    assert run.p95 == pytest.approx(95, abs=1)
    assert run.p99 == pytest.approx(99, abs=1)
    assert app.stats().wait.p99 == 0


def test_percentiles_of_waiting_times_are_those_of_completed_tasks(app: Any, clock: Clock) -> None:
    app.enqueue_many([NewTask("resize") for _ in range(100)])
    for _ in range(100):
        clock.advance(0.5)
        app.complete(app.claim("worker-1"))
    wait = app.stats().wait
    assert wait.p50 == pytest.approx(25, abs=0.5)
    assert wait.p95 == pytest.approx(47.5, abs=0.5)
    assert app.stats().run.p99 == 0


def run(app: Any, clock: Clock, count: int, seconds: float) -> None:
    """Complete a task after each of these numbers of seconds."""
    app.enqueue_many([NewTask("resize") for _ in range(count)])
    claims = app.claim_many("worker-1", count, lease=1000)
    clock.advance(seconds)
    app.finish([(claim, dibs.Completed()) for claim in claims])


def test_percentiles_are_over_the_last_thousand_completed_tasks(app: Any, clock: Clock) -> None:
    run(app, clock, 20, 500)
    assert app.stats().run.p50 == 500
    run(app, clock, 1000, 2)
    assert (app.stats().run.p50, app.stats().run.p99) == (2, 2)


def test_failed_and_cancelled_tasks_are_not_in_the_percentiles(app: Any) -> None:
    for state in ("failed", "cancelled"):
        task_in(app, state)
    assert app.stats().run.p50 is None


# Queues


def test_queues_are_listed_by_name_with_their_depth(app: Any) -> None:
    for queue, state in (("b", "pending"), ("a", "scheduled"), ("b", "completed"), ("b", "pending")):
        task_in(app, state, queue=queue)
    assert [(queue.name, queue.depth) for queue in app.queues()] == [
        ("a", {"scheduled": 1}),
        ("b", {"pending": 2, "completed": 1}),
    ]


def test_a_paused_queue_is_listed_even_when_it_is_empty(app: Any, clock: Clock) -> None:
    app.pause("slow")
    [queue] = app.queues()
    assert (queue.name, queue.paused, queue.paused_at, queue.depth) == ("slow", True, moment(clock), {})


def test_a_store_without_tasks_has_no_queues(app: Any) -> None:
    assert app.queues() == []


# Explain


def codes(explanation: Explanation) -> list[str]:
    return [reason.code for reason in explanation.reasons]


def explained(app: Any, task: dibs.Task) -> Explanation:
    explanation = app.explain(task.id)
    assert (explanation.task_id, explanation.state) == (task.id, task.state)
    assert all(reason.message in str(explanation) for reason in explanation.reasons)
    return explanation


def test_explain_reports_that_a_scheduled_task_is_not_due(app: Any) -> None:
    task = task_in(app, "scheduled")
    explanation = explained(app, task)
    assert codes(explanation) == ["not_due"]
    assert f"not due until {task.run_at:%Y-%m-%d %H:%M:%S} UTC" in str(explanation)


def test_explain_reports_a_due_scheduled_task_as_due_and_not_as_waiting_for_a_past_time(app: Any, clock: Clock) -> None:
    task = app.enqueue("resize", delay=60)
    clock.advance(59.999999)
    assert codes(explained(app, task)) == ["not_due"]
    clock.advance(0.000001)
    explanation = explained(app, task)
    assert codes(explanation) == ["due"]
    assert f"due since {task.run_at:%Y-%m-%d %H:%M:%S} UTC" in str(explanation)
    assert "the next claim or upkeep" in str(explanation)
    assert "not due" not in str(explanation)
    assert app.promote() == 1
    assert codes(explained(app, app.get(task.id))) == ["no_worker"]


def test_explain_names_the_failed_attempt_of_a_task_that_waits_for_the_next(app: Any) -> None:
    app.enqueue("resize", backoff=Backoff(base=100))
    claim = app.claim("worker-1")
    app.fail(claim, "broken")
    explanation = explained(app, app.get(claim.task_id))
    assert codes(explanation) == ["not_due"]
    assert "attempt 1 of 3 failed" in str(explanation)


def test_explain_names_the_holder_and_the_lease_of_a_claimed_task(app: Any) -> None:
    task = task_in(app, "claimed", worker_id="worker-7")
    explanation = explained(app, task)
    assert codes(explanation) == ["claimed"]
    assert f"claimed by worker-7 until {task.lease_until:%Y-%m-%d %H:%M:%S} UTC" in str(explanation)
    assert "cancellation was requested" not in str(explanation)


def test_explain_reports_the_cancel_request_of_a_claimed_task(app: Any) -> None:
    task = task_in(app, "claimed")
    app.cancel(task.id)
    assert "cancellation was requested" in str(explained(app, task))


def test_explain_reports_that_the_queue_is_paused(app: Any, clock: Clock) -> None:
    task = app.enqueue("resize", queue="slow")
    app.heartbeat("worker-1")
    app.pause("slow")
    explanation = explained(app, task)
    assert codes(explanation) == ["queue_paused"]
    assert f"'slow' is paused since {moment(clock):%Y-%m-%d %H:%M:%S} UTC" in str(explanation)


def test_explain_reports_that_no_worker_serves_the_task(app: Any) -> None:
    explanation = explained(app, app.enqueue("resize", queue="slow"))
    assert codes(explanation) == ["no_worker"]
    assert "'slow'" in str(explanation)
    assert "'resize'" in str(explanation)


@pytest.mark.parametrize("serving", [{"queues": ["fast"]}, {"types": ["crop"]}, {"leaving": True}])
def test_explain_does_not_count_a_worker_that_does_not_serve_the_task(app: Any, serving: dict[str, Any]) -> None:
    app.heartbeat("worker-1", **serving)
    assert codes(explained(app, app.enqueue("resize", queue="slow"))) == ["no_worker"]


def test_explain_does_not_count_a_stale_worker(app: Any, clock: Clock) -> None:
    app.heartbeat("worker-1")
    task = app.enqueue("resize")
    assert codes(explained(app, task)) == ["ready"]
    clock.advance(300)
    assert codes(explained(app, task)) == ["no_worker"]


def test_explain_gives_both_reasons_if_there_are_two(app: Any) -> None:
    task = app.enqueue("resize", queue="slow")
    app.pause("slow")
    assert codes(explained(app, task)) == ["queue_paused", "no_worker"]


@pytest.mark.parametrize("serving", [{}, {"queues": ["slow"]}, {"types": ["resize"]}])
def test_explain_reports_a_task_with_an_active_worker_as_ready(app: Any, serving: dict[str, Any]) -> None:
    app.heartbeat("worker-1", **serving)
    explanation = explained(app, app.enqueue("resize", queue="slow"))
    assert codes(explanation) == ["ready"]
    assert "1 live worker" in str(explanation)


def test_explain_reports_how_a_task_failed(app: Any) -> None:
    [task_id] = dead(app, 1, "disk full")
    explanation = explained(app, app.get(task_id))
    assert codes(explanation) == ["failed"]
    assert "permanently in attempt 1 of 3" in str(explanation)
    assert "Error: disk full" in str(explanation)


@pytest.mark.parametrize("state", ["completed", "cancelled"])
def test_explain_reports_when_a_task_finished(app: Any, clock: Clock, state: str) -> None:
    task = task_in(app, state)
    since = moment(clock)
    clock.advance(60)
    explanation = explained(app, task)
    assert codes(explanation) == [state]
    assert f"{state} since {since:%Y-%m-%d %H:%M:%S} UTC" in str(explanation)


def test_explain_of_a_task_that_does_not_exist_is_not_found(app: Any) -> None:
    with pytest.raises(TaskNotFound):
        app.explain(404)


def test_reads_change_nothing(app: Any) -> None:
    tasks = [task_in(app, state) for state in STATES]
    before = app.list_tasks(), app.all_history()
    for look in (app.stats, app.queues, app.workers, app.list_tasks, app.list_types):
        look()
    for task in tasks:
        app.get(task.id), app.history(task.id), app.explain(task.id)
    assert (app.list_tasks(), app.all_history()) == before
