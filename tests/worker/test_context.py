"""The context of a handler: its attempt, its progress and log, and the result for its caller."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from dibs import AsyncDibs, Backoff, Context, Dibs, NewTask, PollerConfig, State, TaskPoller, WaitTimeout
from tests.helpers import handlers
from tests.helpers.handlers import say
from tests.helpers.waiting import until
from tests.helpers.workers import WorkerProcesses


@pytest.fixture
def app(url: str) -> Iterator[Dibs]:
    """An application without handlers."""
    with Dibs(url) as app:
        yield app


def test_the_context_has_the_task_the_token_and_the_attempt(app: Dibs) -> None:
    @app.task(max_attempts=3, backoff=Backoff(0.01, 0.01))
    def look(ctx: Context, n: int) -> dict[str, Any]:
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return {"id": ctx.task.id, "type": ctx.task.type, "params": ctx.task.params, "token": ctx.token, "n": n}

    with app.worker():
        task = look.enqueue(n=5).wait(30)
    assert task.result == {"id": task.id, "type": "look", "params": {"n": 5}, "token": 3, "n": 5}


def test_progress_is_written_while_the_handler_runs(app: Dibs) -> None:
    go = threading.Event()

    @app.task
    def far(ctx: Context) -> None:
        ctx.progress(10)
        ctx.progress(40, "almost half")
        go.wait(30)

    with app.worker():
        task = far.enqueue()
        until(lambda: app.get(task.id).progress == 40)  # type: ignore[union-attr]
        assert app.get(task.id).progress_message == "almost half"  # type: ignore[union-attr]
        go.set()
        assert task.wait(30).state is State.COMPLETED


@pytest.mark.parametrize("way", ["direct", "served"])
@pytest.mark.parametrize("lane", ["thread", "loop"])
def test_a_completed_task_shows_the_last_progress_of_its_handler(
    url: str, way: str, lane: str, request: pytest.FixtureRequest
) -> None:
    with contextlib.ExitStack() as closing:
        place = url if way == "direct" else closing.enter_context(request.getfixturevalue("server_host").serving(url))
        app = closing.enter_context(Dibs(place))

        def far(ctx: Context, n: int) -> None:
            ctx.progress(60)
            ctx.progress(100, f"done {n}")

        async def far_async(ctx: Context, n: int) -> None:
            far(ctx, n)

        app.task(far if lane == "thread" else far_async, name="far")
        tasks = app.enqueue_many([NewTask("far", {"n": n}) for n in range(20)])
        with app.worker(concurrency=4):
            done = [app.wait(task.id, 30) for task in tasks]
    assert [(task.progress, task.progress_message) for task in done] == [(100, f"done {n}") for n in range(20)]


def test_a_task_completed_in_a_child_process_shows_its_last_progress(url: str) -> None:
    with handlers.at(url) as app:
        tasks = [app.enqueue("progress_apart") for _ in range(3)]
        with app.worker(children=1):
            assert [app.wait(task.id, 30).progress for task in tasks] == [100] * 3


def test_a_task_completed_by_a_poller_shows_its_last_progress(app: Dibs) -> None:
    task = app.enqueue("far")
    poller = TaskPoller(app, "poller-1", PollerConfig(poll_interval=0.05))

    def callback(task: Any, ctx: Context) -> None:
        ctx.progress(100)
        poller.stop()

    assert poller.poll_loop(callback) == 1
    assert (app.get(task.id).state, app.get(task.id).progress) == (State.COMPLETED, 100)  # type: ignore[union-attr]


def test_tasks_that_report_no_progress_cost_no_statement_for_it(app: Dibs, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    def quiet() -> None: ...

    ran: list[str] = []
    run = app._store.run

    def noted(operation: Any, **how: Any) -> Any:
        ran.append(operation.name)
        return run(operation, **how)

    monkeypatch.setattr(app._store, "run", noted)
    with app.worker():
        for task in app.enqueue_many([quiet.new() for _ in range(20)]):
            app.wait(task.id, 30)
    assert "finish" in ran
    assert "progress" not in ran


def test_progress_out_of_bounds_raises_in_the_handler(app: Dibs) -> None:
    @app.task(max_attempts=1)
    def far(ctx: Context) -> None:
        ctx.progress(101)

    with app.worker():
        assert "progress" in far.enqueue().wait(30).error.message


def test_the_log_names_the_task(app: Dibs, caplog: pytest.LogCaptureFixture) -> None:
    @app.task
    def speak(ctx: Context) -> None:
        ctx.log.info("hello %s", "there", extra={"more": 1})

    caplog.set_level(logging.INFO, "dibs.task")
    with app.worker():
        task = speak.enqueue().wait(30)
    [record] = [record for record in caplog.records if record.name == "dibs.task"]
    assert record.getMessage() == f"task {task.id} (speak, attempt 1): hello there"
    assert (record.task_id, record.task_type, record.attempt, record.more) == (task.id, "speak", 1, 1)  # type: ignore[attr-defined]


@dataclass
class Box:
    """An argument of the user's own making."""

    width: int
    label: str = "none"


def test_arguments_are_converted_to_their_annotated_types(app: Dibs) -> None:
    arrived: list[Any] = []
    moment, name = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), UUID(int=7)

    @app.task
    def take(box: Box, at: datetime, who: UUID, many: list[Box] | None = None, rate: float = 0.5) -> None:
        arrived.append((box, at, who, many, rate))

    with app.worker():
        assert take.enqueue(Box(1, "x"), moment, who=name, many=[Box(2)]).wait(30).error is None
    assert arrived == [(Box(1, "x"), moment, name, [Box(2)], 0.5)]


def test_options_apply_to_one_call_only(app: Dibs) -> None:
    @app.task(priority=1, max_attempts=7, timeout=30)
    def job(n: int = 0) -> None: ...

    special = job.options(priority=9, queue="other", delay=60, key="once").enqueue(1)
    plain = job.enqueue(2)
    assert (special.priority, special.queue, special.max_attempts, special.timeout) == (9, "other", 7, 30)
    assert (special.state, special.key) == (State.SCHEDULED, "once")
    assert (plain.priority, plain.queue, plain.state, plain.key) == (1, "default", State.PENDING, None)
    assert job.options(key="once", queue="other").enqueue(1).deduplicated


def test_new_tasks_are_enqueued_many_at_once(app: Dibs) -> None:
    @app.task
    def double(n: int) -> int:
        return 2 * n

    @app.task
    async def triple(n: int) -> int:
        return 3 * n

    tasks = app.enqueue_many([handler.new(n) for n in range(50) for handler in (double, triple)])
    with app.worker():
        assert [task.wait(30).result for task in tasks] == [factor * n for n in range(50) for factor in (2, 3)]


def test_waiting_for_a_task_gives_up_after_its_timeout(app: Dibs) -> None:
    with pytest.raises(WaitTimeout, match="still pending"):
        app.enqueue("nobody").wait(0.05)


def test_a_task_of_the_async_client_is_awaited(url: str) -> None:
    async def main() -> list[Any]:
        async with AsyncDibs(url) as app:

            @app.task
            async def double(n: int) -> int:
                return 2 * n

            @app.task
            def half(ctx: Context, n: int) -> float:
                return n / 2

            async with app.worker():
                tasks = [await double.enqueue(4), await half.options(priority=1).enqueue(n=3)]
                tasks += await app.enqueue_many([double.new(1)])
                return [(await task.wait(30)).result for task in tasks]

    assert asyncio.run(main()) == [8, 1.5, 2]


def test_a_child_process_reports_its_progress_and_its_log(url: str, workers: WorkerProcesses, tmp_path: Any) -> None:
    from tests.helpers import handlers

    with handlers.at(url) as app:
        worker = workers.start(children=1)
        task = handlers.speak_apart.enqueue(folder=str(tmp_path))
        until(lambda: app.get(task.id).progress == 30, 30)  # type: ignore[union-attr]
        assert app.get(task.id).progress_message == "from afar"  # type: ignore[union-attr]
        say(tmp_path, "speak.go")
        assert app.wait(task.id, 30).state is State.COMPLETED
        until(lambda: f"task {task.id} (speak_apart, attempt 1): hello" in worker.log)
