"""The sign-in of the application around a mounted server: whom it lets in, and what an attacker cannot do with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, HTTPException
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request

import dibs
import dibs.asgi
from dibs import InvalidValue
from dibs.asgi import SignedIn
from tests.helpers.asgi_site import browser, csrf, serving
from tests.helpers.waiting import until

pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)  # the sign-in does not use the database

USERS: dict[str, Any] = {
    "anna": SignedIn(["admin"], name="anna@shop.example"),
    "rita": ["read"],
    "media": SignedIn(["admin"], queues=["media"], name="media"),
    "nobody": [],
}
"""The users of the application, by the cookie that the application gave them."""


class Shop:
    """An application with users, in which a server is mounted."""

    url: str
    server: dibs.asgi.MountedServer
    loop_thread: str

    def __init__(self, app: dibs.Dibs) -> None:
        self.users = dict(USERS)
        self.app = app
        self.closing: list[httpx.Client] = []

    def visitor(self, user: str | None = None, **headers: str) -> httpx.Client:
        """A browser in which the user is signed in to the application."""
        cookies = {} if user is None else {"shop": user}
        client = httpx.Client(
            base_url=self.url, timeout=20, headers={"accept": "text/html", **headers}, cookies=cookies
        )
        self.closing.append(client)
        return client

    def sign_in(self, request: Request) -> Any:
        """What the application knows about the user of a request. Users may be functions."""
        found = self.users.get(request.cookies.get("shop", ""))
        return found() if callable(found) else found


@pytest.fixture
def shop(url: str) -> Iterator[Shop]:
    client = dibs.AsyncDibs(url)
    web = FastAPI(lifespan=dibs.asgi.lifespan(client))

    @web.get("/thread")
    async def thread() -> str:
        return threading.current_thread().name

    with dibs.Dibs(url) as app:
        shop = Shop(app)
        shop.server = dibs.asgi.server(client, sign_in=shop.sign_in, sign_in_url="/login", upkeep=False)
        web.mount("/queue", shop.server)
        with serving(web) as origin:
            shop.url = f"{origin}/queue"
            shop.loop_thread = httpx.get(f"{origin}/thread").json()
            yield shop
            for each in shop.closing:
                each.close()


def same_origin(shop: Shop) -> dict[str, str]:
    return {"origin": shop.url.removesuffix("/queue")}


# Who gets in


def test_a_user_of_the_application_opens_the_dashboard_without_a_key(shop: Shop) -> None:
    page = shop.visitor("anna").get("/")
    assert page.status_code == 200
    assert "anna@shop.example" in page.text
    assert "/signout" not in page.text


def test_a_visitor_is_sent_to_the_sign_in_page_of_the_application_and_comes_back(shop: Shop) -> None:
    for path, back in (("/tasks?state=dead", "%2Fqueue%2Ftasks%3Fstate%3Ddead"), ("/signin", "%2Fqueue%2F")):
        answer = shop.visitor().get(path)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/login?next={back}")
    answer = shop.visitor().get("/api/tasks")
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")


def test_without_a_sign_in_page_a_visitor_gets_an_error_page(url: str) -> None:
    client = dibs.AsyncDibs(url)
    web = FastAPI(lifespan=dibs.asgi.lifespan(client))
    web.mount("/queue", dibs.asgi.server(client, sign_in=lambda _: None))
    with serving(web) as origin, browser(f"{origin}/queue") as http:
        for path in ("/", "/signin"):
            answer = http.get(path)
            assert answer.status_code == 401
            assert "You are not signed in" in answer.text


def test_the_sign_in_reads_the_session_of_the_application_and_may_be_a_coroutine(url: str) -> None:
    client = dibs.AsyncDibs(url)

    async def sign_in(request: Request) -> SignedIn | None:
        name = request.session.get("user")
        if name == "blocked":
            raise HTTPException(403)
        return SignedIn(["read"], name=name) if name else None

    web = FastAPI(
        lifespan=dibs.asgi.lifespan(client), middleware=[Middleware(SessionMiddleware, secret_key="long and random")]
    )

    @web.post("/login/{name}")
    async def login(name: str, request: Request) -> None:
        request.session["user"] = name

    web.mount("/queue", dibs.asgi.server(client, sign_in=sign_in))
    returns_it = lambda request: sign_in(request)  # noqa: E731, PLW0108 - a plain function that returns an awaitable
    web.mount("/called", dibs.asgi.server(client, sign_in=returns_it))
    with serving(web) as origin, browser(origin) as http:
        assert http.get("/queue/api/stats").status_code == 401
        http.post("/login/anna")
        assert http.get("/called/api/stats").status_code == 200
        assert http.get("/queue/api/stats").status_code == 200
        http.post("/login/blocked")
        assert http.get("/queue/api/stats").status_code == 401


def test_a_plain_sign_in_function_does_not_run_on_the_event_loop(shop: Shop) -> None:
    threads = []

    def slow() -> list[str]:
        threads.append(threading.current_thread().name)
        return ["read"]

    shop.users["rita"] = slow
    assert shop.visitor("rita").get("/api/stats").status_code == 200
    assert threads[0] != shop.loop_thread


def test_programs_still_send_an_api_key_which_counts_alone(shop: Shop) -> None:
    key = shop.app.create_key("worker", ["work"], rate_limit="none").key
    assert shop.visitor(None, **{"X-API-Key": key}).get("/api/wakeups").status_code == 200
    for headers in ({"X-API-Key": key}, {"Authorization": f"Bearer {key}"}, {"X-API-Key": f"{key[:-1]}x"}):
        answer = shop.visitor("anna", **headers).get("/api/stats")  # the rights of anna are not added to it
        assert answer.status_code in (401, 403)
    token_of_the_application = {"Authorization": "Bearer eyJhbGciOi.J9.x"}
    assert shop.visitor("rita", **token_of_the_application).get("/api/stats").status_code == 200


# What a user may do


def test_a_user_does_only_what_the_scopes_allow(shop: Shop) -> None:
    task = shop.app.enqueue("render")
    for user, expected in (("rita", 403), ("nobody", 403), ("anna", 200)):
        http = shop.visitor(user, **same_origin(shop))
        assert http.post(f"/api/tasks/{task.id}/cancel").status_code == expected
        assert http.get("/api/keys").status_code == expected
        assert http.get("/keys").status_code == expected
    assert shop.visitor("rita").get("/tasks").status_code == 200
    assert shop.visitor("nobody").get("/tasks").status_code == 403
    pages = [shop.visitor(user).get(f"/tasks/{task.id}").text for user in ("rita", "anna")]
    assert [f"/tasks/{task.id}/retry" in page for page in pages] == [False, True]


def test_the_history_names_the_user(shop: Shop) -> None:
    one, two = shop.app.enqueue("render"), shop.app.enqueue("render")
    http = shop.visitor("anna", **same_origin(shop))
    http.post(f"/api/tasks/{one.id}/cancel", headers={"X-Dibs-Signature": "script"})
    http.post(f"/tasks/{two.id}/cancel", data={"csrf": csrf(http.get("/"))})
    assert shop.app.history(one.id)[-1].by == "anna@shop.example/script"
    assert shop.app.history(two.id)[-1].by == "anna@shop.example/dashboard"
    shop.users["rita"] = ["enqueue"]  # without a name, a user cannot choose one
    three = shop.app.enqueue("render")
    shop.visitor("rita", **same_origin(shop)).post(
        f"/api/tasks/{three.id}/cancel", headers={"X-Dibs-Signature": "anna@shop.example"}
    )
    assert shop.app.history(three.id)[-1].by == "user/anna@shop.example"


def test_a_user_with_queues_sees_only_their_tasks_and_creates_no_keys(shop: Shop) -> None:
    other, own = shop.app.enqueue("render"), shop.app.enqueue("render", queue="media")
    http = shop.visitor("media", **same_origin(shop))
    assert [each["id"] for each in http.get("/api/tasks").json()["tasks"]] == [own.id]
    assert http.get(f"/api/tasks/{other.id}").status_code == 404
    assert http.post("/api/tasks", json={"task_type": "render"}).json()["code"] == "queue_not_allowed"
    answer = http.post("/api/keys", json={"name": "x", "scopes": ["admin"]})
    assert answer.json()["code"] == "key_limited_to_queues"
    assert http.post("/keys", data={"csrf": csrf(http.get("/")), "name": "x", "admin": "on"}).status_code == 403
    assert shop.app.keys() == []


@pytest.mark.parametrize(
    "wrong",
    [
        "admin",
        ["all"],
        7,
        True,
        {"scopes": 1},
        lambda: SignedIn(["read"], queues=[]),
        lambda: SignedIn(["read"], queues="media"),
    ],
)
def test_a_sign_in_that_returns_something_else_is_an_error_of_the_server_and_lets_nobody_in(
    shop: Shop, wrong: Any
) -> None:
    shop.users["wrong"] = wrong
    for path in ("/api/stats", "/tasks"):
        answer = shop.visitor("wrong").get(path)
        assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")


def test_the_error_for_a_user_without_queues_does_not_advise_to_allow_every_queue(engine: str) -> None:
    with pytest.raises(InvalidValue, match="return None") as refused:
        SignedIn(["read"], queues=[])
    assert "everything" not in str(refused.value)


# What an attacker cannot do


def test_a_user_who_loses_a_right_or_signs_out_is_refused_with_the_next_request(shop: Shop) -> None:
    http = shop.visitor("anna", **same_origin(shop))
    assert http.get("/api/keys").status_code == 200
    shop.users["anna"] = ["read"]
    assert http.get("/api/keys").status_code == 403
    del shop.users["anna"]
    assert http.get("/api/stats").status_code == 401
    assert http.get("/").status_code == 303


def test_streams_end_soon_after_their_user_has_signed_out_or_lost_a_right(shop: Shop) -> None:
    shop.users["reader"] = ["read"]
    with ExitStack() as stack:
        streams = [
            stack.enter_context(shop.visitor(user, accept="text/event-stream").stream("GET", path))
            for user in ("rita", "reader")
            for path in ("/live", "/api/events")
        ]
        assert [each.status_code for each in streams] == [200] * 4
        shop.users |= {"rita": None, "reader": ["enqueue"]}
        for stream in streams:
            stream.read()  # to its end: the client stops waiting after 20 seconds


def test_a_claim_that_waited_while_its_user_signed_out_gets_no_task(shop: Shop) -> None:
    shop.users["worker"] = ["work"]
    http = shop.visitor("worker", **same_origin(shop))
    answers: list[httpx.Response] = []

    def claim() -> None:
        answers.append(http.post("/api/tasks/claim", json={"worker_id": "w", "wait_seconds": 20}))

    waiting = threading.Thread(target=claim)
    waiting.start()
    until(lambda: shop.server.service.long_polls.waiting)
    del shop.users["worker"]
    task = shop.app.enqueue("render")
    waiting.join()
    assert answers[0].status_code == 401
    until(lambda: shop.app.get(task.id).state == "pending")  # type: ignore[union-attr]


def test_a_form_without_the_token_of_its_page_is_refused(shop: Shop) -> None:
    task = shop.app.enqueue("render")
    http = shop.visitor("anna")
    http.get("/")
    for token in ("", "0" * 64, csrf(shop.visitor("anna").get("/"))):
        assert http.post(f"/tasks/{task.id}/cancel", data={"csrf": token}).status_code == 403


def test_a_form_that_was_rendered_for_another_user_of_the_same_browser_is_refused(shop: Shop) -> None:
    task = shop.app.enqueue("render")
    http = shop.visitor("rita")
    token = csrf(http.get("/"))
    http.cookies.set("shop", "anna", domain="127.0.0.1", path="/")
    shop.users["rita"] = USERS["anna"]  # whichever of the two cookies is read
    assert http.post(f"/tasks/{task.id}/cancel", data={"csrf": token}).status_code == 403


OTHER_SITES: list[dict[str, str]] = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site", "origin": "https://blog.shop.example"},
    {},  # no browser of the last years sends a form to another site without one of them
]


@pytest.mark.parametrize("headers", OTHER_SITES, ids=str)
def test_a_page_of_another_site_cannot_use_the_cookies_of_a_user_for_the_api(
    shop: Shop, headers: dict[str, str]
) -> None:
    task = shop.app.enqueue("render")
    for path in (f"/api/tasks/{task.id}/cancel", "/api/queues/default/pause", "/api/keys"):
        body = {"content": b'{"name": "x", "scopes": ["admin"]}'} if path == "/api/keys" else {}
        given = {"content-type": "text/plain" if body else "application/x-www-form-urlencoded", **headers}
        answer = shop.visitor("anna").post(path, headers=given, **body)  # type: ignore[arg-type]
        assert (answer.status_code, answer.json()["code"]) == (403, "wrong_origin")
    assert shop.app.get(task.id).state == "pending"  # type: ignore[union-attr]
    assert shop.app.keys() == []


def test_the_applications_own_pages_and_programs_with_a_token_use_the_api(shop: Shop) -> None:
    for origin in (same_origin(shop), {"sec-fetch-site": "same-origin"}):
        http = shop.visitor("anna", **origin)
        assert http.post("/api/tasks", json={"task_type": "render"}).status_code == 201


def test_the_sign_in_page_of_dibs_is_closed(shop: Shop) -> None:
    key = shop.app.create_key("admin", ["admin"]).key
    http = shop.visitor("rita")
    token = csrf(http.get("/"))
    for path, fields in (("/signin", {"key": key}), ("/signout", {})):
        assert http.post(path, data={"csrf": token, **fields}).status_code == 404
    assert http.get("/signin").headers["location"] == "/queue/"


def test_a_session_of_dibs_is_no_sign_in_to_the_application(shop: Shop, serve_with_keys: Callable[[], str]) -> None:
    """The same database behind a server with its own sign-in: its cookie is not accepted by the mounted server."""
    url = serve_with_keys()
    with browser(url) as http:
        fields = {"csrf": csrf(http.get("/signin")), "key": shop.app.create_key("a", ["admin"]).key}
        assert http.post("/signin", data=fields).status_code == 303
        cookie = next(each.value for each in http.cookies.jar)
    port = shop.url.removesuffix("/queue").rpartition(":")[2]
    visitor = shop.visitor(None, cookie=f"dibs_session_{port}={cookie}; dibs_session={cookie}")
    assert visitor.get("/").status_code == 303
    assert visitor.get("/api/stats").status_code == 401


@pytest.fixture
def serve_with_keys(url: str) -> Iterator[Callable[[], str]]:
    client = dibs.AsyncDibs(url)
    web = FastAPI(lifespan=dibs.asgi.lifespan(client))
    web.mount("/", dibs.asgi.server(client, upkeep=False))
    with serving(web) as origin:
        yield lambda: origin
