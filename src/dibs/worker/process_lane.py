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
from typing import Any

from dibs.errors import ClaimLost, InvalidValue
from dibs.handlers.endings import outcome_of
from dibs.handlers.handler import Handler
from dibs.model.claim import Cancelled, Claim, Failed, Outcome
from dibs.model.task import Failure
from dibs.observe import tracing
from dibs.worker.attempt import Attempt, StopReason
from dibs.worker.child import (
    AttemptEnded,
    DataReply,
    DataRequest,
    GetCheckpoints,
    GetResults,
    HandlerPath,
    HandlerStarted,
    KeepCheckpoint,
    LogEntry,
    ProgressMade,
    RunTask,
    StopRequested,
    main,
    pack,
    unpack,
)
from dibs.worker.config import MEBIBYTE, WorkerConfig
from dibs.worker.lanes import LaneCallbacks, ThreadLane
from dibs.workflow.task_data import TaskData

logger = logging.getLogger("dibs.worker")

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
        handlers: Sequence[Handler[..., Any, Any]],
    ) -> None:
        super().__init__(types, config.children, callbacks)
        self._config = config
        self._paths = {handler.name: _handler_path(handler) for handler in handlers}
        self._local = threading.local()
        self._running: dict[Attempt, ChildProcess] = {}
        self._children: set[ChildProcess] = set()

    def wanted_ahead(self) -> tuple[list[str], int]:
        """Never claim ahead: the run of such a task takes far longer than its claim."""
        return [], 0

    def close(self) -> None:
        """See LaneRunner. The idle children end first, by closing their pipes: the kernel treats the end of the thread
        that started a child as the death of its parent."""
        for child in self._children.copy():
            child.close()
        super().close()

    def _perform(self, attempt: Attempt) -> Outcome:
        attempt.head_start = START_ALLOWANCE
        try:
            child = self._running[attempt] = self._child()
        except OSError as error:  # too many processes or open files: a later attempt may succeed
            return outcome_of(error)
        try:
            outcome = child.run(attempt, self._paths[attempt.handler.name])
        finally:
            del self._running[attempt]
        if child.needs_replacement(self._config):
            child.close()
        if not child.alive:
            self._children.discard(child)
            self._local.child = None
        return outcome

    def _child(self) -> ChildProcess:
        child: ChildProcess | None = getattr(self._local, "child", None)
        if child is None or not child.alive:
            child = self._local.child = ChildProcess(logging.getLogger().getEffectiveLevel(), self._callbacks.task_data)
            self._children.add(child)
        return child

    def _stop(self, attempt: Attempt, reason: StopReason) -> None:
        """Stop the handler; unlike a thread, a process that does not stop can be killed."""
        child = self._running.get(attempt)
        if child is None:
            return
        if reason is not StopReason.CANCELLED:
            child.kill(attempt)
            return
        child.request_stop(attempt)
        timer = threading.Timer(STOP_GRACE, child.kill, [attempt])
        timer.daemon = True
        timer.start()


class ChildProcess:
    """A child process that runs one task at a time, and the pipe to it."""

    def __init__(self, log_level: int, task_data: TaskData) -> None:
        self._task_data = task_data
        context = multiprocessing.get_context("spawn")
        self._pipe, child_end = context.Pipe()
        self._process = context.Process(target=main, args=(child_end, log_level), name="dibs-child")
        self._process.start()
        child_end.close()
        self._lock = threading.Lock()
        self._attempt: Attempt | None = None
        self._sent = self._stop_requested = False
        self._memory = 0
        self.tasks = 0
        self._owner = os.getpid()
        _running_children.add(self)

    @property
    def alive(self) -> bool:
        """True while the child can run tasks."""
        return not self._pipe.closed and self._process.is_alive()

    def run(self, attempt: Attempt, handler: HandlerPath) -> Outcome:
        """Run the attempt in the child and return its outcome; the death of the child is a failed attempt."""
        with self._lock:
            self._attempt, self._sent, self._stop_requested = attempt, False, False
            self.tasks += 1
        try:
            if attempt.context.cancelled:  # during the start of the child; later requests come through `request_stop`
                return Cancelled()
            message = RunTask(handler, attempt.claim, attempt.span and tracing.traceparent(attempt.span))
            self._pipe.send_bytes(pack(message))  # may block, so not under the lock
            self._send_pending_stop()
            return self._listen(attempt)
        except (EOFError, OSError):
            return self._died()
        finally:
            with self._lock:
                self._attempt = None

    def request_stop(self, attempt: Attempt) -> None:
        """Ask the handler to stop, unless the attempt has ended: the next task in this child must not be stopped."""
        with self._lock:
            if self._attempt is attempt:
                self._stop_requested = True
                if self._sent:
                    self._send_stop()

    def kill(self, attempt: Attempt) -> None:
        """Kill the process if the attempt still runs in it."""
        with self._lock:
            if self._attempt is attempt:
                self._process.kill()

    def needs_replacement(self, config: WorkerConfig) -> bool:
        """True when the child has run enough tasks, or has grown too large."""
        too_large = config.recycle_above is not None and self._memory > config.recycle_above * MEBIBYTE
        return too_large or self.tasks >= config.recycle_after

    def close(self) -> None:
        """Close the pipe, after which an idle child ends, and wait for its end."""
        with self._lock:
            if self._attempt is not None:
                return
            self._pipe.close()
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()

    def kill_at_exit(self) -> None:
        """Kill the process, unless another process (from which this one was forked) started it."""
        if self._owner == os.getpid():
            self._process.kill()

    def _send_pending_stop(self) -> None:
        with self._lock:
            self._sent = True
            if self._stop_requested:
                self._send_stop()

    def _send_stop(self) -> None:
        try:
            self._pipe.send_bytes(pack(StopRequested()))
        except OSError:
            logger.debug("the child process ended before the request to stop reached it")

    def _listen(self, attempt: Attempt) -> Outcome:
        while True:
            match unpack(self._receive()):
                case AttemptEnded(outcome, memory):
                    self._memory = memory
                    return outcome
                case HandlerStarted():
                    attempt.begin()
                case ProgressMade() as progress:
                    if progress.is_about(attempt.claim):
                        attempt.context.progress(progress.percent, progress.message)
                case LogEntry() as entry:
                    entry.log()
                case request:
                    self._reply(request, attempt.claim)

    def _reply(self, request: DataRequest, claim: Claim) -> None:
        try:
            reply = DataReply(self._read_or_keep(request, claim))
        except Exception as error:  # raised again in the handler, whatever its type
            reply = DataReply(refused=str(error), lost=isinstance(error, ClaimLost))
        with self._lock:
            self._sent = False  # a request to stop waits until the reply is sent
        self._pipe.send_bytes(pack(reply))
        self._send_pending_stop()

    def _read_or_keep(self, request: DataRequest, claim: Claim) -> Any:
        if not request.is_about(claim):
            raise ClaimLost(
                f"Task {request.task_id} has ended in this process, but a thread that its handler left running asks for"
                " its data.",
                task_id=request.task_id,
                token=request.token,
            )
        match request:
            case GetResults():
                return self._task_data.results(claim)
            case GetCheckpoints():
                return self._task_data.checkpoints(claim)
            case KeepCheckpoint(name=name, value=value):
                return self._task_data.keep(claim, name, value)

    def _receive(self) -> bytes:
        """The next message. A dead child's own children may keep its end of the pipe open, so the process is checked
        too."""
        while not self._pipe.poll(ALIVE_CHECK_INTERVAL):
            if not self._process.is_alive() and not self._pipe.poll():
                raise EOFError
        return self._pipe.recv_bytes()

    def _died(self) -> Outcome:
        self._pipe.close()
        self._process.join(timeout=5)
        code = self._process.exitcode
        if self._stop_requested:
            return Cancelled()
        how = _signal_name(code) if code is not None and code < 0 else f"the exit code {code}"
        return Failed(Failure("ProcessDied", f"The process that ran the task ended with {how}."))


_running_children: weakref.WeakSet[ChildProcess] = weakref.WeakSet()


@atexit.register
def _kill_remaining_children() -> None:
    """Kill the children of a program that ends without stopping its worker: multiprocessing would wait for them for
    ever."""
    for child in list(_running_children):
        child.kill_at_exit()


def _signal_name(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _handler_path(handler: Handler[..., Any, Any]) -> HandlerPath:
    function = handler.function
    if "<" in function.__qualname__:
        raise InvalidValue(
            f"The handler {handler.name!r} ({function.__qualname__}) cannot run in a child process.",
            hint="Define it at the top level of a module, where a new process can import it.",
        )
    return HandlerPath(function.__module__, function.__qualname__)
