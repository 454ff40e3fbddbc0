"""The queue of processes that wait for SQLite's lock: in order if it moves, and without effect if it is stuck."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import dibs
from dibs.errors import StoreBusy
from dibs.store.sqlite import writer
from dibs.store.sqlite.lock_queue import LockQueue
from tests.helpers.waiting import until

LONG = 30.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


@pytest.fixture
def line(path: Path) -> Iterator[LockQueue]:
    with closing(LockQueue(path)) as line:
        yield line


@contextmanager
def frozen_first(path: Path) -> Iterator[None]:
    """Another process is first in the lock queue and does not leave."""
    file = os.open(f"{path}-line", os.O_RDONLY | os.O_CREAT)
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(file)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another connection has SQLite's lock."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


def test_waiters_of_the_lock_queue_become_first_in_order(path: Path) -> None:
    lines = [LockQueue(path) for _ in range(5)]
    order: list[int] = []

    def wait_turn(number: int) -> None:
        assert lines[number].wait_turn(LONG)
        order.append(number)
        lines[number].leave()

    assert lines[0].wait_turn(0)
    with ThreadPoolExecutor(len(lines)) as pool:
        others = [pool.submit(wait_turn, number) for number in range(1, len(lines))]
        until(lambda: all(each._waiting for each in lines[1:]), 30)
        assert order == []
        lines[0].leave()
        for other in others:
            other.result(LONG)
    assert sorted(order) == [1, 2, 3, 4]
    for each in lines:
        each.close()


def test_a_waiter_that_gave_up_does_not_hold_up_the_lock_queue(path: Path, line: LockQueue) -> None:
    with frozen_first(path):
        assert not line.wait_turn(0.01)
        line.leave()
        assert not line.wait_turn(LONG)  # at once: its thread still stands there
    until(lambda: not line._waiting, 30)
    with closing(LockQueue(path)) as another:
        assert another.wait_turn(LONG)
        another.leave()
    assert line.wait_turn(LONG)


def test_leaving_the_lock_queue_without_being_first_changes_nothing(path: Path, line: LockQueue) -> None:
    assert line.wait_turn(0)
    with closing(LockQueue(path)) as another:
        assert not another.wait_turn(0.01)
        another.leave()
        with closing(LockQueue(path)) as third:
            assert not third.wait_turn(0.01)


def test_closing_a_lock_queue_lets_the_next_waiter_be_first(path: Path, line: LockQueue) -> None:
    first = LockQueue(path)
    assert first.wait_turn(0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(line.wait_turn, LONG)
        until(lambda: line._waiting, 30)
        first.close()
        assert waiting.result(LONG)


def test_a_closed_lock_queue_cannot_be_waited_in(line: LockQueue) -> None:
    line.close()
    assert not line.wait_turn(LONG)
    line.leave()
    line.close()


def test_a_frozen_first_waiter_costs_the_others_their_order_and_nothing_else(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "TURN_TIMEOUT", 0.05)
    with dibs.Dibs(f"sqlite:///{path}") as app:
        app.enqueue("t")
        with frozen_first(path), ThreadPoolExecutor(1) as pool:
            with locked(path):
                waiting = pool.submit(app.enqueue, "t")
                until(lambda: thread_named("dibs-line"), 30)
            assert waiting.result(LONG).id == 2
            for _ in range(10):
                app.enqueue("t")
        assert len(app.list_tasks()) == 12


def test_a_writer_that_never_waits_creates_no_lock_queue_file(path: Path) -> None:
    with dibs.Dibs(f"sqlite:///{path}") as app:
        for _ in range(3 * writer.OVERTAKES):
            app.enqueue("t")
        assert not Path(f"{path}-line").exists()


def test_without_a_lock_queue_file_writers_try_out_of_order(path: Path) -> None:
    Path(f"{path}-line").mkdir()
    with dibs.Dibs(f"sqlite:///{path}") as app, ThreadPoolExecutor(1) as pool:
        app.enqueue("t")
        with locked(path):
            waiting = pool.submit(app.enqueue, "t")
        assert waiting.result(LONG).id == 2


def test_a_writer_that_gives_up_leaves_the_lock_queue(
    path: Path, line: LockQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BUSY_TIMEOUT", 0.05)
    with dibs.Dibs(f"sqlite:///{path}") as app:
        app.enqueue("t")
        with locked(path), pytest.raises(StoreBusy):
            app.enqueue("t")
        assert line.wait_turn(0)


def thread_named(name: str) -> bool:
    return any(thread.name == name for thread in threading.enumerate())
