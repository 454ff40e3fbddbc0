"""A call that is interrupted (Ctrl-C) at any point leaves a store that works and can be closed."""

from __future__ import annotations

import gc
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLate
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.store.coalesce import Coalescer
from dibs.store.operation import Coalesce, Operation, drive
from dibs.store.postgres.wakeups import PostgresWakeups
from dibs.store.sqlite import writer
from dibs.store.sqlite.connection import clock
from dibs.store.sqlite.database_file import create
from dibs.store.sqlite.lock_queue import LockQueue
from dibs.store.sqlite.writer import Writer
from tests.helpers.forking import open_files
from tests.helpers.interrupting import interrupt_everywhere
from tests.helpers.waiting import until

PATIENCE = 10.0

# A connection that was being opened or taken when the interrupt came is closed when no reference to it is left.
pytestmark = [
    pytest.mark.own_connections,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


@pytest.fixture
def app(path: Path) -> dibs.Dibs:
    return dibs.Dibs(f"sqlite:///{path}")


@pytest.fixture
def check(app: dibs.Dibs) -> Iterator[Callable[[KeyboardInterrupt], None]]:
    """Has another thread use the store and close it, which must not wait for ever."""
    others = ThreadPoolExecutor(8)

    def check(interrupt: KeyboardInterrupt) -> None:
        try:
            for _ in range(5):  # more than there are readers
                others.submit(get, app).result(PATIENCE)
            others.submit(enqueue, app).result(PATIENCE)
            others.submit(app.close).result(PATIENCE)  # while a traceback still refers to its frames
        except TooLate:
            pytest.fail(f"Nothing goes on after an interrupt in {interrupt}.")
        app.get(1)  # opens the file, and with it a reader

    yield check
    others.shutdown(wait=False)
    gc.collect()


def get(app: dibs.Dibs) -> None:
    app.get(1)


def enqueue(app: dibs.Dibs) -> None:
    app.enqueue("resize")


def enqueue_in_vain(app: dibs.Dibs) -> None:
    with suppress(dibs.StoreBusy):
        app.enqueue("resize")


@pytest.mark.parametrize("call", [get, enqueue])
def test_an_interrupted_call_blocks_no_other_call(
    app: dibs.Dibs, check: Callable[[KeyboardInterrupt], None], call: Callable[[dibs.Dibs], None]
) -> None:
    call(app)  # all imports and files that it needs are loaded from now on
    places = 0
    for interrupt in interrupt_everywhere(lambda: call(app)):
        check(interrupt)
        places += 1
    assert places > 20


def test_a_call_interrupted_while_opening_the_file_blocks_no_other_call(
    app: dibs.Dibs, check: Callable[[KeyboardInterrupt], None]
) -> None:
    get(app)
    for interrupt in interrupt_everywhere(lambda: get(app), before=app.close):
        check(interrupt)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_an_interrupted_close_can_be_repeated_and_closes_the_file(app: dibs.Dibs, path: Path) -> None:
    for interrupt in interrupt_everywhere(app.close, before=lambda: (get(app), enqueue(app))):
        app.close()
        assert not [name for name in open_files() if str(path) in name], interrupt


def test_a_call_interrupted_while_waiting_for_the_lock_blocks_no_other_call(
    app: dibs.Dibs, path: Path, check: Callable[[KeyboardInterrupt], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue(app)
    places = 0
    with closing(sqlite3.connect(path, isolation_level=None)) as other:

        def lock() -> None:
            if not other.in_transaction:
                other.execute("BEGIN IMMEDIATE")
            monkeypatch.setattr(writer, "BUSY_TIMEOUT", 0.0)

        for interrupt in interrupt_everywhere(lambda: enqueue_in_vain(app), before=lock):
            other.execute("ROLLBACK")
            monkeypatch.undo()
            check(interrupt)
            places += 1
    assert places > 20


def test_a_call_interrupted_in_the_lock_queue_does_not_hold_up_other_calls(path: Path) -> None:
    """Its place comes up when it does not want it any more."""
    lines: list[LockQueue] = []

    def before() -> None:
        for line in lines:
            line.close()
        lines[:] = [LockQueue(path), LockQueue(path)]
        assert lines[0].wait_turn(PATIENCE)
        lines[1].wait_turn(0)  # so that its thread is there: Python's own way to start one knows nothing of interrupts
        for line in lines:
            line.leave()
        until(lambda: not lines[1]._waiting)
        assert lines[0].wait_turn(PATIENCE)

    def wait_turn() -> None:
        try:
            lines[1].wait_turn(0.01)
            lines[1].leave()
        except BaseException:  # as the writer does
            lines[1].leave()
            raise

    for interrupt in interrupt_everywhere(wait_turn, before):
        lines[0].close()
        with closing(LockQueue(path)) as other:
            assert other.wait_turn(PATIENCE), interrupt


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_call_interrupted_while_sending_a_wake_up_does_not_prevent_later_wake_ups(url: str) -> None:
    with closing(PostgresWakeups(url)) as wakeups, ThreadPoolExecutor(1) as other:
        wakeups.wrote()
        for interrupt in interrupt_everywhere(wakeups.wrote):
            seen = wakeups.generation
            other.submit(wakeups.wrote).result(PATIENCE)
            assert wakeups.generation > seen, interrupt


# A thread that works for others is interrupted


class Crowd:
    """A busy thread, a waiting thread that may be interrupted, and later threads that rely on the waiting one."""

    def __init__(self, be_busy: Callable[[Callable[[], object]], object], call: Callable[[], object]) -> None:
        self._be_busy = be_busy
        self._call = call
        self._pool = ThreadPoolExecutor(4)
        self.waiting: Callable[[], int]

    def gather(self) -> None:
        """Begin to be busy; once a thread waits for that, others start as well, and then the busy time ends."""
        began, go = threading.Event(), threading.Event()
        self.given_up = threading.Event()
        self._busy = self._pool.submit(self._be_busy, lambda: (began.set(), go.wait()))
        assert began.wait(PATIENCE)
        self._come = self._pool.submit(self._come_behind, go)

    def all_end(self) -> bool:
        """True if no thread waits forever, and every call is done or its outcome is unknown."""
        self.given_up.set()
        try:
            errors = {type(one.exception(PATIENCE)) for one in (self._busy, *self._come.result(PATIENCE))}
        except TooLate:
            return False
        return errors <= {type(None), dibs.OutcomeUnknown}

    def _come_behind(self, go: threading.Event) -> list[Future[object]]:
        self._spin_until(lambda: self.waiting() == 1 or self.given_up.is_set())
        there = self.waiting()
        others = [self._pool.submit(self._call) for _ in range(2)]
        self._spin_until(lambda: self.waiting() >= there + 2 or self.given_up.is_set())
        go.set()
        return others

    def _spin_until(self, look: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not look() and time.monotonic() < deadline:
            time.sleep(0.0002)


def assert_nobody_waits_for_ever(crowd: Crowd, call: Callable[[], object]) -> None:
    places = 0
    for interrupt in interrupt_everywhere(call, before=crowd.gather):
        assert crowd.all_end(), f"after an interrupt in {interrupt}"
        places += 1
    assert crowd.all_end()
    assert places > 20


def test_callers_whose_writes_an_interrupted_thread_should_have_committed_get_a_reply(
    app: dibs.Dibs, path: Path
) -> None:
    enqueue(app)
    create(path)
    with closing(Writer(path, clock, lambda: None, lambda: True)) as lone:
        crowd = Crowd(lambda work: lone.maintain(lambda _: work()), lambda: lone.run(an_operation()))
        crowd.waiting = lambda: len(lone._jobs)
        assert_nobody_waits_for_ever(crowd, lambda: lone.run(an_operation()))


def test_callers_whose_enqueues_an_interrupted_thread_should_have_sent_get_a_reply() -> None:
    coalescer: Coalescer[str, int, int] = Coalescer()

    def be_busy(work: Callable[[], object]) -> object:
        return coalescer.run("key", 0, lambda *_: [work()])

    def call() -> object:
        return coalescer.run("key", 0, send)

    crowd = Crowd(be_busy, call)
    crowd.waiting = lambda: sum(len(queue.waiting) for queue in coalescer._queues.values())
    assert_nobody_waits_for_ever(crowd, call)


def an_operation() -> Operation[Any]:
    return Operation("nothing", partial(each, [0]), wakes=True, request=0, coalesce=Coalesce(each, each))


def each(items: Sequence[Any]) -> Generator[Any, Any, Sequence[Any]]:
    yield from ()
    return items


def send(key: str, items: Sequence[int]) -> Sequence[int]:
    return drive(each(items), lambda _: None)
