"""A decision about a key was made on a row that was read; the statement that writes checks the row again."""

from __future__ import annotations

from typing import Any

import pytest

from dibs.store.operation import Mode, Operation, Statement, Statements
from tests.helpers import tables
from tests.helpers.clients import Clock, run

pytestmark = pytest.mark.database("the statement that writes is run without the one that reads")

CONTENT = {
    "detail": "{}", "type_version": None, "params": '{"n":2}', "priority": 7, "delay": None, "run_at": None,
    "max_delay": None, "key_content": "other", "request": None, "trace": None, "tags": None,
    "expires_at": None, "expires_in": None, "limits": None, "group_key": None, "backlog": None,
}  # fmt: skip


def statement(app: Any, name: str, **given: Any) -> Any:
    def steps() -> Statements[Any]:
        return (yield Statement(name, **given))

    return run(app, Operation(name, steps, mode=Mode.TRANSACTION))


def replace(app: Any, task: Any, state: str = "pending") -> Any:
    return statement(app, "replace", rows=[{"id": task.id, "from_state": state, **CONTENT}], change=True)


def test_a_replacement_that_was_decided_before_a_claim_changes_nothing(app: Any, url: str) -> None:
    task = app.enqueue("index", {"n": 1}, key="k")
    claim = app.claim("worker-1")
    before = tables.read(url)
    assert replace(app, task) == []
    assert tables.read(url) == before
    app.release(claim)
    before = tables.read(url)
    assert replace(app, task) == []  # the task waits again, but it has started
    assert tables.read(url) == before


def test_a_replacement_that_was_decided_before_a_cancel_changes_nothing(app: Any, url: str) -> None:
    task = app.enqueue("index", {"n": 1}, key="k")
    app.cancel(task.id)
    before = tables.read(url)
    assert replace(app, task) == []
    assert tables.read(url) == before


def test_a_replacement_that_was_decided_before_the_task_was_due_is_decided_again(app: Any, clock: Clock) -> None:
    task = app.enqueue("index", {"n": 1}, key="k", delay=5)
    clock.advance(5)
    app.promote()
    assert replace(app, task, "scheduled") == []  # its history entry would have the wrong state
    assert len(replace(app, task)) == 1
    assert app.get(task.id).params == {"n": 2}


def test_a_key_that_is_not_past_its_time_does_not_end(app: Any, clock: Clock) -> None:
    task = app.enqueue("index", key="k", key_for=60)
    statement(app, "end_keys", params={"ids": [task.id]})
    assert app.get(task.id).key_scope == "until_time"
    clock.advance(60)
    statement(app, "end_keys", params={"ids": [task.id]})
    assert app.get(task.id).key_scope == "ended"
