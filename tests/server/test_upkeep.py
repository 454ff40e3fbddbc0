"""A server does upkeep by itself: transitions that depend on time need no worker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import dibs
from dibs.server.config import ServerConfig
from dibs.server.run import serving
from dibs.store.open import open_store
from tests.helpers.clients import Clock
from tests.helpers.retention import NOTHING, keep
from tests.helpers.tasks import task_in
from tests.helpers.waiting import until
from tests.server.conftest import Served

Serve = Callable[..., Served]


@pytest.fixture
def timed(url: str, clock: Clock) -> Any:
    """A client of the database that has the hand-turned clock."""
    with dibs.Dibs(url, clock=clock) as app:
        yield app


def test_a_task_becomes_pending_when_it_is_due(serve: Serve, timed: dibs.Dibs, clock: Clock) -> None:
    serve(clock=clock, upkeep=True, upkeep_every=0.1)
    task = timed.enqueue("resize", delay=60)
    clock.advance(61)
    until(lambda: timed.get(task.id).state == "pending")


def test_a_task_is_recovered_when_its_lease_ran_out(serve: Serve, timed: dibs.Dibs, clock: Clock) -> None:
    serve(clock=clock, upkeep=True, upkeep_every=0.1)
    task = timed.enqueue("resize")
    timed.claim("worker-1", lease=30)
    clock.advance(31)
    until(lambda: timed.get(task.id).state == "pending")
    assert timed.get(task.id).attempts == 1


def test_a_schedule_ticks(serve: Serve, timed: dibs.Dibs, clock: Clock) -> None:
    serve(clock=clock, upkeep=True, upkeep_every=0.1)
    timed.set_schedule("minutely", "* * * * *", "resize")
    clock.advance(60)
    until(lambda: timed.list_tasks(type="resize"))


def test_tasks_past_their_retention_are_pruned(serve: Serve, app: dibs.Dibs) -> None:
    done = task_in(app, "completed")
    keep(app, **NOTHING, history=0, workers=0)
    serve(upkeep=True, upkeep_every=0.1)
    until(lambda: app.get(done.id) is None)


def test_a_server_with_upkeep_disabled_does_no_upkeep(serve: Serve) -> None:
    serve(upkeep=False)
    assert keepers() == []


def test_the_upkeep_ends_with_the_server(url: str) -> None:
    config = ServerConfig(port=0, keys=False, access_log=False)
    with serving(open_store(url), config):  # type: ignore[arg-type]
        assert len(keepers()) == 1
    assert keepers() == []


def test_a_server_that_does_upkeep_is_not_listed_as_a_worker(serve: Serve, app: dibs.Dibs) -> None:
    done = task_in(app, "completed")
    keep(app, **NOTHING, history=0, workers=0)
    serve(upkeep=True, upkeep_every=0.1)
    until(lambda: app.get(done.id) is None)
    assert app.workers() == []


def keepers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "dibs-upkeep"]
