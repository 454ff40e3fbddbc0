"""Concurrent enqueues are one statement, and each caller has its own errors, keys and cancellation."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import dibs
from dibs.store import coalesce
from tests.helpers.databases import run_sql
from tests.helpers.waiting import until

CALLERS = 16

pytestmark = [pytest.mark.parametrize("engine", ["postgres"], indirect=True), pytest.mark.own_connections]


@pytest.fixture
def app(url: str) -> Iterator[dibs.Dibs]:
    """A client whose store is open."""
    with dibs.Dibs(url) as app:
        app.enqueue("first", {"n": -1})
        yield app


@contextmanager
def locked(url: str) -> Iterator[None]:
    """Lock the tasks against all writes."""
    with psycopg.connect(url) as connection:
        connection.execute("LOCK TABLE dibs_tasks IN SHARE MODE")
        yield


def call_while_locked(url: str, calls: list[Callable[[], Any]]) -> list[Any]:
    """The replies to all calls, one thread each, which all wait for the table or for a thread that waits for it."""
    with ThreadPoolExecutor(len(calls)) as pool:
        with locked(url):
            futures = [pool.submit(call) for call in calls]
            until(lambda: threads_in_line() == len(calls) - 1)
        return [answer_of(future) for future in futures]


def threads_in_line() -> int:
    """How many threads wait for another one's operation to end."""
    waits = (coalesce.__file__, "wait")
    return sum((frame.f_code.co_filename, frame.f_code.co_name) == waits for frame in sys._current_frames().values())


def answer_of(future: Future[Any]) -> Any:
    return future.exception() or future.result()


def stored(app: dibs.Dibs) -> list[int]:
    return sorted(task.params["n"] for task in app.list_tasks(type="t", limit=1000))


def transactions(url: str) -> int:
    """How many transactions have stored the tasks of the type."""
    [(count,)] = run_sql(url, "SELECT count(DISTINCT xmin::text) FROM dibs_tasks WHERE type = 't'")
    return int(count)


@pytest.fixture
def no_sevens(app: dibs.Dibs, url: str) -> Iterator[None]:
    """Let the database refuse a task that dibs itself finds nothing wrong with."""
    run_sql(url, "ALTER TABLE dibs_tasks ADD CONSTRAINT no_sevens CHECK (params <> '{\"n\":7}')")
    yield
    run_sql(url, "ALTER TABLE dibs_tasks DROP CONSTRAINT no_sevens")


def test_concurrent_enqueues_share_a_statement(app: dibs.Dibs, url: str) -> None:
    tasks = call_while_locked(url, [lambda n=n: app.enqueue("t", {"n": n}) for n in range(CALLERS)])
    assert [task.params["n"] for task in tasks] == list(range(CALLERS))
    assert [app.get(task.id) for task in tasks] == tasks
    assert [len(app.history(task.id)) for task in tasks] == [1] * CALLERS
    assert transactions(url) == 2


def test_concurrent_enqueues_with_different_signatures_do_not_share_a_statement(app: dibs.Dibs, url: str) -> None:
    names = ["a", "b"]
    with ThreadPoolExecutor(8) as pool:
        with locked(url):
            futures = [pool.submit(app.signed(by).enqueue, "t", {"n": 0}) for by in names * 4]
            until(lambda: threads_in_line() == 6)
        tasks = [future.result() for future in futures]
    assert [app.history(task.id)[0].by for task in tasks] == names * 4


@pytest.mark.usefixtures("no_sevens")
def test_an_error_of_one_caller_does_not_affect_other_callers(app: dibs.Dibs, url: str) -> None:
    app.register_type("strict", {"required": ["n"]})
    calls = [lambda n=n: app.enqueue("t", {"n": n}) for n in range(10)]
    answers = call_while_locked(url, [*calls, lambda: app.enqueue("strict", {})])
    assert isinstance(answers.pop(), dibs.SchemaViolation)
    refused = answers.pop(7)
    assert type(refused) is dibs.StoreRefused
    assert "no_sevens" in refused.message
    assert [answer.params["n"] for answer in answers] == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    assert stored(app) == [0, 1, 2, 3, 4, 5, 6, 8, 9]


def test_an_enqueue_that_waits_for_a_key_of_an_open_transaction_does_not_delay_other_enqueues(
    app: dibs.Dibs, url: str
) -> None:
    with ThreadPoolExecutor(1) as pool, psycopg.connect(url) as connection:
        first = app.on(connection).enqueue("t", {"n": 0}, key="taken")
        waiting = pool.submit(app.enqueue, "t", {"n": 0}, key="taken")
        until(lambda: run_sql(url, "SELECT 1 FROM pg_locks WHERE NOT granted"))
        app.enqueue("t", {"n": 1})
        app.enqueue("t", {"n": 2}, key="free")
        assert not waiting.done()
        connection.commit()
        again = waiting.result(30)
    assert (again.id, again.deduplicated) == (first.id, True)
    assert stored(app) == [0, 1, 2]


def test_a_cancelled_coroutine_does_not_affect_other_coroutines(app: dibs.Dibs, url: str) -> None:
    async def enqueue_and_cancel() -> list[Any]:
        async with dibs.AsyncDibs(url) as looped:
            await looped.enqueue("first", {"n": -1})
            with locked(url):
                calls = [asyncio.create_task(looped.enqueue("t", {"n": n})) for n in range(CALLERS)]
                await asyncio.to_thread(until, lambda: run_sql(url, "SELECT 1 FROM pg_locks WHERE NOT granted"))
                calls[0].cancel()  # it is under way, and the others wait for it
                calls[5].cancel()  # it waits
                await asyncio.wait(calls[:1])
            return await asyncio.gather(*calls, return_exceptions=True)

    answers = asyncio.run(enqueue_and_cancel())
    assert [n for n, answer in enumerate(answers) if isinstance(answer, asyncio.CancelledError)] == [0, 5]
    kept = [n for n in range(CALLERS) if n not in (0, 5)]
    assert [answers[n].params["n"] for n in kept] == kept
    assert stored(app) == kept
    assert transactions(url) == 1


@pytest.mark.usefixtures("no_sevens")
def test_an_error_of_one_coroutine_does_not_affect_other_coroutines(app: dibs.Dibs, url: str) -> None:
    async def enqueue_all() -> list[Any]:
        async with dibs.AsyncDibs(url) as looped:
            calls = (looped.enqueue("t", {"n": n}) for n in range(10))
            return await asyncio.gather(*calls, return_exceptions=True)

    answers = asyncio.run(enqueue_all())
    assert type(answers.pop(7)) is dibs.StoreRefused
    assert [answer.params["n"] for answer in answers] == stored(app) == [0, 1, 2, 3, 4, 5, 6, 8, 9]
