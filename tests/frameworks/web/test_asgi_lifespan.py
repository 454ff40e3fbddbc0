"""The lifespan of an application: what it opens, in which order it closes, and how it ends under a real uvicorn."""

from __future__ import annotations

import asyncio
import re
import signal
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI, Request
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

import dibs
import dibs.asgi
from tests.helpers.asgi_site import browser, serving
from tests.helpers.uvicorn_process import uvicorn_process
from tests.helpers.waiting import until

PROGRAM = """
import asyncio
import contextlib
import os
import time

import dibs
import dibs.asgi
from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.routing import Mount

queue = dibs.CLIENT(os.environ["SHOP_URL"])
open_requests = 0


class Counted:
    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        global open_requests
        open_requests += 1
        try:
            await self.app(scope, receive, send)
        finally:
            open_requests -= 1


@queue.task
def sleep(seconds: float) -> str:
    print("task started", flush=True)
    time.sleep(seconds)
    print("task ended", flush=True)
    return "slept"


@contextlib.asynccontextmanager
async def own(web):
    print("own opened", flush=True)
    yield {"shop": "open"}
    print("own closed", flush=True)


server = dibs.asgi.server(queue, sign_in=lambda _: ["admin"])
web = FastAPI(lifespan=dibs.asgi.lifespan(queue, worker={"concurrency": 2, "grace": 20}, around=own))
web.router.routes.append(Mount("/queue", app=server, middleware=[Middleware(Counted)]))


@web.get("/open")
async def count() -> int:
    return open_requests


@web.get("/version")
async def version() -> str:
    return "first"
"""


def write(folder: Path, client: str = "AsyncDibs") -> Path:
    file = folder / "shop.py"
    file.write_text(PROGRAM.replace("CLIENT", client))
    return file


class Waiting:
    """Requests of every kind that wait, each in a thread."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answers: dict[str, tuple[int, str]] = {}
        with httpx.Client(base_url=f"{url}/queue") as http:
            task = http.post("/api/tasks", json={"task_type": "other"}).json()["task"]["id"]
        self._threads = [
            threading.Thread(target=self._send, args=[*request])
            for request in (
                ("GET", "/live"),
                ("GET", "/api/events"),
                ("POST", "/api/tasks/claim", {"worker_id": "w", "wait_seconds": 60, "task_types": ["none"]}),
                ("GET", f"/api/tasks/{task}/logs?wait_seconds=60"),
            )
        ]
        for thread in self._threads:
            thread.start()
        until(lambda: httpx.get(f"{url}/open").json() == len(self._threads))

    def _send(self, method: str, path: str, body: Any = None) -> None:
        answer = httpx.request(method, f"{self.url}/queue{path}", json=body, timeout=50)
        self.answers[path.partition("?")[0]] = answer.status_code, answer.text

    def statuses(self) -> list[int]:
        """The statuses of the answers, which are all complete: httpx raises for others."""
        for thread in self._threads:
            thread.join()
        return sorted(status for status, _ in self.answers.values())


@pytest.mark.parametrize(("client", "number"), [("AsyncDibs", signal.SIGTERM), ("Dibs", signal.SIGINT)])
def test_a_signal_ends_waiting_requests_at_once_and_closes_in_order(
    url: str, tmp_path: Path, client: str, number: signal.Signals
) -> None:
    write(tmp_path, client)
    with uvicorn_process(tmp_path, "shop:web", SHOP_URL=url) as shop, dibs.Dibs(url) as app:
        waiting = Waiting(shop.url())
        task = app.enqueue("sleep", {"seconds": 1.0})
        until(lambda: "task started" in shop.output)
        began = time.monotonic()
        shop.process.send_signal(number)
        assert waiting.statuses() == [200, 200, 200, 404]
        assert time.monotonic() - began < 20  # without an end of their own, the requests wait for a minute
        shop.ended()
        assert time.monotonic() - began < 30
        assert app.get(task.id).result == "slept"  # type: ignore[union-attr] # within the worker's grace
    expected = ["own opened", "task started", "Shutting down", "task ended", "own closed", "Finished server process"]
    places = [shop.output.find(each) for each in expected]
    assert places == sorted(places)
    assert -1 not in places


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_reload_ends_waiting_requests_at_once_and_starts_the_changed_program(url: str, tmp_path: Path) -> None:
    file = write(tmp_path)
    with uvicorn_process(tmp_path, "shop:web", "--reload", SHOP_URL=url) as shop:
        address = shop.url()
        waiting = Waiting(address)
        file.write_text(file.read_text().replace('"first"', '"second"'))
        assert waiting.statuses() == [200, 200, 200, 404]
        until(lambda: _version(address) == "second")
        shop.process.send_signal(signal.SIGTERM)
        shop.ended()


def _version(address: str) -> Any:
    try:
        return httpx.get(f"{address}/version").json()
    except httpx.TransportError:
        return None


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_each_process_of_several_ends_its_waiting_requests(url: str, tmp_path: Path) -> None:
    write(tmp_path)
    with uvicorn_process(tmp_path, "shop:web", "--workers", "2", SHOP_URL=url) as shop:
        address = shop.url()
        until(lambda: shop.output.count("startup complete") == 2)
        answers: list[int] = []

        def follow() -> None:
            with httpx.stream("GET", f"{address}/queue/live", timeout=30) as stream:
                answers.append(stream.status_code)
                stream.read()

        threads = [threading.Thread(target=follow) for _ in range(6)]
        for thread in threads:
            thread.start()
        until(lambda: len(answers) == 6)
        shop.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        shop.ended()
    assert shop.output.count("own closed") == 2


def test_an_application_whose_database_cannot_be_used_does_not_start(url: str, tmp_path: Path) -> None:
    write(tmp_path)
    not_there = "sqlite:////nowhere/at/all/dibs.db"
    if url.startswith("postgresql"):
        not_there = re.sub("/dibs_[^?]*", "/nowhere", url)
    with uvicorn_process(tmp_path, "shop:web", SHOP_URL=not_there) as shop:
        assert shop.ended() == 3
    assert "Application startup failed" in shop.output
    assert "nowhere" in shop.output
    assert "hint: " in shop.output


def test_an_application_starts_again_in_the_same_process(url: str) -> None:
    client = dibs.AsyncDibs(url)

    @client.task
    async def double(number: int) -> int:
        return 2 * number

    web = FastAPI(lifespan=dibs.asgi.lifespan(client, worker=True))
    web.mount("/queue", dibs.asgi.server(client, sign_in=lambda _: ["admin"]))
    with dibs.Dibs(url) as app:
        for number in range(2):
            with serving(web) as origin, browser(f"{origin}/queue") as http:
                body = {"task_type": "double", "params": {"number": number}}
                task = http.post("/api/tasks", json=body).json()["task"]["id"]
                assert app.wait(task, timeout=20).result == 2 * number


def test_a_worker_inside_runs_coroutines_on_the_loop_of_the_application(url: str) -> None:
    client = dibs.AsyncDibs(url)
    loops: list[Any] = []

    @client.task
    async def where() -> None:
        loops.append(asyncio.get_running_loop())

    web = FastAPI(lifespan=dibs.asgi.lifespan(client, worker=True))

    @web.post("/")
    async def enqueue() -> None:
        loops.append(asyncio.get_running_loop())
        await (await where.enqueue()).wait(timeout=20)

    with serving(web) as origin:
        assert httpx.post(origin, timeout=20).status_code == 200
    assert loops[0] is loops[1]


# Dependencies

Queue = Annotated[dibs.AsyncDibs, Depends(dibs.asgi.async_client)]
SyncQueue = Annotated[dibs.Dibs, Depends(dibs.asgi.sync_client)]


def test_a_dependency_gives_the_client_of_the_lifespan(url: str) -> None:
    for kind in (dibs.AsyncDibs, dibs.Dibs):
        client = kind(url)
        web = FastAPI(lifespan=dibs.asgi.lifespan(client))

        @web.post("/async")
        async def asynchronous(queue: Queue) -> int:
            return (await queue.enqueue("render")).id

        @web.post("/sync")
        def synchronous(queue: SyncQueue) -> int:
            return queue.enqueue("render").id

        right, wrong = ("/async", "/sync") if kind is dibs.AsyncDibs else ("/sync", "/async")
        with serving(web) as origin:
            assert httpx.post(origin + right).json() > 0
            assert httpx.post(origin + wrong).status_code == 500
        asyncio.run(_without_state(web, right))


async def _without_state(web: FastAPI, path: str) -> None:
    """As async tests of FastAPI do: with the lifespan, and a client that passes no state on."""
    transport = httpx.ASGITransport(app=web)
    async with (
        web.router.lifespan_context(web),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        assert (await client.post(path)).json() > 0


def test_a_dependency_without_the_lifespan_says_what_to_do(url: str) -> None:
    web = FastAPI()

    @web.post("/")
    async def enqueue(queue: Queue) -> None:
        raise AssertionError

    async def send() -> None:
        transport = httpx.ASGITransport(app=web)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            await client.post("/")

    with pytest.raises(dibs.InvalidValue, match=r"FastAPI\(lifespan=dibs\.asgi\.lifespan\(app\)\)"):
        asyncio.run(send())


def test_the_state_of_the_applications_own_lifespan_reaches_its_requests(url: str) -> None:
    @asynccontextmanager
    async def own(_: Any) -> AsyncIterator[Mapping[str, Any]]:
        yield {"shop": "open"}

    web = FastAPI(lifespan=dibs.asgi.lifespan(dibs.AsyncDibs(url), around=own))

    @web.get("/")
    async def shop(request: Request, queue: Queue) -> str:
        return f"{request.state.shop} {request.state.dibs is queue} {request.state.dibs_worker}"

    with serving(web) as origin:
        assert httpx.get(origin).json() == "open True None"


def test_a_joined_client_stores_its_tasks_with_the_commit_of_the_requests_session(url: str) -> None:
    driver = "sqlite+aiosqlite" if url.startswith("sqlite") else "postgresql+psycopg"
    engine = create_async_engine(driver + url[url.index(":") :])
    sessions = async_sessionmaker(engine)

    async def session() -> AsyncIterator[AsyncSession]:
        async with sessions() as opened:
            yield opened

    of_request, joined = Depends(session), Depends(dibs.asgi.joined(session))
    web = FastAPI(lifespan=dibs.asgi.lifespan(dibs.AsyncDibs(url)))

    @web.post("/{commit}")
    async def order(commit: int, session: Any = of_request, queue: Any = joined) -> None:
        await session.execute(text(f"INSERT INTO orders VALUES ({commit})"))
        await queue.enqueue("render", tags=[str(commit)])
        if commit:
            await session.commit()

    async def run() -> list[int]:
        async with engine.begin() as connection:
            await connection.execute(text("CREATE TABLE orders (id INTEGER)"))
        async with web.router.lifespan_context(web):
            transport = httpx.ASGITransport(app=web)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                for commit in (0, 1):
                    assert (await client.post(f"/{commit}")).status_code == 200
        async with engine.connect() as connection:
            rows = list((await connection.execute(text("SELECT id FROM orders"))).scalars())
        await engine.dispose()
        return rows

    assert asyncio.run(run()) == [1]
    with dibs.Dibs(url) as app:
        assert [task.tags for task in app.list_tasks()] == [["1"]]
