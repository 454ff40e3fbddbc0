"""The poller: each task reaches the callback once, and nothing a callback does ends the loop."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import dibs
from dibs import PollerConfig, State, Task, TaskPoller, poller
from dibs.store.postgres import store as postgres_store
from tests.helpers.databases import sqlite_path
from tests.helpers.tasks import events
from tests.helpers.waiting import until

pytestmark = pytest.mark.own_connections

QUICK = PollerConfig(poll_interval=0.05, max_backoff=0.1, lease=1.5)
PATIENT = PollerConfig(poll_interval=3600, max_backoff=3600)


@pytest.fixture
def app(url: str) -> Iterator[dibs.Dibs]:
    with dibs.Dibs(url) as app:
        yield app


class Polling:
    """A poller whose loop runs in a thread."""

    def __init__(self, app: dibs.Dibs, callback: Callable[..., Any], config: PollerConfig = QUICK) -> None:
        self.poller = TaskPoller(app, "poller-1", config)
        self.ran: int | None = None
        self._thread = threading.Thread(target=self._run, args=[callback], daemon=True)

    def _run(self, callback: Callable[..., Any]) -> None:
        self.ran = self.poller.poll_loop(callback)

    def __enter__(self) -> Polling:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.poller.stop()
        self._thread.join(30)
        assert not self._thread.is_alive()


def run_all(app: dibs.Dibs, callback: Callable[..., Any], config: PollerConfig = QUICK) -> int:
    """Poll in this thread until nothing is pending or claimed; how many tasks ran."""
    polling = TaskPoller(app, "poller-1", config)

    def called(task: Task, ctx: dibs.Context) -> Any:
        try:
            return callback(task)
        finally:
            if not app.peek():
                polling.stop()

    return polling.poll_loop(called)


def finished(app: dibs.Dibs, task: Task) -> Task:
    return app.wait(task.id, timeout=20)


# What reaches the callback, and what becomes of it


def test_each_task_reaches_the_callback_once_and_its_return_value_is_the_result(app: dibs.Dibs) -> None:
    tasks = app.enqueue_many([dibs.NewTask("double", {"n": n}) for n in range(20)])
    seen: list[int] = []

    def double(task: Task) -> int:
        seen.append(task.id)
        return 2 * int(task.params["n"])

    assert run_all(app, double) == 20
    assert sorted(seen) == [task.id for task in tasks]
    assert [finished(app, task).result for task in tasks] == [2 * n for n in range(20)]


def test_a_callback_with_two_parameters_is_given_the_context(app: dibs.Dibs) -> None:
    task = app.enqueue("work")

    def callback(task: Task, context: dibs.Context) -> list[int]:
        context.progress(40, "on the way")
        until(lambda: app.get(task.id).progress == 40)  # type: ignore[union-attr]
        return [context.task.id, context.token, context.attempt]

    with Polling(app, callback):
        assert finished(app, task).result == [task.id, 1, 1]


def test_a_second_parameter_with_a_default_is_left_alone(app: dibs.Dibs) -> None:
    task = app.enqueue("work")
    with Polling(app, lambda task, verbose=False: verbose):
        assert finished(app, task).result is False


def test_a_callback_may_be_a_coroutine_function(app: dibs.Dibs) -> None:
    task = app.enqueue("work", {"n": 7})

    async def callback(task: Task) -> Any:
        return task.params["n"]

    with Polling(app, callback):
        assert finished(app, task).result == 7


def test_a_callback_that_cannot_be_called_is_refused_before_anything_is_claimed(app: dibs.Dibs) -> None:
    task = app.enqueue("work")
    with pytest.raises(dibs.InvalidValue, match=r"takes \(\)"):
        TaskPoller(app, "poller-1").poll_loop(lambda: None)
    assert events(app, task.id) == ["enqueued"]


def test_params_may_have_any_names(app: dibs.Dibs) -> None:
    params = {"ctx": 1, "task": 2, "self": 3, "two words": 4}
    task = app.enqueue("work", params)
    with Polling(app, lambda task: task.params):
        assert finished(app, task).result == params


def test_a_failing_callback_fails_its_task_and_not_the_loop(app: dibs.Dibs) -> None:
    bad, good = app.enqueue("bad", max_attempts=1, priority=1), app.enqueue("good")

    def callback(task: Task) -> None:
        if task.type == "bad":
            raise RuntimeError("no luck")

    with Polling(app, callback):
        assert finished(app, good).state is State.COMPLETED
    failed = finished(app, bad)
    assert failed.state is State.FAILED
    assert failed.error is not None
    assert (failed.error.type, failed.error.message) == ("RuntimeError", "no luck")


@pytest.mark.parametrize(
    ("ending", "state", "attempts", "last_events"),
    [
        (dibs.Retry(3600), State.SCHEDULED, 1, ["claimed", "failed"]),
        (dibs.Snooze(3600), State.SCHEDULED, 0, ["claimed", "released"]),
        (dibs.Permanent("hopeless"), State.FAILED, 1, ["claimed", "failed"]),
        (dibs.Cancel("enough"), State.CANCELLED, 0, ["claimed", "cancelled"]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_retry_snooze_permanent_and_cancel_end_a_task_as_in_a_worker(
    app: dibs.Dibs, ending: Exception, state: State, attempts: int, last_events: list[str]
) -> None:
    task = app.enqueue("work")

    def callback(task: Task) -> None:
        raise ending

    assert run_all(app, callback) == 1
    ended = app.get(task.id)
    assert ended is not None
    assert (ended.state, events(app, task.id)[1:]) == (state, last_events)
    if state is not State.CANCELLED:
        assert ended.attempts == attempts


def test_a_result_that_is_not_json_fails_the_task_permanently(app: dibs.Dibs) -> None:
    strange, huge = app.enqueue("work"), app.enqueue("work")
    results = iter([object(), 2**70])
    with Polling(app, lambda task: next(results)):
        assert {finished(app, task).state for task in (strange, huge)} == {State.FAILED}


# Order


def order_of(app: dibs.Dibs, **options: Any) -> list[Any]:
    for name, priority in (("old", 0), ("old high", 1), ("new high", 1), ("new", 0)):
        app.enqueue("work", {"name": name}, priority=priority)
    seen: list[Any] = []
    run_all(app, lambda task: seen.append(task.params["name"]), PollerConfig(**options))
    return seen


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["new high", "old high", "new", "old"]),
        ({"order": "fifo"}, ["old high", "new high", "old", "new"]),
        ({"priority_enabled": False}, ["new", "new high", "old high", "old"]),
        ({"order": "fifo", "priority_enabled": False}, ["old", "old high", "new high", "new"]),
        ({"order": "priority_asc"}, ["old", "new", "old high", "new high"]),
    ],
    ids=str,
)
def test_the_newest_task_of_a_priority_is_claimed_first_by_default(
    app: dibs.Dibs, options: dict[str, Any], expected: list[str]
) -> None:
    assert order_of(app, **options) == expected


def test_only_tasks_of_its_queues_and_types_are_claimed(app: dibs.Dibs) -> None:
    app.enqueue("work", queue="other")
    app.enqueue("play", queue="mine")
    wanted = app.enqueue("work", queue="mine")
    picky = TaskPoller(app, "poller-1", PollerConfig(queues=["mine"], types=["work"]))
    claim = picky.claim_next_task()
    assert claim is not None
    assert (claim.task_id, claim.worker_id) == (wanted.id, "poller-1")
    assert picky.claim_next_task() is None


# Pauses


def test_pauses_between_polls_grow_up_to_the_maximum() -> None:
    config = PollerConfig(poll_interval=4, max_backoff=10, backoff_multiplier=1.5)
    assert [config.pause(looks) for looks in (1, 2, 3, 4, 100_000)] == [4, 6, 9, 10, 10]
    assert PollerConfig().pause(1) == 5
    assert PollerConfig().pause(50) == 60


def test_a_wake_up_ends_a_pause_at_once(app: dibs.Dibs, url: str) -> None:
    with Polling(app, lambda task: None, PATIENT), dibs.Dibs(url) as other:
        for _ in range(3):
            assert finished(app, other.enqueue("work")).state is State.COMPLETED


def test_a_claim_resets_the_backoff(app: dibs.Dibs) -> None:
    with Polling(app, lambda task: polling.poller._empty_claims) as polling:
        until(lambda: polling.poller._empty_claims >= 3)
        assert finished(app, app.enqueue("work")).result == 0
        until(lambda: polling.poller._empty_claims >= 3)


def test_a_delayed_task_does_not_wait_for_the_end_of_a_pause(app: dibs.Dibs) -> None:
    task = app.enqueue("work", delay=0.5)
    with Polling(app, lambda task: None, PATIENT):
        assert finished(app, task).state is State.COMPLETED


# Lease, heartbeat, cancellation, timeout


def test_the_lease_is_renewed_while_the_callback_runs(app: dibs.Dibs) -> None:
    task = app.enqueue("work")

    def callback(task: Task) -> bool:
        def renewed() -> bool:
            held = app.get(task.id)
            assert held is not None
            assert held.lease_until is not None
            assert task.lease_until is not None
            return (held.lease_until - task.lease_until).total_seconds() > QUICK.lease  # longer than one lease

        return until(renewed)

    with Polling(app, callback):
        done = finished(app, task)
    assert (done.state, done.token) == (State.COMPLETED, 1)


def test_heartbeats_are_sent_while_the_callback_runs(app: dibs.Dibs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller, "HEARTBEAT_INTERVAL", 0.05)
    task = app.enqueue("work")

    def callback(task: Task) -> bool:
        [first] = until(app.workers)
        assert (first.id, first.state, first.holds) == ("poller-1", dibs.WorkerState.ACTIVE, [task.id])
        return until(lambda: app.workers()[0].heartbeat_at > first.heartbeat_at)

    with Polling(app, callback):
        assert finished(app, task).state is State.COMPLETED


def test_a_heartbeat_can_be_sent_by_a_call(app: dibs.Dibs) -> None:
    by_hand = TaskPoller(app, "poller-1", PollerConfig(queues=["slow"], types=["work"]))
    by_hand.update_heartbeat()
    [worker] = app.workers()
    assert (worker.id, worker.queues, worker.types) == ("poller-1", ["slow"], ["work"])


def test_a_callback_sees_the_cancel_request_of_its_task(app: dibs.Dibs) -> None:
    task = app.enqueue("work")

    def callback(task: Task, context: dibs.Context) -> None:
        app.cancel(task.id)
        until(lambda: context.cancelled)
        context.raise_if_cancelled()

    with Polling(app, callback):
        assert finished(app, task).state is State.CANCELLED


def test_a_task_fails_at_its_timeout_and_a_later_result_of_the_callback_is_dropped(
    app: dibs.Dibs, caplog: pytest.LogCaptureFixture
) -> None:
    task = app.enqueue("work", timeout=0.1, max_attempts=1)
    other = app.enqueue("work", priority=-1)

    def callback(current: Task) -> str:
        if current.id == task.id:
            finished(app, task)
        return "late"

    with Polling(app, callback):
        assert finished(app, other).state is State.COMPLETED
    failed = finished(app, task)
    assert failed.error is not None
    assert (failed.state, failed.error.type, failed.result) == (State.FAILED, "TimedOut", None)
    assert "its outcome is discarded" in caplog.text


# What does not end the loop


def test_a_lost_claim_does_not_end_the_loop(app: dibs.Dibs, url: str) -> None:
    task, other = app.enqueue("work", priority=1), app.enqueue("work")
    thief = dibs.Dibs(url, clock=lambda: 2**52)  # a clock far ahead: to it every lease is over

    def callback(current: Task) -> str:
        if current.id == task.id:
            thief.recover()
            stolen = thief.claim_by_id(task.id, "thief")
            thief.complete(stolen, "stolen")
        return "kept"

    with Polling(app, callback):
        assert finished(app, other).result == "kept"
    assert finished(app, task).result == "stolen"
    thief.close()


@contextlib.contextmanager
def outage(app: dibs.Dibs, url: str, server: str | None) -> Iterator[None]:
    """The database cannot be reached inside the block."""
    if server is None:
        path = Path(sqlite_path(url))
        app.close()  # which leaves everything in one file
        away = path.rename(path.with_suffix(".away"))
        path.mkdir()
        try:
            yield
        finally:
            path.rmdir()
            away.rename(path)
        return
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        try:
            yield
        finally:
            admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true".encode())


def test_an_outage_does_not_end_the_loop_and_the_outcome_is_written_after_it(
    app: dibs.Dibs,
    url: str,
    engine: str,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(postgres_store, "POOL_TIMEOUT", 0.5)  # instead of half a minute
    caplog.set_level(logging.INFO, "dibs.worker")
    server = request.getfixturevalue("postgres_server") if engine == "postgres" else None
    task = app.enqueue("work")
    began, go_on = threading.Event(), threading.Event()

    def callback(task: Task) -> str:
        began.set()
        assert go_on.wait(20)
        return "done"

    config = PollerConfig(poll_interval=0.05, max_backoff=0.1, lease=60)
    with Polling(app, callback, config):
        assert began.wait(20)
        with outage(app, url, server):
            go_on.set()
            until(lambda: "the store does not answer" in caplog.text, timeout=40)
        until(lambda: "the store answers again" in caplog.text, timeout=40)
        done = finished(app, task)
        assert (done.result, done.token) == ("done", 1)
        assert finished(app, app.enqueue("work")).result == "done"


# Stopping


def test_stop_lets_the_current_task_finish_and_claims_no_other(app: dibs.Dibs) -> None:
    first, second = app.enqueue("work", priority=1), app.enqueue("work")
    stopping = TaskPoller(app, "poller-1", QUICK)

    def callback(task: Task) -> str:
        stopping.stop()
        return "ended"

    assert stopping.poll_loop(callback) == 1
    assert finished(app, first).result == "ended"
    assert events(app, second.id) == ["enqueued"]


def test_stop_ends_a_long_pause(app: dibs.Dibs) -> None:
    with Polling(app, lambda task: None, PATIENT) as polling:
        until(app.workers)
    assert polling.ran == 0


def test_a_poller_that_was_stopped_before_it_started_runs_nothing(app: dibs.Dibs) -> None:
    app.enqueue("work")
    stopped = TaskPoller(app, "poller-1", QUICK)
    stopped.stop()
    assert stopped.poll_loop(lambda task: None) == 0


def test_a_poller_that_ends_reports_that_it_left(app: dibs.Dibs) -> None:
    app.enqueue("work")
    run_all(app, lambda task: None)
    assert [(worker.id, worker.state) for worker in app.workers()] == [("poller-1", dibs.WorkerState.GONE)]


def test_an_interrupted_callback_releases_its_task(app: dibs.Dibs) -> None:
    task = app.enqueue("work")

    def callback(task: Task) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TaskPoller(app, "poller-1", QUICK).poll_loop(callback)
    released = app.get(task.id)
    assert released is not None
    assert (released.state, released.attempts) == (State.PENDING, 0)
    assert app.workers()[0].state is dibs.WorkerState.GONE


PROGRAM = """
import signal, sys, dibs
poller = dibs.TaskPoller(dibs.Dibs(sys.argv[1]), "poller-1")
signal.signal(signal.SIGTERM, lambda number, frame: poller.stop())
print("ran", poller.poll_loop(lambda task: print("task", task.id, flush=True)))
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGTERM")
def test_a_signal_handler_may_stop_a_poller(app: dibs.Dibs, url: str) -> None:
    task = app.enqueue("work")
    command = [sys.executable, "-W", "error", "-c", PROGRAM, url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == f"task {task.id}\n"
        program.send_signal(signal.SIGTERM)
        assert program.communicate(timeout=30)[0] == "ran 1\n"
    assert program.returncode == 0
    assert finished(app, task).state is State.COMPLETED


# What is refused


@pytest.mark.parametrize(
    "options",
    [
        {"order": "newest"},
        {"poll_interval": 0},
        {"poll_interval": "5"},
        {"poll_interval": 90},
        {"max_backoff": 1},
        {"backoff_multiplier": 0.5},
        {"backoff_multiplier": float("nan")},
        {"backoff_multiplier": True},
        {"priority_enabled": 1},
        {"queues": "default"},
        {"types": []},
        {"lease": 0.1},
    ],
    ids=str,
)
def test_an_invalid_option_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(dibs.InvalidValue):
        PollerConfig(**options)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="interval"):
        PollerConfig(interval=5)  # type: ignore[call-arg]


def test_an_invalid_worker_id_is_refused(app: dibs.Dibs) -> None:
    with pytest.raises(dibs.InvalidValue, match="worker id"):
        TaskPoller(app, "poller 1")
