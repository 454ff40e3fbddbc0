"""Tasks and the dead letter in the admin: lists, filters, pages, actions; on the project's database and on a server."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

import dibs
from dibs.django import app
from dibs.django.admin import tasks as tasks_admin
from tests.frameworks.django.admin.pages import act, address, ids, markup, older, read, rows, text_of

HOSTILE = "</pre><script>alert('x')</script>\u202e\"' onload=x <img src=q>"


def fail(task_type: str = "mail", error: Any = "no", **options: Any) -> dibs.Task:
    """A task in the dead letter."""
    task = app.enqueue(task_type, **options)
    app.fail(app.claim_by_id(task.id, "w-1"), error, permanent=True)
    return task


def state(task: dibs.Task) -> str:
    found = app.get(task.id)
    assert found is not None
    return found.state.value


@pytest.mark.usefixtures("store")
class TestActions:
    def test_selected_tasks_are_retried_in_the_name_of_the_user(self, root: Client) -> None:
        tasks = [fail() for _ in range(3)]
        assert act(root, address("task"), "retry", tasks[0].id, tasks[1].id) == ["Retried 2 tasks."]
        assert [state(task) for task in tasks] == ["pending", "pending", "failed"]
        assert app.history(tasks[0].id)[-1].by == "django:root"  # a server adds the id of an API key
        entries = LogEntry.objects.order_by("pk")
        assert [(each.object_id, each.change_message, each.object_repr) for each in entries] == [
            (str(task.id), "Retried", f"task {task.id}") for task in tasks[:2]
        ]
        assert entries[0].get_admin_url() is not None

    def test_a_cancellation_has_to_be_confirmed(self, root: Client) -> None:
        task = app.enqueue("mail")
        for url in (address("task"), address("task", task.id)):
            response = root.post(url, {"action": "cancel", "_selected_action": [task.id]})
            assert "Are you sure?" in text_of(response.content.decode())
            assert f'value="{task.id}"' in response.content.decode()
        assert state(task) == "pending"
        act(root, address("task"), "cancel", task.id)
        assert state(task) == "cancelled"

    def test_the_worker_of_a_running_task_is_asked_to_stop(self, root: Client) -> None:
        task = app.enqueue("mail")
        app.claim("w-1")
        act(root, address("task", task.id), "cancel")
        assert "stopping" in read(root, address("task"))
        assert "asked to stop" in read(root, address("task", task.id))
        assert app.get(task.id).cancel_requested  # type: ignore[union-attr]

    def test_a_discarded_task_leaves_the_dead_letter(self, root: Client) -> None:
        tasks = [fail(), fail()]
        act(root, address("deadtask"), "discard", tasks[0].id)
        assert rows(root, address("deadtask")) == [tasks[1].id]
        assert "failed, discarded" in read(root, address("task"))

    def test_a_refused_task_is_reported_and_the_others_are_changed(self, root: Client) -> None:
        pending, failed = app.enqueue("mail"), fail()
        told = act(root, address("task"), "retry", pending.id, failed.id, 999)
        assert told[0] == f"Retried task {failed.id}."
        assert f"Task {pending.id}" in told[1]
        assert "There is no task 999." in told[2]
        assert state(failed) == "pending"

    def test_an_action_without_rows_changes_nothing(self, root: Client) -> None:
        assert act(root, address("task"), "retry") == ["Select an action, and the rows to act on."]
        assert act(root, address("task"), "explode", 1) == ["Select an action, and the rows to act on."]

    def test_all_tasks_that_match_are_changed_after_a_confirmation(self, root: Client) -> None:
        mails, other = [app.enqueue("mail", queue="bulk") for _ in range(120)], app.enqueue("mail")
        url = address("task") + "?queue=bulk"
        asked = root.post(url, {"action": "cancel-matching"}).content.decode()
        assert "queue: bulk" in text_of(asked)
        assert act(root, url, "cancel-matching") == ["Cancelled or asked to stop: 120 tasks."]
        assert {state(mails[0]), state(mails[-1])} == {"cancelled"}
        assert act(root, url, "retry-matching") == ["Retried 120 tasks."]
        assert (state(mails[0]), state(other)) == ("pending", "pending")
        assert LogEntry.objects.count() == 2

    def test_an_action_on_many_tasks_ends_after_a_time_and_can_be_repeated(
        self, root: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tasks_admin, "MATCH_SECONDS", 0)
        app.enqueue_many([dibs.NewTask("mail", queue="bulk") for _ in range(900)])
        told: list[str] = []
        while not told or "More may match" in told[-1]:
            told += act(root, address("task") + "?queue=bulk", "cancel-matching")
        assert app.list_tasks(state="pending") == []
        assert len(told) > 1
        assert sum(int(re.sub(r"\D", "", each)) for each in told) == 900

    def test_without_a_filter_no_action_on_all_tasks_is_offered_or_done(self, root: Client) -> None:
        task = app.enqueue("mail")
        assert "cancel-matching" not in markup(root, address("task"))
        told = act(root, address("task"), "cancel-matching")
        assert "at least one filter" in told[0]
        assert state(task) == "pending"

    def test_an_action_on_all_matching_tasks_refuses_filters_that_the_list_does_not_have(self, root: Client) -> None:
        task, dead = app.enqueue("mail"), fail(error="timeout")
        assert "'quee' is not a filter" in act(root, address("task") + "?state=pending&quee=bulk", "cancel-matching")[0]
        assert "'worker' is not a filter" in act(root, address("deadtask") + "?worker=w1", "discard-matching")[0]
        assert (state(task), len(app.list_dead()), state(dead)) == ("pending", 1, "failed")

    def test_the_dead_letter_is_retried_or_discarded_by_filter(self, root: Client) -> None:
        slow, lost = fail(error="timeout of host 1"), fail(error="no such file")
        assert act(root, address("deadtask") + "?error=timeout", "retry-matching") == ["Retried 1 task."]
        assert (state(slow), state(lost)) == ("pending", "failed")
        assert act(root, address("deadtask"), "discard-matching") == ["Discarded 1 task."]
        assert app.list_dead() == []


@pytest.mark.usefixtures("store")
class TestLists:
    def test_the_pages_of_many_tasks_show_each_once(self, root: Client) -> None:
        tasks = app.enqueue_many([dibs.NewTask("mail", {"n": n}) for n in range(350)])
        found, query, pages = list[int](), "?", 0
        while query:
            page = markup(root, address("task") + query)
            found, pages, query = found + ids(page), pages + 1, older(page)
        assert found == sorted((task.id for task in tasks), reverse=True)
        assert pages == 4

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("state=pending", [2]),
            ("queue=mail", [1, 0]),
            ("type=send", [2, 0]),
            ("tags=red", [0]),
            ("tags=red,blue", []),
            ("key=k-1", [1]),
            ("q=needle", [1]),
            ("within=hour", [2, 1, 0]),
            ("state=failed&queue=mail", [0]),
            ("worker=w-1", [0]),
        ],
    )
    def test_a_filter_shows_the_tasks_that_match(self, root: Client, query: str, expected: list[int]) -> None:
        tasks = [
            fail("send", queue="mail", tags=["red"]),
            app.enqueue("load", {"text": "a needle"}, queue="mail", key="k-1", delay=60),
            app.enqueue("send"),
        ]
        assert rows(root, f"{address('task')}?{query}") == [tasks[each].id for each in expected]

    def test_a_number_in_the_search_box_leads_to_the_task(self, root: Client) -> None:
        task = app.enqueue("mail")
        for words in (str(task.id), f"%23{task.id}"):
            assert root.get(f"{address('task')}?q={words}")["Location"] == address("task", task.id)
        assert rows(root, address("task") + "?q=12345") == []

    def test_a_long_search_goes_on_with_the_next_page(
        self, root: Client, store: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tasks_admin, "SEARCH_SECONDS", 0)
        old = app.enqueue("mail", {"text": "a needle"})
        app.enqueue_many([dibs.NewTask("mail") for _ in range(200)])
        query, found, pages = "?q=needle", list[int](), list[str]()
        while query:
            pages.append(markup(root, address("task") + query))
            found += ids(pages[-1])
            query = older(pages[-1])
        assert found == [old.id]
        assert len(pages) > 1 or store.startswith("http")  # a server has its own time for a search
        assert all("The search goes on" in text_of(page) for page in pages[:-1])

    @pytest.mark.parametrize(
        "query", ["state=lost", "cursor=x", "within=year", "tags=" + "x," * 40, "queue=" + "q" * 300]
    )
    def test_a_filter_that_is_not_valid_is_explained(self, root: Client, query: str) -> None:
        assert "All tasks" in read(root, f"{address('task')}?{query}", 400)

    def test_the_dead_letter_shows_what_failed_and_why(self, root: Client) -> None:
        old, new = fail(error="first"), fail(error=ValueError("second"))
        app.enqueue("mail")
        page = markup(root, address("deadtask"))
        assert ids(page) == [new.id, old.id]
        assert "ValueError: second" in text_of(page)
        assert rows(root, address("deadtask") + "?error=first") == [old.id]


@pytest.mark.usefixtures("store")
class TestPage:
    def test_a_failed_task_has_its_params_error_attempts_and_history(self, root: Client) -> None:
        task = app.enqueue("mail", {"to": "ada"}, max_attempts=2, tags=["red"], key="k-1")
        for number in (1, 2):
            claim = app.claim_by_id(task.id, f"worker-{number}")
            app.fail(claim, dibs.Failure("TimeoutError", "too slow", "Traceback: line 7"), retry_in=0)
        page = read(root, address("task", task.id))
        for text in ('"to": "ada"', "TimeoutError: too slow", "line 7", "worker-1", "worker-2", "2 of 2", "k-1", "red"):
            assert text in page
        assert "enqueued" in page.partition("History")[2]
        assert "attempts" in page.partition("Explanation")[2]

    def test_a_completed_task_has_its_result_and_no_actions(self, root: Client) -> None:
        task = app.enqueue("mail")
        app.complete(app.claim_by_id(task.id, "w-1"), {"sent": 3})
        page = markup(root, address("task", task.id))
        assert '"sent": 3' in text_of(page)
        assert "dibs-actions" not in page

    def test_the_logs_of_the_last_attempt_are_shown(self, root: Client) -> None:
        from dibs.model.logs import LogLevel, LogLine

        task = app.enqueue("mail")
        claim = app.claim_by_id(task.id, "w-1")
        lines = [
            LogLine(task.id, claim.token, 1, number, task.created_at, LogLevel.INFO, "shop", f"line <{number}>")
            for number in (1, 2)
        ]
        app._run(app._store.logs.add_log_lines(lines))
        assert "line <1>" in read(root, address("task", task.id))
        after = read(root, f"{address('task', task.id)}?logs={lines[0].id}")
        assert ("line <1>" in after, "line <2>" in after) == (False, True)

    def test_a_pruned_task_has_its_history(self, root: Client) -> None:
        task = app.enqueue("mail")
        app.cancel(task.id)
        app.set_retention("cancelled", 0)
        app.prune()
        page = markup(root, address("task", task.id))
        assert "was pruned" in text_of(page)
        assert "dibs-actions" not in page

    @pytest.mark.parametrize("key", ["999", "abc", "9" * 30, "_2E_2E"])
    def test_an_unknown_task_is_not_found(self, root: Client, key: str) -> None:
        assert root.get(address("task", key)).status_code in (400, 404)

    def test_hostile_content_is_shown_as_text_on_every_page(self, root: Client) -> None:
        task = fail(
            HOSTILE[:60], error=dibs.Failure(HOSTILE, HOSTILE, HOSTILE), queue="<b>q", tags=["<i>t"], key="<u>k"
        )
        task = app.retry(task.id)
        claim = app.claim_by_id(task.id, "w-1")
        app.progress(claim, 5, HOSTILE)
        app.complete(claim, {HOSTILE: HOSTILE})
        failed = fail(params={HOSTILE: [HOSTILE]}, error=HOSTILE)
        urls = [address("task"), address("deadtask"), address("task", task.id), address("task", failed.id)]
        urls += [address("queue"), address("task") + "?q=%3Cscript%3E&queue=%3Cb%3E&type=%22%3E%3Cscript%3E"]
        for url in urls:
            page = markup(root, url).partition('id="content-main"')[2]
            for tag in ("<script>alert", "<img src=q", "<b>q", "<i>t", "<u>k", "\u202e", '"><script>'):
                assert tag not in page
        assert HOSTILE.split("\u202e", maxsplit=1)[0] in read(root, address("task", failed.id))
