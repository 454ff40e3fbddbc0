"""The form on the page of a waiting task: it changes the task, or says why not."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import httpx

import dibs
from dibs import State
from tests.helpers.browsing import Visitor, text_of
from tests.helpers.tasks import events, task_in
from tests.helpers.workflows import DIAMOND, start, task_of
from tests.server.dashboard.conftest import Site


def fields(page: httpx.Response) -> dict[str, str]:
    """The fields of the form and their values, as a browser would send them."""
    form = re.search(r'<form[^>]*id="change-form".*?</form>', page.text, re.DOTALL)
    if form is None:
        return {}
    inputs = [dict(re.findall(r'(\w+)="([^"]*)"', each)) for each in re.findall(r"<input[^>]*>", form[0])]
    found = {each["name"]: each.get("value", "") for each in inputs}
    text = re.search(r"<textarea[^>]*>(.*?)</textarea>", form[0], re.DOTALL)
    if text is not None:
        found["params"] = text[1]
    return {name: unescape(value) for name, value in found.items() if name != "csrf"}


def submit(visitor: Visitor, task_id: int, page: httpx.Response | None = None, **changes: Any) -> httpx.Response:
    """The answer to the form of the page with these fields changed."""
    path = f"/tasks/{task_id}"
    return visitor.post(f"{path}/change", **{**fields(page or visitor.get(path)), **changes})


def test_the_form_changes_every_value_of_a_waiting_task(site: Site, app: dibs.Dibs) -> None:
    task = app.enqueue("resize", {"text": '<"&'}, tags=["a"])
    visitor = site.visitor("read", "enqueue")
    page = visitor.get(f"/tasks/{task.id}")
    assert fields(page)["params"] == '{\n  "text": "<\\"&"\n}'
    changed = {"priority": "5", "queue": "mail", "due": "1h", "tags": "b, c", "params": '{"text": "new"}'}
    after = submit(visitor, task.id, page, **changed)
    assert after.status_code == 200
    assert "Changed: priority, queue, params, tags, due time. The task is scheduled." in text_of(after)
    assert "priority 0 → 5" in text_of(after)
    found = app.get(task.id)
    assert found is not None
    assert (found.priority, found.queue, found.params, found.tags) == (5, "mail", {"text": "new"}, ["b", "c"])
    assert found.state is State.SCHEDULED


def test_the_form_gives_a_task_another_group_and_removes_it(site: Site, app: dibs.Dibs) -> None:
    app.set_limit("tenant", max=1, per="group")
    plain, limited = app.enqueue("charge", group="acme"), app.enqueue("charge", limits=["tenant"], group="acme")
    visitor = site.visitor("read", "enqueue")
    page = visitor.get(f"/tasks/{plain.id}")
    assert fields(page)["group"] == "acme"
    after = submit(visitor, plain.id, page, group=" globex ")
    assert "Changed: group. The task is pending." in text_of(after)
    assert "group acme → globex" in text_of(after)
    assert "group globex → none" in text_of(submit(visitor, plain.id, group=""))
    assert "the task has no group" in text_of(submit(visitor, limited.id, group=""))
    assert app.get(limited.id) == limited


def test_values_that_stay_as_they_are_are_not_changed(site: Site, app: dibs.Dibs) -> None:
    task = app.enqueue("resize", {"width": 1.0}, tags=["a", "b"])
    visitor = site.visitor("enqueue", "read")
    assert "Nothing was changed" in text_of(submit(visitor, task.id))
    assert app.get(task.id) == task
    submit(visitor, task.id, tags="")
    assert events(app, task.id) == ["enqueued", "changed"]
    assert app.history(task.id)[-1].detail == {"tags": {"from": ["a", "b"], "to": []}}


def test_a_form_that_was_opened_before_another_change_is_refused(site: Site, app: dibs.Dibs) -> None:
    task = app.enqueue("resize")
    visitor = site.visitor("enqueue", "read")
    page = visitor.get(f"/tasks/{task.id}")
    app.change(task.id, priority=3)
    answer = submit(visitor, task.id, page, queue="mail")
    assert answer.status_code == 409
    assert "was changed since this form was opened" in text_of(answer)
    assert app.get(task.id).queue == "default"  # type: ignore[union-attr]


def test_a_claim_that_came_first_refuses_the_form(site: Site, app: dibs.Dibs) -> None:
    task = app.enqueue("resize")
    visitor = site.visitor("enqueue", "read")
    page = visitor.get(f"/tasks/{task.id}")
    app.claim("worker-1")
    answer = submit(visitor, task.id, page, priority="5")
    assert answer.status_code == 409
    assert "worker-1 has claimed it" in text_of(answer)


def test_only_waiting_tasks_have_the_form_and_only_for_the_scope_enqueue(site: Site, app: dibs.Dibs) -> None:
    waiting = [task_in(app, state) for state in ("pending", "scheduled")]
    others = [task_in(app, state) for state in ("claimed", "completed", "failed", "cancelled")]
    visitor, reader = site.visitor("enqueue", "read"), site.visitor("read")
    assert all(fields(visitor.get(f"/tasks/{task.id}")) for task in waiting)
    assert not any(fields(visitor.get(f"/tasks/{task.id}")) for task in others)
    assert not any(fields(reader.get(f"/tasks/{task.id}")) for task in waiting)
    assert reader.post(f"/tasks/{waiting[0].id}/change", priority="5").status_code == 403
    assert visitor.post(f"/tasks/{waiting[0].id}/change", csrf="0" * 64, priority="5").status_code == 403
    assert app.get(waiting[0].id) == waiting[0]


def test_a_limited_key_neither_sees_foreign_tasks_nor_moves_its_own_there(site: Site, app: dibs.Dibs) -> None:
    foreign, own = app.enqueue("resize", queue="theirs"), app.enqueue("resize", queue="ours")
    visitor = site.visitor("enqueue", "read", queues=["ours"])
    assert visitor.post(f"/tasks/{foreign.id}/change", priority="5").status_code == 404
    assert submit(visitor, own.id, queue="theirs").status_code == 403
    assert (app.get(foreign.id), app.get(own.id)) == (foreign, own)


def test_malformed_values_are_400_and_change_nothing(site: Site, app: dibs.Dibs) -> None:
    task = app.enqueue("resize")
    visitor = site.visitor("enqueue", "read")
    page = visitor.get(f"/tasks/{task.id}")
    for wrong in (
        {"priority": "high"},
        {"priority": str(2**40)},
        {"due": "tomorrow"},
        {"due": "10 m"},
        {"due": "2030-01-31T08:00"},
        {"queue": "q" * 300},
        {"tags": 'a"b'},
        {"params": "{"},
        {"params": "[1]"},
        {"params": '{"a": NaN}'},
        {"params": "[" * 5000},
        {"state": "pending"},
    ):
        assert submit(visitor, task.id, page, **wrong).status_code == 400, wrong
    assert app.get(task.id) == task


def test_large_params_are_not_in_the_form_and_stay(site: Site, app: dibs.Dibs) -> None:
    task = app.enqueue("resize", {"text": "x" * 10_000})
    visitor = site.visitor("enqueue", "read")
    page = visitor.get(f"/tasks/{task.id}")
    assert "params" not in fields(page)
    assert "too large for this form" in text_of(page)
    assert submit(visitor, task.id, page, priority="2").status_code == 200
    found = app.get(task.id)
    assert found is not None
    assert (found.priority, found.params) == (2, task.params)


def test_the_form_of_a_blocked_step_has_neither_queue_nor_due_time(site: Site, app: dibs.Dibs) -> None:
    merge = task_of(app, start(app, *DIAMOND), "merge")
    visitor = site.visitor("enqueue", "read")
    assert fields(visitor.get(f"/tasks/{merge}")).keys() == {"seen", "priority", "tags", "group", "params"}
    assert submit(visitor, merge, priority="4").status_code == 200
    found = app.get(merge)
    assert found is not None
    assert (found.state, found.priority) == (State.BLOCKED, 4)
