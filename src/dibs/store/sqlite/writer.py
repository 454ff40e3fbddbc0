"""All writes of this process to the SQLite file, committed in groups: many callers, one fsync.

There is one write connection. A caller puts its operation on the list; if nobody leads, it leads: it commits
everything that is on the list, its own operation and those of all who came in the meantime, and hands the lead to
one of those who came too late for that. A lone caller therefore pays no hop to another thread (some 70 µs), and
sixteen callers pay one fsync together. Operations of one kind that can be done at once (enqueues) are: a few statements
for all of them. Event loops never lead: a thread of the writer's own does it for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import random
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from dibs.errors import DibsError, OutcomeUnknown, StoreBusy, StoreError
from dibs.store.contract import StoreClock
from dibs.store.operation import Operation, combine, drive
from dibs.store.sqlite.connection import UNENCODABLE, SqliteExecutor, connect, translate
from dibs.store.sqlite.lock_queue import LockQueue

T = TypeVar("T")
JobResult = tuple[Any] | Exception

GROUP = 512
"""Operations committed together at most, so that the first of them need not wait long."""

BUSY_TIMEOUT = 30.0

OVERTAKES = 4
"""How often in a row a process may take the lock past those who wait in line for it."""

TURN_TIMEOUT = 1.0
"""Seconds to wait in the line of those who want the lock before trying out of turn: the first may be frozen."""


class Closed(Exception):
    """The file was closed before the operation got its turn; it may be opened again."""


Work = Operation[Any] | Callable[[sqlite3.Connection], Any]


class _Job:
    """Work on the list (an operation, or maintenance outside of a transaction) and the thread that waits for it.

    What wakes a thread is the lock's own method: a signal is heard before or after it, never in between.
    """

    __slots__ = ("answer", "by", "lead", "wait", "wake", "work")
    leads_itself = True

    def __init__(self, work: Work, by: str | None = None) -> None:
        self.work = work
        self.by = by
        self.answer: JobResult | None = None
        woken = threading.Lock()
        woken.acquire()
        self.wait: Callable[[], object] = woken.acquire  # until it is answered, or its owner is asked to lead
        self.wake: Callable[[], object] = woken.release  # once, when it has an answer
        self.lead: Callable[[], object] = woken.release  # ask the owner to lead


class _LoopJob(_Job):
    """An operation whose owner is an event loop: the writer's own thread leads for it."""

    __slots__ = ("future", "loop")
    leads_itself = False

    def __init__(self, work: Work, by: str | None, turns: queue.SimpleQueue[bool]) -> None:
        super().__init__(work, by)
        self.lead = partial(turns.put, True)
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()

    def resolve(self) -> None:
        """JobResult it, in its event loop."""
        if self.future.done() or self.answer is None:
            return
        if isinstance(self.answer, Exception):
            self.future.set_exception(self.answer)
        else:
            self.future.set_result(self.answer[0])


class Writer:
    """The one writer of a process."""

    def __init__(
        self, path: Path, clock: StoreClock, on_change: Callable[[], None], in_place: Callable[[], bool]
    ) -> None:
        self._connection = connect(path)
        # The writer waits for the lock itself: SQLite's own handler sleeps longer the longer it has waited, and so
        # lets newcomers overtake (2.2 s in the worst case with ten processes).
        self._connection.execute("PRAGMA busy_timeout = 0")
        self._clock = clock
        self._patience = _Patience()
        self._lock_queue = LockQueue(path)
        self._overtook = 0
        self._on_change = on_change
        self._in_place = in_place
        self._list = threading.Lock()  # guards the four below
        self._jobs: deque[_Job] = deque()
        self._leader: _Job | None = None
        self._closed = False
        self._group: list[_Job] = []  # what the leader has taken off the list
        self._turns: queue.SimpleQueue[bool] = queue.SimpleQueue()  # of the writer's own thread; False: no more
        self._starting = threading.Lock()  # guards the one below
        self._thread: threading.Thread | None = None

    def run(self, operation: Operation[Any], by: str | None = None) -> Any:
        """Commit the operation, with whatever else is on the list, and return the result of its steps."""
        return self._wait_for(_Job(operation, by))

    async def run_async(self, operation: Operation[Any], by: str | None = None) -> Any:
        """`run`, without blocking the event loop."""
        self._start_thread()
        job = _LoopJob(operation, by, self._turns)
        self._enlist(job)
        return await job.future

    def close(self) -> None:
        """Commit what is on the list and let go of the file. Once more does no harm."""
        self._wait_for(_Job(lambda connection: connection.close()), closing=True)
        self._lock_queue.close()
        self._turns.put(False)
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()

    def maintain(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run something on the write connection outside of any transaction (checkpoint, vacuum, close)."""
        result: T = self._wait_for(_Job(work))
        return result

    def _wait_for(self, job: _Job, closing: bool = False) -> Any:
        try:
            if not self._enlist(job, closing):
                job.wait()
            if job.answer is None:
                self._lead(job)
        except BaseException:  # interrupted (Ctrl-C), wherever that was: others must not wait for us
            self._withdraw(job)
            raise
        if isinstance(job.answer, Exception):
            raise job.answer
        assert job.answer is not None
        return job.answer[0]

    def _enlist(self, job: _Job, closing: bool = False) -> bool:
        """Put the job on the list; True if its owner leads now. What comes after the closing job is refused."""
        with self._list:
            if self._closed and not closing:
                raise Closed
            self._closed = closing
            self._jobs.append(job)
            if self._leader is None:
                self._leader = job
                if not job.leads_itself:
                    job.lead()
            return self._leader is job

    def _lead(self, own: _Job | None) -> None:
        """Commit groups until the own job is answered (or the list is empty), then hand the lead on."""
        while self._jobs and (own is None or own.answer is None):
            self._commit_group()
        with self._list:
            self._pass_on_lead()

    def _pass_on_lead(self) -> None:
        self._group = []
        self._leader = self._jobs[0] if self._jobs else None
        if self._leader is not None:
            self._leader.lead()

    def _withdraw(self, job: _Job) -> None:
        """Leave the list, and the lead if it is ours, with whatever we had begun to do for others."""
        if self._leader is job:
            self._roll_back()
            self._lock_queue.leave()
        with self._list:
            if job in self._jobs:
                self._jobs.remove(job)
            if self._leader is job:
                self._abandon_group()
                self._pass_on_lead()

    def _abandon_group(self) -> None:
        if self._group and self._jobs and self._group[-1] is self._jobs[0]:  # it was just being taken
            self._jobs.popleft()
        unanswered = [job for job in self._group if job.answer is None]
        _answer(unanswered, [OutcomeUnknown("The write was interrupted.")] * len(unanswered))
        _tell_loops(self._group)

    def _start_thread(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._lead_for_loops, name="dibs-writer", daemon=True)
                self._thread.start()

    def _lead_for_loops(self) -> None:
        while self._turns.get():
            self._lead(None)
        self._turns.put(False)  # for another one, which an interrupt while we were started may have left

    def _commit_group(self) -> None:
        jobs = self._take_jobs()
        if not jobs:  # the last one has withdrawn
            return
        try:
            answers = self._commit_in_one_transaction(jobs) if len(jobs) > 1 else [self._do_alone(jobs[0])]
            self._check_in_place(jobs)
        except Exception as error:  # the group as a whole failed: everybody in it must know
            self._roll_back()
            answers = [error] * len(jobs)
        if any(map(_woke, jobs, answers)):
            self._on_change()
        _answer(jobs, answers)
        _tell_loops(jobs)

    def _check_in_place(self, jobs: list[_Job]) -> None:
        """What was written is told only if it can be read again. A look costs some microseconds, and the interpreter's
        lock: it is enough that the leader looks, for all."""
        if isinstance(jobs[0].work, Operation) and not self._in_place():
            raise StoreError("What was written went with the file.")

    def _take_jobs(self) -> list[_Job]:
        """The next group: operations that came one after the other, or one piece of maintenance."""
        jobs: list[_Job] = []
        self._group = jobs
        with self._list:
            self._fill(jobs)
        return jobs

    def _fill(self, jobs: list[_Job]) -> None:
        while self._jobs and len(jobs) < GROUP and _goes_with(self._jobs[0], jobs):
            jobs.append(self._jobs[0])
            self._jobs.popleft()

    def _do_alone(self, job: _Job) -> JobResult:
        work = job.work
        try:
            if not isinstance(work, Operation):
                return (work(self._connection),)
            self._begin()
            result = drive(work.begin(), self._executor(job.by))
            self._connection.execute("COMMIT")
        except Exception as error:
            self._roll_back()
            return translate(error) if isinstance(error, (sqlite3.Error, *UNENCODABLE)) else error
        return (result,)

    def _commit_in_one_transaction(self, jobs: list[_Job]) -> Sequence[JobResult]:
        """One transaction for all of them: those that can be done at once are, each other has a savepoint."""
        self._begin()
        answers: dict[_Job, JobResult] = {}
        for alike in _alike(jobs):
            answers.update(zip(alike, self._try_at_once(alike), strict=True))
        try:
            if not self._connection.in_transaction:  # an error (disk full, say) ended it for all
                return [self._do_alone(job) for job in jobs]
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise translate(error) from error
        return [answers[job] for job in jobs]

    def _try_at_once(self, jobs: list[_Job]) -> Sequence[JobResult]:
        """The answers of operations that are alike; one by one where they cannot be done at once."""
        operations = [job.work for job in jobs if isinstance(job.work, Operation)]
        if len(operations) > 1:
            done = self._try_in_savepoint(combine(operations), jobs[0].by)
            if isinstance(done, tuple):
                return [answer if isinstance(answer, Exception) else (answer,) for answer in done[0]]
        return [self._try_in_savepoint(job.work, job.by) for job in jobs]

    def _try_in_savepoint(self, operation: Work, by: str | None) -> JobResult:
        assert isinstance(operation, Operation)
        if not self._connection.in_transaction:
            return DibsError("The transaction ended early.")  # never delivered: see _commit_in_one_transaction
        self._connection.execute("SAVEPOINT operation")
        try:
            result = drive(operation.begin(), self._executor(by))
        except Exception as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK TO operation")
                self._connection.execute("RELEASE operation")
            return translate(error) if isinstance(error, (sqlite3.Error, *UNENCODABLE)) else error
        self._connection.execute("RELEASE operation")
        return (result,)

    def _executor(self, by: str | None) -> SqliteExecutor:
        return SqliteExecutor(self._connection, self._clock(), by)

    def _begin(self) -> None:
        """Take SQLite's lock: now and then past the others, as who runs anyway can, so that it is seldom idle; and in
        between in turn, so that nobody waits for long."""
        started = time.monotonic()
        if self._overtook < OVERTAKES and self._try_to_begin():
            self._overtook += self._lock_queue.used
        else:
            self._overtook = 0
            self._wait_for_lock(started)
        self._patience.learn(time.monotonic() - started)

    def _wait_for_lock(self, started: float) -> None:
        try:
            first = self._lock_queue.wait_turn(TURN_TIMEOUT)
            while not self._try_to_begin():
                waited = time.monotonic() - started
                if waited > BUSY_TIMEOUT:
                    raise StoreBusy(f"The SQLite file has been locked for {waited:.0f} seconds.")
                time.sleep(pause_of_first(waited) if first else self._patience.pause(waited))
        finally:
            self._lock_queue.leave()

    def _try_to_begin(self) -> bool:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise translate(error) from error
            return False
        return True

    def _roll_back(self) -> None:
        with contextlib.suppress(sqlite3.Error):  # the error that brought us here says more
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def _goes_with(job: _Job, group: list[_Job]) -> bool:
    return not group or (isinstance(job.work, Operation) and isinstance(group[0].work, Operation))


def _woke(job: _Job, answer: JobResult) -> bool:
    return isinstance(job.work, Operation) and isinstance(answer, tuple) and job.work.should_wake(answer[0])


def _alike(jobs: list[_Job]) -> Iterable[list[_Job]]:
    """The jobs, with those together that can be done at once: all wait at the same moment, none is before another."""
    groups: dict[Any, list[_Job]] = {}
    for job in jobs:
        work = job.work
        alike = (work.coalesce.key, job.by) if isinstance(work, Operation) and work.coalesce is not None else job
        groups.setdefault(alike, []).append(job)
    return groups.values()


def _answer(jobs: list[_Job], answers: Sequence[JobResult]) -> None:
    for job, answer in zip(jobs, answers, strict=True):
        job.answer = answer
        job.wake()


def _tell_loops(jobs: list[_Job]) -> None:
    loops: dict[asyncio.AbstractEventLoop, list[_LoopJob]] = {}
    for job in jobs:
        if isinstance(job, _LoopJob):
            loops.setdefault(job.loop, []).append(job)
    for loop, those in loops.items():
        with contextlib.suppress(RuntimeError):  # a loop that is gone wants no answer
            loop.call_soon_threadsafe(_resolve, those)  # once for all: it wakes the loop by a system call


def _resolve(jobs: list[_LoopJob]) -> None:
    for job in jobs:
        job.resolve()


def pause_of_first(waited: float) -> float:
    """Seconds until the next try of the first in line, who is the only one that tries: longer where the line is long,
    because the processors are wanted there by the one who has the lock."""
    return random.uniform(0.0001, 0.0004 + min(waited, 1.0) / 100)


class _Patience:
    """How often to try for the lock, where there is no line for it (see line.py) or it does not move.

    The longer somebody has waited, the more often it tries: so the oldest waiter is the likeliest to get the lock next,
    and nobody starves. But the longer everybody waits, the less often all of them try: a wait is as long as there are
    waiters before us, and fifty that each try every millisecond leave no processor to the one who holds the lock.
    """

    def __init__(self) -> None:
        self._usual = 0.0

    def learn(self, waited: float) -> None:
        """It took so long this time."""
        self._usual += (waited - self._usual) * 0.2

    def pause(self, waited: float) -> float:
        """Seconds until the next try."""
        usual = max(self._usual, waited / 4)
        most = min(max(0.005, usual / 10), 0.1)
        return random.uniform(most / 10, max(most / 10, most / (1 + 4 * waited / max(usual, 0.2))))
