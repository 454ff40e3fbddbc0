"""Reads on behalf of an API key that is limited to queues: the result contains nothing of any other queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dibs import Completed, InvalidValue, NewTask, Task
from dibs.model.history import EventPage, StoreEvent
from dibs.model.search import TaskFilter
from tests.helpers.clients import Clock, run
from tests.helpers.retention import keep
from tests.helpers.tasks import task_in

pytestmark = pytest.mark.database("only a server asks for these, and it has a database")

QUEUES = ("mail", "media", "other")


def fill(app: Any) -> dict[str, list[int]]:
    """Three tasks of each queue, enqueued in turn."""
    tasks = app.enqueue_many([NewTask("resize", queue=queue) for _ in range(3) for queue in QUEUES])
    return {queue: [task.id for task in tasks if task.queue == queue] for queue in QUEUES}


# Lists


def listed(app: Any, **options: Any) -> list[int]:
    tasks: list[Task] = run(app, app._store.tasks.list_tasks(TaskFilter(**options))).tasks
    return [task.id for task in tasks]


def test_a_list_holds_only_tasks_of_the_queues(app: Any) -> None:
    ids = fill(app)
    assert listed(app, queues=["mail", "other"]) == sorted(ids["mail"] + ids["other"], reverse=True)
    assert listed(app, queues=("media",)) == ids["media"][::-1]
    assert listed(app, queues=["nobody"]) == []
    assert len(listed(app)) == 9


def test_the_queues_narrow_every_other_filter(app: Any) -> None:
    ids = fill(app)
    assert listed(app, queues=["mail"], queue="mail") == ids["mail"][::-1]
    assert listed(app, queues=["mail"], queue="media") == []
    assert listed(app, queues=["mail"], limit=2) == ids["mail"][:0:-1]
    assert listed(app, queues=["mail"], cursor=ids["mail"][1]) == ids["mail"][:1]
    assert listed(app, queues=["mail"], state="claimed") == []


@pytest.mark.parametrize("queues", [[], "mail", [""], [7], 7])
def test_malformed_queues_are_refused(app: Any, queues: Any) -> None:
    store = app._store
    wrong: list[Callable[[], Any]] = [
        lambda: TaskFilter(queues=queues),
        lambda: store.statistics.stats(queues),
        lambda: store.history.events_page(0, 10, queues),
    ]
    for ask in wrong:
        with pytest.raises(InvalidValue):
            ask()


# Whose queue


def test_queues_of_returns_the_queue_of_every_task_that_exists(app: Any) -> None:
    ids = fill(app)
    asked = [*ids["media"], *ids["mail"], 999_999, ids["mail"][0]]
    found = run(app, app._store.tasks.queues_of(asked))
    assert found == dict.fromkeys(ids["media"], "media") | dict.fromkeys(ids["mail"], "mail")
    assert run(app, app._store.tasks.queues_of([])) == {}


# Statistics


def test_statistics_cover_only_the_given_queues(app: Any, clock: Clock) -> None:
    for queue, waits in (("mail", 10), ("media", 1000)):
        for _ in range(2):
            app.enqueue("resize", queue=queue)
            clock.advance(waits)
            claim = app.claim("worker-1", queues=[queue])
            clock.advance(waits / 10)
            app.finish([(claim, Completed())])
        task_in(app, "failed", queue=queue, type=f"{queue}-type")
        app.enqueue("resize", queue=queue)
        clock.advance(1)
    mail = run(app, app._store.statistics.stats(["mail"]))
    assert mail.depth == {"completed": 2, "failed": 1, "pending": 1}
    assert set(mail.by_queue) == {"mail"}
    assert set(mail.by_type) == {"resize", "mail-type"}
    assert mail.oldest_pending_age == 2202
    assert mail.finished_last_minute == {}
    assert mail.finished_last_hour == {"completed": 2, "failed": 1}
    assert (mail.wait.p50, mail.run.p50) == (10, 1)
    both = run(app, app._store.statistics.stats(["mail", "media", "nobody"]))
    assert both == run(app, app._store.statistics.stats()) == app.stats()
    assert both.wait.p99 == 1000


def test_statistics_of_an_empty_queue_are_empty(app: Any) -> None:
    fill(app)
    stats = run(app, app._store.statistics.stats(["nobody"]))
    assert (stats.depth, stats.by_queue, stats.by_type, stats.oldest_pending_age) == ({}, {}, {}, None)


# Events


def after(app: Any, entry_id: int, limit: int = 100, queues: list[str] | None = None) -> list[StoreEvent]:
    page: EventPage = run(app, app._store.history.events_page(entry_id, limit, queues))
    return page.events


def test_events_are_the_history_with_the_queue_and_type_of_each_task(app: Any) -> None:
    for queue in QUEUES:
        task_in(app, "completed", queue=queue, type=f"{queue}-type")
    events = after(app, 0)
    assert [event.entry for event in events] == app.all_history()
    assert [(event.queue, event.type) for event in events] == [
        (queue, f"{queue}-type") for queue in QUEUES for _ in range(3)
    ]


def test_events_come_in_pages_after_an_entry(app: Any) -> None:
    fill(app)
    whole = after(app, 0)
    assert after(app, 0, 4) + after(app, whole[3].entry.id, 4) + after(app, whole[7].entry.id, 4) == whole
    assert after(app, whole[-1].entry.id) == []


def test_events_of_other_queues_are_left_out(app: Any) -> None:
    ids = fill(app)
    events = after(app, 0, queues=["media", "other"])
    assert [event.entry.task_id for event in events] == sorted(ids["media"] + ids["other"])
    assert [event.entry.task_id for event in after(app, 0, 2, ["other"])] == ids["other"][:2]


def test_events_of_a_pruned_task_have_no_queue_and_are_hidden_from_limited_callers(app: Any, clock: Clock) -> None:
    task_in(app, "completed", queue="mail")
    clock.advance(100)
    keep(app, completed=10)
    app.prune()
    events = after(app, 0)
    assert [event.entry.event.value for event in events] == ["enqueued", "claimed", "completed", "pruned"]
    assert {(event.queue, event.type) for event in events} == {(None, None)}
    assert after(app, 0, queues=["mail"]) == []


def test_the_newest_entry_is_the_position_of_a_reader_that_wants_no_past_events(app: Any) -> None:
    assert run(app, app._store.history.last_entry()) == 0
    fill(app)
    newest = run(app, app._store.history.last_entry())
    assert newest == app.all_history()[-1].id
    task = app.enqueue("resize")
    assert [event.entry.task_id for event in after(app, newest)] == [task.id]
