"""A worker stores what its program declares before its first claim, or logs why it may not, and goes on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import dibs
from dibs import PollerConfig, State, TaskPoller
from dibs.server.config import ServerConfig
from tests.helpers.waiting import until

pytestmark = pytest.mark.own_connections

KEYED = ServerConfig(port=0, keys=True, access_log=False, upkeep=False)


@pytest.fixture
def direct(url: str) -> Iterator[dibs.Dibs]:
    """A client of the database, without handlers."""
    with dibs.Dibs(url) as app:
        app.migrate()
        yield app


@pytest.fixture(params=["direct", "served"])
def place(url: str, direct: dibs.Dibs, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of the store: of the database itself, and of a server."""
    with contextlib.ExitStack() as closing:
        if request.param == "served":
            yield closing.enter_context(request.getfixturevalue("server_host").serving(url))
        else:
            yield url


@pytest.fixture
def keyed(url: str, direct: dibs.Dibs, server_host: Any) -> Iterator[Any]:
    """A function that makes a client of a server, whose key has these scopes."""
    with contextlib.ExitStack() as closing:
        place = closing.enter_context(server_host.serving(url, KEYED))

        def client(*scopes: str) -> dibs.Dibs:
            key = direct.create_key("k", scopes).key
            return closing.enter_context(dibs.Dibs(place, api_key=key))

        yield client


class Together:
    """Counts how many handlers run at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self.most = 0

    def __enter__(self) -> None:
        with self._lock:
            self._running += 1
            self.most = max(self.most, self._running)

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._running -= 1


def declare(app: Any, **options: Any) -> Together:
    """Declare a limit of one for each tenant, and a handler that has it."""
    together = Together()
    app.limit("tenant", max=1, per="group")

    @app.task(**{"limits": ["tenant"], "group_by": "tenant", **options})
    def charge(tenant: str = "acme") -> None:
        with together:
            threading.Event().wait(0.02)

    return together


def wait_for(app: dibs.Dibs, tasks: list[dibs.Task]) -> None:
    assert {app.wait(task.id, 30).state for task in tasks} == {State.COMPLETED}


def test_tasks_that_waited_before_the_first_start_of_a_worker_obey_its_limits(direct: dibs.Dibs, place: str) -> None:
    tasks = direct.enqueue_many([dibs.NewTask("charge", {"tenant": "acme"}) for _ in range(10)])
    with dibs.Dibs(place) as app:
        together = declare(app)
        with app.worker(concurrency=4):
            wait_for(direct, tasks)
    assert together.most == 1
    assert {direct.get(task.id).group for task in tasks} == {"acme"}  # type: ignore[union-attr]


def test_a_worker_of_an_async_app_stores_the_declarations(direct: dibs.Dibs, place: str) -> None:
    tasks = direct.enqueue_many([dibs.NewTask("charge", {"tenant": "acme"}) for _ in range(5)])

    async def main() -> Together:
        async with dibs.AsyncDibs(place) as app:
            together = declare(app)
            async with app.worker(concurrency=4):
                await asyncio.gather(*[app.wait(task.id, 30) for task in tasks])
            return together

    assert asyncio.run(main()).most == 1
    [settings] = direct.type_settings()
    assert (settings.limits, settings.group_by, settings.source) == (["tenant"], "tenant", "code")


def test_a_worker_stores_queue_settings_and_schedules_before_it_claims(direct: dibs.Dibs, place: str) -> None:
    with dibs.Dibs(place) as app:
        app.queue("mail", fair=True)
        declare(app, schedule="@yearly", group_by=None, limits=[], group="acme")
        worker = app.worker()
        worker.start()
        try:
            assert [(each.queue, each.fair) for each in direct.queue_settings()] == [("mail", True)]
            assert [each.name for each in direct.schedules()] == ["charge"]
        finally:
            worker.stop()


def test_a_worker_whose_key_may_not_declare_logs_it_and_goes_on(
    direct: dibs.Dibs, keyed: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app = keyed("work", "enqueue")
    declare(app)
    task = direct.enqueue("charge", {"tenant": "acme"})
    with app.worker():
        wait_for(direct, [task])
    [record] = [each for each in caplog.records if getattr(each, "event", "") == "declarations.refused"]
    assert record.levelno == logging.ERROR
    assert "app.declare()" in record.getMessage()
    assert (direct.limits(), direct.type_settings()) == ([], [])


def test_a_worker_that_declares_nothing_logs_nothing_about_declarations(
    direct: dibs.Dibs, keyed: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app = keyed("work", "enqueue")
    app.task(lambda: None, name="nothing")
    with app.worker():
        wait_for(direct, [direct.enqueue("nothing")])
    # A worker also logs the recoveries that clients in this process have recorded, those of earlier tests included.
    records = [each for each in caplog.records if getattr(each, "event", "") != "task.recovered"]
    assert [each.getMessage() for each in records if each.levelno >= logging.WARNING] == []


def test_a_worker_whose_key_may_declares(direct: dibs.Dibs, keyed: Any) -> None:
    app = keyed("admin")
    declare(app)
    with app.worker():
        assert [limit.name for limit in direct.limits()] == ["tenant"]
        assert [(each.name, each.source) for each in direct.list_types()] == [("charge", "code")]


def test_a_worker_whose_key_may_not_register_schemas_logs_it_once(
    direct: dibs.Dibs, keyed: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    app = keyed("work", "enqueue")
    for name in ("one", "two"):
        app.task(lambda: None, name=name)
    with app.worker():
        wait_for(direct, [direct.enqueue("one"), direct.enqueue("two")])
    [record] = [each for each in caplog.records if getattr(each, "event", "") == "schemas.refused"]
    assert "register_schemas=False" in record.getMessage()
    assert direct.list_types() == []


def test_a_schema_that_cannot_be_registered_is_logged_and_the_worker_runs(
    direct: dibs.Dibs, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    def wide(**params: int) -> int:
        return len(params)

    with dibs.Dibs(place) as app:
        handler = app.task(wide)
        many = {f"p{number}": {"type": "integer"} for number in range(5000)}
        handler.arguments.schema = lambda: {"properties": many}
        with app.worker():
            assert handler.enqueue(a=1, b=2).wait(30).result == 2
    [record] = [each for each in caplog.records if getattr(each, "event", "") == "declaration.refused"]
    assert "JSON Schema of the task type 'wide'" in record.getMessage()
    assert direct.list_types() == []


def test_a_program_whose_key_may_not_declare_enqueues_with_a_handler_all_the_same(
    direct: dibs.Dibs, keyed: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app = keyed("enqueue")
    declare(app)
    task = app.handlers["charge"].enqueue(tenant="acme")
    app.handlers["charge"].enqueue(tenant="acme")
    assert direct.get(task.id) is not None
    assert [getattr(each, "event", "") for each in caplog.records].count("declarations.refused") == 1
    with pytest.raises(dibs.LimitUnknown, match="a worker that declares it"):
        app.enqueue("other", limits=["tenant"])


def test_a_limit_and_a_schedule_that_were_removed_by_hand_are_not_set_by_the_next_worker(
    direct: dibs.Dibs, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    with dibs.Dibs(place) as app:
        declare(app, schedule="@yearly", group_by=None, limits=["tenant"], group="acme")
        with app.worker():
            pass
        direct.remove_limit("tenant")
        direct.remove_schedule("charge")
        with caplog.at_level(logging.INFO, "dibs.worker"), app.worker():
            wait_for(direct, [direct.enqueue("charge", {"tenant": "acme"})])
    assert (direct.limits(), direct.schedules()) == ([], [])
    events = [getattr(each, "event", "") for each in caplog.records]
    assert (events.count("limit.removed"), events.count("schedule.removed")) == (1, 1)


def test_a_poller_stores_the_declarations_and_obeys_them(direct: dibs.Dibs, place: str) -> None:
    tasks = direct.enqueue_many([dibs.NewTask("charge", {"tenant": "acme"}) for _ in range(3)])
    with dibs.Dibs(place) as app, dibs.Dibs(place) as second:
        declare(app)
        poller = TaskPoller(app, "poller-1", PollerConfig(poll_interval=0.05, max_backoff=0.1))
        seen: list[int] = []

        def callback(task: dibs.Task) -> None:
            assert second.claim("w-2") is None  # the group has its one claim
            seen.append(task.id)
            if len(seen) == len(tasks):
                poller.stop()

        assert poller.poll_loop(callback) == 3
    until(lambda: sorted(seen) == [task.id for task in tasks])
    wait_for(direct, tasks)
