"""psycopg2, asyncpg and aiosqlite bind parameters by themselves: every verb runs on them, with the same errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import dibs
from dibs import NewStep, NewTask
from tests.connections.test_kinds import Kinds, kinds
from tests.contract.test_joining import VERBS, everything, prepared
from tests.helpers.clients import AsyncAsSync, Clock
from tests.helpers.connections import KINDS, waits_on

__all__ = ["kinds"]

DRIVERS = {
    ("sqlite", "sync"): ["Session", "Django alias"],
    ("postgres", "sync"): ["psycopg2", "Django alias"],  # Django binds parameters in the client
    ("sqlite", "async"): ["aiosqlite"],
    ("postgres", "async"): ["asyncpg", "AsyncSession on asyncpg"],
}


def opened(app: Any, engine: str, mode: str) -> Iterator[Any]:
    """Opens one object for each way in which statements reach the database."""
    wait = waits_on(app.loop if isinstance(app, AsyncAsSync) else None)
    for name in DRIVERS[engine, mode]:
        mine = KINDS[engine, mode][name](app.url, wait)
        try:
            yield mine
        finally:
            mine.close()


def test_every_verb_changes_what_its_transaction_sees_and_is_undone_by_a_rollback(
    app: Any, clock: Clock, engine: str, mode: str
) -> None:
    for mine in opened(app, engine, mode):
        for verb in VERBS:
            try:
                task, run = prepared(app, clock, verb)
                before = everything(app)
                run(app.on(mine.given), task)
                assert everything(app.on(mine.given)) != before
                assert everything(app) == before
                mine.rollback()
                assert everything(app) == before
            except Exception as error:
                error.add_note(f"verb: {verb}")
                raise


def test_workflows_limits_schedules_and_every_list_run_on_the_connection(app: Any, engine: str, mode: str) -> None:
    app.queues()
    for mine in opened(app, engine, mode):
        joined = app.on(mine.given)
        fetch = NewStep(name="fetch", task=NewTask("fetch", limits=["stripe"]))
        steps = [fetch, NewStep(name="pack", task=NewTask("pack"), after=["fetch"])]
        joined.set_limit("stripe", max=2, rate="10/second", burst=3)
        joined.set_queue("mail", fair=True)
        joined.set_schedule("nightly", "0 3 * * *", "report", timezone="Europe/Paris")
        workflow = joined.start_workflow(dibs.NewWorkflow(name="order", steps=steps, key="order-7", deadline=60.5))
        claim = joined.claim("worker-1", types=["fetch"])
        joined.complete(
            claim, {"ok": True}, steps=[NewStep(name="mail", task=NewTask("mail", queue="mail", group="a"))]
        )
        assert joined.get_workflow(workflow.id).state == "running"
        assert {step.name for step in joined.steps(workflow.id)} == {"fetch", "pack", "fetch/mail"}
        for read in ("list_tasks", "list_workflows", "list_types", "limits", "schedules", "stats", "workers"):
            getattr(joined, read)()
        joined.groups("mail")
        joined.explain(claim.task_id)
        mine.rollback()
        assert app.get_workflow(workflow.id) is None


def test_a_text_that_cannot_be_stored_is_refused_and_leaves_the_transaction_usable(
    app: Any, engine: str, mode: str
) -> None:
    app.queues()
    for mine in opened(app, engine, mode):
        with pytest.raises(dibs.DibsError):
            app.on(mine.given).enqueue_many([NewTask("ship"), NewTask("ship", params={"text": "\ud800"})])
        task = app.on(mine.given).enqueue("crop")
        mine.commit()
        assert (app.get(task.id), app.list_tasks(type="ship")) == (task, [])


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_closed_connection_is_reported_and_nothing_is_stored(app: Any, engine: str, mode: str) -> None:
    app.queues()
    for mine in list(opened(app, engine, mode))[:1]:  # closed by the generator
        with pytest.raises(dibs.StoreError, match="closed"):
            app.on(mine.given).enqueue("ship")
        assert app.list_tasks() == []


def test_a_database_without_tables_says_so_for_a_read_as_well(app: Any, empty_url: str, kinds: Kinds) -> None:
    for mine in kinds(empty_url):
        with pytest.raises(dibs.SchemaMissing, match=r"migrate\(\)"):
            app.on(mine.given).get(1)
        mine.rollback()
