"""All writes of this process to the SQLite file, committed in groups: many callers, one fsync.

There is one write connection. A caller puts its operation on the list and waits for its turn at the connection; the
one whose turn comes commits everything that is on the list by then, its own and that of all who queued up behind the
previous fsync. A lone caller therefore pays no hop to another thread, and sixteen callers pay one fsync together.
Event loops never wait here: their operations are committed by a thread of the writer's own.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from dibs.errors import DibsError, OutcomeUnknown, StoreBusy
from dibs.store.operation import Operation, drive
from dibs.store.sqlite.connection import Clock, Executor, connect, translate

T = TypeVar("T")
Answer = tuple[Any] | Exception
Job = tuple[Operation[Any], "Future[Any]"]

GROUP = 512
"""Operations committed together at most, so that the first of them need not wait long."""

BUSY_TIMEOUT = 30.0


class Writer:
    """The one writer of a process."""

    def __init__(self, path: Path, clock: Clock, on_change: Callable[[], None]) -> None:
        self._connection = connect(path)
        self._clock = clock
        self._on_change = on_change
        self._jobs: deque[Job] = deque()
        self._turn = threading.Lock()
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    def run(self, operation: Operation[T]) -> T:
        """Commit the operation, with whatever else is waiting, and return its result."""
        future: Future[T] = Future()
        self._jobs.append((operation, future))
        with self._turn:
            while not future.done():
                self._commit_group()
        return future.result()

    async def run_async(self, operation: Operation[T]) -> T:
        """`run`, without blocking the event loop."""
        future: Future[T] = Future()
        self._jobs.append((operation, future))
        self._start_thread()
        self._wanted.set()
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Commit what is waiting and let go of the file."""
        self._closed = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()
        with self._turn:
            while self._jobs:
                self._commit_group()
            self._connection.close()

    def maintain(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run something on the write connection outside of any transaction (checkpoint, vacuum, optimize)."""
        with self._turn:
            try:
                return work(self._connection)
            except sqlite3.Error as error:
                raise translate(error) from error

    def _start_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve_loops, name="dibs-writer", daemon=True)
            self._thread.start()

    def _serve_loops(self) -> None:
        while not self._closed:
            self._wanted.wait()
            self._wanted.clear()
            while self._jobs:
                with self._turn:
                    self._commit_group()

    def _commit_group(self) -> None:
        jobs = self._take_jobs()
        if not jobs:
            return
        try:
            answers = self._commit_together(jobs) if len(jobs) > 1 else [self._commit_alone(jobs[0][0])]
        except BaseException as error:  # the group as a whole failed (or was interrupted): everybody in it must know
            self._roll_back()
            failure = error if isinstance(error, Exception) else OutcomeUnknown("The write was interrupted.")
            _deliver(jobs, [failure] * len(jobs))
            if failure is not error:
                raise
            return
        if any(operation.wakes for operation, _ in jobs):
            self._on_change()
        _deliver(jobs, answers)

    def _take_jobs(self) -> list[Job]:
        jobs: list[Job] = []
        while self._jobs and len(jobs) < GROUP:
            job = self._jobs.popleft()
            if job[1].set_running_or_notify_cancel():
                jobs.append(job)
        return jobs

    def _commit_alone(self, operation: Operation[Any]) -> Answer:
        try:
            self._begin()
            result = drive(operation.begin(), self._executor(operation))
            self._connection.execute("COMMIT")
        except Exception as error:
            self._roll_back()
            return translate(error) if isinstance(error, sqlite3.Error) else error
        return (result,)

    def _commit_together(self, jobs: list[Job]) -> list[Answer]:
        self._begin()
        answers = [self._try_in_savepoint(operation) for operation, _ in jobs]
        try:
            if not self._connection.in_transaction:  # an error (disk full, say) ended it for all
                return [self._commit_alone(operation) for operation, _ in jobs]
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise translate(error) from error
        return answers

    def _try_in_savepoint(self, operation: Operation[Any]) -> Answer:
        if not self._connection.in_transaction:
            return DibsError("The transaction ended early.")  # never delivered: see _commit_together
        self._connection.execute("SAVEPOINT operation")
        try:
            result = drive(operation.begin(), self._executor(operation))
        except Exception as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK TO operation")
                self._connection.execute("RELEASE operation")
            return translate(error) if isinstance(error, sqlite3.Error) else error
        self._connection.execute("RELEASE operation")
        return (result,)

    def _executor(self, operation: Operation[Any]) -> Executor:
        return Executor(self._connection, self._clock(), operation.by)

    def _begin(self) -> None:
        started = time.monotonic()
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not isinstance(translate(error), StoreBusy):
                    raise translate(error) from error
                waited = time.monotonic() - started
                if waited > BUSY_TIMEOUT:
                    raise StoreBusy(f"The SQLite file has been locked for {waited:.0f} seconds.") from None
            time.sleep(_pause(waited))

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def _deliver(jobs: list[Job], answers: Sequence[Answer]) -> None:
    for (_, future), answer in zip(jobs, answers, strict=True):
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer[0])


def _pause(waited: float) -> float:
    """Seconds until the next try. The longer somebody has waited, the more often it tries: so the oldest waiter is
    the likeliest to get the lock next, and nobody starves."""
    return random.uniform(0.0002, 0.003 / (1 + waited * 20))
