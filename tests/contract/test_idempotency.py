"""Promise 6, idempotent enqueue: same key and content, same task; same key and other content, an error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

import dibs
from dibs import NewTask, State
from dibs.model.search import TaskSearch
from tests.helpers import postgres, tables
from tests.helpers.clients import Clock, run
from tests.helpers.databases import run_sql
from tests.helpers.retention import NOTHING, keep
from tests.helpers.waiting import until

# The same again


def test_the_same_key_and_content_give_the_same_task(app: Any, url: str) -> None:
    first = app.enqueue("resize", {"image": 7}, key="image-7")
    before = tables.read(url)
    again = app.enqueue("resize", {"image": 7}, key="image-7")
    assert (first.deduplicated, again.deduplicated) == (False, True)
    assert again.id == first.id
    assert tables.read(url) == before


def test_without_a_key_the_same_content_gives_another_task(app: Any) -> None:
    first, second = app.enqueue("resize", {"image": 7}), app.enqueue("resize", {"image": 7})
    assert first.id != second.id
    assert not second.deduplicated


def test_the_order_of_the_keys_in_the_params_does_not_matter(app: Any) -> None:
    first = app.enqueue("resize", {"a": 1, "b": {"c": [2], "d": 3}}, key="k")
    again = app.enqueue("resize", {"b": {"d": 3, "c": [2]}, "a": 1}, key="k")
    assert (again.id, again.deduplicated) == (first.id, True)


def test_only_type_and_params_are_the_content(app: Any) -> None:
    first = app.enqueue("resize", {"image": 7}, key="k", queue="images", priority=3)
    again = app.enqueue("resize", {"image": 7}, key="k", queue="images", priority=9, delay=60, max_attempts=1)
    assert (again.id, again.deduplicated) == (first.id, True)
    assert (again.queue, again.priority, again.max_attempts, again.state) == ("images", 3, 3, State.PENDING)


@pytest.mark.parametrize("finish", [False, True])
def test_a_repeated_enqueue_returns_the_task_in_its_current_state(app: Any, finish: bool) -> None:
    app.enqueue("resize", key="k")
    claim = app.claim("worker-1")
    if finish:
        app.complete(claim, {"width": 800})
    again = app.enqueue("resize", key="k")
    assert again.deduplicated
    assert (again.state, again.result) == ((State.COMPLETED, {"width": 800}) if finish else (State.CLAIMED, None))


def test_the_same_key_again_is_not_claimed_again(app: Any) -> None:
    app.enqueue("resize", key="k")
    app.complete(app.claim("worker-1"))
    app.enqueue("resize", key="k")
    assert app.claim("worker-1") is None


def test_keys_are_compared_exactly(app: Any) -> None:
    keys = ["k", "K", "k ", " k", "kk", "é", "e\u0301", "\U0001d424", "k%", "k_", "k*", "0", "00"]
    tasks = [app.enqueue("resize", key=key) for key in keys]
    assert len({task.id for task in tasks}) == len(keys)
    assert [app.enqueue("resize", key=key).id for key in keys] == [task.id for task in tasks]


def test_the_key_is_free_again_after_its_task_was_pruned(app: Any) -> None:
    first = app.enqueue("resize", {"image": 7}, key="k")
    app.complete(app.claim("worker-1"))
    keep(app, **NOTHING)
    app.prune()
    second = app.enqueue("other", {"image": 8}, key="k")
    assert not second.deduplicated
    assert second.id > first.id


def test_the_key_stays_in_use_for_as_long_as_its_task_is_kept(app: Any, clock: Clock) -> None:
    first = app.enqueue("resize", key="k")
    app.complete(app.claim("worker-1"))
    clock.advance(3599)
    keep(app, completed=3600)
    app.prune()
    assert app.enqueue("resize", key="k").id == first.id


# Each queue has its own keys


def test_the_same_key_in_another_queue_is_another_task(app: Any) -> None:
    mail = app.enqueue("send", {"n": 1}, key="k", queue="mail")
    media = app.enqueue("send", {"n": 1}, key="k", queue="media")
    assert (mail.deduplicated, media.deduplicated) == (False, False)
    assert media.id != mail.id
    for queue, task in (("mail", mail), ("media", media)):
        again = app.enqueue("send", {"n": 1}, key="k", queue=queue)
        assert (again.id, again.queue, again.deduplicated) == (task.id, queue, True)


def test_other_content_under_the_same_key_is_a_conflict_in_its_own_queue_only(app: Any) -> None:
    mail = app.enqueue("send", {"n": 1}, key="k", queue="mail")
    media = app.enqueue("crop", {"n": 2}, key="k", queue="media")
    for queue, content, owner in (("mail", 2, mail), ("media", 1, media)):
        with pytest.raises(dibs.KeyConflict) as refused:
            app.enqueue("send", {"n": content}, key="k", queue=queue)
        assert (refused.value.key, refused.value.task_id) == ("k", owner.id)


def test_a_batch_may_have_the_same_key_in_several_queues(app: Any) -> None:
    old = app.enqueue("send", {"q": "b"}, key="k", queue="b")
    batch = [NewTask("send", {"q": queue}, key="k", queue=queue) for queue in "abcab"]
    tasks = app.enqueue_many(batch)
    assert [task.queue for task in tasks] == list("abcab")
    assert [task.deduplicated for task in tasks] == [False, True, False, True, True]
    assert tasks[1].id == tasks[4].id == old.id
    assert app.stats().depth == {"pending": 3}


@pytest.mark.database("a search is an operation of the database")
def test_a_search_for_a_key_finds_the_tasks_of_every_queue_that_has_it(app: Any) -> None:
    ids = [app.enqueue("send", key="k", queue=queue).id for queue in ("mail", "media", "other")]
    app.enqueue("send", key="other")
    found = run(app, app._store.tasks.search(TaskSearch(key="k")))
    assert [task.id for task in found.tasks] == ids[::-1]
    assert [task.id for task in run(app, app._store.tasks.search(TaskSearch(key="k", queue="media"))).tasks] == ids[1:2]
    assert [task.id for task in run(app, app._store.tasks.search(TaskSearch(key="k", queues=["mail"]))).tasks] == ids[
        :1
    ]


# Other content


DIFFERENT = [{"n": 1}, {"n": 1.0}, {"n": True}, {"n": "1"}, {"n": [1]}, {"n": None}, {"n": 1, "m": None}, {}]


def test_every_difference_in_the_params_is_another_content(app: Any) -> None:
    for first, content in enumerate(DIFFERENT):
        owner = app.enqueue("resize", content, key=f"k{first}")
        for other in DIFFERENT[:first] + DIFFERENT[first + 1 :]:
            with pytest.raises(dibs.KeyConflict):
                app.enqueue("resize", other, key=f"k{first}")
        assert app.enqueue("resize", content, key=f"k{first}").id == owner.id


def test_another_type_under_the_same_key_is_a_conflict_that_names_the_task(app: Any, url: str) -> None:
    task = app.enqueue("resize", {"image": 7}, key="image-7")
    before = tables.read(url)
    with pytest.raises(dibs.KeyConflict) as refused:
        app.enqueue("crop", {"image": 7}, key="image-7")
    assert (refused.value.key, refused.value.task_id) == ("image-7", task.id)
    assert refused.value.message == (
        f"The key 'image-7' already belongs to task {task.id}, which has another type or other params."
    )
    assert tables.read(url) == before


def test_other_content_under_the_key_of_a_finished_task_is_still_a_conflict(app: Any) -> None:
    app.enqueue("resize", key="k")
    app.complete(app.claim("worker-1"))
    with pytest.raises(dibs.KeyConflict):
        app.enqueue("crop", key="k")


# In bulk


def test_a_batch_finds_the_tasks_that_have_its_keys(app: Any) -> None:
    old = app.enqueue("resize", {"n": 1}, key="k1")
    tasks = app.enqueue_many([NewTask("resize", {"n": n}, key=f"k{n}") for n in range(3)])
    assert [task.deduplicated for task in tasks] == [False, True, False]
    assert tasks[1].id == old.id
    assert [task.params["n"] for task in tasks] == [0, 1, 2]
    assert app.stats().depth == {"pending": 3}


def test_a_batch_repeated_as_a_whole_stores_nothing(app: Any, url: str) -> None:
    batch = [NewTask("resize", {"n": n}, key=f"k{n}") for n in range(50)]
    first = app.enqueue_many(batch)
    before = tables.read(url)
    again = app.enqueue_many(batch[::-1])
    assert [task.id for task in again] == [task.id for task in reversed(first)]
    assert all(task.deduplicated for task in again)
    assert tables.read(url) == before


def test_a_key_twice_in_one_batch_is_one_task(app: Any) -> None:
    first, plain, second, third = app.enqueue_many(
        [
            NewTask("resize", {"a": 1, "b": 2}, key="k"),
            NewTask("plain"),
            NewTask("resize", {"b": 2, "a": 1}, key="k"),
            NewTask("resize", {"a": 1, "b": 2}, key="k"),
        ]
    )
    assert [task.deduplicated for task in (first, plain, second, third)] == [False, False, True, True]
    assert first.id == second.id == third.id != plain.id
    assert app.stats().depth == {"pending": 2}


def test_a_key_twice_in_one_batch_finds_the_task_that_has_it(app: Any) -> None:
    old = app.enqueue("resize", key="k")
    tasks = app.enqueue_many([NewTask("resize", key="k"), NewTask("resize", key="k")])
    assert [(task.id, task.deduplicated) for task in tasks] == [(old.id, True), (old.id, True)]


def test_a_batch_with_one_conflict_stores_nothing(app: Any, url: str) -> None:
    old = app.enqueue("resize", key="taken")
    before = tables.read(url)
    with pytest.raises(dibs.KeyConflict) as refused:
        app.enqueue_many([NewTask("plain"), NewTask("new", key="new"), NewTask("crop", key="taken"), NewTask("plain")])
    assert (refused.value.key, refused.value.task_id) == ("taken", old.id)
    assert tables.read(url) == before
    assert not app.enqueue("other", key="new").deduplicated


def test_a_batch_in_conflict_with_itself_stores_nothing(app: Any) -> None:
    with pytest.raises(dibs.KeyConflict) as refused:
        app.enqueue_many([NewTask("plain"), NewTask("resize", {"n": 1}, key="k"), NewTask("resize", {"n": 2}, key="k")])
    assert (refused.value.key, refused.value.task_id) == ("k", None)
    assert "another task of this batch" in refused.value.message
    assert app.list_tasks() == []


# Registered types


@pytest.mark.parametrize("before", [None, {"width": 100}])
def test_new_defaults_of_the_type_do_not_break_a_repeated_enqueue(app: Any, before: dict[str, Any] | None) -> None:
    if before:
        app.register_type("resize", defaults=before)
    first = app.enqueue("resize", {"image": 7}, key="k")
    app.register_type("resize", defaults={"width": 800})
    again = app.enqueue("resize", {"image": 7}, key="k")
    assert (again.id, again.deduplicated) == (first.id, True)
    assert again.params == {"image": 7, **(before or {})}


def test_a_stricter_schema_of_the_type_does_not_break_a_repeated_enqueue(app: Any) -> None:
    first = app.enqueue("resize", {"image": 7}, key="k")
    app.register_type("resize", {"type": "object", "required": ["width"]})
    again = app.enqueue("resize", {"image": 7}, key="k")
    assert (again.id, again.deduplicated) == (first.id, True)


# Races


def race(apps: list[Any], calls: list[Callable[[Any], Any]]) -> list[Any]:
    """The answers (or errors) of the calls, made at the same moment by a thread each, spread over the clients."""
    start = Barrier(len(calls))

    def run(n: int) -> Any:
        start.wait()
        try:
            return calls[n](apps[n % len(apps)])
        except dibs.DibsError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, range(len(calls))))


@pytest.fixture
def apps(url: str, clock: Clock, open_app: Callable[..., Any]) -> list[Any]:
    """Three clients of one store."""
    return [open_app(url, clock=clock) for _ in range(3)]


def test_a_hundred_concurrent_callers_create_one_task(apps: list[Any]) -> None:
    tasks = race(apps, [lambda app: app.enqueue("resize", {"image": 7}, key="k")] * 100)
    assert Counter(task.deduplicated for task in tasks) == {False: 1, True: 99}
    assert len({task.id for task in tasks}) == 1
    assert apps[0].stats().depth == {"pending": 1}
    assert len(apps[0].all_history()) == 1


def test_concurrent_callers_with_different_content_create_one_task_and_conflicts_that_name_it(apps: list[Any]) -> None:
    calls = [lambda app, n=n: app.enqueue("resize", {"n": n % 10}, key="k") for n in range(30)]
    answers = race(apps, calls)
    (winner,) = [task for task in answers if isinstance(task, dibs.Task | dibs.AsyncTask) and not task.deduplicated]
    same = [task for task in answers if isinstance(task, dibs.Task | dibs.AsyncTask) and task.deduplicated]
    conflicts = [error for error in answers if isinstance(error, dibs.KeyConflict)]
    assert (len(same), len(conflicts)) == (2, 27)
    assert {task.id for task in same} | {error.task_id for error in conflicts} == {winner.id}


def test_concurrent_batches_with_the_same_keys_create_one_task_for_each_key(apps: list[Any]) -> None:
    batch = [NewTask("resize", {"n": n}, key=f"k{n}") for n in range(100)]
    answers = race(apps, [lambda app: app.enqueue_many(batch)] * 9)
    ids = {tuple(task.id for task in tasks) for tasks in answers}
    assert len(ids) == 1
    assert Counter(task.deduplicated for tasks in answers for task in tasks) == {False: 100, True: 800}


def test_a_hundred_concurrent_callers_with_one_key_in_four_queues_create_one_task_in_each_queue(
    apps: list[Any],
) -> None:
    queues = ["q0", "q1", "q2", "q3"]
    calls = [
        lambda app, queue=queue: app.enqueue("send", {"queue": queue}, key="k", queue=queue) for queue in queues * 25
    ]
    tasks = race(apps, calls)
    assert len({task.id for task in tasks}) == 4
    assert Counter((task.queue, task.deduplicated) for task in tasks) == {
        (queue, repeated): 24 if repeated else 1 for queue in queues for repeated in (False, True)
    }


@pytest.mark.database("it counts deadlocks when the last connection has ended")
@pytest.mark.own_connections
def test_concurrent_batches_with_the_same_keys_in_opposite_orders_do_not_deadlock(apps: list[Any], url: str) -> None:
    for turn in range(5):
        batch = [NewTask("resize", key=f"turn-{turn}-{n // 2}", queue=f"q{n % 2}") for n in range(200)]
        answers = race(apps, [lambda app, b=b: app.enqueue_many(b) for b in (batch, batch[::-1]) * 3])
        assert {frozenset(task.id for task in tasks) for tasks in answers} == {frozenset(t.id for t in answers[0])}
    assert apps[0].stats().depth == {"pending": 1000}
    for app in apps:
        app.close()
    assert deadlocks(url) == 0


def deadlocks(url: str) -> int:
    """How often the database had to kill a transaction to free another. dibs tries such a one again, so no answer
    shows it; SQLite has one writer at a time, and no deadlocks."""
    if url.startswith("sqlite"):
        return 0
    others = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    ours = f" AND application_name <> '{postgres.OURS}'"
    until(lambda: not run_sql(url, others + ours))  # a backend reports what it counted when it ends
    return int(run_sql(url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")[0][0])
