"""The lane of child processes: for handlers that hog the CPU, crash, or must be killed when their time is up.

Each place is a thread here and a process there. The parent renews the leases, so nothing a handler does to its own
interpreter can cost them. Children are spawned, never forked: no locks, sockets or database files come along.
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
from dibs.worker.attempt import Attempt, Stop
from dibs.worker.child import (
    Answer,
    Asked,
    AskedCheckpoints,
    AskedResults,
    AskedToKeep,
    Began,
    Ended,
    Logged,
    Noted,
    Place,
    Run,
    Stopping,
    main,
    pack,
    unpack,
)
from dibs.worker.config import MEBIBYTE, WorkerConfig
from dibs.worker.lanes import Duties, ThreadLane
from dibs.workflow.task_data import Shelf

logger = logging.getLogger("dibs.worker")

STOP_WITHIN = 10.0
"""Seconds that a handler has to stop after a request to do so, before its process is killed."""

START_WITHIN = 60.0
"""Seconds that a child has to start and to import its handler, which its task's timeout does not count: if they did,
a task whose timeout is shorter than its imports could never run."""

LOOK_EVERY = 0.5
"""Seconds between two looks whether a silent child still lives."""


class ProcessLane(ThreadLane):
    """Handlers in child processes, one task at a time in each."""

    _thread_name = "process"

    def __init__(
        self, types: Sequence[str], duties: Duties, config: WorkerConfig, handlers: Sequence[Handler[..., Any, Any]]
    ) -> None:
        super().__init__(types, config.children, duties)
        self._config = config
        self._functions = {handler.name: _place(handler) for handler in handlers}
        self._own = threading.local()
        self._running: dict[Attempt, Child] = {}
        self._children: set[Child] = set()

    def wanted_ahead(self) -> tuple[list[str], int]:
        """Nothing: the time of these tasks goes into running them."""
        return [], 0

    def close(self) -> None:
        """See Lane. A child that has nothing to do leaves when its pipe is closed; that comes first, because the kernel
        takes the end of the thread that started a child for the end of its parent."""
        for child in self._children.copy():
            child.dismiss()
        super().close()

    def _perform(self, attempt: Attempt) -> Outcome:
        attempt.head_start = START_WITHIN
        try:
            child = self._running[attempt] = self._child()
        except OSError as error:  # too many processes, or open files: later there may be fewer
            return outcome_of(error)
        try:
            outcome = child.run(attempt, self._functions[attempt.handler.name])
        finally:
            del self._running[attempt]
        if child.worn_out(self._config):
            child.dismiss()
        if not child.alive:
            self._children.discard(child)
            self._own.child = None
        return outcome

    def _child(self) -> Child:
        child: Child | None = getattr(self._own, "child", None)
        if child is None or not child.alive:
            child = self._own.child = Child(logging.getLogger().getEffectiveLevel(), self._duties.shelf)
            self._children.add(child)
        return child

    def _stop(self, attempt: Attempt, why: Stop) -> None:
        """See ThreadLane: a process can be killed."""
        child = self._running.get(attempt)
        if child is None:
            return
        if why is not Stop.CANCELLED:
            child.kill(attempt)
            return
        child.ask_to_stop(attempt)
        timer = threading.Timer(STOP_WITHIN, child.kill, [attempt])
        timer.daemon = True
        timer.start()


class Child:
    """A process that runs one task at a time, and the pipe to it."""

    def __init__(self, log_level: int, shelf: Shelf) -> None:
        self._shelf = shelf
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=main, args=(theirs, log_level), name="dibs-child")
        self._process.start()
        theirs.close()
        self._lock = threading.Lock()
        self._attempt: Attempt | None = None
        self._sent = self._asked = False
        self._memory = 0
        self.tasks = 0
        self._owner = os.getpid()
        _living.add(self)

    @property
    def alive(self) -> bool:
        """True while it can be given tasks."""
        return not self._pipe.closed and self._process.is_alive()

    def run(self, attempt: Attempt, place: Place) -> Outcome:
        """Let the child run the attempt; whatever happens to it becomes an outcome."""
        with self._lock:
            self._attempt, self._sent, self._asked = attempt, False, False
            self.tasks += 1
        try:
            if attempt.context.cancelled:  # while the child was starting; from now on, we are asked
                return Cancelled()
            order = Run(place, attempt.claim, attempt.span and tracing.traceparent(attempt.span))
            self._pipe.send_bytes(pack(order))  # may block, so not under the lock
            self._pass_on_what_was_asked()
            return self._listen(attempt)
        except (EOFError, OSError):
            return self._died()
        finally:
            with self._lock:
                self._attempt = None

    def ask_to_stop(self, attempt: Attempt) -> None:
        """Let the handler know that somebody wants it to stop, if it still runs: the next task is not meant."""
        with self._lock:
            if self._attempt is attempt:
                self._asked = True
                if self._sent:
                    self._send_stop()

    def kill(self, attempt: Attempt) -> None:
        """End the process now, if the attempt still runs in it."""
        with self._lock:
            if self._attempt is attempt:
                self._process.kill()

    def worn_out(self, config: WorkerConfig) -> bool:
        """True when the child has run enough tasks, or has grown too large."""
        too_large = config.recycle_above is not None and self._memory > config.recycle_above * MEBIBYTE
        return too_large or self.tasks >= config.recycle_after

    def dismiss(self) -> None:
        """Let the child go: it leaves when it reads the end of its pipe."""
        with self._lock:
            if self._attempt is not None:
                return
            self._pipe.close()
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()

    def end_with_the_program(self) -> None:
        """Kill the process, unless it is that of a parent from which this program was forked."""
        if self._owner == os.getpid():
            self._process.kill()

    def _pass_on_what_was_asked(self) -> None:
        with self._lock:
            self._sent = True
            if self._asked:
                self._send_stop()

    def _send_stop(self) -> None:
        try:
            self._pipe.send_bytes(pack(Stopping()))
        except OSError:
            logger.debug("the child was gone before it could be asked to stop")

    def _listen(self, attempt: Attempt) -> Outcome:
        while True:
            match unpack(self._receive()):
                case Ended(outcome, memory):
                    self._memory = memory
                    return outcome
                case Began():
                    attempt.begin()
                case Noted() as note:
                    if note.is_of(attempt.claim):
                        attempt.context.progress(note.percent, note.message)
                case Logged() as entry:
                    entry.pass_on()
                case question:
                    self._answer(question, attempt.claim)

    def _answer(self, question: Asked, claim: Claim) -> None:
        try:
            answer = Answer(self._ask_shelf(question, claim))
        except Exception as error:  # the handler's to see, wherever it comes from
            answer = Answer(refused=str(error), lost=isinstance(error, ClaimLost))
        with self._lock:
            self._sent = False  # a request to stop waits until the answer is through
        self._pipe.send_bytes(pack(answer))
        self._pass_on_what_was_asked()

    def _ask_shelf(self, question: Asked, claim: Claim) -> Any:
        if not question.is_of(claim):
            raise ClaimLost(
                f"Task {question.task_id} has ended in this process; a thread that it left behind asks for it.",
                task_id=question.task_id,
                token=question.token,
            )
        match question:
            case AskedResults():
                return self._shelf.results(claim)
            case AskedCheckpoints():
                return self._shelf.checkpoints(claim)
            case AskedToKeep(name=name, value=value):
                return self._shelf.keep(claim, name, value)

    def _receive(self) -> bytes:
        """The next message. Only looking tells that a child is dead whose own children hold its end of the pipe."""
        while not self._pipe.poll(LOOK_EVERY):
            if not self._process.is_alive() and not self._pipe.poll():
                raise EOFError
        return self._pipe.recv_bytes()

    def _died(self) -> Outcome:
        self._pipe.close()
        self._process.join(timeout=5)
        code = self._process.exitcode
        if self._asked:
            return Cancelled()
        how = _signal_name(code) if code is not None and code < 0 else f"the exit code {code}"
        return Failed(Failure("ProcessDied", f"The process that ran the task ended with {how}."))


_living: weakref.WeakSet[Child] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """A program may end without stopping its worker. multiprocessing would then wait for its children, for ever."""
    for child in list(_living):
        child.end_with_the_program()


def _signal_name(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _place(handler: Handler[..., Any, Any]) -> Place:
    function = handler.function
    if "<" in function.__qualname__:
        raise InvalidValue(
            f"The handler {handler.name!r} ({function.__qualname__}) cannot run in a child process.",
            hint="Define it at the top level of a module, where a new process can import it.",
        )
    return Place(function.__module__, function.__qualname__)
