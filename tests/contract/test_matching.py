"""Lists of tasks by key, worker, time and text, and cancel or retry of all matching tasks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dibs import Failed, Failure, InvalidValue, NewTask, State
from tests.helpers.clients import Clock
from tests.helpers.tasks import events, moment
from tests.helpers.workflows import DIAMOND, start, states


def ids(tasks: Any) -> list[int]:
    return [task.id for task in tasks]


def failed(app: Any, message: str, **options: Any) -> int:
    task = app.enqueue("resize", **options)
    app.finish([(app.claim_by_id(task.id, "worker-1"), Failed(Failure("ValueError", message), permanent=True))])
    return int(task.id)


# List


def test_a_list_by_key_has_the_task_with_this_key(app: Any) -> None:
    task = app.enqueue("resize", key="order-7")
    app.enqueue("resize", key="order-8")
    assert app.list_tasks(key="order-7") == [task]
    assert app.list_tasks(key="order-9") == []


def test_a_list_by_worker_has_the_tasks_of_this_worker(app: Any) -> None:
    for _ in range(3):
        app.enqueue("resize")
    held = app.claim("worker-1")
    app.claim("worker-2")
    assert ids(app.list_tasks(worker="worker-1")) == [held.task.id]
    assert app.list_tasks(worker="worker-3") == []


def test_a_list_by_group_has_the_tasks_of_this_group(app: Any) -> None:
    acme = app.enqueue("resize", group="acme")
    app.enqueue("resize", group="globex")
    app.enqueue("resize")
    assert app.list_tasks(group="acme") == [acme]
    assert app.cancel_matching(group="acme") == 1


def test_a_list_by_limit_has_what_uses_the_limit_up_and_what_has_it(app: Any) -> None:
    before = app.enqueue("mail")
    held = app.claim("worker-1")
    app.set_limit("stripe", max=2)
    app.set_limit("tenant", max=2, per="group")
    app.set_queue("shop", limits=["stripe"])
    app.set_type("mail", limits=["stripe"])
    own = app.enqueue("resize", limits=["stripe"])
    of_queue = app.enqueue("resize", queue="shop")
    of_type = app.enqueue("mail")
    app.enqueue("resize", limits=["tenant"], group="stripe")
    app.enqueue("resize")
    assert ids(app.list_tasks(with_limit="stripe")) == ids([of_type, of_queue, own])
    assert ids(app.list_tasks(with_limit="stripe", type="mail", state="pending")) == [of_type.id]
    app.claim_many("worker-2", 9)
    assert ids(app.list_tasks(with_limit="stripe", state="claimed")) == ids([of_queue, own])
    assert ids(app.list_tasks(with_limit="stripe", state="pending")) == [of_type.id]
    [in_group] = app.list_tasks(with_limit="tenant", state="claimed")
    assert in_group.group == "stripe"
    assert app.list_tasks(with_limit="strip") == []
    app.complete(held)
    assert ids(app.list_tasks(with_limit="stripe", state="completed")) == [before.id]


@pytest.mark.parametrize("name", ["a/b c?", 'a "b"', "Straße", "back\\slash", "per%cent_"])
def test_a_limit_with_any_name_is_found(app: Any, name: str) -> None:
    app.set_limit(name, max=1)
    task = app.enqueue("resize", limits=[name])
    app.set_limit("b", max=1)
    app.enqueue("resize", limits=["b"])
    assert ids(app.list_tasks(with_limit=name)) == [task.id]
    app.claim_many("worker-1", 2)
    assert ids(app.list_tasks(with_limit=name, state="claimed")) == [task.id]


def test_a_list_by_time_has_the_tasks_created_in_it(app: Any, clock: Clock) -> None:
    tasks = []
    for _ in range(4):
        tasks.append(app.enqueue("resize"))
        clock.advance(60)
    begin, end = tasks[1].created_at, tasks[3].created_at
    assert ids(app.list_tasks(since=begin)) == ids(tasks[:0:-1])
    assert ids(app.list_tasks(until=end)) == ids(tasks[2::-1])
    assert ids(app.list_tasks(since=begin, until=end)) == ids(tasks[2:0:-1])


def test_a_list_by_text_has_the_tasks_with_it_in_params_or_error(app: Any) -> None:
    params = app.enqueue("resize", {"name": 'a "quoted" Straße'})
    error = failed(app, "no Straße here")
    app.enqueue("resize", {"name": "another"})
    assert ids(app.list_tasks(text="Straße")) == [error, params.id]
    assert ids(app.list_tasks(text='"quoted"')) == [params.id]


def test_all_filters_of_a_list_must_match(app: Any) -> None:
    one = app.enqueue("resize", {"n": "seven"}, queue="media", key="a")
    app.enqueue("resize", {"n": "seven"}, queue="other", key="b")
    app.enqueue("crop", {"n": "seven"}, queue="media", key="c")
    options = {"text": "seven", "type": "resize", "queue": "media", "state": "pending", "key": "a"}
    assert ids(app.list_tasks(**options)) == [one.id]
    for name, other in (("text", "eight"), ("type", "crop"), ("queue", "other"), ("state", "failed"), ("key", "b")):
        assert app.list_tasks(**{**options, name: other}) == []


def test_the_pages_of_a_list_by_text_have_every_match_once(app: Any) -> None:
    tasks = [app.enqueue("resize", {"n": n, "even": n % 2 == 0}) for n in range(30)]
    found: list[int] = []
    cursor = None
    while page := app.list_tasks(text='"even":true', limit=4, cursor=cursor):
        found += ids(page)
        cursor = page[-1].id
    assert found == ids(tasks[::2])[::-1]


def test_a_list_looks_through_all_tasks_for_a_text(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = app.enqueue("resize", {"name": "needle"})
    for n in range(50):
        app.enqueue("resize", {"n": n})
    monkeypatch.setattr("dibs.batch_size.MAX_SPAN", 10)
    assert app.list_tasks(text="needle") == [wanted]


def test_a_listed_task_is_complete(app: Any) -> None:
    task = app.enqueue("resize", {"text": "x" * 1000})
    claim = app.claim("worker-1")
    app.complete(claim, {"answer": ["y" * 1000]})
    assert app.list_tasks(text="xxxx") == [app.get(task.id)]


@pytest.mark.parametrize(
    "bad",
    [
        {"key": ""},
        {"worker": 7},
        {"text": ""},
        {"text": "x" * 1001},
        {"text": "\ud800"},
        {"since": "yesterday"},
        {"until": datetime(2030, 1, 1)},  # noqa: DTZ001 - without a time zone, on purpose
    ],
    ids=str,
)
def test_a_filter_that_cannot_match_is_refused(app: Any, bad: dict[str, Any]) -> None:
    for verb in (app.list_tasks, app.cancel_matching, app.retry_matching):
        with pytest.raises(InvalidValue):
            verb(**bad)


# Cancel and retry


def test_all_matching_tasks_are_cancelled_and_no_others(app: Any) -> None:
    wanted = [app.enqueue("resize", {"n": n}, queue="media") for n in range(5)]
    other = app.enqueue("resize", queue="other")
    assert app.cancel_matching(queue="media") == 5
    assert {app.get(task.id).state for task in wanted} == {State.CANCELLED}
    assert app.get(other.id).state is State.PENDING
    assert app.cancel_matching(queue="media") == 0


def test_a_running_task_that_matches_gets_a_cancel_request(app: Any) -> None:
    app.enqueue("resize", {"name": "needle"})
    claim = app.claim("worker-1")
    assert app.cancel_matching(text="needle") == 1
    assert app.progress(claim, 50) is True


def test_finished_tasks_that_match_are_neither_cancelled_nor_counted(app: Any) -> None:
    done = app.enqueue("resize")
    app.complete(app.claim("worker-1"))
    waiting = app.enqueue("resize")
    assert app.cancel_matching(type="resize") == 1
    assert (app.get(done.id).state, app.get(waiting.id).state) == (State.COMPLETED, State.CANCELLED)


def test_all_matching_tasks_are_retried_and_no_others(app: Any) -> None:
    wanted = [failed(app, f"timeout {n}") for n in range(5)]
    other = failed(app, "bad picture")
    assert app.retry_matching(text="timeout") == 5
    assert {app.get(each).state for each in wanted} == {State.PENDING}
    assert app.get(other).state is State.FAILED
    assert events(app, wanted[0])[-1] == "retried"


def test_only_tasks_in_the_requested_state_are_moved(app: Any, clock: Clock) -> None:
    dead = failed(app, "no")
    scheduled = app.enqueue("resize", delay=60)
    assert app.retry_matching(state="failed") == 1
    assert (app.get(dead).state, app.get(scheduled.id).state) == (State.PENDING, State.SCHEDULED)
    claimed = app.claim("worker-1")
    assert app.cancel_matching(state="scheduled") == 1
    assert app.get(claimed.task.id).cancel_requested is False


def test_tasks_are_cancelled_by_time(app: Any, clock: Clock) -> None:
    old = app.enqueue("resize")
    clock.advance(3600)
    new = app.enqueue("resize")
    assert app.cancel_matching(until=moment(clock) - timedelta(minutes=30)) == 1
    assert (app.get(old.id).state, app.get(new.id).state) == (State.CANCELLED, State.PENDING)


def test_more_tasks_than_one_batch_are_cancelled_and_each_batch_is_reported(app: Any) -> None:
    app.enqueue_many([NewTask("resize", {"n": n}) for n in range(700)])
    batches: list[int] = []
    assert app.cancel_matching(type="resize", note=batches.append) == 700
    assert sum(batches) == 700
    assert app.stats().depth == {"cancelled": 700}


def test_steps_of_workflows_are_cancelled_as_by_single_calls(app: Any) -> None:
    workflow = start(app, *DIAMOND)
    assert app.cancel_matching(state="pending") == 1
    assert set(states(app, workflow).values()) == {"cancelled"}


@pytest.mark.parametrize("verb", ["cancel_matching", "retry_matching"])
def test_moving_all_tasks_needs_a_filter(app: Any, verb: str) -> None:
    task = app.enqueue("resize", delay=60)
    for nothing in ({}, {"queue": None, "text": None}):
        with pytest.raises(InvalidValue, match="at least one filter"):
            getattr(app, verb)(**nothing)
    assert app.get(task.id).state is State.SCHEDULED
    assert getattr(app, verb)(since=datetime(1970, 1, 1, tzinfo=UTC)) == 1


def test_a_bulk_action_is_in_the_history_with_its_signature(app: Any) -> None:
    task = app.enqueue("resize", queue="media")
    app.signed("ops").cancel_matching(queue="media")
    assert str(app.history(task.id)[-1].by).endswith("ops")
