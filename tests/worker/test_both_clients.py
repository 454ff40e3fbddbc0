"""What belongs to the attempts of a worker works for Dibs and AsyncDibs, on the database itself and over HTTP.

Each test has a handler in a thread and one on the event loop. The other files of this folder have the rules in detail.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import dibs
from dibs import Context, State
from tests.helpers.clients import AsyncAsSync, Loop
from tests.helpers.codecs import Veil
from tests.helpers.waiting import until

LANES = ("thread", "loop")
OpenClient = Callable[..., Any]


@pytest.fixture(params=["Dibs", "AsyncDibs"])
def open_client(place: str, loop: Loop, request: pytest.FixtureRequest) -> Iterator[OpenClient]:
    """Opens a client of each kind, whose verbs are called like those of Dibs."""
    opened: list[Any] = []

    def open_one(**options: Any) -> Any:
        sync = request.param == "Dibs"
        opened.append(dibs.Dibs(place, **options) if sync else AsyncAsSync(dibs.AsyncDibs(place, **options), loop))
        return opened[-1]

    yield open_one
    for app in opened:
        app.close()


def declare(app: Any, function: Callable[..., Any], **options: Any) -> None:
    """Declare the function as a handler of each lane, named by the lane."""

    async def awaited(ctx: Context, number: int) -> Any:
        return function(ctx, number)

    app.task(name="thread", **options)(function)
    app.task(name="loop", **options)(awaited)


def enqueue(app: Any, *numbers: int, **options: Any) -> list[Any]:
    """Tasks with these arguments for the handler of each lane."""
    new = [app.handlers[lane].options(**options).new(number=number) for number in numbers for lane in LANES]
    stored: list[Any] = app.enqueue_many(new)
    return stored


def ended(app: Any, tasks: list[Any]) -> list[Any]:
    """The tasks, when a worker has run them."""
    return [app.wait(task.id, 30) for task in tasks]


def test_middleware_lifespan_and_outcome_hooks_are_around_each_attempt(open_client: OpenClient) -> None:
    app = open_client()
    calls: list[tuple[str, str, int]] = []

    @app.middleware
    async def around(ctx: Context, call_next: Any) -> Any:
        calls.append(("around", ctx.task.type, ctx.attempt))
        return await call_next()

    @app.lifespan
    async def opens() -> AsyncIterator[str]:
        yield "pool"

    for kind in ("on_success", "on_error", "on_dead", "on_cancel"):
        getattr(app, kind)(lambda ended, kind=kind: calls.append((kind, ended.task.type, ended.attempt)))

    def job(ctx: Context, number: int) -> Any:
        if number < 0 or ctx.attempt == 1:
            raise ValueError("no")
        return ctx.resources

    declare(app, job, max_attempts=2, backoff=[0])
    with app.worker():
        done = ended(app, enqueue(app, 1))
        dead = ended(app, enqueue(app, -1))
        assert until(lambda: len(calls) == 18)
    assert [(task.state, task.result) for task in done] == [(State.COMPLETED, "pool")] * 2
    assert [task.state for task in dead] == [State.FAILED] * 2
    both = Counter({("around", 1): 2, ("around", 2): 2, ("on_error", 1): 2, ("on_success", 2): 1})
    both += Counter({("on_error", 2): 1, ("on_dead", 2): 1})
    for lane in LANES:
        assert Counter((kind, attempt) for kind, of, attempt in calls if of == lane) == both


def test_retry_rules_decide_about_further_attempts(open_client: OpenClient) -> None:
    app = open_client()
    asked: list[tuple[int, str]] = []

    def delay(attempt: int, error: Exception) -> float:
        asked.append((attempt, type(error).__name__))
        return 0.01

    def job(ctx: Context, number: int) -> None:
        raise (TimeoutError, ValueError, KeyError)[number]

    declare(app, job, max_attempts=3, retry_on=(TimeoutError, ValueError), give_up_on=ValueError, backoff=delay)
    with app.worker():
        failed = ended(app, enqueue(app, *range(3)))
    assert [(task.state, task.attempts) for task in failed] == [(State.FAILED, each) for each in (3, 3, 1, 1, 1, 1)]
    assert set(asked) == {(1, "TimeoutError"), (2, "TimeoutError"), (3, "TimeoutError")}


def test_a_bound_of_a_queue_holds_over_all_lanes(open_client: OpenClient) -> None:
    app = open_client()
    most, now, lock = Counter[str](), Counter[str](), threading.Lock()

    def job(ctx: Context, number: int) -> None:
        queue = ctx.task.queue
        with lock:
            now[queue] += 1
            most[queue] = max(most[queue], now[queue])
        ctx.progress(number)
        with lock:
            now[queue] -= 1

    declare(app, job)
    tasks = enqueue(app, *range(10), queue="mail") + enqueue(app, *range(10), queue="other")
    with app.worker(concurrency=4, queues={"mail": 1, "other": None}):
        assert {task.state for task in ended(app, tasks)} == {State.COMPLETED}
    assert most["mail"] == 1


def test_a_codec_encodes_what_is_stored_and_shows_the_handler_plain_values(open_client: OpenClient) -> None:
    app = open_client(codec=Veil())
    seen: list[Any] = []

    def job(ctx: Context, number: int) -> Any:
        seen.append((number, ctx.task.params))
        return {"number": number}

    declare(app, job)
    with app.worker():
        done = ended(app, enqueue(app, 7))
    assert seen == [(7, {"number": 7})] * 2
    for task in done:
        assert "$encoded" in task.params
        assert "$encoded" in task.raw_result
        assert app.handlers[task.type].decode(task.raw_result) == {"number": 7}


def test_what_handlers_log_is_kept_with_their_task(open_client: OpenClient) -> None:
    app = open_client(capture_logs=True)

    def job(ctx: Context, number: int) -> None:
        logging.getLogger("jobs").warning("step %d", number)

    declare(app, job)
    tasks = enqueue(app, *range(3))
    with app.worker():
        ended(app, tasks)
    lines = [[(line.attempt, line.logger, line.message) for line in app.logs(task.id)] for task in tasks]
    assert lines == [[(1, "jobs", f"step {task.params['number']}")] for task in tasks]
