"""The dead letter: failed tasks that were neither retried nor discarded."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import dibs
from dibs import Event, State
from dibs.model.search import TaskSearch
from tests.helpers import workflows
from tests.helpers.clients import Clock, run
from tests.helpers.retention import keep
from tests.helpers.tasks import dead, events, task_in
from tests.helpers.workflows import step

on_databases = pytest.mark.database("only a server asks for these")


def listed(app: Any, **options: Any) -> list[int]:
    return [task.id for task in app.list_dead(**options)]


def ignored_step(app: Any) -> int:
    """A failed step whose failure is ignored: its workflow continues."""
    flow = workflows.start(app, step("a", on_failure="ignore", max_attempts=1), step("b", "a"))
    workflows.fail(app, flow, "a")
    return workflows.task_of(app, flow, "a")


# What is in it


def test_the_dead_letter_lists_failed_tasks_newest_first(app: Any) -> None:
    task_in(app, "completed")
    task_in(app, "cancelled")
    mail, media = dead(app, queue="mail", error="503 upstream"), dead(app, queue="media", error="no image")
    assert listed(app) == [*media, *mail]
    assert listed(app, queue="mail") == mail
    assert listed(app, type="nobody") == []
    assert listed(app, error="503") == mail
    assert listed(app, limit=1) == media
    assert listed(app, cursor=media[0]) == mail
    assert app.stats().dead_letter == 2


def test_a_step_whose_failure_was_ignored_is_not_in_the_dead_letter(app: Any) -> None:
    [failed] = dead(app)
    ignored = ignored_step(app)
    assert app.get(ignored).state is State.FAILED
    assert (app.get(ignored).set_aside, app.get(failed).set_aside) == ("ignored", None)
    assert listed(app) == [failed]
    assert app.stats().dead_letter == 1
    assert app.stats().depth["failed"] == 2
    assert app.redrive() == 1
    assert events(app, ignored)[-2:] == [Event.FAILED, Event.IGNORED]
    assert "continued without it" in str(app.explain(ignored))


@on_databases
def test_an_ignored_step_is_in_no_group_of_errors_and_no_search_of_the_dead_letter(app: Any) -> None:
    [failed] = dead(app, error="boom")
    ignored = ignored_step(app)
    groups = run(app, app._store.statistics.error_groups())
    assert [(group.count, group.newest_id) for group in groups.groups] == [(1, failed)]
    assert [task.id for task in run(app, app._store.tasks.search(TaskSearch(dead=True))).tasks] == [failed]
    assert [task.id for task in run(app, app._store.tasks.search(TaskSearch(state="failed"))).tasks] == [
        ignored,
        failed,
    ]
    [count] = [each for each in run(app, app._store.statistics.count_tasks()).counts if each.type == "a"]
    assert (count.count, count.set_aside) == (1, 1)


def test_an_ignored_step_whose_lease_ran_out_is_not_in_the_dead_letter(app: Any, clock: Clock) -> None:
    flow = workflows.start(app, step("a", on_failure="ignore", max_attempts=1), step("b", "a"))
    workflows.claim(app, flow, "a")
    clock.advance(120)
    app.recover()
    assert workflows.states(app, flow) == {"a": "failed", "b": "pending"}
    assert listed(app) == []


def test_a_step_that_fails_its_workflow_is_in_the_dead_letter(app: Any) -> None:
    flow = workflows.start(app, step("a", max_attempts=1))
    workflows.fail(app, flow, "a")
    assert listed(app) == [workflows.task_of(app, flow, "a")]


# Discard one


def test_a_discarded_task_stays_failed_and_leaves_the_dead_letter(app: Any) -> None:
    first, second = dead(app, 2)
    task = app.discard(first)
    assert (task.id, task.state, task.set_aside) == (first, State.FAILED, "discarded")
    assert task.error == app.get(second).error
    assert listed(app) == [second]
    assert app.stats().dead_letter == 1
    entry = app.history(first)[-1]
    assert (entry.event, entry.from_state, entry.to_state) == (Event.DISCARDED, State.FAILED, State.FAILED)
    assert app.redrive() == 1
    assert app.get(first).state is State.FAILED
    assert "discarded" in str(app.explain(first))


def test_a_task_that_is_discarded_again_stays_as_it_is(app: Any) -> None:
    [task] = dead(app)
    once = app.discard(task)
    assert app.discard(task) == once
    assert events(app, task).count(Event.DISCARDED) == 1


@pytest.mark.parametrize("state", ["pending", "scheduled", "claimed", "completed", "cancelled"])
def test_only_a_task_in_the_dead_letter_can_be_discarded(app: Any, state: str) -> None:
    task = task_in(app, state)
    before = app.history(task.id)
    with pytest.raises(dibs.WrongState, match="cannot be discarded") as refused:
        app.discard(task.id)
    assert refused.value.state == state
    assert app.history(task.id) == before


def test_a_task_that_does_not_exist_cannot_be_discarded(app: Any) -> None:
    with pytest.raises(dibs.TaskNotFound):
        app.discard(999)


def test_an_ignored_step_cannot_be_discarded(app: Any) -> None:
    ignored = ignored_step(app)
    with pytest.raises(dibs.WrongState, match="continued without it"):
        app.discard(ignored)
    assert app.discard_dead(ids=[ignored]) == 0


def test_a_discarded_task_can_be_retried_by_its_id_and_can_fail_again(app: Any) -> None:
    [task] = dead(app)
    app.discard(task)
    again = app.retry(task)
    assert (again.state, again.set_aside) == (State.PENDING, None)
    assert events(app, task)[-3:] == [Event.DISCARDED, Event.RESTORED, Event.RETRIED]
    app.fail(app.claim("w"), "again", permanent=True)
    assert listed(app) == [task]


def test_a_discarded_task_is_pruned_like_any_failed_one(app: Any, clock: Clock) -> None:
    [task] = dead(app)
    app.discard(task)
    clock.advance(50)
    keep(app, failed=100)
    assert app.prune() == 0
    clock.advance(51)
    assert app.prune() == 1
    assert events(app, task)[-2:] == [Event.DISCARDED, Event.PRUNED]


# Discard many


def test_the_named_tasks_are_discarded_and_counted(app: Any) -> None:
    first, second, third = dead(app, 3)
    pending = app.enqueue("other").id
    assert app.discard_dead(ids=[first, third, pending, 999, first]) == 2
    assert listed(app) == [second]
    assert app.discard_dead(ids=[first, third]) == 0
    assert app.discard_dead(ids=[]) == 0


FILTERS: dict[str, Callable[[Any], Any]] = {
    "queue": lambda app: app.discard_dead(queue="mail"),
    "type": lambda app: app.discard_dead(type="send"),
    "error": lambda app: app.discard_dead(error="503"),
    "all of them": lambda app: app.discard_dead(queue="mail", type="send", error="503"),
    "ids and a filter": lambda app: app.discard_dead(ids=[1, 2, 3], queue="mail"),
}


@pytest.mark.parametrize("name", list(FILTERS))
def test_all_tasks_that_match_a_filter_are_discarded(app: Any, name: str) -> None:
    [ours] = dead(app, queue="mail", type="send", error="503 upstream")
    [other] = dead(app, queue="media", type="resize", error="no image")
    assert FILTERS[name](app) == 1
    assert listed(app) == [other]
    assert app.get(ours).set_aside == "discarded"


def test_the_whole_dead_letter_is_discarded_in_more_than_one_batch(app: Any) -> None:
    dead(app, 1203)
    assert app.discard_dead() == 1203
    assert listed(app) == []
    assert app.discard_dead() == 0


def test_a_discard_with_a_limit_takes_the_oldest_failures(app: Any, clock: Clock) -> None:
    ids = []
    for _ in range(3):
        ids += dead(app)
        clock.advance(1)
    assert app.discard_dead(limit=2) == 2
    assert listed(app) == ids[2:]


def test_concurrent_discards_discard_each_task_once(app: Any) -> None:
    ids = dead(app, 60)
    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(lambda n: app.discard_dead(ids=ids) if n % 2 else app.discard_dead(), range(6)))
    assert sum(done) == 60
    assert all(events(app, task).count(Event.DISCARDED) == 1 for task in ids)


@pytest.mark.parametrize("wrong", [{"ids": ["a"]}, {"ids": [-1]}, {"queue": ""}, {"limit": 0}, {"error": ""}])
def test_a_discard_with_invalid_arguments_is_refused(app: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(dibs.InvalidValue):
        app.discard_dead(**wrong)


# Steps of workflows


def test_a_discarded_step_leaves_its_workflow_failed_and_is_retried_with_the_workflow(app: Any) -> None:
    flow = workflows.start(app, step("a", max_attempts=1), step("b", "a"))
    workflows.fail(app, flow, "a")
    workflows.finalize_due(app)
    failed = workflows.task_of(app, flow, "a")
    before = app.get_workflow(flow)
    app.discard(failed)
    assert (listed(app), app.redrive(), app.get_workflow(flow)) == ([], 0, before)
    app.retry_workflow(flow)
    assert (app.get(failed).state, app.get(failed).set_aside) == (State.PENDING, None)
    assert Event.RESTORED in events(app, failed)


def test_a_discarded_step_can_be_retried_by_its_id(app: Any) -> None:
    flow = workflows.start(app, step("a", max_attempts=1))
    workflows.fail(app, flow, "a")
    failed = workflows.task_of(app, flow, "a")
    app.discard(failed)
    workflows.finalize_due(app)
    assert app.retry(failed).state is State.PENDING
    assert app.get(failed).set_aside is None


# Limits to queues


@on_databases
def test_a_discard_limited_to_queues_leaves_other_queues_unchanged(app: Any) -> None:
    [mail], [media] = dead(app, queue="mail"), dead(app, queue="media")
    store = app._store
    with pytest.raises(dibs.TaskNotFound):
        run(app, store.tasks.discard(media, ["mail"]))
    assert run(app, store.tasks.discard_many([mail, media], ["mail"])) == 1
    assert listed(app) == [media]


@on_databases
def test_many_discarded_tasks_are_retried_at_once(app: Any) -> None:
    ids = dead(app, 5)
    app.discard_dead()
    assert run(app, app._store.tasks.retry_many(ids)) == 5
    assert all(events(app, task)[-2:] == [Event.RESTORED, Event.RETRIED] for task in ids)
    assert app.stats().depth == {"pending": 5}
