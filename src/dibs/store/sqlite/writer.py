"""The writer: commits all writes of this process to the SQLite file, in groups. Many callers share one fsync.

There is one write connection. A caller puts its operation on the list of the writer. If no caller leads, it becomes the
leader: it commits all operations on the list, including those that arrive meanwhile, until its own is committed, and
then hands the lead to the first caller that still waits. So a lone caller needs no switch to another thread (70 µs),
and sixteen callers share one fsync. Operations that can be coalesced (enqueues) are combined: a few statements for all
of them. Event loops never lead: a thread of the writer leads for them.
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
"""The largest number of operations in one transaction, so that the first does not wait long for the last."""

BUSY_TIMEOUT = 30.0
"""Seconds to wait for the lock of the file before StoreBusy is raised."""

OVERTAKES = 4
"""How often in a row a process may take the lock ahead of the processes in the lock queue."""

TURN_TIMEOUT = 1.0
"""Seconds to wait in the lock queue before trying without a turn: the first process may be frozen."""


class Closed(Exception):
    """The file was closed before the operation got its turn; it may be opened again."""


Work = Operation[Any] | Callable[[sqlite3.Connection], Any]


class _Job:
    """Work on the list (an operation, or maintenance outside of a transaction) and the thread that waits for it.

    `wake` is the lock's own method, which is C code: a signal is handled before or after it, never in between.
    """

    __slots__ = ("answer", "by", "lead", "wait", "wake", "work")
    leads_itself = True

    def __init__(self, work: Work, by: str | None = None) -> None:
        self.work = work
        self.by = by
        self.answer: JobResult | None = None
        woken = threading.Lock()
        woken.acquire()
        self.wait: Callable[[], object] = woken.acquire  # until there is a result, or it is the owner's turn to lead
        self.wake: Callable[[], object] = woken.release  # once, when there is a result
        self.lead: Callable[[], object] = woken.release  # let the owner lead


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
        """Deliver the result, in the event loop of the owner."""
        if self.future.done() or self.answer is None:
            return
        if isinstance(self.answer, Exception):
            self.future.set_exception(self.answer)
        else:
            self.future.set_result(self.answer[0])


class Writer:
    """The only writer of a process. `on_change`: called after a commit that may have made tasks claimable. `in_place`:
    False if the file was deleted or replaced."""

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
        self._jobs_lock = threading.Lock()  # guards the next four attributes
        self._jobs: deque[_Job] = deque()
        self._leader: _Job | None = None
        self._closed = False
        self._group: list[_Job] = []  # what the leader has taken off the list
        self._turns: queue.SimpleQueue[bool] = queue.SimpleQueue()  # for the writer's own thread; False ends it
        self._thread_lock = threading.Lock()  # guards the next attribute
        self._thread: threading.Thread | None = None

    def run(self, operation: Operation[Any], by: str | None = None) -> Any:
        """Commit the operation, in a group with others, and return the result of its statements."""
        return self._wait_for(_Job(operation, by))

    async def run_async(self, operation: Operation[Any], by: str | None = None) -> Any:
        """`run`, without blocking the event loop."""
        self._start_thread()
        job = _LoopJob(operation, by, self._turns)
        self._enlist(job)
        return await job.future

    def close(self) -> None:
        """Commit the operations on the list and close the file. A second call has no effect."""
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
        except BaseException:  # an interrupt (Ctrl-C) at any instruction: other callers must not wait for this one
            self._withdraw(job)
            raise
        if isinstance(job.answer, Exception):
            raise job.answer
        assert job.answer is not None
        return job.answer[0]

    def _enlist(self, job: _Job, closing: bool = False) -> bool:
        """Put the job on the list; True if its owner leads now. Jobs after the closing job are refused."""
        with self._jobs_lock:
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
        """Commit groups until the own job has a result (or the list is empty), then hand the lead on."""
        while self._jobs and (own is None or own.answer is None):
            self._commit_group()
        with self._jobs_lock:
            self._pass_on_lead()

    def _pass_on_lead(self) -> None:
        self._group = []
        self._leader = self._jobs[0] if self._jobs else None
        if self._leader is not None:
            self._leader.lead()

    def _withdraw(self, job: _Job) -> None:
        """Remove the job from the list. If its owner leads, roll back, answer the jobs of its group and hand the lead
        on."""
        if self._leader is job:
            self._roll_back()
            self._lock_queue.leave()
        with self._jobs_lock:
            if job in self._jobs:
                self._jobs.remove(job)
            if self._leader is job:
                self._abandon_group()
                self._pass_on_lead()

    def _abandon_group(self) -> None:
        """Answer the jobs of the group that the interrupted leader had taken."""
        if self._group and self._jobs and self._group[-1] is self._jobs[0]:
            self._jobs.popleft()  # the interrupt came between the two lines of `_fill` that move a job
        unanswered = [job for job in self._group if job.answer is None]
        _answer(unanswered, [OutcomeUnknown("The write was interrupted.")] * len(unanswered))
        _resolve_in_loops(self._group)

    def _start_thread(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        with self._thread_lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._lead_for_loops, name="dibs-writer", daemon=True)
                self._thread.start()

    def _lead_for_loops(self) -> None:
        while self._turns.get():
            self._lead(None)
        self._turns.put(False)  # ends a second thread that an interrupted start may have left

    def _commit_group(self) -> None:
        jobs = self._take_jobs()
        if not jobs:  # the last one has withdrawn
            return
        try:
            answers = self._commit_jobs(jobs) if len(jobs) > 1 else [self._run_alone(jobs[0])]
            self._check_in_place(jobs)
        except Exception as error:  # the group failed as a whole: it is the error of every job
            self._roll_back()
            answers = [error] * len(jobs)
        if any(map(_wakes, jobs, answers)):
            self._on_change()
        _answer(jobs, answers)
        _resolve_in_loops(jobs)

    def _check_in_place(self, jobs: list[_Job]) -> None:
        """Raise StoreError if the file was deleted or replaced: a write is acknowledged only if it can be read again.
        The check costs some microseconds and the interpreter's lock, so the leader does it for the whole group."""
        if isinstance(jobs[0].work, Operation) and not self._in_place():
            raise StoreError("The file was deleted or replaced during the write.")

    def _take_jobs(self) -> list[_Job]:
        """The next group: consecutive operations, or one piece of maintenance."""
        jobs: list[_Job] = []
        self._group = jobs
        with self._jobs_lock:
            self._fill(jobs)
        return jobs

    def _fill(self, jobs: list[_Job]) -> None:
        while self._jobs and len(jobs) < GROUP and _fits_group(self._jobs[0], jobs):
            jobs.append(self._jobs[0])
            self._jobs.popleft()

    def _run_alone(self, job: _Job) -> JobResult:
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

    def _commit_jobs(self, jobs: list[_Job]) -> Sequence[JobResult]:
        """Run the jobs in one transaction. Operations that can be coalesced are combined, the others have a savepoint
        each."""
        self._begin()
        answers: dict[_Job, JobResult] = {}
        for alike in _by_kind(jobs):
            answers.update(zip(alike, self._try_combined(alike), strict=True))
        try:
            if not self._connection.in_transaction:  # an error, for example a full disk, ended it for all jobs
                return [self._run_alone(job) for job in jobs]
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise translate(error) from error
        return [answers[job] for job in jobs]

    def _try_combined(self, jobs: list[_Job]) -> Sequence[JobResult]:
        """The results of operations of one kind; one by one if they cannot be combined."""
        operations = [job.work for job in jobs if isinstance(job.work, Operation)]
        if len(operations) > 1:
            done = self._try_in_savepoint(combine(operations), jobs[0].by)
            if isinstance(done, tuple):
                return [answer if isinstance(answer, Exception) else (answer,) for answer in done[0]]
        return [self._try_in_savepoint(job.work, job.by) for job in jobs]

    def _try_in_savepoint(self, operation: Work, by: str | None) -> JobResult:
        assert isinstance(operation, Operation)
        if not self._connection.in_transaction:
            return DibsError("The transaction ended early.")  # never delivered: see _commit_jobs
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
        """Take SQLite's lock. A running process may overtake the lock queue a few times, so that the lock is seldom
        idle; then it waits for its turn, so that no process waits for long."""
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
        with contextlib.suppress(sqlite3.Error):  # the first error says more
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def _fits_group(job: _Job, group: list[_Job]) -> bool:
    return not group or (isinstance(job.work, Operation) and isinstance(group[0].work, Operation))


def _wakes(job: _Job, answer: JobResult) -> bool:
    return isinstance(job.work, Operation) and isinstance(answer, tuple) and job.work.should_wake(answer[0])


def _by_kind(jobs: list[_Job]) -> Iterable[list[_Job]]:
    """The jobs in lists of operations that can be combined. All jobs wait at the same moment: their order is free."""
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


def _resolve_in_loops(jobs: list[_Job]) -> None:
    loops: dict[asyncio.AbstractEventLoop, list[_LoopJob]] = {}
    for job in jobs:
        if isinstance(job, _LoopJob):
            loops.setdefault(job.loop, []).append(job)
    for loop, its_jobs in loops.items():
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(_resolve, its_jobs)  # one call for all jobs: it wakes the loop by a system call


def _resolve(jobs: list[_LoopJob]) -> None:
    for job in jobs:
        job.resolve()


def pause_of_first(waited: float) -> float:
    """Seconds until the next attempt of the first process in the lock queue, the only one that tries. They grow with
    the wait: the holder of the lock needs the processors."""
    return random.uniform(0.0001, 0.0004 + min(waited, 1.0) / 100)


class _Patience:
    """How often a process tries to take the lock where there is no lock queue (see lock_queue.py), or before its turn.

    The longer a process has waited, the more often it tries: so the oldest waiter is the likeliest to get the lock
    next, and none starves. But the longer the usual wait, the less often every process tries: a long wait means many
    waiters, and fifty that each try every millisecond leave no CPU time to the holder of the lock.
    """

    def __init__(self) -> None:
        self._usual = 0.0

    def learn(self, waited: float) -> None:
        """Update the usual wait with the last one."""
        self._usual += (waited - self._usual) * 0.2

    def pause(self, waited: float) -> float:
        """Seconds until the next attempt."""
        usual = max(self._usual, waited / 4)
        most = min(max(0.005, usual / 10), 0.1)
        return random.uniform(most / 10, max(most / 10, most / (1 + 4 * waited / max(usual, 0.2))))
