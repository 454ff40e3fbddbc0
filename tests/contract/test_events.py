"""Events of the store: in order, without gaps and repetitions, resumable, on every engine."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import islice
from typing import Any

import psycopg
import pytest

import dibs
from dibs import EventsPruned, InvalidValue
from tests.helpers.clients import Clock
from tests.helpers.waiting import until


def take(app: Any, count: int, **options: Any) -> list[Any]:
    """The first events, this number of them."""
    with closing(app.events(**options)) as events:
        return list(islice(events, count))


def ids(events: list[Any]) -> list[int]:
    return [event.id for event in events]


def test_events_are_the_entries_of_the_history_in_order(app: Any) -> None:
    task = app.enqueue("resize", queue="images")
    app.complete(app.claim("worker-1"))
    events = take(app, 3, after=0)
    assert [event.entry for event in events] == app.history(task.id)
    assert [(event.kind, event.task_id, event.queue, event.type) for event in events] == [
        (kind, task.id, "images", "resize") for kind in ("enqueued", "claimed", "completed")
    ]
    assert [event.at for event in events] == [entry.at for entry in app.history(task.id)]


def test_events_continue_after_the_given_one(app: Any) -> None:
    app.enqueue_many([dibs.NewTask("resize") for _ in range(5)])
    everything = take(app, 5, after=0)
    assert take(app, 3, after=everything[1].id) == everything[2:]


def test_events_are_filtered_by_kind_queue_type_and_task(app: Any) -> None:
    app.enqueue("other")
    wanted = app.enqueue("resize", queue="images")
    app.enqueue("resize", queue="mail")
    app.cancel(wanted.id)
    last = app.enqueue("last", queue="images")
    assert [event.kind for event in take(app, 2, after=0, task_id=wanted.id)] == ["enqueued", "cancelled"]
    assert [event.task_id for event in take(app, 3, after=0, queue="images")] == [wanted.id, wanted.id, last.id]
    assert [event.queue for event in take(app, 2, after=0, type="resize", kinds=["enqueued"])] == ["images", "mail"]
    assert [event.task_id for event in take(app, 1, after=0, kinds=["cancelled", "failed"])] == [wanted.id]


def test_wrong_filters_and_positions_are_refused(app: Any) -> None:
    for wrong in (
        {"kinds": ["exploded"]},
        {"kinds": []},
        {"after": -1},
        {"after": "1"},
        {"queue": ""},
        {"task_id": -1},
    ):
        with pytest.raises(InvalidValue):
            take(app, 1, **wrong)


def test_events_wait_for_the_next_one(url: str, open_app: Callable[..., Any]) -> None:
    app, other = open_app(url), open_app(url)
    last = take(app, 1, after=0, task_id=app.enqueue("first").id)[0].id
    heard: list[Any] = []
    reading = threading.Thread(target=lambda: heard.extend(take(app, 2, after=last)))
    reading.start()
    tasks = [other.enqueue("second").id for _ in range(2)]
    reading.join(30)
    assert [event.task_id for event in heard] == tasks


def test_events_without_a_position_begin_with_the_next_one(url: str, open_app: Callable[..., Any]) -> None:
    app = open_app(url)
    app.enqueue("before")
    heard: list[Any] = []

    def read() -> None:
        heard.extend(take(app, 3))

    reading = threading.Thread(target=read)
    reading.start()
    while reading.is_alive():  # the first events may come before the start of the loop
        app.enqueue("after")
        reading.join(0.05)
    assert {event.type for event in heard} == {"after"}
    assert ids(heard) == list(range(heard[0].id, heard[0].id + 3))


@pytest.mark.own_connections
def test_closing_the_client_ends_a_loop_that_waits(url: str, open_app: Callable[..., Any]) -> None:
    app = open_app(url)
    task = app.enqueue("resize")
    heard: list[int] = []

    def read() -> None:
        for event in app.events(after=0):
            heard.append(event.task_id)  # noqa: PERF401  # the loop does not end

    reading = threading.Thread(target=read)
    reading.start()
    until(lambda: heard == [task.id])
    app.close()
    reading.join(30)
    assert not reading.is_alive()


def test_pruned_events_are_reported_and_the_beginning_of_what_is_kept_is_not(app: Any, clock: Clock) -> None:
    app.set_retention("history", 60)
    for _ in range(3):
        app.enqueue("old")
    first = take(app, 1, after=0)[0]
    clock.advance(61)
    app.upkeep()
    new = app.enqueue("new")
    with pytest.raises(EventsPruned) as refused:
        take(app, 1, after=first.id)
    assert (refused.value.after, refused.value.pruned_to) == (first.id, first.id + 2)
    assert "after=" in refused.value.hint
    assert take(app, 1, after=0)[0].task_id == new.id
    assert take(app, 1, after=refused.value.pruned_to)[0].task_id == new.id


@pytest.mark.database("the server ends the stream, and refuses the next one")
def test_a_loop_that_is_slower_than_the_retention_ends_with_an_error(app: Any, clock: Clock) -> None:
    app.set_retention("history", 60)
    app.enqueue_many([dibs.NewTask("old") for _ in range(3)])
    with closing(app.events(after=0)) as events:
        assert len(list(islice(events, 3))) == 3  # the page that was read
        app.enqueue("missed")
        clock.advance(61)
        app.upkeep()
        with pytest.raises(EventsPruned):
            next(iter(events))


@pytest.mark.database("only a client of the database can join a transaction")
def test_events_cannot_be_read_in_a_transaction_of_the_caller(app: Any) -> None:
    with pytest.raises(InvalidValue, match="transaction"):
        take(app.on(object()), 1)


# Late commits


@pytest.fixture
def late(url: str) -> Iterator[Any]:
    """A transaction of another program, on PostgreSQL."""
    if not url.startswith("postgresql"):
        pytest.skip("one writer: entries become visible in the order of their ids")
    with psycopg.connect(url) as connection, dibs.Dibs(url) as writer:
        yield writer.on(connection), connection


def test_an_entry_that_is_committed_late_is_not_skipped(app: Any, late: Any) -> None:
    writer, connection = late
    first = writer.enqueue("late")
    second = app.enqueue("early")
    heard: list[Any] = []
    reading = threading.Thread(target=lambda: heard.extend(take(app, 2, after=0)))
    reading.start()
    reading.join(3)  # longer than any timeout that a reader might have had
    assert heard == []
    connection.commit()
    reading.join(30)
    assert [event.task_id for event in heard] == [first.id, second.id]


def test_an_entry_that_was_rolled_back_delays_nothing(app: Any, late: Any) -> None:
    writer, connection = late
    writer.enqueue("never")
    early = app.enqueue("early")
    connection.rollback()
    connection.execute("SELECT pg_current_xact_id()")  # another transaction, which does not write to the history
    assert take(app, 1, after=0)[0].task_id == early.id


# Many writers, and a reader that is killed


@contextmanager
def process(module: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is killed at the end."""
    with subprocess.Popen([sys.executable, "-m", module, *arguments], stdin=subprocess.PIPE) as started:
        try:
            yield started
        finally:
            started.kill()


@pytest.mark.own_connections
def test_a_reader_that_is_killed_and_resumes_reads_the_history_exactly(
    url: str, open_app: Callable[..., Any], tmp_path: Any
) -> None:
    app, read = open_app(url), tmp_path / "read"
    read_url = getattr(app, "app", app).url  # that of a server, over HTTP
    app.enqueue("first")
    read.touch()

    def lines() -> list[int]:
        return [int(line) for line in read.read_bytes().splitlines()]

    with ExitStack() as running:
        writers = [running.enter_context(process("tests.helpers.history_writer", url, str(n))) for n in range(2)]
        for _ in range(2):
            known = len(lines())
            with process("tests.helpers.event_reader", read_url, str(read)):
                until(lambda known=known: len(lines()) > known + 15, timeout=60)
        for writer in writers:
            writer.communicate(timeout=60)  # closes its input, at which it stops
        assert [writer.returncode for writer in writers] == [0, 0]
        history = [entry.id for entry in app.all_history()]
        running.enter_context(process("tests.helpers.event_reader", read_url, str(read)))
        until(lambda: lines()[-1] == history[-1], timeout=60)
    assert lines() == history
