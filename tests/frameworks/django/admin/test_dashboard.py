"""The dashboard under a path of a Django project: signed in by Django, with its permissions; under WSGI and ASGI."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.asgi import get_asgi_application
from django.db import connections
from django.test import AsyncClient, Client, override_settings

from dibs.django import app, asgi_bridge, dashboard
from dibs.django.rights import permissions
from tests.frameworks.django.admin.conftest import SignIn, at

HOME = "/ops/dibs/"
VIEW = tuple(f"view_{kind}" for kind in ("task", "queue", "workflow", "schedule", "worker", "limit"))
CHANGE = ("change_task", "change_workflow", "change_schedule")


@pytest.fixture(autouse=True)
def closed(site: str) -> Iterator[None]:
    """Each test has a dashboard of its own."""
    yield
    dashboard.close()


def page(client: Client, path: str) -> str:
    answer = client.get(HOME + path, headers={"accept": "text/html"})
    assert answer.status_code == 200, answer.content
    return answer.content.decode()


def submit(client: Client, path: str, token: str | None, origin: str = "http://testserver") -> int:
    body = "" if token is None else f"csrf={token}"
    form = "application/x-www-form-urlencoded"
    return client.post(HOME + path, body, content_type=form, headers={"origin": origin}).status_code


def token_of(html: str) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', html)
    assert found is not None
    return found[1]


def test_a_visitor_is_sent_to_the_sign_in_page_of_the_admin(site: str) -> None:
    for path in ("", "tasks?state=failed"):
        answer = Client().get(HOME + path)
        assert answer.status_code == 302
        assert answer["Location"].startswith("/admin/login/?next=/ops/dibs/")
    stream = Client().get(HOME + "live", headers={"accept": "text/event-stream"})
    assert stream.status_code == 401


def test_a_project_that_requires_a_sign_in_everywhere_uses_that_of_the_admin_too(site: str, root: Client) -> None:
    required = [*settings.MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    with override_settings(MIDDLEWARE=required):
        assert Client().get(HOME)["Location"].startswith("/admin/login/?next=/ops/dibs/")
        for path in ("live", "api/tasks", "tasks"):
            assert Client().get(HOME + path, headers={"accept": "application/json"}).status_code == 401
        assert "Tasks" in page(root, "tasks")


@pytest.mark.parametrize(
    ("granted", "fields"),
    [
        ((), {}),
        (VIEW[1:], {}),
        (VIEW, {"is_staff": False}),
        (CHANGE, {}),
        ((), {"is_superuser": True, "is_staff": False}),
    ],
)
def test_others_are_refused(sign_in: SignIn, granted: tuple[str, ...], fields: dict[str, Any]) -> None:
    client = sign_in(*granted, **fields)
    for path in ("", "tasks", "live", "api/tasks", "static/x/dibs.js"):
        assert client.get(HOME + path).status_code == 403


def test_the_permissions_to_view_show_the_pages_and_allow_no_action(sign_in: SignIn) -> None:
    task = app.enqueue("mail", {"text": "<script>alert(1)</script>"})
    client = sign_in(*VIEW)
    assert f'href="{HOME}tasks/{task.id}"' in page(client, "tasks")
    html = page(client, f"tasks/{task.id}")
    assert ("<script>alert(1)" in html, "/cancel" in html) == (False, False)
    token = token_of(page(sign_in(*VIEW, *CHANGE, name="bob"), f"tasks/{task.id}"))
    assert submit(client, f"tasks/{task.id}/cancel", token) == 403
    assert app.get(task.id).state == "pending"  # type: ignore[union-attr]


def test_the_permissions_to_change_allow_to_cancel_in_the_name_of_the_user(sign_in: SignIn) -> None:
    task = app.enqueue("mail")
    client = sign_in(*VIEW, *CHANGE)
    assert submit(client, f"tasks/{task.id}/cancel", token_of(page(client, f"tasks/{task.id}"))) == 303
    assert app.history(task.id)[-1].by == "django:ada/dashboard"
    assert client.get(HOME + "keys").status_code == 403


def test_actions_do_not_wait_for_a_transaction_of_the_request(
    root: Client, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = app.enqueue("mail")
    token = token_of(page(root, f"tasks/{task.id}"))
    monkeypatch.setitem(connections.settings[site], "ATOMIC_REQUESTS", True)
    assert submit(root, f"tasks/{task.id}/cancel", token) == 303
    assert app.get(task.id).state == "cancelled"  # type: ignore[union-attr]


def test_the_permissions_to_change_do_not_allow_to_enqueue_tasks_or_create_schedules(sign_in: SignIn) -> None:
    client, headers = sign_in(*VIEW, *CHANGE), {"origin": "http://testserver"}
    assert client.get(HOME + "api/tasks").status_code == 200
    for path in ("tasks", "workflows", "schedules"):
        answer = client.post(f"{HOME}api/{path}", {"task_type": "pay"}, "application/json", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert app.list_tasks() == []


def test_only_a_user_with_every_permission_has_the_scope_admin(sign_in: SignIn) -> None:
    every = [name.removeprefix("dibs.") for name in permissions()]
    assert sign_in(*every).get(HOME + "keys").status_code == 200
    assert sign_in(*every[1:], name="bob").get(HOME + "keys").status_code == 403
    assert sign_in(name="root", is_superuser=True).get(HOME + "keys").status_code == 200


def test_forms_of_other_sites_and_without_the_token_are_refused(root: Client) -> None:
    task = app.enqueue("mail")
    path, token = f"tasks/{task.id}/cancel", token_of(page(root, f"tasks/{task.id}"))
    assert submit(root, path, None) == 403
    assert submit(root, path, "0" * 64) == 403
    assert submit(root, path, token, origin="http://evil.example") == 403
    assert app.get(task.id).state == "pending"  # type: ignore[union-attr]
    assert submit(root, path, token) == 303


def test_a_user_who_loses_the_permissions_is_refused_with_the_next_request(sign_in: SignIn) -> None:
    client = sign_in(*VIEW)
    assert "Tasks" in page(client, "tasks")
    User.objects.get(username="ada").user_permissions.clear()
    assert client.get(HOME + "tasks").status_code == 403


def test_links_cookies_and_files_have_the_prefix(root: Client) -> None:
    html = page(root, "tasks")
    assert root.cookies["dibs_session"]["path"] == HOME.rstrip("/")
    links = re.findall(r'(?:href|src|action)="(/[^"]*)"', html)
    assert links
    assert [link for link in links if not link.startswith(HOME)] == []
    script = next(link for link in links if link.endswith(".js"))
    answer = root.get(script)
    assert (answer["content-type"].split(";")[0], "immutable" in answer["cache-control"]) == ("text/javascript", True)


@pytest.mark.parametrize("variable", ["RAW_URI", "REQUEST_URI"])
def test_a_name_with_a_slash_is_found_where_the_server_has_the_encoded_path(root: Client, variable: str) -> None:
    app.set_limit("mail/bulk", max=1)
    path = f"{HOME}api/limits/mail%2Fbulk"
    extra: dict[str, Any] = {variable: f"{path}?"}
    assert root.get(path, **extra).json()["limit"]["name"] == "mail/bulk"
    forged: dict[str, Any] = {variable: f"{HOME}api/keys"}  # not the path that Django has routed
    assert root.get(path, **forged).status_code == 404


def test_a_name_with_a_slash_is_found_under_asgi(root: Client) -> None:
    async def limit() -> Any:
        cookies = {"sessionid": root.cookies["sessionid"].value}
        transport = httpx.ASGITransport(get_asgi_application())
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver", cookies=cookies) as client:
            return (await client.get(f"{HOME}api/limits/mail%2Fbulk")).json()["limit"]

    app.set_limit("mail/bulk", max=1)
    assert asyncio.run(limit())["name"] == "mail/bulk"


def test_an_update_under_wsgi_is_one_event(root: Client) -> None:
    app.enqueue("mail")
    answer = root.get(HOME + "live", headers={"accept": "text/event-stream"})
    assert answer["content-type"] == "text/event-stream"
    assert answer.content.startswith(b"retry: 2000\n")
    assert answer.content.count(b"event: stats\n") == 1


def test_an_update_under_asgi_is_a_stream(root: Client) -> None:
    async def events() -> list[bytes]:
        client = AsyncClient()
        client.cookies = root.cookies
        answer: Any = await client.get(HOME + "live", headers={"accept": "text/event-stream"})
        parts, stream = [], aiter(answer.streaming_content)
        async for part in stream:
            parts.append(part)
            if b"event: stats" in part:
                break
        await stream.aclose()
        return parts

    app.enqueue("mail")
    assert b"event: stats" in asyncio.run(events())[-1]


def test_a_store_behind_a_server_has_its_dashboard_there(root: Client) -> None:
    with override_settings(TASKS=at("http://127.0.0.1:1")):
        answer = root.get(HOME)
    assert answer.status_code == 503
    assert "The server has the dashboard" in answer.content.decode()


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_database_that_does_not_answer_is_explained(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi_bridge, "START_SECONDS", 0.2)
    with override_settings(TASKS=at("postgresql://nobody@127.0.0.1:1/nothing")):
        answer = root.get(HOME)
        assert answer.status_code == 503
        assert "did not answer" in answer.content.decode()
    assert "Tasks" in page(root, "tasks")


def test_closing_leaves_no_connection_and_the_next_request_starts_again(root: Client, site: str) -> None:
    from tests.frameworks.django.sessions import sessions
    from tests.helpers.waiting import until

    before = sessions(site)
    page(root, "tasks")
    dashboard.close()
    until(lambda: sessions(site) <= before)
    assert "Tasks" in page(root, "tasks")
