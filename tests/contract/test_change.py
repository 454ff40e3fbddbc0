"""Changes to tasks that have not started: the next claim gets the new values, or the change is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

import dibs
from dibs import AlreadyStarted, InvalidValue, KeyConflict, NewTask, State, TaskChange, TaskNotFound, WrongState
from dibs.errors import SchemaViolation
from dibs.observe.verify import verify
from tests.helpers.clients import Clock
from tests.helpers.databases import run_sql
from tests.helpers.processes import ask_all, processes
from tests.helpers.tasks import events, moment, task_in

WAITING = ("pending", "scheduled")
VALUES: dict[str, Any] = {
    "priority": 5,
    "queue": "mail",
    "params": {"width": 7},
    "tags": ["urgent", "customer-7"],
    "group": "acme",
}


def last_detail(app: Any, task_id: int) -> Any:
    return app.history(task_id)[-1].detail


# Values


@pytest.mark.parametrize("state", WAITING)
@pytest.mark.parametrize("name", VALUES)
def test_a_waiting_task_has_the_new_value_and_nothing_else_changes(app: Any, state: str, name: str) -> None:
    before = task_in(app, state, params={"width": 1}, tags=["slow"])
    changed = app.change(before.id, **{name: VALUES[name]})
    assert getattr(changed, name) == VALUES[name]
    assert app.get(before.id) == changed
    fields = ("priority", "queue", "params", "tags", "group", "run_at", "state", "token")
    same = [field for field in fields if field != name]
    assert [getattr(changed, each) for each in same] == [getattr(before, each) for each in same]
    assert events(app, before.id) == ["enqueued", "changed"]


def test_the_next_claim_gets_all_new_values(app: Any) -> None:
    task = app.enqueue("resize", {"width": 1})
    app.change(task.id, **VALUES)
    claim = app.claim("worker-1", queues=["mail"])
    got = claim.task
    assert (got.id, got.priority, got.queue, got.params, got.tags, got.group) == (task.id, *VALUES.values())


def test_a_task_that_a_client_returned_changes_itself(url: str) -> None:
    async def change(task_id: int) -> dibs.Task:
        async with dibs.AsyncDibs(url) as app:
            task = await app.get(task_id)
            assert task is not None
            changed: dibs.AsyncTask = await task.change(priority=4)
            return changed

    with dibs.Dibs(url) as app:
        task = app.enqueue("resize")
        assert task.change(priority=3).priority == 3
        assert asyncio.run(change(task.id)).priority == 4
        with pytest.raises(InvalidValue, match="not returned by a client"):
            msgspec.structs.replace(task).change(priority=5)


def test_a_higher_priority_is_claimed_first(app: Any) -> None:
    first, second = app.enqueue_many([NewTask("resize"), NewTask("resize")])
    app.change(second.id, priority=1)
    assert [app.claim("worker-1").task_id for _ in range(2)] == [second.id, first.id]


@pytest.mark.parametrize("order", ["random", "weighted"])
def test_changed_tasks_are_claimed_in_random_orders(app: Any, order: str) -> None:
    app.enqueue("other")
    app.release(app.claim("worker-1", order=order))  # the order begins
    tasks = app.enqueue_many([NewTask("resize") for _ in range(3)])
    app.change(tasks[0].id, priority=9)
    app.change(tasks[1].id, delay=60)
    app.change(tasks[1].id, delay=0)
    claimed = app.claim_many("worker-1", 3, types=["resize"], order=order)
    assert {claim.task_id for claim in claimed} == {task.id for task in tasks}


@pytest.mark.database("the numbers of tasks in random orders are invisible to clients")
def test_the_weight_of_a_task_is_that_of_its_new_priority(app: Any, url: str) -> None:
    app.enqueue("other", priority=-5)
    app.release(app.claim("worker-1", order="weighted"))  # the order begins
    app.enqueue_many([NewTask("resize") for _ in range(50)])
    app.change_matching(TaskChange(priority=10**9), type="resize")
    numbers = "SELECT max(weighted_key) - (SELECT position FROM dibs_random_orders WHERE kind = 'weighted')"
    [(largest,)] = run_sql(url, f"{numbers} FROM dibs_tasks WHERE type = 'resize'")
    assert 0 < largest < 1e-6


# Due time


def test_a_pending_task_with_a_later_due_time_is_scheduled(app: Any, clock: Clock) -> None:
    task = app.enqueue("resize")
    changed = app.change(task.id, delay=60)
    assert (changed.state, changed.run_at) == (State.SCHEDULED, moment(clock) + timedelta(seconds=60))
    assert app.claim("worker-1") is None
    clock.advance(60)
    assert app.claim("worker-1").task_id == task.id
    assert events(app, task.id) == ["enqueued", "changed", "promoted", "claimed"]


@pytest.mark.parametrize("due", [{"delay": 0}, {"run_at": datetime(2001, 1, 1, tzinfo=UTC)}])
def test_a_scheduled_task_that_becomes_due_is_pending(app: Any, due: dict[str, Any]) -> None:
    task = task_in(app, "scheduled")
    changed = app.change(task.id, **due)
    assert changed.state is State.PENDING
    assert app.claim("worker-1").task_id == task.id
    entry = app.history(task.id)[1]
    assert (entry.event, entry.from_state, entry.to_state) == ("changed", "scheduled", "pending")


def test_a_new_due_time_replaces_the_old_one(app: Any, clock: Clock) -> None:
    task = task_in(app, "scheduled")
    at = moment(clock) + timedelta(days=2)
    assert app.change(task.id, run_at=at).run_at == at
    clock.advance(24 * 3600)
    assert app.claim("worker-1") is None
    clock.advance(24 * 3600)
    assert app.claim("worker-1").task_id == task.id


def test_a_task_that_waits_for_its_next_attempt_can_be_changed(app: Any, clock: Clock) -> None:
    app.enqueue("resize", backoff=dibs.Backoff(base=100))
    claim = app.claim("worker-1")
    app.fail(claim, "broken")
    assert app.change(claim.task_id, delay=0, params={"width": 2}).attempts == 1
    assert app.claim("worker-1").task.params == {"width": 2}


@pytest.mark.database("the statistics of a server compute the wait")
def test_the_wait_of_a_task_begins_when_a_change_makes_it_pending(app: Any, url: str, clock: Clock) -> None:
    later, sooner = task_in(app, "scheduled"), app.enqueue("resize")
    clock.advance(10)
    app.change(later.id, delay=0)
    app.change(sooner.id, priority=1)
    clock.advance(5)
    ready = {row[0]: clock.now - row[1] for row in run_sql(url, "SELECT id, ready_at FROM dibs_tasks")}
    assert ready == {later.id: 5_000_000, sooner.id: 15_000_000}


# History


def test_the_history_has_old_and_new_values_and_of_params_only_the_names(app: Any, clock: Clock) -> None:
    task = app.enqueue("resize", {"width": 1, "secret": "abc", "height": 2}, tags=["slow"])
    since = moment(clock)
    app.signed("ann").change(task.id, priority=5, queue="mail", tags=[], params={"width": 1, "secret": "def"}, delay=60)
    entry = app.history(task.id)[-1]
    assert (entry.event, entry.by, entry.token) == ("changed", "ann", 0) or app.url.startswith("http")
    assert entry.detail == {
        "queue": {"from": "default", "to": "mail"},
        "priority": {"from": 0, "to": 5},
        "run_at": {
            "from": f"{since:%Y-%m-%dT%H:%M:%S.%f}Z",
            "to": f"{since + timedelta(seconds=60):%Y-%m-%dT%H:%M:%S.%f}Z",
        },
        "tags": {"from": ["slow"], "to": []},
        "params": {"changed": ["height", "secret"], "count": 2},
    }


def test_the_history_of_a_change_of_many_params_is_bounded(app: Any) -> None:
    task = app.enqueue("resize")
    app.change(task.id, params={f"{'x' * 500}{number}": "y" * 500 for number in range(100)})
    detail = last_detail(app, task.id)["params"]
    assert (detail["count"], len(detail["changed"])) == (100, 20)
    assert {len(name) for name in detail["changed"]} == {100}


def test_values_that_the_task_has_already_are_not_written_again(app: Any) -> None:
    task = app.enqueue("resize", {"width": 1}, tags=["a"])
    once = app.change(task.id, **VALUES)
    assert app.change(task.id, **VALUES) == once
    assert events(app, task.id) == ["enqueued", "changed"]


def test_params_that_differ_in_their_json_only_are_changed(app: Any) -> None:
    task = app.enqueue("resize", {"width": 1})
    assert repr(app.change(task.id, params={"width": True}).params) == "{'width': True}"
    assert last_detail(app, task.id) == {"params": {"changed": ["width"], "count": 1}}


# Refusals


def test_a_claimed_task_is_not_changed_and_the_error_says_that_the_claim_came_first(app: Any) -> None:
    task = task_in(app, "claimed")
    with pytest.raises(AlreadyStarted, match="worker-1 has claimed it") as refused:
        app.change(task.id, priority=5)
    assert (refused.value.code, refused.value.task_id, refused.value.state) == ("already_started", task.id, "claimed")
    assert app.get(task.id) == task
    assert events(app, task.id) == ["enqueued", "claimed"]


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
def test_a_finished_task_is_not_changed(app: Any, state: str) -> None:
    task = task_in(app, state)
    with pytest.raises(WrongState, match=f"cannot be changed: it is {state}") as refused:
        app.change(task.id, params={"width": 1}, priority=task.priority)
    assert refused.value.code == "wrong_state"
    assert app.get(task.id) == task


@pytest.mark.parametrize("state", ["claimed", "completed"])
def test_a_change_to_the_same_values_is_refused_as_well(app: Any, state: str) -> None:
    task = task_in(app, state)
    with pytest.raises(WrongState):
        app.change(task.id, priority=0)


def test_a_task_that_does_not_exist_is_not_found(app: Any) -> None:
    for changes in ({"priority": 1}, {"params": {}}):
        with pytest.raises(TaskNotFound):
            app.change(404, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"priority": None},
        {"priority": 2**31},
        {"priority": True},
        {"delay": -1},
        {"delay": 1, "run_at": datetime(2030, 1, 1, tzinfo=UTC)},
        {"run_at": datetime(2030, 1, 1)},  # noqa: DTZ001 - without a time zone
        {"queue": ""},
        {"queue": "a\nb"},
        {"params": []},
        {"params": {"x": float("nan")}},
        {"tags": "urgent"},
        {"tags": ["a,b"]},
    ],
)
def test_invalid_values_are_refused_before_anything_is_written(app: Any, changes: dict[str, Any]) -> None:
    task = app.enqueue("resize")
    with pytest.raises(InvalidValue):
        app.change(task.id, **changes)
    assert app.get(task.id) == task


def test_params_are_validated_against_the_schema_of_the_type_and_get_its_defaults(app: Any) -> None:
    schema = {"type": "object", "properties": {"width": {"type": "integer"}}, "required": ["width"]}
    app.register_type("resize", schema, {"height": 9})
    task = app.enqueue("resize", {"width": 1})
    with pytest.raises(SchemaViolation, match="params/width of 'resize' \\(version 1\\)"):
        app.change(task.id, params={"width": "wide"}, priority=3)
    assert app.get(task.id) == task
    app.register_type("resize", schema, {"height": 8})
    changed = app.change(task.id, params={"width": 2})
    assert (changed.params, changed.type_version) == ({"width": 2, "height": 8}, 2)


# Keys


def test_the_enqueue_of_a_changed_task_can_be_repeated(app: Any) -> None:
    task = app.enqueue("resize", {"width": 1}, key="one")
    app.change(task.id, params={"width": 2}, priority=3)
    again = app.enqueue("resize", {"width": 1}, key="one")
    assert (again.id, again.deduplicated, again.params) == (task.id, True, {"width": 2})
    with pytest.raises(KeyConflict):
        app.enqueue("resize", {"width": 2}, key="one")


def test_a_key_moves_with_its_task(app: Any) -> None:
    task = app.enqueue("resize", key="one")
    app.change(task.id, queue="mail")
    assert app.enqueue("resize", key="one", queue="mail").id == task.id
    assert app.enqueue("resize", key="one").id != task.id


def test_a_task_does_not_move_to_a_queue_where_another_task_has_its_key(app: Any) -> None:
    here, there = app.enqueue("resize", key="one"), app.enqueue("resize", key="one", queue="mail")
    with pytest.raises(
        KeyConflict, match=f"cannot move to queue 'mail': its key 'one' belongs to task {there.id}"
    ) as no:
        app.change(here.id, queue="mail", priority=3)
    assert (no.value.key, no.value.task_id) == ("one", there.id)
    assert app.get(here.id) == here
    assert events(app, here.id) == ["enqueued"]


def test_of_tasks_with_one_key_that_move_to_one_queue_at_the_same_time_one_gets_there(app: Any) -> None:
    tasks = [app.enqueue("resize", key="one", queue=f"from-{number}") for number in range(8)]

    def move(task: dibs.Task) -> bool:
        try:
            return bool(app.change(task.id, queue="to"))
        except KeyConflict:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(move, tasks)) == 1
    assert sum(app.get(task.id).queue == "to" for task in tasks) == 1


# Paused queues


def test_a_task_that_moves_to_a_paused_queue_waits_until_it_is_resumed(app: Any) -> None:
    app.pause("mail")
    task = app.enqueue("resize")
    app.change(task.id, queue="mail")
    assert app.claim("worker-1") is None
    app.resume("mail")
    assert app.claim("worker-1").task_id == task.id


@pytest.mark.parametrize("order", dibs.Order)
def test_a_task_that_leaves_a_paused_queue_can_be_claimed(app: Any, order: str) -> None:
    app.enqueue("other")
    app.release(app.claim("worker-1", order=order))
    app.claim("worker-2")
    task = app.enqueue("resize", queue="mail")
    app.pause("mail")
    app.upkeep()
    app.change(task.id, queue="default")
    assert app.claim("worker-1", order=order).task_id == task.id


@pytest.mark.database("parking is invisible to clients")
def test_a_task_is_parked_with_a_paused_queue_only(app: Any, url: str) -> None:
    parked = "SELECT count(*) FROM dibs_tasks WHERE parked"
    app.pause("mail")
    task = app.enqueue("resize")
    app.change(task.id, queue="mail")
    assert run_sql(url, parked) == [(1,)]
    app.change(task.id, priority=3)
    assert run_sql(url, parked) == [(1,)]
    app.change(task.id, delay=60)
    assert run_sql(url, parked) == [(0,)]
    app.change(task.id, delay=0)
    app.upkeep()
    assert run_sql(url, parked) == [(1,)]
    app.change(task.id, queue="default")
    assert run_sql(url, parked) == [(0,)]
    assert app.claim("worker-1").task_id == task.id


# Races


def test_a_change_concurrent_with_a_claim_is_in_the_claim_or_refused(app: Any) -> None:
    ids = [task.id for task in app.enqueue_many([NewTask("resize", {"version": 0}) for _ in range(30)])]

    def change(task_id: int) -> int:
        try:
            return int(app.change(task_id, params={"version": 1}).params["version"])
        except AlreadyStarted:
            return 0

    with ThreadPoolExecutor(8) as pool:  # a claim skips a task that is being changed, and waits if it is the last one
        calls = [(pool.submit(app.claim, f"worker-{each}", wait=30), pool.submit(change, each)) for each in ids]
    changes = dict(zip(ids, (change.result() for _, change in calls), strict=True))
    claims = [claim.result() for claim, _ in calls]
    assert {claim.task_id: claim.task.params["version"] for claim in claims} == changes


@pytest.mark.parametrize("mode", ["sync"], indirect=True)
def test_processes_that_change_tasks_while_others_run_them_agree_on_every_version(
    url: str, open_app: Callable[..., Any]
) -> None:
    """Each change names a version. A claim must have got the last version that was accepted, and nothing of others."""
    app, count = open_app(url), 120
    ids = [task.id for task in app.enqueue_many([NewTask("t", {"version": 0}, queue="one")] * count)]
    with processes(app.url, 5, "tests.helpers.changer") as members:
        commands = [{"do": "change", "ids": ids, "first": 1 + n * count} for n in range(3)]
        *changes, one, two = ask_all(members, [*commands, {"do": "work"}, {"do": "work"}])
    ran = {int(task_id): got for task_id, got in [*one.items(), *two.items()]}
    assert sorted(ran) == ids
    accepted = {version for each in changes for version in each["accepted"]}
    assert len(accepted) + sum(len(each["refused"]) for each in changes) == 3 * count
    entries = app.all_history()
    written = [entry for entry in entries if entry.event == "changed"]
    assert {entry.detail["priority"]["to"] for entry in written} == accepted
    last = {task_id: [0, 0, "one"] for task_id in ids}
    for entry in written:
        to = {name: values["to"] for name, values in entry.detail.items() if name in ("priority", "queue")}
        last[entry.task_id] = [to["priority"], to["priority"], to.get("queue", last[entry.task_id][2])]
    assert ran == last
    report = verify(entries, tasks=app.list_tasks(limit=1000))
    assert report.ok, str(report)


# Many


def test_all_matching_tasks_that_wait_are_changed(app: Any) -> None:
    tasks = {state: task_in(app, state, queue="mail") for state in ("pending", "scheduled", "claimed", "completed")}
    other = app.enqueue("resize", queue="media")
    noted: list[int] = []
    assert app.change_matching(TaskChange(priority=7, tags=["x"]), queue="mail", note=noted.append) == 2
    assert sum(noted) == 2
    changed = {state: app.get(task.id).priority for state, task in tasks.items()}
    assert changed == {"pending": 7, "scheduled": 7, "claimed": 0, "completed": 0}
    assert app.get(other.id) == other
    assert app.change_matching(TaskChange(priority=7), queue="mail") == 0


def test_many_tasks_move_to_another_queue_at_another_time(app: Any, clock: Clock) -> None:
    app.enqueue_many([NewTask("resize") for _ in range(700)])
    assert app.change_matching(TaskChange(queue="mail", delay=60), type="resize") == 700
    assert app.stats().by_queue == {"mail": {"scheduled": 700}}
    clock.advance(60)
    app.upkeep()
    assert len(app.claim_many("worker-1", 1000, queues=["mail"])) == 700


def test_tasks_whose_key_is_taken_in_the_new_queue_are_left_out(app: Any) -> None:
    app.enqueue("resize", key="one", queue="mail")
    taken, free = app.enqueue("resize", key="one"), app.enqueue("resize", key="two")
    same = app.enqueue("resize", key="two", queue="media")
    assert app.change_matching(TaskChange(queue="mail"), type="resize") == 1
    assert app.get(taken.id).queue == "default"
    assert {app.get(free.id).queue, app.get(same.id).queue} in ({"mail", "media"}, {"default", "mail"})


def test_a_change_of_many_tasks_needs_a_filter_and_has_no_params(app: Any) -> None:
    with pytest.raises(InvalidValue, match="at least one filter"):
        app.change_matching(TaskChange(priority=1))
    with pytest.raises(InvalidValue, match="params of many tasks"):
        app.change_matching(TaskChange(params={}), type="resize")
