"""A worker inside another program: a thread, an event loop, an ASGI server's lifespan; it leaves nothing behind."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from dibs import AsyncDibs, Dibs, InvalidValue, State, WorkerState
from tests.helpers.waiting import until

pytestmark = pytest.mark.own_connections


def test_a_worker_runs_for_as_long_as_its_with_block(url: str) -> None:
    with Dibs(url) as app:
        add = declare_add(app)
        before = set(threading.enumerate())
        with app.worker() as worker:
            assert add.enqueue(1, 2).wait(30).result == 3
            assert worker.health.running
        assert not worker.health.running
        left = add.enqueue(3, 4)
        assert app.get(left.id) == left
        until(lambda: not working_threads() - before)
        assert [info.state for info in app.workers()] == [WorkerState.GONE]


def test_leaving_the_with_block_waits_for_running_tasks(url: str) -> None:
    with Dibs(url) as app:
        began, go = threading.Event(), threading.Event()

        @app.task
        def held() -> str:
            began.set()
            go.wait(30)
            return "done"

        with app.worker(grace=30):
            task = held.enqueue()
            assert began.wait(30)
            threading.Timer(0.1, go.set).start()
        assert app.wait(task.id, 0).result == "done"


def test_inside_async_with_coroutines_run_on_the_callers_event_loop(url: str) -> None:
    async def main() -> None:
        async with AsyncDibs(url) as app:

            @app.task
            async def where() -> bool:
                return asyncio.get_running_loop() is loop

            @app.task
            def thread() -> bool:
                return threading.current_thread() is threading.main_thread()

            loop = asyncio.get_running_loop()
            async with app.worker():
                first, second = await where.enqueue(), await thread.enqueue()
                assert (await first.wait(30)).result is True
                assert (await second.wait(30)).result is False
            assert [info.state for info in await app.workers()] == [WorkerState.GONE]

    asyncio.run(main())


def test_leaving_async_with_waits_for_coroutines_and_releases_unfinished_tasks(url: str) -> None:
    async def main() -> list[Any]:
        async with AsyncDibs(url) as app:
            both_began = asyncio.Barrier(3)
            stopped: list[str] = []

            @app.task
            async def quick() -> str:
                await both_began.wait()
                await asyncio.sleep(0.1)  # the worker is being stopped in the meantime
                return "done"

            @app.task
            async def endless() -> None:
                await both_began.wait()
                try:
                    await asyncio.Event().wait()
                finally:
                    stopped.append("stopped")

            async with app.worker(grace=1.0):
                tasks = [await endless.enqueue(), await quick.enqueue()]
                await asyncio.wait_for(both_began.wait(), 30)
            return [*[await app.get(task.id) for task in tasks], *stopped]

    released, completed, stopped = asyncio.run(main())
    assert (released.state, released.attempts) == (State.PENDING, 0)
    assert (completed.state, completed.result) == (State.COMPLETED, "done")
    assert stopped == "stopped"


def test_a_worker_lives_in_the_lifespan_of_an_asgi_application(url: str) -> None:
    queue = AsyncDibs(url)

    @queue.task
    async def greet(name: str) -> str:
        return f"Hello {name}"

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            assert (await receive())["type"] == "lifespan.startup"
            async with queue, queue.worker():
                await send({"type": "lifespan.startup.complete"})
                assert (await receive())["type"] == "lifespan.shutdown"
            await send({"type": "lifespan.shutdown.complete"})
        else:
            task = await (await greet.enqueue(scope["path"])).wait(30)
            await send({"type": "http.response.body", "body": task.result.encode()})

    async def server() -> list[Any]:
        sent: asyncio.Queue[Any] = asyncio.Queue()
        received: asyncio.Queue[Any] = asyncio.Queue()
        await received.put({"type": "lifespan.startup"})
        lifespan = asyncio.create_task(application({"type": "lifespan"}, received.get, sent.put))
        heard = [await sent.get()]
        await application({"type": "http", "path": "/you"}, received.get, sent.put)
        heard.append(await sent.get())
        await received.put({"type": "lifespan.shutdown"})
        heard.append(await sent.get())
        await lifespan
        return heard

    started, body, stopped = asyncio.run(server())
    assert body["body"] == b"Hello /you"
    assert [started["type"], stopped["type"]] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_a_plain_client_s_worker_can_be_awaited_too(url: str) -> None:
    async def main() -> Any:
        with Dibs(url) as app:

            @app.task
            async def loop() -> int:
                return id(asyncio.get_running_loop())

            async with app.worker():
                task = await asyncio.to_thread(lambda: loop.enqueue().wait(30))
                return task.result == id(asyncio.get_running_loop())

    assert asyncio.run(main()) is True


def test_run_async_works_until_it_is_stopped(url: str) -> None:
    async def main() -> int:
        async with AsyncDibs(url) as app:

            @app.task
            async def add(a: int, b: int) -> int:
                return a + b

            worker = app.worker()
            running = asyncio.create_task(worker.run_async())
            task = await add.enqueue(1, 2)
            assert (await task.wait(30)).result == 3
            await asyncio.to_thread(worker.stop)
            return await running

    assert asyncio.run(main()) == 0


def test_run_in_a_thread_that_is_not_the_main_one_ends_with_stop(url: str) -> None:
    with Dibs(url) as app:
        add = declare_add(app)

        @app.task
        async def add_async(a: int, b: int) -> int:
            return a + b

        worker = app.worker()
        codes: list[int] = []
        thread = threading.Thread(target=lambda: codes.append(worker.run()))
        thread.start()
        assert [handler.enqueue(1, 2).wait(30).result for handler in (add, add_async)] == [3, 3]
        assert worker.stop() == 0
        thread.join(30)
        assert codes == [0]


def test_stopping_a_worker_twice_is_the_same_as_once(url: str) -> None:
    with Dibs(url) as app:
        declare_add(app)

        @app.task
        async def add_async() -> None: ...

        with app.worker() as worker:
            assert worker.stop() == 0
            assert worker.stop() == 0


def test_a_worker_that_never_started_can_be_stopped_and_a_started_worker_cannot_be_started_again(url: str) -> None:
    with Dibs(url) as app:
        declare_add(app)
        assert app.worker().stop() == 0
        with app.worker() as worker, pytest.raises(InvalidValue, match="already started"):
            worker.start()


def test_a_burst_ends_when_no_task_is_left(url: str) -> None:
    with Dibs(url) as app:
        add = declare_add(app)

        @app.task
        async def add_async(a: int, b: int) -> int:
            return a + b

        tasks = app.enqueue_many([*(add.new(n, 1) for n in range(200)), *(add_async.new(n, 1) for n in range(200))])
        assert app.worker(burst=True).run() == 0
        assert {app.wait(task.id, 0).state for task in tasks} == {State.COMPLETED}
        assert app.worker(burst=True).run() == 0  # nothing at all


def test_a_worker_without_handlers_is_refused_with_a_message(url: str) -> None:
    with Dibs(url) as app, pytest.raises(InvalidValue, match=r"@app\.task"):
        app.worker()


def test_two_workers_in_one_program_share_the_work(url: str) -> None:
    with Dibs(url) as app:
        together = threading.Barrier(2)

        @app.task
        def meet() -> None:
            together.wait(30)

        with app.worker(concurrency=1, worker_id="one"), app.worker(concurrency=1, worker_id="two"):
            tasks = app.enqueue_many([meet.new(), meet.new()])
            done = [task.wait(30) for task in tasks]
        assert {task.state for task in done} == {State.COMPLETED}
        assert {task.worker_id for task in done} == {"one", "two"}


def declare_add(app: Dibs) -> Any:
    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    return add


def working_threads() -> set[threading.Thread]:
    """The threads of workers; the store keeps some of its own for a while, for later calls."""
    stores = ("dibs-wakeups", "dibs-notifier", "dibs-writer")
    return {each for each in threading.enumerate() if each.name.startswith("dibs-") and each.name not in stores}
