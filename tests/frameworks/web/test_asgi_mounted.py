"""The HTTP API and the dashboard under a path of another application, and behind a proxy that removes its prefix."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Mount

import dibs
import dibs.asgi
from tests.helpers.asgi_site import browser, csrf, links, serving
from tests.helpers.sse import listening
from tests.helpers.waiting import until

on_sqlite = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
"""For tests of paths and pages, which are the same on all engines."""

Build = Callable[[dibs.AsyncDibs, Any], tuple[Any, dict[str, Any]]]


def under_a_path(client: dibs.AsyncDibs, server: Any) -> tuple[Any, dict[str, Any]]:
    web = FastAPI(lifespan=dibs.asgi.lifespan(client))
    web.mount("/queue", server)
    return web, {}


def under_two_paths(client: dibs.AsyncDibs, server: Any) -> tuple[Any, dict[str, Any]]:
    inner = Starlette(routes=[Mount("/queue", app=server)])
    return Starlette(routes=[Mount("/internal", app=inner)], lifespan=dibs.asgi.lifespan(client)), {}


def behind_a_proxy_with_uvicorns_root_path(client: dibs.AsyncDibs, server: Any) -> tuple[Any, dict[str, Any]]:
    return under_a_path(client, server)[0], {"root_path": "/shop"}


def behind_a_proxy_with_the_root_path_of_the_application(
    client: dibs.AsyncDibs, server: Any
) -> tuple[Any, dict[str, Any]]:
    web, _ = under_a_path(client, server)

    async def with_root_path(scope: Any, receive: Any, send: Any) -> None:  # as FastAPI(root_path="/shop") does
        await web({**scope, "root_path": "/shop"}, receive, send)

    return with_root_path, {}


class Deployment(NamedTuple):
    """How the server is reached. `removed`: the prefix that the proxy removes before the application sees the path."""

    build: Build
    prefix: str
    removed: str = ""


DEPLOYMENTS = [
    Deployment(under_a_path, "/queue"),
    Deployment(under_two_paths, "/internal/queue"),
    Deployment(behind_a_proxy_with_uvicorns_root_path, "/shop/queue", "/shop"),
    Deployment(behind_a_proxy_with_the_root_path_of_the_application, "/shop/queue", "/shop"),
]


class Site(NamedTuple):
    """A running application. `url`: that of the mounted server for clients that do not use the proxy."""

    app: dibs.Dibs
    deployment: Deployment
    origin: str
    url: str

    @property
    def prefix(self) -> str:
        return self.deployment.prefix

    def browser(self, **headers: str) -> Any:
        return browser(self.origin, self.deployment.removed, **headers)

    def key(self, *scopes: str) -> str:
        return self.app.create_key("test", list(scopes), rate_limit="none").key


@contextmanager
def site_of(url: str, deployment: Deployment) -> Iterator[Site]:
    client = dibs.AsyncDibs(url)
    web, options = deployment.build(client, dibs.asgi.server(client, upkeep=False))
    with dibs.Dibs(url) as app, serving(web, **options) as origin:
        yield Site(app, deployment, origin, origin + deployment.prefix.removeprefix(deployment.removed))


@pytest.fixture(params=DEPLOYMENTS, ids=lambda each: each.build.__name__)
def site(url: str, request: pytest.FixtureRequest) -> Iterator[Site]:
    with site_of(url, request.param) as site:
        yield site


def fill(app: dibs.Dibs) -> None:
    """Put something on every page."""

    @app.task(schedule="0 3 * * *", max_attempts=1, tags=["a/b"])
    def nightly() -> None:
        raise ValueError

    with app.worker():
        app.wait(nightly.enqueue().id, timeout=20)
    app.enqueue("render", queue="a/b", tags=["x"])
    with app.workflow("order") as flow:
        flow.step("fetch")
    app.set_limit("api", max=3)
    app.pause("a/b")


def sign_in(site: Site, http: httpx.Client) -> None:
    answer = http.get(f"{site.prefix}/tasks")
    assert answer.headers["location"] == f"{site.prefix}/signin?next=%2Ftasks"
    form = http.get(answer.headers["location"])
    fields = {"csrf": csrf(form), "key": site.key("admin"), "next": "/tasks"}
    answer = http.post(f"{site.prefix}/signin", data=fields)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{site.prefix}/tasks")
    assert f"; Path={site.prefix};" in answer.headers["set-cookie"]


@on_sqlite
def test_every_link_of_every_page_stays_under_the_prefix_and_works(site: Site) -> None:
    fill(site.app)
    with site.browser() as http:
        sign_in(site, http)
        seen: set[str] = set()
        left = {f"{site.prefix}/"}
        while left:
            path = left.pop()
            seen.add(path)
            assert path.startswith(f"{site.prefix}/")
            answer = http.get(path)
            assert answer.status_code in (200, 405), (path, answer.text)  # 405: the target of a form
            if answer.headers["content-type"].startswith("text/html"):
                left |= links(answer) - seen
    pages = {each.partition("?")[0].removeprefix(site.prefix) for each in seen}
    assert {"/", "/tasks", "/queues", "/workers", "/workflows", "/schedules", "/dead", "/keys", "/limits"} <= pages
    assert {"/api/docs", "/api/docs.css", "/api/openapi.json", "/retention"} <= pages


@on_sqlite
def test_a_button_returns_to_a_page_under_the_prefix_with_its_notice(site: Site) -> None:
    task = site.app.enqueue("render")
    with site.browser() as http:
        sign_in(site, http)
        path = f"{site.prefix}/tasks/{task.id}"
        answer = http.post(f"{path}/cancel", data={"csrf": csrf(http.get(path))})
        assert (answer.status_code, answer.headers["location"]) == (303, path)
        assert f"; Path={site.prefix};" in answer.headers["set-cookie"]
        assert "cancelled" in http.get(path).text
    assert site.app.get(task.id).state == "cancelled"  # type: ignore[union-attr]


@on_sqlite
def test_the_description_of_the_api_names_the_server_under_the_prefix(site: Site) -> None:
    with site.browser() as http:
        document = http.get(f"{site.prefix}/api/openapi.json").json()
        assert document["servers"][0]["url"] == site.prefix
        assert f"{site.origin}{site.prefix}/api/tasks" in http.get(f"{site.prefix}/api/docs").text


def test_a_client_and_a_worker_work_over_the_mounted_api(site: Site) -> None:
    with dibs.Dibs(site.url, api_key=site.key("admin")) as remote:

        @remote.task
        def double(number: int) -> int:
            return 2 * number

        with remote.worker():
            assert double.enqueue(4).wait(timeout=20).result == 8
        remote.pause("a/b")  # a name with a slash
    assert [each.name for each in site.app.queues() if each.paused] == ["a/b"]


@on_sqlite
def test_the_events_of_the_mounted_server_arrive_at_once(site: Site) -> None:
    headers = {"X-API-Key": site.key("read")}
    with browser(site.url, **headers) as http, listening(http) as events:
        task = site.app.enqueue("render")
        assert next(events).data["task_id"] == task.id


@on_sqlite
def test_the_proxy_may_also_pass_the_whole_path_on(url: str) -> None:
    with site_of(url, DEPLOYMENTS[3]) as site, browser(site.origin) as http:
        assert http.get("/shop/queue/api/openapi.json").json()["servers"][0]["url"] == "/shop/queue"


@on_sqlite
@pytest.mark.parametrize("path", ["//evil.example/queue/tasks", "/%2Fevil.example/queue/tasks"])
def test_a_path_of_the_client_is_never_a_link_to_another_site(url: str, path: str) -> None:
    client = dibs.AsyncDibs(url)
    web = Starlette(lifespan=dibs.asgi.lifespan(client))
    web.mount("/{tenant:path}/queue", dibs.asgi.server(client))
    with serving(web) as origin, browser(origin) as http:
        answer = http.get(httpx.URL(origin).copy_with(raw_path=path.encode()))
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/evil.example/queue/signin")


@on_sqlite
def test_two_servers_of_two_databases_are_mounted_beside_each_other(url: str, tmp_path: Any) -> None:
    one, two = dibs.AsyncDibs(url), dibs.AsyncDibs(f"sqlite:///{tmp_path}/two.db")
    web = Starlette(lifespan=dibs.asgi.lifespan(one, around=dibs.asgi.lifespan(two)))
    for name, client in (("one", one), ("two", two)):
        web.mount(f"/{name}", dibs.asgi.server(client, sign_in=lambda _: ["admin"]))
    with serving(web) as origin, ExitStack() as stack:
        first, second = (stack.enter_context(browser(f"{origin}/{name}")) for name in ("one", "two"))
        first.post("/api/tasks", json={"task_type": "a"})
        assert len(first.get("/api/tasks").json()["tasks"]) == 1
        assert second.get("/api/tasks").json()["tasks"] == []


@on_sqlite
def test_only_the_named_hosts_are_accepted(url: str) -> None:
    client = dibs.AsyncDibs(url)
    web = Starlette(lifespan=dibs.asgi.lifespan(client))
    web.mount("/queue", dibs.asgi.server(client, allowed_hosts=["shop.example"], sign_in=lambda _: ["read"]))
    with serving(web) as origin, browser(f"{origin}/queue") as http:
        assert http.get("/api/stats", headers={"host": "shop.example"}).status_code == 200
        answer = http.get("/api/stats", headers={"host": "evil.example"})
        assert (answer.status_code, answer.json()["code"]) == (421, "unknown_host")


@on_sqlite
def test_a_server_without_an_application_around_it_is_an_application(url: str) -> None:
    server = dibs.asgi.server(dibs.AsyncDibs(url), sign_in=lambda _: ["read"])
    for _ in range(2):
        with serving(server) as origin, browser(origin) as http:
            assert http.get("/api/openapi.json").json()["servers"][0]["url"] == "/"
            assert "/tasks" in links(http.get("/"))


@on_sqlite
def test_a_server_without_a_lifespan_says_what_to_do(url: str) -> None:
    server = dibs.asgi.server(dibs.AsyncDibs(url))

    async def ask() -> None:
        await server({"type": "http"}, None, None)  # type: ignore[arg-type]

    with pytest.raises(dibs.InvalidValue, match="lifespan"):
        asyncio.run(ask())


def test_a_mounted_server_needs_a_database() -> None:
    with pytest.raises(dibs.InvalidValue, match="needs a database"):
        asyncio.run(dibs.asgi.server(dibs.AsyncDibs("http://127.0.0.1:1")).start())


@on_sqlite
def test_the_mounted_server_works_behind_middleware_of_the_application(url: str) -> None:
    client = dibs.AsyncDibs(url)
    web = FastAPI(lifespan=dibs.asgi.lifespan(client))
    server = dibs.asgi.server(client, sign_in=lambda _: ["admin"], upkeep=False)
    web.mount("/queue", server)
    web.add_middleware(GZipMiddleware, minimum_size=10)

    @web.middleware("http")
    async def named(request: Request, call_next: Any) -> Any:
        answer = await call_next(request)
        answer.headers["x-shop"] = request.url.path
        return answer

    with serving(web) as origin, browser(f"{origin}/queue") as http:
        with listening(http) as events:
            answer = http.post("/api/tasks", json={"task_type": "render"})
            assert (answer.status_code, answer.headers["x-shop"]) == (201, "/queue/api/tasks")
            assert next(events).data["task_id"] == answer.json()["task"]["id"]
        waiting = {"worker_id": "w", "task_types": ["none"], "wait_seconds": 0.2}
        assert http.post("/api/tasks/claim", json=waiting).status_code == 404
        with pytest.raises(httpx.ReadTimeout):
            http.post("/api/tasks/claim", json={**waiting, "wait_seconds": 60}, timeout=0.5)
        until(lambda: server.service.long_polls.waiting == 0)  # the server notices that the client has left
