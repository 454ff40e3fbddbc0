"""Middleware around attempts, in every lane and in tests: ordered, part of the attempt, refused where it cannot run."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import dibs
from dibs import Context, InvalidValue, State
from dibs.testing import isolated
from tests.helpers.each import for_each
from tests.helpers.middleware import app as apart
from tests.helpers.middleware import awaited_apart, enclosed_apart, hidden_apart, slow_apart


@pytest.fixture
def app(url: str) -> Iterator[dibs.Dibs]:
    """An application without handlers."""
    with dibs.Dibs(url) as app:
        yield app


class Broken(Exception):
    """Raised by a middleware of a test."""


def noting(notes: list[str], name: str, awaited: bool) -> Any:
    """A middleware that notes when it runs, and adds its name to the result."""

    def around(ctx: Context, call_next: Any) -> Any:
        notes.append(f"{name} before {ctx.task.type}")
        result = call_next()
        notes.append(f"{name} after")
        return [*result, name]

    async def around_async(ctx: Context, call_next: Any) -> Any:
        notes.append(f"{name} before {ctx.task.type}")
        result = await call_next()
        notes.append(f"{name} after")
        return [*result, name]

    return around_async if awaited else around


@pytest.mark.parametrize("layers", ["sync", "async", "mixed"])
@pytest.mark.parametrize("handler", ["sync", "async"])
def test_the_first_declared_is_the_outermost_and_that_of_the_app_is_around_that_of_the_handler(
    app: dibs.Dibs, layers: str, handler: str
) -> None:
    if handler == "async" and layers != "async":
        pytest.skip("refused")
    notes: list[str] = []
    kinds = {"sync": [False] * 3, "async": [True] * 3, "mixed": [True, True, False]}[layers]
    a, b, c = (noting(notes, name, awaited) for name, awaited in zip("abc", kinds, strict=True))
    app.middleware(a)

    def plain(n: int) -> list[str]:
        notes.append(f"handler {n}")
        return ["result"]

    async def coroutine(n: int) -> list[str]:
        return plain(n)

    run = app.task(name="run", middleware=[c])(plain if handler == "sync" else coroutine)
    app.middleware(b)  # declared after the handler
    with app.worker():
        assert run.enqueue(7).wait(30).result == ["result", "c", "b", "a"]
    expected = ["a before run", "b before run", "c before run", "handler 7", "c after", "b after", "a after"]
    assert notes == expected
    with isolated(app) as box:
        assert box.run_now(run, 8) == ["result", "c", "b", "a"]


@pytest.mark.parametrize("awaited", [False, True], ids=["sync", "async"])
def test_the_exception_of_a_middleware_is_that_of_the_attempt(app: dibs.Dibs, awaited: bool) -> None:
    def breaks(ctx: Context, call_next: Any) -> Any:
        raise Broken(f"attempt {ctx.attempt}")

    async def breaks_async(ctx: Context, call_next: Any) -> Any:
        await call_next()
        raise Broken(f"attempt {ctx.attempt}")

    app.middleware(breaks_async if awaited else breaks)

    async def coroutine() -> None: ...

    handler = app.task(name="job", max_attempts=2, backoff=[0])(coroutine if awaited else lambda: None)
    with app.worker():
        task = handler.enqueue().wait(30)
    assert (task.state, task.attempts, task.error.type, task.error.message) == (State.FAILED, 2, "Broken", "attempt 2")
    with isolated(app) as box, pytest.raises(Broken):
        box.run_now(handler)


def test_a_middleware_may_answer_an_exception_and_may_leave_the_handler_out(app: dibs.Dibs) -> None:
    ran: list[str] = []

    @app.middleware
    def around(ctx: Context, call_next: Any) -> Any:
        if ctx.task.params["which"] == "left out":
            return "instead"
        try:
            return call_next()
        except ValueError as error:
            return f"answered {error}"

    @app.task
    def job(which: str) -> str:
        ran.append(which)
        raise ValueError(which)

    with isolated(app) as box:
        assert box.run_now(job, "left out") == "instead"
        assert box.run_now(job, "raises") == "answered raises"
    assert ran == ["raises"]


def test_the_endings_of_a_handler_pass_through_middleware_and_may_come_from_it(app: dibs.Dibs) -> None:
    @app.middleware
    def around(ctx: Context, call_next: Any) -> Any:
        if ctx.task.params["ending"] == "Snooze":
            raise dibs.Snooze(60)
        return call_next()

    @app.task
    def job(ending: str) -> None:
        raise {"Cancel": dibs.Cancel, "Permanent": dibs.Permanent}[ending]("no")

    with isolated(app) as box:
        for ending in ("Snooze", "Cancel", "Permanent"):
            job.enqueue(ending)
        assert [task.state for task in box.drain()] == [State.CANCELLED, State.FAILED]
        assert [task.attempts for task in box.enqueued()] == [0]


def test_retry_rules_judge_the_exception_of_a_middleware(app: dibs.Dibs) -> None:
    @app.middleware
    def around(ctx: Context, call_next: Any) -> Any:
        raise Broken

    @app.task(give_up_on=Broken)
    def job() -> None: ...

    with isolated(app) as box:
        job.enqueue()
        [task] = box.drain()
    assert (task.state, task.attempts, task.error.permanent) == (State.FAILED, 1, True)


def test_params_that_do_not_fit_the_handler_fail_before_any_middleware(app: dibs.Dibs) -> None:
    @app.middleware
    def around(ctx: Context, call_next: Any) -> Any:
        raise Broken

    @app.task(register_schema=False)
    def job(n: int) -> None: ...

    with isolated(app) as box:
        app.enqueue("job", {"n": "x"})
        [task] = box.drain()
    assert (task.error.type, task.error.permanent) == ("InvalidValue", True)


@pytest.mark.parametrize("lane", ["thread", "loop"])
def test_the_time_of_a_middleware_counts_against_the_timeout(app: dibs.Dibs, lane: str) -> None:
    over, ran = threading.Event(), []

    def hangs(ctx: Context, call_next: Any) -> Any:
        over.wait(30)
        return call_next()

    async def hangs_async(ctx: Context, call_next: Any) -> Any:
        await asyncio.sleep(30)
        return await call_next()

    app.middleware(hangs if lane == "thread" else hangs_async)

    async def coroutine() -> None:
        ran.append(1)

    handler = app.task(name="job", timeout=0.3, max_attempts=1)(coroutine if lane == "loop" else lambda: None)
    with app.worker(grace=0):
        task = handler.enqueue().wait(30)
        over.set()
    assert (task.state, task.error.type) == (State.FAILED, "TimedOut")
    assert ran == []


def test_an_async_middleware_is_cancelled_with_its_task(app: dibs.Dibs) -> None:
    inside, cancelled = threading.Event(), threading.Event()

    @app.middleware
    async def around(ctx: Context, call_next: Any) -> Any:
        try:
            inside.set()
            return await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    @app.task
    async def job() -> None: ...

    with app.worker():
        task = job.enqueue()
        assert inside.wait(30)
        app.cancel(task.id)
        assert app.wait(task.id, 30).state is State.CANCELLED
        assert cancelled.wait(10)


def test_a_child_process_runs_the_middleware_of_the_app_and_of_the_handler(url: str) -> None:
    apart.use_url(url)
    with apart, apart.worker(children=1):
        tasks = [enclosed_apart.enqueue("x"), awaited_apart.enqueue("y")]
        assert [task.wait(60).result for task in tasks] == ["<<(x)>>", "<<y>>"]
        slow = slow_apart.enqueue()
        assert slow.wait(60).error.type == "TimedOut"  # in the middleware, before the handler


def test_a_child_process_refuses_to_run_without_the_middleware_of_the_worker(url: str) -> None:
    apart.use_url(url)
    assert hidden_apart.middleware is not None
    before = hidden_apart.middleware
    try:
        hidden_apart.middleware = type(before)("hidden_apart", hidden_apart.function, [*before.layers, _only_here])
        with apart, apart.worker(children=1):
            task = hidden_apart.enqueue().wait(60)
    finally:
        hidden_apart.middleware = before
    assert (task.state, task.error.type, task.error.permanent) == (State.FAILED, "InvalidValue", True)
    assert "_only_here" in task.error.message


async def _only_here(ctx: Context, call_next: Any) -> Any:
    return await call_next()


def plain(ctx: Context, call_next: Any) -> Any: ...


async def coroutine(ctx: Context, call_next: Any) -> Any: ...


class Callable:
    """An object with an async call."""

    async def __call__(self, ctx: Context, call_next: Any) -> Any: ...


def test_a_sync_middleware_around_an_async_handler_is_refused_in_both_orders() -> None:
    async def job() -> None: ...

    complaint = "plain is a plain function and cannot wait for what is inside of it: the handler 'job'"
    app = dibs.Dibs("sqlite:///nowhere.db")
    handler = app.task(job)
    with pytest.raises(InvalidValue, match=complaint):
        app.middleware(plain)
    assert handler.middleware is None

    app = dibs.Dibs("sqlite:///nowhere.db")
    app.middleware(plain)
    with pytest.raises(InvalidValue, match=complaint):
        app.task(job)
    assert app.handlers == {}
    with pytest.raises(InvalidValue, match=complaint):
        dibs.Dibs("sqlite:///nowhere.db").task(middleware=[plain])(job)


@for_each("inner", [coroutine, Callable(), functools.partial(coroutine)])
def test_a_sync_middleware_around_an_async_one_is_refused(inner: Any) -> None:
    app = dibs.Dibs("sqlite:///nowhere.db")
    app.middleware(plain)
    with pytest.raises(InvalidValue, match="plain is a plain function"):
        app.task(name="job", middleware=[inner])(lambda: None)


@for_each("wrong", [7, dict, lambda ctx: None, lambda: None])
def test_a_middleware_that_cannot_be_called_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidValue, match=r"not a function|does not take two arguments"):
        dibs.Dibs("sqlite:///nowhere.db").middleware(wrong)
    with pytest.raises(InvalidValue, match=r"not a function|does not take two arguments"):
        dibs.Dibs("sqlite:///nowhere.db").task(name="job", middleware=[wrong])(lambda: None)
