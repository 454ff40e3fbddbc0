"""Callers that are limited to different queues can use the same worker id: none overwrites the record of another."""

from __future__ import annotations

from typing import Any

import pytest

from dibs import InvalidValue
from dibs.model.claim import ClaimRequest
from dibs.model.registry import Heartbeat, WorkerInfo
from tests.helpers.clients import Clock, run

pytestmark = pytest.mark.database("only a server names the queue limit of its caller")


def beat(app: Any, only: list[str] | None, **options: Any) -> None:
    """A heartbeat of worker w, under this queue limit."""
    given = {"worker_id": "w", "queues": only, **options}
    run(app, app._store.registry.heartbeat(Heartbeat(**given), only))


def records(app: Any) -> dict[tuple[str, ...], WorkerInfo]:
    """The records by the queues that each serves."""
    return {tuple(worker.queues or ()): worker for worker in app.workers()}


def test_a_heartbeat_of_a_caller_with_other_queues_creates_a_separate_record(app: Any, clock: Clock) -> None:
    beat(app, ["mail"], metadata={"host": "a"})
    clock.advance(1)
    beat(app, ["media"], metadata={"host": "b"})
    beat(app, None, metadata={"host": "c"})
    beat(app, ["media", "mail"], metadata={"host": "d"})
    beat(app, ["mail", "media"], metadata={"host": "e"})
    hosts = {queues: info.metadata["host"] for queues, info in records(app).items()}
    assert hosts == {("mail",): "a", ("media",): "b", (): "c", ("mail", "media"): "e"}


def test_a_worker_that_starts_or_leaves_with_other_queues_changes_no_other_record(app: Any, clock: Clock) -> None:
    beat(app, ["mail"], incarnation="i-1")
    clock.advance(10)
    beat(app, ["media"], incarnation="i-2")
    beat(app, ["media"], incarnation="i-1", leaving=True)
    assert {info.queues[0] + "/" + info.incarnation: info.state for info in app.workers()} == {
        "mail/i-1": "active",
        "media/i-2": "active",
        "media/i-1": "gone",
    }


@pytest.mark.parametrize("incarnation", ["", "i-1"])
def test_a_worker_record_lists_the_tasks_of_its_queues_only(app: Any, incarnation: str) -> None:
    for queue in ("mail", "media"):
        beat(app, [queue], incarnation=incarnation)
    tasks = {queue: app.enqueue("send", queue=queue).id for queue in ("mail", "media", "other")}
    request = ClaimRequest(worker_id="w", count=3, incarnation=incarnation or None)
    run(app, app._store.queue.claim(request))
    assert {queues: info.holds for queues, info in records(app).items()} == {
        ("mail",): [tasks["mail"]],
        ("media",): [tasks["media"]],
    }


@pytest.mark.parametrize("only", [[], "mail", [""], [7]])
def test_a_malformed_limit_of_queues_is_refused(app: Any, only: Any) -> None:
    with pytest.raises(InvalidValue):
        app._store.registry.heartbeat(Heartbeat(worker_id="w"), only)
    with pytest.raises(InvalidValue):
        app._store.upkeep.next_due(only)
    with pytest.raises(InvalidValue):
        app._store.workflows.results(1, only)


def test_the_next_due_time_covers_only_the_given_queues(app: Any, clock: Clock) -> None:
    due = app._store.upkeep.next_due
    app.enqueue("send", queue="other", delay=5)
    assert run(app, due(["mail", "media"])) is None
    app.enqueue("send", queue="mail", delay=60)
    app.set_schedule("report", "* * * * * *", "report", queue="other")
    assert run(app, due(["mail", "media"])) == 60
    app.enqueue("send", queue="media")
    app.claim("w", queues=["media"], lease=20)
    app.enqueue("send", queue="other")
    app.claim("w", queues=["other"], lease=10)
    assert run(app, due(["mail", "media"])) == 20
    assert run(app, due(["mail"])) == 60
    assert run(app, due()) <= 1
