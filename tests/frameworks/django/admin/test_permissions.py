"""Who sees the pages of dibs in the admin, and who may act: Django's own permissions."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command
from django.test import Client

import dibs
from dibs.django import app, models
from tests.frameworks.django.admin.conftest import SignIn
from tests.frameworks.django.admin.pages import KINDS, act, address, csrf_of, markup, read

ACTIONS = {
    "retry": "change_task",
    "cancel": "change_task",
    "discard": "delete_task",
}


def failed_task() -> dibs.Task:
    task = app.enqueue("mail")
    claim = app.claim("w")
    assert claim is not None
    app.fail(claim, "no", permanent=True)
    return task


@pytest.mark.parametrize("kind", KINDS)
def test_a_visitor_is_sent_to_the_sign_in_page(site: str, kind: str) -> None:
    for url in (address(kind), address(kind, 1)):
        for response in (Client().get(url), Client().post(url, {"action": "retry"})):
            assert (response.status_code, response["Location"].split("?")[0]) == (302, "/admin/login/")


def test_a_user_outside_of_the_staff_is_sent_to_the_sign_in_page(sign_in: SignIn) -> None:
    client = sign_in("view_task", is_staff=False)
    assert client.get(address("task"))["Location"].startswith("/admin/login/")


def test_staff_without_permissions_sees_nothing_and_is_refused(sign_in: SignIn) -> None:
    client = sign_in()
    assert "dibs" not in read(client, "/admin/")
    for kind in KINDS:
        assert client.get(address(kind)).status_code == 403
        assert client.get(address(kind, 1)).status_code == 403
        assert client.post(address(kind), {"action": "retry"}).status_code == 403
    assert client.get("/admin/dibs/limit/add/").status_code == 403


@pytest.mark.parametrize("kind", KINDS)
def test_the_permission_to_view_opens_the_pages_of_one_kind(sign_in: SignIn, kind: str) -> None:
    owner = "task" if kind == "deadtask" else kind
    client = sign_in(f"view_{owner}")
    for each in KINDS:
        allowed = each == kind or {each, kind} == {"task", "deadtask"}
        assert client.get(address(each)).status_code == (200 if allowed else 403)
    index = markup(client, "/admin/")
    assert [each for each in KINDS if address(each) in index] == (["task", "deadtask"] if owner == "task" else [kind])


@pytest.mark.parametrize("action", ACTIONS)
def test_an_action_is_hidden_and_refused_without_its_permission(sign_in: SignIn, action: str) -> None:
    task = failed_task() if action != "cancel" else app.enqueue("mail")
    before = app.get(task.id)
    client = sign_in("view_task")
    for url in (address("task"), address("deadtask"), address("task", task.id)):
        assert f'value="{action}"' not in markup(client, url)
    for url in (address("task"), address("task", task.id)):
        data = {"action": action, "_selected_action": [task.id], "sure": "yes"}
        assert client.post(url, data).status_code == 403
    assert app.get(task.id) == before
    allowed = sign_in("view_task", ACTIONS[action], name="bob")
    assert f'value="{action}"' in markup(allowed, address("task", task.id))
    act(allowed, address("task", task.id), action)
    assert app.get(task.id) != before


def test_actions_on_all_matching_tasks_need_the_same_permissions(sign_in: SignIn) -> None:
    task = failed_task()
    client = sign_in("view_task", "change_task")
    discard = {"action": "discard-matching", "sure": "yes"}
    assert client.post(address("deadtask"), discard).status_code == 403
    assert [each.id for each in app.list_dead()] == [task.id]


def test_every_form_needs_the_csrf_token(sign_in: SignIn) -> None:
    task = failed_task()
    client = sign_in("change_task", check_csrf=True)
    for url in (address("task"), address("task", task.id)):
        data = {"action": "retry", "_selected_action": [task.id]}
        assert client.post(url, data).status_code == 403
        token = csrf_of(markup(client, url))
        assert client.post(url, {**data, "csrfmiddlewaretoken": token}).status_code == 302
    assert app.get(task.id).state == "pending"  # type: ignore[union-attr]


def test_limits_are_created_changed_and_removed_with_three_permissions(sign_in: SignIn) -> None:
    app.set_limit("api", max=3)
    client = sign_in("view_limit")
    page, add = address("limit", "api"), "/admin/dibs/limit/add/"
    assert (add in markup(client, address("limit")), 'name="max"' in markup(client, page)) == (False, False)
    assert client.post(add, {"name": "other", "max": 1}).status_code == 403
    assert client.post(page, {"action": "set", "max": 1}).status_code == 403
    assert client.post(page, {"action": "remove", "sure": "yes"}).status_code == 403
    assert [(limit.name, limit.max) for limit in app.limits()] == [("api", 3)]


def test_the_models_have_no_tables_and_no_rows(site: str) -> None:
    app.enqueue("mail")
    assert (models.Task.objects.count(), list(models.Task.objects.filter(pk=1))) == (0, [])
    for option in ((), ("--all",)):
        printed = StringIO()
        call_command("dumpdata", "dibs", *option, stdout=printed, database=site)
        assert printed.getvalue().strip() == "[]"


def test_no_migration_is_missing(site: str) -> None:
    call_command("makemigrations", "dibs", check=True, dry_run=True, verbosity=0)
