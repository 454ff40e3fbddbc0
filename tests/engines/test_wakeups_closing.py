"""Closing a store while one of its threads is being started, or cannot be started."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

import dibs
from dibs.store.postgres.wakeups import PostgresWakeups
from dibs.store.remote.address import Address
from dibs.store.remote.wakeups import RemoteWakeups
from dibs.store.sqlite.wakeups import SqliteWakeups
from dibs.store.wakeups import Wakeups
from dibs.worker.service import ServiceThread
from tests.helpers.waiting import until

pytestmark = pytest.mark.own_connections

AWAY = "postgresql://me@127.0.0.1:1/nothing"

MAKERS: dict[str, Callable[[Path], Wakeups]] = {
    "sqlite": lambda folder: SqliteWakeups(folder / "dibs.db"),
    "postgres": lambda folder: PostgresWakeups(AWAY),
    "remote": lambda folder: RemoteWakeups(Address("http://127.0.0.1:1", None)),
}


class Gate:
    """Lets threads with this name be started only when it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        start = threading.Thread.start

        def start_later(thread: threading.Thread) -> None:
            if thread.name == name:
                self.reached.set()
                assert self.opened.wait(20)
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_later)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


def close_while_it_starts(gate: Gate, starting: Future[None], close: Callable[[], object]) -> None:
    """Closing has begun when the thread is let start."""
    assert gate.reached.wait(20)
    with ThreadPoolExecutor(1) as closer:
        ended = closer.submit(close)
        with pytest.raises(TimeoutError):
            ended.result(0.3)
        gate.opened.set()
        ended.result(20)
    starting.result(20)


@pytest.fixture(autouse=True)
def before() -> Iterator[None]:
    """Threads that the test process has already are none of the test's."""
    OTHERS.update(threading.enumerate())
    yield
    OTHERS.clear()


OTHERS: set[threading.Thread] = set()


def running(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name and thread not in OTHERS]


def test_closing_waits_for_the_notifier_that_is_being_started(
    monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    gate, wakeups = Gate(monkeypatch, "dibs-notifier"), PostgresWakeups(AWAY)
    close_while_it_starts(gate, pool.submit(wakeups.wrote), wakeups.close)
    assert not running("dibs-notifier")


@pytest.mark.parametrize("kind", MAKERS)
def test_closing_waits_for_the_watcher_that_is_being_started(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    gate, wakeups = Gate(monkeypatch, "dibs-wakeups"), MAKERS[kind](tmp_path)
    close_while_it_starts(gate, pool.submit(wakeups.wait, wakeups.generation, 20), wakeups.close)
    until(lambda: not running("dibs-wakeups"))


def test_no_thread_is_started_after_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    started, start = [], threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda thread: (started.append(thread.name), start(thread)))
    wakeups = PostgresWakeups(AWAY)
    wakeups.close()
    wakeups.wrote()
    wakeups.wait(wakeups.generation, 0.01)
    assert started == []


def test_a_service_thread_of_a_worker_can_be_ended_while_it_is_being_started(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nap(ServiceThread):
        def step(self) -> None:
            self._ending.wait(30)

        def wake(self) -> None:
            pass

    part, entered, go_on = Nap(), threading.Event(), threading.Event()
    set_ident = threading.Thread._set_ident  # type: ignore[attr-defined]

    def pause_after_ident(thread: threading.Thread) -> None:
        set_ident(thread)
        if thread.name == "dibs-service":
            entered.set()
            go_on.wait(20)

    monkeypatch.setattr(threading.Thread, "_set_ident", pause_after_ident)
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(part.start)
        assert entered.wait(20)
        part.end(5)
        go_on.set()
        starting.result(20)
    until(lambda: not part.alive)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
def test_a_write_succeeds_although_the_notifier_thread_cannot_be_started(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of the interpreter, or where a process may have no more threads: what was written is written."""
    with closing(dibs.Dibs(url)) as app:
        app.stats()
        start = threading.Thread.start

        def start_if_possible(thread: threading.Thread) -> None:
            if thread.name in ("dibs-notifier", "dibs-wakeups"):
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_if_possible)
        task = app.enqueue("t")
        claim = app.claim("w", wait=0.1)
        assert claim is not None
        assert claim.task_id == task.id
        assert app.claim("w", wait=0.1) is None
