"""The lane of child processes: for handlers that compute for long, crash, or must be killed at their timeout.

Each place is a thread of the worker and a child process. The parent renews the leases, so a handler that blocks its
own interpreter loses no lease. Children are spawned, never forked: they inherit no locks, sockets or database files.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import os
import signal
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from dibs.errors import ClaimLost, InvalidValue, LifespanFailed
from dibs.handlers import running
from dibs.handlers.endings import outcome_of
from dibs.handlers.handler import AnyHandler
from dibs.model.claim import Cancelled, Failed, Outcome, Released
from dibs.model.task import Failure
from dibs.worker.attempt import PROCESS_DIED, Attempt, Batch, HandlerCall, StopReason, now
from dibs.worker.attempt_log import AttemptLog
from dibs.worker.child import (
    AttemptsEnded,
    DataReply,
    DataRequest,
    GetCheckpoints,
    GetExecution,
    GetResults,
    HandlerPath,
    HandlerStarted,
    KeepCheckpoint,
    LifespanBegun,
    LifespanStarted,
    LogEntry,
    PrintedLine,
    ProgressMade,
    RunTask,
    StartLifespan,
    StopRequested,
    main,
    pack,
    unpack,
)
from dibs.worker.config import MEBIBYTE, WorkerConfig
from dibs.worker.lanes import LaneCallbacks, ThreadLane
from dibs.worker.lifespan import LIFESPAN_END_TIMEOUT
from dibs.workflow.task_data import TaskData

logger = logging.getLogger("dibs.worker")

LIFESPAN_START_TIMEOUT = 300.0
"""Seconds for the start of the lifespan of an app in a child process."""

MAIN_GUARD = (
    "The output of the process says why: it imports the program's main module first. A script starts its worker under"
    ' `if __name__ == "__main__":`.'
)
"""The hint about a child process that ended while it imported the program."""

LIFESPAN_RETRY_DELAY = 5.0
"""Seconds after which a task is tried again whose child process could not start the lifespan. The task has not
started, so no attempt is counted."""

CLOSE_TIMEOUT = 5.0
"""Seconds for an idle child process to end, beside those of its lifespan."""

STOP_GRACE = 10.0
"""Seconds between a request to stop and the kill of the process whose handler has not stopped."""

START_ALLOWANCE = 60.0
"""Seconds for the start of a child and the import of its handler. The timeout of the task does not include them:
otherwise a task whose timeout is shorter than its imports could never run."""

ALIVE_CHECK_INTERVAL = 0.5
"""Seconds between two checks whether a child that sends nothing is alive."""


class ProcessLane(ThreadLane):
    """Handlers in child processes, one task at a time in each."""

    _thread_name = "process"

    def __init__(
        self,
        types: Sequence[str],
        callbacks: LaneCallbacks,
        config: WorkerConfig,
        handlers: Sequence[AnyHandler],
    ) -> None:
        super().__init__(types, config.children, callbacks)
        self._config = config
        self._paths = {handler.name: _handler_path(handler) for handler in handlers}
        self._local = threading.local()
        self._running: dict[HandlerCall, ChildProcess] = {}
        self._children: set[ChildProcess] = set()
        self._lifespan = _start_lifespan_message(handlers[0], self._paths[handlers[0].name])
        self._prepared: Future[None] | None = None

    def prepare(self) -> None:
        """Start the first child process and the lifespan in it, so that a lifespan that fails is noticed before any
        task is claimed. Raises LifespanFailed.

        The thread that will use the child starts it: the kernel kills a child when the thread ends that started it."""
        if self._lifespan is not None:
            self._prepared = Future()
            self._start_thread()
            self._prepared.result()

    def _work(self) -> None:
        if self._prepared is not None and not self._prepared.done():  # the first thread of the lane
            try:
                self._child()
            except Exception as error:
                self._prepared.set_exception(error)
            else:
                self._prepared.set_result(None)
        super()._work()

    def wanted_ahead(self) -> tuple[list[str], int]:
        """Never claim ahead: the run of such a task takes far longer than its claim."""
        return [], 0

    def close(self) -> None:
        """See LaneRunner. The idle children end first, by closing their pipes: the kernel treats the end of the thread
        that started a child as the death of its parent."""
        for child in self._children.copy():
            child.close()
        super().close()

    def _perform(self, attempt: HandlerCall) -> Outcome | Sequence[Outcome]:
        for each in attempt.attempts:
            each.head_start = START_ALLOWANCE + (0 if self._lifespan is None else LIFESPAN_START_TIMEOUT)
        try:
            child = self._running[attempt] = self._child()
        except LifespanFailed:
            return Released(LIFESPAN_RETRY_DELAY)
        except OSError as error:  # too many processes or open files: a later attempt may succeed
            return outcome_of(error)
        if isinstance(attempt, Batch):
            attempt.on_attempt_stop = child.request_stop
        try:
            with _observed(attempt):
                outcomes = child.run(attempt.attempts, self._paths[attempt.handler.name])
        finally:
            del self._running[attempt]
        if child.needs_replacement(self._config):
            child.close()
        if not child.alive:
            self._children.discard(child)
            self._local.child = None
        return outcomes if isinstance(attempt, Batch) else outcomes[0]

    def _child(self) -> ChildProcess:
        child: ChildProcess | None = getattr(self._local, "child", None)
        if child is None or not child.alive:
            child = ChildProcess(logging.getLogger().getEffectiveLevel(), self._callbacks.task_data)
            if self._lifespan is not None:
                child.start_lifespan(self._lifespan)
            self._local.child = child
            self._children.add(child)
        return child

    def _stop(self, attempt: HandlerCall, reason: StopReason) -> None:
        """Stop the handler; unlike a thread, a process that does not stop can be killed."""
        child = self._running.get(attempt)
        if child is None:
            return
        if reason is not StopReason.CANCELLED:
            child.kill(attempt.attempts)
            return
        for each in attempt.attempts:
            child.request_stop(each)
        timer = threading.Timer(STOP_GRACE, child.kill, [attempt.attempts])
        timer.daemon = True
        timer.start()


class ChildProcess:
    """A child process that runs one call of a handler at a time, and the pipe to it."""

    def __init__(self, log_level: int, task_data: TaskData) -> None:
        self._task_data = task_data
        context = multiprocessing.get_context("spawn")
        self._pipe, child_end = context.Pipe()
        self._process = context.Process(target=main, args=(child_end, log_level), name="dibs-child")
        self._process.start()
        child_end.close()
        self._lock = threading.Lock()
        self._attempts: dict[tuple[int, int], Attempt] = {}
        self._sent = False
        self._to_stop: list[Attempt] = []
        self._stop_requested: set[Attempt] = set()
        self._memory = 0
        self._close_timeout = CLOSE_TIMEOUT
        self.tasks = 0
        self._owner = os.getpid()
        _running_children.add(self)

    @property
    def alive(self) -> bool:
        """True while the child can run tasks."""
        return not self._pipe.closed and self._process.is_alive()

    def start_lifespan(self, message: StartLifespan) -> None:
        """Start the lifespan of the app in the child. Raises LifespanFailed, and then the child has ended."""
        ends, refused = now() + LIFESPAN_START_TIMEOUT, "it took too long"
        hint: str | None = MAIN_GUARD
        try:
            self._pipe.send_bytes(pack(message))
            while now() < ends:
                match unpack(self._receive(ends)):
                    case LifespanBegun():
                        hint = None
                    case LifespanStarted(refused=None):
                        self._close_timeout += LIFESPAN_END_TIMEOUT
                        return
                    case LifespanStarted(refused=str() as reason):
                        refused = reason
                        break
                    case LogEntry() as entry:
                        entry.log()
        except TimeoutError:
            pass
        except (EOFError, OSError):
            refused = "the process ended" if hint is None else "the process ended before it could run the lifespan"
        self._pipe.close()
        self._process.kill()
        logger.error(
            "the lifespan %s cannot be started in a child process: %s",
            *(message.name, refused),
            extra={"event": "lifespan.failed", "lifespan": message.name},
        )
        raise LifespanFailed(f"The lifespan {message.name} cannot be started in a child process: {refused}", hint=hint)

    def run(self, attempts: Sequence[Attempt], handler: HandlerPath) -> list[Outcome]:
        """Run the attempts in one call in the child and return their outcomes; the death of the child is a failed
        attempt."""
        with self._lock:
            self._attempts = {(each.claim.task_id, each.claim.token): each for each in attempts}
            self._sent, self._to_stop, self._stop_requested = False, [], set()
            self.tasks += 1
        try:
            # requests during the start of the child; later ones come through `request_stop`
            if all(each.context.cancelled for each in attempts):
                return [Cancelled() for _ in attempts]
            message = RunTask(handler, [each.claim for each in attempts], [each.traceparent for each in attempts])
            self._pipe.send_bytes(pack(message))  # may block, so not under the lock
            for each in attempts:
                if each.context.cancelled:
                    self.request_stop(each)
            self._send_pending_stops()
            return self._listen()
        except (EOFError, OSError):
            return self._died(attempts)
        finally:
            with self._lock:
                self._attempts = {}

    def request_stop(self, attempt: Attempt) -> None:
        """Ask the handler to stop, unless the attempt has ended: the next task in this child must not be stopped."""
        with self._lock:
            if self._runs(attempt) and attempt not in self._stop_requested:
                self._stop_requested.add(attempt)
                self._to_stop.append(attempt)
                if self._sent:
                    self._send_stops()

    def kill(self, attempts: Sequence[Attempt]) -> None:
        """Kill the process if these attempts still run in it."""
        with self._lock:
            if any(map(self._runs, attempts)):
                self._process.kill()

    def _runs(self, attempt: Attempt) -> bool:
        return self._attempts.get((attempt.claim.task_id, attempt.claim.token)) is attempt

    def needs_replacement(self, config: WorkerConfig) -> bool:
        """True when the child has run enough tasks, or has grown too large."""
        too_large = config.recycle_above is not None and self._memory > config.recycle_above * MEBIBYTE
        return too_large or self.tasks >= config.recycle_after

    def close(self) -> None:
        """Close the pipe, after which an idle child ends, and wait for its end."""
        with self._lock:
            if self._attempts:
                return
            self._pipe.close()
        self._process.join(timeout=self._close_timeout)
        if self._process.is_alive():
            self._process.kill()

    def kill_at_exit(self) -> None:
        """Kill the process, unless another process (from which this one was forked) started it."""
        if self._owner == os.getpid():
            self._process.kill()

    def _send_pending_stops(self) -> None:
        with self._lock:
            self._sent = True
            self._send_stops()

    def _send_stops(self) -> None:
        try:
            for attempt in self._to_stop:
                self._pipe.send_bytes(pack(StopRequested(attempt.claim.task_id, attempt.claim.token)))
        except OSError:
            logger.debug("the child process ended before the request to stop reached it")
        self._to_stop = []

    def _listen(self) -> list[Outcome]:
        while True:
            match unpack(self._receive()):
                case AttemptsEnded(outcomes, memory):
                    self._memory = memory
                    return outcomes
                case HandlerStarted():
                    for attempt in self._attempts.values():
                        attempt.begin()
                case ProgressMade() as progress:
                    self._report(progress)
                case PrintedLine() as printed:
                    self._print(printed)
                case LogEntry() as entry:
                    self._log(entry)
                case GetResults() | GetExecution() | GetCheckpoints() | KeepCheckpoint() as request:
                    self._reply(request)

    def _report(self, progress: ProgressMade) -> None:
        if (attempt := self._attempts.get(progress.claim_key)) is not None:
            attempt.context.progress(progress.percent, progress.message)

    def _print(self, printed: PrintedLine) -> None:
        attempt = self._attempts.get(printed.claim_key)
        if attempt is not None and isinstance(attempt.context.sink, AttemptLog):
            attempt.context.sink.print_line(printed.stream, printed.text)

    def _log(self, entry: LogEntry) -> None:
        """Log the entry in the attempt, unless a thread has logged it that belongs to no attempt or an earlier one."""
        with nullcontext() if entry.attempt in self._attempts else running.no_attempt():
            entry.log()

    def _reply(self, request: DataRequest) -> None:
        try:
            reply = DataReply(self._read_or_keep(request))
        except Exception as error:  # raised again in the handler, whatever its type
            reply = DataReply(refused=str(error), lost=isinstance(error, ClaimLost))
        with self._lock:
            self._sent = False  # a request to stop waits until the reply is sent
        self._pipe.send_bytes(pack(reply))
        self._send_pending_stops()

    def _read_or_keep(self, request: DataRequest) -> Any:
        if (attempt := self._attempts.get(request.claim_key)) is None:
            raise ClaimLost(
                f"Task {request.task_id} has ended in this process, but a thread that its handler left running asks for"
                " its data.",
                task_id=request.task_id,
                token=request.token,
            )
        claim = attempt.claim
        match request:
            case GetResults():
                return self._task_data.results(claim)
            case GetExecution():
                return self._task_data.execution(claim)
            case GetCheckpoints():
                return self._task_data.checkpoints(claim)
            case KeepCheckpoint(name=name, value=value):
                return self._task_data.keep(claim, name, value)

    def _receive(self, ends: float | None = None) -> bytes:
        """The next message. A dead child's own children may keep its end of the pipe open, so the process is checked
        too. Raises TimeoutError after `ends`."""
        while not self._pipe.poll(ALIVE_CHECK_INTERVAL):
            if ends is not None and now() >= ends:
                raise TimeoutError
            if not self._process.is_alive() and not self._pipe.poll():
                raise EOFError
        return self._pipe.recv_bytes()

    def _died(self, attempts: Sequence[Attempt]) -> list[Outcome]:
        self._pipe.close()
        self._process.join(timeout=5)
        code = self._process.exitcode
        how = _signal_name(code) if code is not None and code < 0 else f"the exit code {code}"
        failed = Failed(Failure(PROCESS_DIED, f"The process that ran the task ended with {how}."))
        return [Cancelled() if each in self._stop_requested else failed for each in attempts]


_running_children: weakref.WeakSet[ChildProcess] = weakref.WeakSet()


@atexit.register
def _kill_remaining_children() -> None:
    """Kill the children of a program that ends without stopping its worker: multiprocessing would wait for them for
    ever."""
    for child in list(_running_children):
        child.kill_at_exit()


def _observed(call: HandlerCall) -> AbstractContextManager[None]:
    """A context manager in which entries of the child are logged as entries of the attempt. A call with several
    attempts has none: an entry is not the entry of one of them."""
    if isinstance(call, Batch) or not running.is_observed(call.context):
        return nullcontext()
    return running.ObservedAttempt(call.context)


def _signal_name(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _start_lifespan_message(handler: AnyHandler, path: HandlerPath) -> StartLifespan | None:
    lifespan = None if handler.hooks is None else handler.hooks.lifespan
    return None if lifespan is None else StartLifespan(path, lifespan.name, lifespan.module)


def _handler_path(handler: AnyHandler) -> HandlerPath:
    function = handler.function
    if "<" in function.__qualname__:
        raise InvalidValue(
            f"The handler {handler.name!r} ({function.__qualname__}) cannot run in a child process.",
            hint="Define it at the top level of a module, where a new process can import it.",
        )
    around = handler.middleware
    if around is None:
        return HandlerPath(function.__module__, function.__qualname__)
    return HandlerPath(function.__module__, function.__qualname__, around.names, around.modules)
